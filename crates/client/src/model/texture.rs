//! Texture and surface objects, and bindings of the older references.

use crate::locks::{Mutex, rank};
use causeway_api::handle::{Array, Context, Handle, MipmappedArray};
use causeway_api::sys::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC};
use std::collections::HashMap;
use std::sync::LazyLock;

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

// SAFETY: as above.
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
pub fn context_ends(context: Handle<Context>) {
    TEXTURES.objects.lock().retain(|(owner, _), _| *owner != context);
    TEXTURES.surfaces.lock().retain(|(owner, _), _| *owner != context);
}
