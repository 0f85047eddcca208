//! What compiled code calls for instructions of textures and surfaces.
//!
//! As all functions that compiled code calls they may be abandoned where they read device memory, so they hold
//! no lock and own nothing: handles are looked up in what the launch holds.

use super::context::{Raised, ThreadContext};
use super::functions::raise;
use crate::texture::{
    Boundary, Coordinates, Detail, Geometry, OutOfBounds, Query, Surface, Texture, TexturePosition,
    of_surface, of_texture,
};

/// What compiled code passes and gets, in a slot of its stack. All fields up to `result` are written before
/// each call that reads them.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) handle: u64,
    pub(crate) geometry: Geometry,
    pub(crate) layer: u32,
    /// Floating-point numbers or integers.
    pub(crate) coordinates: [u32; 3],
    /// How the level is chosen.
    pub(crate) detail: DetailKind,
    /// A level, which may be an integer, or two gradients.
    pub(crate) levels: [f32; 6],
    /// What a fetch gives.
    pub(crate) texel: [u32; 4],
    /// The numbers of a surface's load or store.
    pub(crate) numbers: [u64; 4],
}

/// What an instruction says of the level; the numbers are what compiled code passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum DetailKind {
    Base,
    Level,
    Gradients,
    /// The coordinates are integers.
    Texel,
    /// Coordinates and level are.
    TexelOfLevel,
}

impl Request {
    fn texture_position(&self) -> TexturePosition {
        let [x, y, z] = self.coordinates;
        let coordinates = match self.detail {
            DetailKind::Texel | DetailKind::TexelOfLevel => {
                Coordinates::Integers([x, y, z].map(u32::cast_signed))
            }
            _ => Coordinates::Floats([x, y, z].map(f32::from_bits)),
        };
        // Only what was passed is read.
        let detail = match self.detail {
            DetailKind::Base | DetailKind::Texel => Detail::Base,
            DetailKind::Level => Detail::Level(self.levels[0]),
            DetailKind::TexelOfLevel => Detail::Number(self.levels[0].to_bits().cast_signed()),
            DetailKind::Gradients => {
                let step = |first: usize| {
                    let axes = self.geometry.axes();
                    std::array::from_fn(|axis| if axis < axes { self.levels[first + axis] } else { 0.0 })
                };
                Detail::Gradients([step(0), step(3)])
            }
        };
        TexturePosition { geometry: self.geometry, coordinates, layer: self.layer, detail }
    }
}

/// The texture of a handle.
///
/// # Safety
/// As for [`raise`]; the launch holds the texture until it ends.
unsafe fn texture<'a>(thread: *mut ThreadContext, handle: u64) -> &'a Texture {
    // SAFETY: the launch outlives its threads.
    match unsafe { (*(*thread).launch).host.texture(handle) } {
        Some(texture) => texture,
        // SAFETY: compiled code passes the context of the running thread.
        None => unsafe { raise(thread, Raised::NoObject { what: "texture", handle }) },
    }
}

/// The surface of a handle.
///
/// # Safety
/// As for [`texture`].
unsafe fn surface<'a>(thread: *mut ThreadContext, handle: u64) -> &'a Surface {
    // SAFETY: the launch outlives its threads.
    match unsafe { (*(*thread).launch).host.surface(handle) } {
        Some(surface) => surface,
        // SAFETY: compiled code passes the context of the running thread.
        None => unsafe { raise(thread, Raised::NoObject { what: "surface", handle }) },
    }
}

/// `tex`: leaves what it finds in the request.
///
/// # Safety
/// Called by compiled code only, with the context of the running thread and a request in a slot of its stack.
pub(crate) unsafe extern "C" fn fetch(thread: *mut ThreadContext, request: *mut Request) {
    // SAFETY: compiled code passes the context of the running thread and a request in a slot of its stack;
    // whoever made the texture vouches for its images.
    unsafe { (*request).texel = texture(thread, (*request).handle).fetch(&(*request).texture_position()) };
}

/// `tld4`: the given channel of four texels.
///
/// # Safety
/// As for [`fetch`].
pub(crate) unsafe extern "C" fn gather(thread: *mut ThreadContext, request: *mut Request, channel: u32) {
    // SAFETY: compiled code passes the context of the running thread and a request in a slot of its stack;
    // whoever made the texture vouches for its images.
    unsafe {
        let texture = texture(thread, (*request).handle);
        (*request).texel = texture.gather(&(*request).texture_position(), channel as usize);
    };
}

/// `txq`.
///
/// # Safety
/// As for [`fetch`], without a request; the query is one.
pub(crate) unsafe extern "C" fn query_texture(
    thread: *mut ThreadContext,
    handle: u64,
    query: Query,
    level: u32,
) -> u32 {
    // SAFETY: compiled code passes the context of the running thread, whose launch holds the object until it
    // ends.
    of_texture(unsafe { texture(thread, handle) }, query, level)
}

/// `suq`.
///
/// # Safety
/// As for [`query_texture`].
pub(crate) unsafe extern "C" fn query_surface(
    thread: *mut ThreadContext,
    handle: u64,
    query: Query,
    _level: u32,
) -> u32 {
    // SAFETY: compiled code passes the context of the running thread, whose launch holds the object until it
    // ends.
    of_surface(unsafe { surface(thread, handle) }, query)
}

/// `suld`: leaves `count` numbers of so many bytes in the request.
///
/// # Safety
/// As for [`fetch`]; there are at most four numbers, of 1, 2, 4 or 8 bytes.
pub(crate) unsafe extern "C" fn load_surface(
    thread: *mut ThreadContext,
    request: *mut Request,
    count: u32,
    bytes: u32,
    boundary: Boundary,
) {
    // SAFETY: compiled code passes the context of the running thread and a request in a slot of its stack;
    // `locate` checks that all bytes are in the image.
    unsafe {
        let numbers = &mut (&mut (*request).numbers)[..count as usize];
        match locate(thread, request, count * bytes, boundary) {
            Some(address) => Surface::read(address, bytes, numbers),
            None => numbers.fill(0),
        }
    }
}

/// `sust`: writes `count` numbers of so many bytes.
///
/// # Safety
/// As for [`load_surface`].
pub(crate) unsafe extern "C" fn store_surface(
    thread: *mut ThreadContext,
    request: *mut Request,
    count: u32,
    bytes: u32,
    boundary: Boundary,
) {
    // SAFETY: compiled code passes the context of the running thread and a request in a slot of its stack;
    // `locate` checks that all bytes are in the image.
    unsafe {
        if let Some(address) = locate(thread, request, count * bytes, boundary) {
            Surface::write(address, bytes, &(&(*request).numbers)[..count as usize]);
        }
    }
}

/// Where an access of a surface goes, if anywhere.
///
/// # Safety
/// As for [`fetch`].
unsafe fn locate(
    thread: *mut ThreadContext,
    request: *const Request,
    bytes: u32,
    boundary: Boundary,
) -> Option<u64> {
    // SAFETY: compiled code passes the context of the running thread and a request in a slot of its stack.
    unsafe {
        let Request { handle, geometry, layer, coordinates, .. } = *request;
        let surface = surface(thread, handle);
        match surface.locate(geometry, coordinates.map(u32::cast_signed), layer, bytes, boundary) {
            Ok(texture_position) => texture_position,
            Err(OutOfBounds::Outside) => raise(thread, Raised::OutsideSurface(handle)),
            Err(OutOfBounds::Misaligned) => {
                raise(thread, Raised::Misaligned { address: u64::from(coordinates[0]), size: bytes })
            }
        }
    }
}
