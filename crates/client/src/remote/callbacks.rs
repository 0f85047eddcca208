//! Callbacks of a session to the code that opened it.

use causeway_api::sys::CUresult;

/// Who is above the sessions. What it hears of comes on the receiving thread, which must not be held up.
pub trait SessionCallbacks: Sync {
    /// A stream of a server has reached a point where the client has something to do.
    fn on_host_call(&self, server: usize, token: u64);

    /// A stream of a server has failed before such a point, with this error.
    fn on_host_call_failed(&self, server: usize, token: u64, status: CUresult);

    /// A server is lost: its streams reach nothing any more.
    fn on_server_lost(&self, server: usize);

    /// Whether anything is to be done in this process, now or when a stream reaches a point.
    fn is_any_task(&self) -> bool;

    /// This process is the forked child of the one that opened the session, and goes on with a session of its
    /// own: threads of the parent do not exist.
    fn after_fork(&self);

    /// A server wants an image that it was offered.
    fn on_image_requested(&self, server: usize, number: u64);

    /// A server has an image that it was offered.
    fn on_image_known(&self, number: u64);

    /// The sessions are about to end.
    fn before_end(&self);

    /// Whether devices may use the memory of a pool that begins at an address.
    fn is_pool_open(&self, base: u64) -> bool;
}
