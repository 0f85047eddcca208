//! Linkers that a client has made.

use crate::jit::Options;

/// A linker that a client has made.
pub(crate) struct Link {
    pub(crate) options: Options,
    /// Address and size of the result once there is one; it belongs to the driver until the linker is
    /// destroyed.
    pub(crate) result: Option<(usize, usize)>,
}
