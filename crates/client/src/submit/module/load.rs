//! How the image of a module or a library is offered to a server, and how long its bytes must stay.

use crate::remote::image::Image;
use crate::remote::image::compatible;
use crate::remote::image::offers::{self, Offer};
use crate::remote::session::Session;
use causeway_api::sys::CUresult;
use causeway_api::types::{JitOptions, Payload};

/// Who keeps the bytes of an image after the call that loads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeper {
    /// Nobody: they may be gone when the call returns.
    Nobody,
    /// The program, until it unloads what was made of them (`CU_LIBRARY_BINARY_IS_PRESERVED`).
    Program,
}

/// Offers an image to a server and lets `send` send the command that loads it, posted or waiting. The load is
/// posted when its outcome is certain and the program does not ask what the compiler said. Returns the offer
/// if the bytes must stay beyond the call.
pub(super) fn offer(
    session: &Session,
    image: &Image<'_>,
    keeper: Keeper,
    options: &JitOptions,
    send: impl FnOnce(Payload<'_>, bool) -> Result<(), CUresult>,
) -> Result<Option<Offer>, CUresult> {
    /// Copying a larger image costs more than waiting for the server's word that it has it.
    const MOST_COPIED: usize = 1 << 20;
    let posted = options.report == 0 && compatible::all_devices(session, image);
    let lent = keeper == Keeper::Program && matches!(image, Image::Single(_));
    let kept = posted && !lent && image.bytes().len() <= MOST_COPIED;
    let server = session.server();
    let offer = if kept { offers::keep(server, image) } else { offers::lend(server, image) };
    let sent = send(offer.payload(), posted);
    if sent.is_err() || !posted {
        offer.withdraw();
        return sent.map(|()| None);
    }
    if lent {
        return Ok(Some(offer));
    }
    if !kept {
        offer.wait();
    }
    Ok(None)
}
