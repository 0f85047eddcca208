//! Arrays, and the textures and surfaces that look into them.

use crate::context;
use crate::driver::Driver;
use causeway_api::sys::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresourcetype, CUresult,
};
use causeway_api::types::TextureSource;
use causeway_gpu::calls::{ArrayCalls, TextureCalls};
use causeway_gpu::{CuResult, NativeSource};

fn description(source: &NativeSource) -> CUDA_RESOURCE_DESC {
    let mut description = CUDA_RESOURCE_DESC::default();
    match *source {
        TextureSource::Array(array) => {
            description.resType = CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
            description.res.array.hArray = array.as_raw();
        }
        TextureSource::Mipmapped(array) => {
            description.resType = CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
            description.res.mipmap.hMipmappedArray = array.as_raw();
        }
        TextureSource::Linear { address, format, channels, bytes } => {
            description.resType = CUresourcetype::CU_RESOURCE_TYPE_LINEAR;
            description.res.linear.devPtr = address;
            description.res.linear.format = format;
            description.res.linear.numChannels = channels;
            description.res.linear.sizeInBytes = bytes as usize;
        }
        TextureSource::Rows { address, format, channels, width, height, pitch } => {
            description.resType = CUresourcetype::CU_RESOURCE_TYPE_PITCH2D;
            description.res.pitch2D.devPtr = address;
            description.res.pitch2D.format = format;
            description.res.pitch2D.numChannels = channels;
            description.res.pitch2D.width = width as usize;
            description.res.pitch2D.height = height as usize;
            description.res.pitch2D.pitchInBytes = pitch as usize;
        }
    }
    description
}

impl ArrayCalls for Driver {
    causeway_api_macros::driver_calls!(array);
}

impl TextureCalls for Driver {
    causeway_api_macros::driver_calls!(texture);

    fn texture_create(
        &self,
        source: NativeSource,
        texture: &CUDA_TEXTURE_DESC,
        view: Option<&CUDA_RESOURCE_VIEW_DESC>,
    ) -> CuResult<u64> {
        let context = context::current(self.functions)?;
        let (source, mut object) = (description(&source), 0);
        let view = view.map_or(core::ptr::null(), |view| view);
        // SAFETY: the descriptions live during the call, and the handle in the first is the driver's own.
        unsafe { self.functions.cuTexObjectCreate(&mut object, &source, texture, view)? };
        self.textures.textures.lock().insert((context, object));
        Ok(object)
    }

    fn surface_create(&self, source: NativeSource) -> CuResult<u64> {
        let context = context::current(self.functions)?;
        let (source, mut object) = (description(&source), 0);
        // SAFETY: the description lives during the call, and the handle in it is the driver's own.
        unsafe { self.functions.cuSurfObjectCreate(&mut object, &source)? };
        self.textures.surfaces.lock().insert((context, object));
        Ok(object)
    }

    fn texture_destroy(&self, object: u64) -> CuResult<()> {
        if !self.textures.textures.lock().remove(&(context::current(self.functions)?, object)) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the object exists; no pointers take part.
        unsafe { self.functions.cuTexObjectDestroy(object) }
    }

    fn surface_destroy(&self, object: u64) -> CuResult<()> {
        if !self.textures.surfaces.lock().remove(&(context::current(self.functions)?, object)) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the object exists; no pointers take part.
        unsafe { self.functions.cuSurfObjectDestroy(object) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::handle::Native;
    use causeway_api::sys::CUarray_format;

    #[test]
    fn each_source_becomes_its_form_of_the_description() {
        let array = description(&TextureSource::Array(Native::from_value(0x77)));
        assert_eq!(array.resType, CUresourcetype::CU_RESOURCE_TYPE_ARRAY);
        // SAFETY: the form is that of an array.
        assert_eq!(unsafe { array.res.array.hArray } as usize, 0x77);
        let format = CUarray_format::CU_AD_FORMAT_FLOAT;
        let rows = TextureSource::Rows { address: 64, format, channels: 4, width: 5, height: 6, pitch: 128 };
        let rows = description(&rows);
        assert_eq!(rows.resType, CUresourcetype::CU_RESOURCE_TYPE_PITCH2D);
        // SAFETY: the form is that of rows.
        let rows = unsafe { rows.res.pitch2D };
        assert_eq!(
            (rows.devPtr, rows.numChannels, rows.width, rows.height, rows.pitchInBytes),
            (64, 4, 5, 6, 128)
        );
    }
}
