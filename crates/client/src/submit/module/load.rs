//! Image load of a module or a library, and the lifetime of its bytes.

use crate::remote::image::Image;
use crate::remote::image::compatible;
use crate::remote::image::pending_images::{self, PendingImage};
use crate::remote::session::Session;
use causeway_api::sys::CUresult;
use causeway_api::types::{JitOptions, Payload};

/// How long the bytes of an image stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageLifetime {
    /// They may be gone when the call returns.
    Call,
    /// Until the program unloads what was made of them (`CU_LIBRARY_BINARY_IS_PRESERVED`).
    UntilUnload,
}

/// Offers an image to a server and lets `send` send the command that loads it, posted or waiting. The load is
/// posted when its outcome is certain and the program does not ask what the compiler said. Returns the
/// pending image if the bytes must stay beyond the call.
pub(super) fn send_image(
    session: &Session,
    image: &Image<'_>,
    lifetime: ImageLifetime,
    options: &JitOptions,
    send: impl FnOnce(Payload<'_>, bool) -> Result<(), CUresult>,
) -> Result<Option<PendingImage>, CUresult> {
    /// Copying a larger image costs more than waiting for the server's word that it has it.
    const MAX_COPIED_BYTES: usize = 1 << 20;
    let posted = options.report == 0 && compatible::all_devices(session, image);
    let stays = lifetime == ImageLifetime::UntilUnload && matches!(image, Image::Single(_));
    let is_copied = posted && !stays && image.bytes().len() <= MAX_COPIED_BYTES;
    let server = session.server();
    let offered = if is_copied {
        pending_images::copy_of(server, image)
    } else {
        pending_images::refer_to(server, image)
    };
    let Ok(pending) = offered else {
        // Nobody could send it when the server asks: so it goes along.
        let payload = pending_images::send_inline(session, image.bytes())?;
        return send(payload, posted).map(|()| None);
    };
    let sent = send(pending.payload(), posted);
    if sent.is_err() || !posted {
        pending.withdraw();
        return sent.map(|()| None);
    }
    if stays {
        return Ok(Some(pending));
    }
    if !is_copied {
        pending.wait();
    }
    Ok(None)
}
