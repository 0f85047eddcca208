//! Address window of a server: when it is reserved.

use crate::model::address::window::{self, Window};
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::Handle;
use causeway_api::sys::CUresult;

/// The window of the session with a server, which the server has reserved as well from here on.
pub fn opened(server: usize) -> Result<&'static Window, CUresult> {
    window::opened(server, || send::call_in(Handle::null_of(server), &calls::address_window_open {}))
}
