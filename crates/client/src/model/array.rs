//! Arrays as the client knows them: their descriptors, so that copies are checked here; texture and surface
//! objects, and bindings of the older references.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use causeway_api::handle::{Array, Context, Handle, MipmappedArray};
use causeway_api::sys::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUarray,
    CUresult,
};
use causeway_api::types::{ArrayBox, channel_bytes};

use crate::locks::{Mutex, OnceMap, rank};
use crate::model::handles::{self, RawHandle as _};

/// What the client keeps of an array.
pub struct ArrayState {
    /// Its handle.
    pub handle: Handle<Array>,
    /// The context it belongs to.
    pub context: Handle<Context>,
    /// As the program or the server described it.
    pub descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    /// Whether the array is a level or a plane of something else, which it ends with.
    is_part: bool,
}

/// What the client keeps of a mipmapped array.
pub struct MipmappedState {
    /// The context it belongs to.
    pub context: Handle<Context>,
    /// The levels that the program has asked for.
    pub levels: OnceMap<rank::ArrayLevels, u32, Handle<Array>>,
}

impl handles::Object for ArrayState {
    type Kind = Array;
}

impl handles::Object for MipmappedState {
    type Kind = MipmappedArray;
}

/// The context that an array belongs to, as far as it is known.
pub fn context_of(array: Handle<Array>) -> Option<Handle<Context>> {
    handles::get::<ArrayState>(array).ok().map(|state| state.context)
}

impl ArrayState {
    /// Bytes of an element, where elements lie side by side.
    pub fn element_bytes(&self) -> Option<u64> {
        Some(channel_bytes(self.descriptor.Format)? * u64::from(self.descriptor.NumChannels))
    }

