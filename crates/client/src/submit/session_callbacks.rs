//! Callbacks of the sessions: see [`SessionCallbacks`].

use crate::remote::callbacks::SessionCallbacks;
use crate::remote::image::pending_images;
use crate::statistics;
use crate::submit::pool::host_ranges;
use crate::submit::{callbacks, device_times};
use causeway_api::sys::CUresult;

/// This room, as seen from below.
pub struct Submit;

impl SessionCallbacks for Submit {
    fn on_host_call(&self, server: usize, token: u64) {
        callbacks::on_host_call(server, token);
    }

    fn on_host_call_failed(&self, server: usize, token: u64, status: CUresult) {
        callbacks::refused(server, token, status);
    }

    fn on_server_lost(&self, server: usize) {
        callbacks::lost(server);
    }

    fn is_any_task(&self) -> bool {
        callbacks::is_any()
    }

    fn after_fork(&self) {
        callbacks::forget_threads();
    }

    fn on_image_requested(&self, server: usize, number: u64) {
        pending_images::requested(server, number);
    }

    fn on_image_known(&self, number: u64) {
        pending_images::known(number);
    }

    fn before_end(&self) {
        if device_times::is_on() {
            statistics::end_program();
            device_times::gather();
        }
    }

    fn is_pool_open(&self, base: u64) -> bool {
        host_ranges::is_open(base)
    }
}
