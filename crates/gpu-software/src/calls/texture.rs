//! Arrays, textures and surfaces: objects, and the older references; tensor maps.

use std::sync::Arc;

use causeway_api::handle::{Array, MipmappedArray, Module, Native, SurfaceReference, TextureReference};
use causeway_api::sys::{
    CU_TRSA_OVERRIDE_FORMAT, CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUaddress_mode, CUarray_format, CUdevice, CUdeviceptr,
    CUfilter_mode, CUresult, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill,
    CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};
use causeway_api::types::{TextureSource, channel_bytes};
use causeway_gpu::calls::{ArrayCalls, TextureCalls};
use causeway_gpu::{CuResult, NativeSource};

use crate::tensor_map::{self, Tiled};
use crate::texture_references::{Kind, Reference};
use crate::textures::Object;
use crate::{SoftwareGpu, texture, texture_limits};

impl TextureCalls for SoftwareGpu {
    fn texture_create(
        &self,
        source: NativeSource,
        description: &CUDA_TEXTURE_DESC,
        view: Option<&CUDA_RESOURCE_VIEW_DESC>,
    ) -> CuResult<u64> {
        let context = self.contexts.current()?;
        let texture = texture::texture(&self.space, &self.arrays, &source, description, view)?;
        Ok(self.textures().add(context.id, Object::Texture(Arc::new(texture))))
    }

    fn surface_create(&self, source: NativeSource) -> CuResult<u64> {
        let context = self.contexts.current()?;
        let surface = texture::surface(&self.space, &self.arrays, &source)?;
        Ok(self.textures().add(context.id, Object::Surface(surface)))
    }

