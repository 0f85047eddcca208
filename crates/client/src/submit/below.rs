//! What the room below hears of this one: see [`Above`].

use crate::remote::above::Above;
use crate::remote::image::offers;
use crate::submit::callbacks;
use crate::submit::pool::ranges;

/// This room, as seen from below.
pub struct Submit;

impl Above for Submit {
    fn reached(&self, server: usize, token: u64) {
        callbacks::reached(server, token);
    }

    fn image_wanted(&self, server: usize, number: u64) {
        offers::wanted(server, number);
    }

    fn image_known(&self, number: u64) {
        offers::known(number);
    }

    fn is_open(&self, base: u64) -> bool {
        ranges::is_open(base)
    }
}
