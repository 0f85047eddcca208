//! What a session tells and asks whoever opened it.

use causeway_api::sys::CUresult;

/// Who is above the sessions. What it hears of comes on the receiving thread, which must not be held up.
pub trait Above: Sync {
    /// A stream of a server has reached a point where the client has something to do.
    fn reached(&self, server: usize, token: u64);

    /// A stream of a server has failed before such a point, with this error.
    fn refused(&self, server: usize, token: u64, status: CUresult);

    /// A server is lost: its streams reach nothing any more.
    fn lost(&self, server: usize);

    /// A server wants an image that it was offered.
    fn image_wanted(&self, server: usize, number: u64);

    /// A server has an image that it was offered.
    fn image_known(&self, number: u64);

    /// The sessions are about to end.
    fn ending(&self);

    /// Whether devices may use the memory of a pool that begins at an address.
    fn is_open(&self, base: u64) -> bool;
}
