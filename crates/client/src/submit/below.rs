//! What the room below hears of this one: see [`Above`].

use crate::remote::above::Above;
use crate::remote::image::pending_images;
use crate::submit::pool::ranges;
use crate::submit::{callbacks, device_times};
use crate::trace;
use causeway_api::sys::CUresult;

/// This room, as seen from below.
pub struct Submit;

impl Above for Submit {
    fn reached(&self, server: usize, token: u64) {
        callbacks::reached(server, token);
    }

    fn refused(&self, server: usize, token: u64, status: CUresult) {
        callbacks::refused(server, token, status);
    }

    fn lost(&self, server: usize) {
        callbacks::lost(server);
    }

    fn image_wanted(&self, server: usize, number: u64) {
        pending_images::wanted(server, number);
    }

    fn image_known(&self, number: u64) {
        pending_images::known(number);
    }

    fn ending(&self) {
        if trace::is_on() {
            device_times::gather();
        }
    }

    fn is_open(&self, base: u64) -> bool {
        ranges::is_open(base)
    }
}