    /// A box of it; `offset` and `size` are in bytes, rows and slices. One that does not fit is refused.
    pub fn part(&self, offset: [usize; 3], size: [usize; 3]) -> Result<ArrayBox<Handle<Array>>, CUresult> {
        let ([x, y, z], [width, height, depth]) = (offset.map(|at| at as u64), size.map(|size| size as u64));
        if let Some(element) = self.element_bytes() {
            let extent = [
                (self.descriptor.Width as u64).saturating_mul(element),
                self.descriptor.Height.max(1) as u64,
                self.descriptor.Depth.max(1) as u64,
            ];
            let fits = [(x, width), (y, height), (z, depth)]
                .iter()
                .zip(extent)
                .all(|((at, size), limit)| at.checked_add(*size).is_some_and(|end| end <= limit));
            if !fits || !x.is_multiple_of(element) || !width.is_multiple_of(element) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(ArrayBox { array: self.handle, x, y, z, width, height, depth })
    }
}

/// Bytes of an element of an array that the client knows, where elements lie side by side.
pub fn element_bytes(array: Handle<Array>) -> Option<u64> {
    handles::get::<ArrayState>(array).ok()?.element_bytes()
}

/// Notes a new array.
pub fn add(
    handle: Handle<Array>,
    context: Handle<Context>,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    is_part: bool,
) {
    handles::insert(handle, Arc::new(ArrayState { handle, context, descriptor, is_part }));
}

/// The array that the program passed.
pub fn resolve(raw: CUarray) -> Result<Arc<ArrayState>, CUresult> {
    handles::get::<ArrayState>(Handle::from_raw(raw))
}

/// Takes out an array that the program destroys; levels and planes cannot be.
pub fn take(raw: CUarray) -> Result<Arc<ArrayState>, CUresult> {
    let state = resolve(raw)?;
    if state.is_part {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    forget(state.handle);
    Ok(state)
}

fn forget(array: Handle<Array>) {
    handles::remove::<ArrayState>(array);
    handles::drop_handle(array);
}

/// Notes a new mipmapped array.
pub fn add_mipmapped(handle: Handle<MipmappedArray>, context: Handle<Context>) {
    handles::insert(handle, Arc::new(MipmappedState { context, levels: OnceMap::new() }));
}

/// What is kept of a mipmapped array.
pub fn mipmapped(handle: Handle<MipmappedArray>) -> Result<Arc<MipmappedState>, CUresult> {
    handles::get::<MipmappedState>(handle)
}

/// Takes out a mipmapped array that the program destroys, and its levels with it; gives its context.
pub fn take_mipmapped(handle: Handle<MipmappedArray>) -> Result<Handle<Context>, CUresult> {
    let state = handles::remove::<MipmappedState>(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(handle);
    state.levels.values().into_iter().for_each(forget);
    Ok(state.context)
}

/// Forgets the arrays of a context that ends.
pub fn context_ends(context: Handle<Context>) {
    for (handle, _) in handles::select::<ArrayState>(|array| array.context == context) {
        forget(handle);
    }
    for (handle, _) in handles::select::<MipmappedState>(|array| array.context == context) {
        handles::remove::<MipmappedState>(handle);
        handles::drop_handle(handle);
    }
}

/// What a texture object was made from.
#[derive(Clone, Copy)]
pub struct Texture {
    /// Where its values lie.
    pub source: CUDA_RESOURCE_DESC,
    /// How they are read.
    pub sampling: CUDA_TEXTURE_DESC,
    /// What of the source it is, if not all.
    pub view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

// SAFETY: the handles in the descriptions are numbers of this library and are never followed.
unsafe impl Send for Texture {}

/// What a surface object was made from.
#[derive(Clone, Copy)]
pub struct Surface(pub CUDA_RESOURCE_DESC);

// SAFETY: the handles in the descriptions are numbers of this library and are never followed.
unsafe impl Send for Surface {}

/// What a reference is bound to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// An array.
    Array(Handle<Array>),
    /// A mipmapped array.
    Mipmapped(Handle<MipmappedArray>),
}

/// By context and number.
pub type Objects<T> = LazyLock<Mutex<rank::Textures, HashMap<(Handle<Context>, u64), T>>>;

/// What the program has made to read and write arrays by.
pub struct Textures {
    /// Texture objects.
    pub objects: Objects<Texture>,
    /// Surface objects.
    pub surfaces: Objects<Surface>,
    /// What references are bound to, by the handle of the texture or surface reference.
    pub bound: LazyLock<Mutex<rank::TextureReferences, HashMap<u64, Bound>>>,
}

/// Those of the process.
pub static TEXTURES: Textures = Textures {
    objects: LazyLock::new(Mutex::default),
    surfaces: LazyLock::new(Mutex::default),
    bound: LazyLock::new(Mutex::default),
};

/// Forgets the objects of a context that ends.
pub fn unbind_textures(context: Handle<Context>) {
    TEXTURES.objects.lock().retain(|(owner, _), _| *owner != context);
    TEXTURES.surfaces.lock().retain(|(owner, _), _| *owner != context);
}

#[cfg(test)]
mod tests {
    use causeway_api::sys::CUarray_format as Format;

    use super::*;

    #[test]
    fn boxes_must_lie_in_the_array_and_on_elements() {
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            Width: 10,
            Height: 4,
            Format: Format::CU_AD_FORMAT_FLOAT,
            NumChannels: 2,
            ..Default::default()
        };
        let mut array =
            ArrayState { handle: Handle::new(1, 0), context: Handle::NULL, descriptor, is_part: false };
        assert_eq!(array.element_bytes(), Some(8));
        assert!(array.part([8, 1, 0], [72, 3, 1]).is_ok());
        for (offset, size) in [
            ([16, 0, 0], [72, 1, 1]),
            ([0, 1, 0], [8, 4, 1]),
            ([0, 0, 1], [8, 1, 1]),
            ([4, 0, 0], [8, 1, 1]),
            ([0, 0, 0], [12, 1, 1]),
            ([usize::MAX, 0, 0], [8, 1, 1]),
        ] {
            assert!(array.part(offset, size).is_err(), "{offset:?} {size:?}");
        }
        array.descriptor.Format = Format::CU_AD_FORMAT_BC1_UNORM;
        assert!(array.part([0; 3], [1000, 1, 1]).is_ok(), "the server judges");
    }
}
