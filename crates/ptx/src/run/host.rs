//! What a kernel says to the outside, and what it finds there.

use crate::texture::{Surface, Texture};

/// What a kernel says to the outside, and what it finds there.
///
/// Called from any thread of the pool, what is told by one at a time for each launch.
pub trait Host: Sync {
    /// The output of one `printf`, whole.
    fn print(&self, text: &[u8]);
    /// A device-side `assert` failed; the launch ends with [`Fault::Assert`](crate::Fault::Assert).
    fn assertion(&self, message: &str);
    /// A thread sets the value that steers a conditional node of a graph; false when nothing has this handle,
    /// which ends the launch with [`Fault::IllegalAddress`](crate::Fault::IllegalAddress).
    fn set_condition(&self, handle: u64, value: u32) -> bool;

    /// The texture of this handle, or of the `.texref` variable at this address. Where there is none the launch
    /// ends with [`Fault::NoObject`](crate::Fault::NoObject).
    ///
    /// Called on a thread of the kernel, which may end at any moment: it must take no lock, and what it gives
    /// stays until the launch ends. Its images lie in the launch's [`AddressSpace`](crate::memory::AddressSpace).
    fn texture(&self, _handle: u64) -> Option<&Texture> {
        None
    }

    /// The surface of this handle, or of the `.surfref` variable at this address; as [`Self::texture`].
    fn surface(&self, _handle: u64) -> Option<&Surface> {
        None
    }
}