    fn texture_destroy(&self, object: u64) -> CuResult<()> {
        self.textures().remove(object).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn surface_destroy(&self, object: u64) -> CuResult<()> {
        self.textures().remove(object).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn cuTensorMapEncodeTiled(
        &self,
        data_type: CUtensorMapDataType,
        _rank: u32,
        address: CUdeviceptr,
        dims: &[u64],
        strides: &[u64],
        box_dims: &[u32],
        element_strides: &[u32],
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        _promotion: CUtensorMapL2promotion,
        fill: CUtensorMapFloatOOBfill,
    ) -> CuResult<CUtensorMap> {
        tensor_map::encode(&Tiled {
            data_type,
            address,
            dims,
            strides,
            box_dims,
            element_strides,
            interleave,
            swizzle,
            fill,
        })
    }

    fn cuTensorMapReplaceAddress(&self, map: &CUtensorMap, address: CUdeviceptr) -> CuResult<CUtensorMap> {
        tensor_map::with_address(map, address)
    }

    fn cuDeviceGetTexture1DLinearMaxWidth(
        &self,
        format: CUarray_format,
        channels: u32,
        device: CUdevice,
    ) -> CuResult<usize> {
        self.check_device(device)?;
        match (channel_bytes(format), channels) {
            (Some(_), 1 | 2 | 4) => Ok(texture_limits::LINEAR as usize),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuModuleGetTexRef(&self, module: Native<Module>, name: &str) -> CuResult<Native<TextureReference>> {
        let (context, address) = self.modules.module_reference(module.value(), name, false)?;
        let id = self.references.of_variable(Kind::Texture, context, module.value(), address);
        Ok(Native::from_value(id))
    }

    fn cuModuleGetSurfRef(&self, module: Native<Module>, name: &str) -> CuResult<Native<SurfaceReference>> {
        let (context, address) = self.modules.module_reference(module.value(), name, true)?;
        let id = self.references.of_variable(Kind::Surface, context, module.value(), address);
        Ok(Native::from_value(id))
    }

    fn cuTexRefCreate(&self) -> CuResult<Native<TextureReference>> {
        let context = self.contexts.current()?;
        Ok(Native::from_value(self.references.of_no_variable(context.id)))
    }

    fn cuTexRefDestroy(&self, reference: Native<TextureReference>) -> CuResult<()> {
        self.references.destroy(reference.value())
    }

    fn cuTexRefSetArray(
        &self,
        reference: Native<TextureReference>,
        array: Native<Array>,
        flags: u32,
    ) -> CuResult<()> {
        let descriptor = self.arrays.get(array.value())?.descriptor;
        if flags != CU_TRSA_OVERRIDE_FORMAT {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.change_texture(reference, |reference| {
            reference.source = Some(TextureSource::Array(array));
            (reference.format, reference.channels) = (descriptor.Format, descriptor.NumChannels);
        })
    }

    fn cuTexRefSetMipmappedArray(
        &self,
        reference: Native<TextureReference>,
        array: Native<MipmappedArray>,
        flags: u32,
    ) -> CuResult<()> {
        self.arrays.levels(array.value())?;
        if flags != CU_TRSA_OVERRIDE_FORMAT {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.change_texture(reference, |reference| reference.source = Some(TextureSource::Mipmapped(array)))
    }

    fn cuTexRefSetAddress_v2(
        &self,
        reference: Native<TextureReference>,
        address: CUdeviceptr,
        bytes: usize,
    ) -> CuResult<usize> {
        // The kernel adds the offset to its indices.
        let offset = address % texture_limits::ALIGNMENT;
        let (address, bytes) = (address - offset, bytes as u64 + offset);
        self.change_texture(reference, |reference| {
            let (format, channels) = (reference.format, reference.channels);
            reference.source =
                (address != 0).then_some(TextureSource::Linear { address, format, channels, bytes });
        })?;
        Ok(offset as usize)
    }

    fn cuTexRefSetAddress2D_v3(
        &self,
        reference: Native<TextureReference>,
        descriptor: &CUDA_ARRAY_DESCRIPTOR,
        address: CUdeviceptr,
        pitch: usize,
    ) -> CuResult<()> {
        let source = TextureSource::Rows {
            address,
            format: descriptor.Format,
            channels: descriptor.NumChannels,
            width: descriptor.Width as u64,
            height: descriptor.Height as u64,
            pitch: pitch as u64,
        };
        texture::check(&self.space, &self.arrays, &source)?;
        self.change_texture(reference, |reference| reference.source = Some(source))
    }

    fn cuTexRefSetFormat(
        &self,
        reference: Native<TextureReference>,
        wanted: CUarray_format,
        numbers: i32,
    ) -> CuResult<()> {
        if channel_bytes(wanted).is_none() || !matches!(numbers, 1 | 2 | 4) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.change_texture(reference, |reference| {
            (reference.format, reference.channels) = (wanted, numbers.cast_unsigned());
            if let Some(TextureSource::Linear { format, channels, .. }) = &mut reference.source {
                (*format, *channels) = (reference.format, reference.channels);
            }
        })
    }

    fn cuTexRefSetAddressMode(
        &self,
        reference: Native<TextureReference>,
        dimension: i32,
        mode: CUaddress_mode,
    ) -> CuResult<()> {
        if !(0..3).contains(&dimension) || mode.0 > CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER.0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.change_texture(reference, |it| it.description.addressMode[dimension as usize] = mode)
    }

    fn cuTexRefSetFilterMode(
        &self,
        reference: Native<TextureReference>,
        mode: CUfilter_mode,
    ) -> CuResult<()> {
        check_filter(mode)?;
        self.change_texture(reference, |it| it.description.filterMode = mode)
    }

    fn cuTexRefSetMipmapFilterMode(
        &self,
        reference: Native<TextureReference>,
        mode: CUfilter_mode,
    ) -> CuResult<()> {
        check_filter(mode)?;
        self.change_texture(reference, |it| it.description.mipmapFilterMode = mode)
    }

    fn cuTexRefSetMipmapLevelBias(&self, reference: Native<TextureReference>, bias: f32) -> CuResult<()> {
        self.change_texture(reference, |it| it.description.mipmapLevelBias = bias)
    }

    fn cuTexRefSetMipmapLevelClamp(
        &self,
        reference: Native<TextureReference>,
        lowest: f32,
        highest: f32,
    ) -> CuResult<()> {
        self.change_texture(reference, |it| {
            it.description.minMipmapLevelClamp = lowest;
            it.description.maxMipmapLevelClamp = highest;
        })
    }

    fn cuTexRefSetMaxAnisotropy(&self, reference: Native<TextureReference>, max: u32) -> CuResult<()> {
        self.change_texture(reference, |it| it.description.maxAnisotropy = max)
    }

    fn cuTexRefSetBorderColor(&self, reference: Native<TextureReference>, color: &[f32]) -> CuResult<()> {
        let color = color.try_into().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.change_texture(reference, |it| it.description.borderColor = color)
    }

    fn cuTexRefSetFlags(&self, reference: Native<TextureReference>, flags: u32) -> CuResult<()> {
        self.change_texture(reference, |it| it.description.flags = flags)
    }

    fn cuTexRefGetAddress_v2(&self, reference: Native<TextureReference>) -> CuResult<CUdeviceptr> {
        match self.references.get(Kind::Texture, reference.value())?.source {
            Some(TextureSource::Linear { address, .. } | TextureSource::Rows { address, .. }) => Ok(address),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuTexRefGetAddressMode(
        &self,
        reference: Native<TextureReference>,
        dimension: i32,
    ) -> CuResult<CUaddress_mode> {
        let modes = self.described(reference)?.addressMode;
        let dimension = usize::try_from(dimension).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        modes.get(dimension).copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn cuTexRefGetFilterMode(&self, reference: Native<TextureReference>) -> CuResult<CUfilter_mode> {
        Ok(self.described(reference)?.filterMode)
    }

    fn cuTexRefGetFormat(&self, reference: Native<TextureReference>) -> CuResult<(CUarray_format, i32)> {
        let reference = self.references.get(Kind::Texture, reference.value())?;
        Ok((reference.format, reference.channels.cast_signed()))
    }

    fn cuTexRefGetMipmapFilterMode(&self, reference: Native<TextureReference>) -> CuResult<CUfilter_mode> {
        Ok(self.described(reference)?.mipmapFilterMode)
    }

    fn cuTexRefGetMipmapLevelBias(&self, reference: Native<TextureReference>) -> CuResult<f32> {
        Ok(self.described(reference)?.mipmapLevelBias)
    }

    fn cuTexRefGetMipmapLevelClamp(&self, reference: Native<TextureReference>) -> CuResult<(f32, f32)> {
        let description = self.described(reference)?;
        Ok((description.minMipmapLevelClamp, description.maxMipmapLevelClamp))
    }

    fn cuTexRefGetMaxAnisotropy(&self, reference: Native<TextureReference>) -> CuResult<i32> {
        Ok(self.described(reference)?.maxAnisotropy.cast_signed())
    }

    fn cuTexRefGetBorderColor(&self, reference: Native<TextureReference>) -> CuResult<Vec<f32>> {
        Ok(self.described(reference)?.borderColor.to_vec())
    }

    fn cuTexRefGetFlags(&self, reference: Native<TextureReference>) -> CuResult<u32> {
        Ok(self.described(reference)?.flags)
    }

    fn cuSurfRefSetArray(
        &self,
        reference: Native<SurfaceReference>,
        array: Native<Array>,
        flags: u32,
    ) -> CuResult<()> {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut changed = self.references.get(Kind::Surface, reference.value())?;
        let source = TextureSource::Array(array);
        texture::check(&self.space, &self.arrays, &source)?;
        changed.source = Some(source);
        self.set_reference(reference.value(), changed);
        Ok(())
    }
}

impl SoftwareGpu {
    /// Changes a texture reference, and binds what it names as it is then.
    fn change_texture(
        &self,
        reference: Native<TextureReference>,
        change: impl FnOnce(&mut Reference),
    ) -> CuResult<()> {
        let mut changed = self.references.get(Kind::Texture, reference.value())?;
        change(&mut changed);
        self.set_reference(reference.value(), changed);
        Ok(())
    }

    fn set_reference(&self, id: u64, reference: Reference) {
        self.references.set(id, reference, (&self.space, &self.arrays, self.textures()));
    }

    fn described(&self, reference: Native<TextureReference>) -> CuResult<CUDA_TEXTURE_DESC> {
        Ok(self.references.get(Kind::Texture, reference.value())?.description)
    }
}

fn check_filter(mode: CUfilter_mode) -> CuResult<()> {
    match mode {
        CUfilter_mode::CU_TR_FILTER_MODE_POINT | CUfilter_mode::CU_TR_FILTER_MODE_LINEAR => Ok(()),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

impl ArrayCalls for SoftwareGpu {
    fn cuArray3DCreate_v2(&self, descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CuResult<Native<Array>> {
        let context = self.contexts.current()?;
        self.arrays.create(&self.memory, &context, descriptor).map(Native::from_value)
    }

    fn cuArray3DGetDescriptor_v2(&self, array: Native<Array>) -> CuResult<CUDA_ARRAY3D_DESCRIPTOR> {
        Ok(self.arrays.get(array.value())?.descriptor)
    }

    fn cuArrayGetMemoryRequirements(
        &self,
        array: Native<Array>,
        device: CUdevice,
    ) -> CuResult<CUDA_ARRAY_MEMORY_REQUIREMENTS> {
        self.check_device(device)?;
        self.arrays.requirements(array.value())
    }

    fn cuArrayDestroy(&self, array: Native<Array>) -> CuResult<()> {
        self.arrays.destroy(&self.memory, array.value())
    }

    fn cuMipmappedArrayCreate(
        &self,
        descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
    ) -> CuResult<Native<MipmappedArray>> {
        let context = self.contexts.current()?;
        self.arrays.create_mipmapped(&self.memory, &context, descriptor, levels).map(Native::from_value)
    }

    fn cuMipmappedArrayGetLevel(&self, array: Native<MipmappedArray>, level: u32) -> CuResult<Native<Array>> {
        self.arrays.level(array.value(), level).map(Native::from_value)
    }

    fn cuMipmappedArrayDestroy(&self, array: Native<MipmappedArray>) -> CuResult<()> {
        self.arrays.destroy_mipmapped(&self.memory, array.value())
    }
}
