//! Upload once (`CAUSEWAY_DEDUP=on`): what the server has from an earlier copy, of this session or another
//! one of the same identity, does not cross the wire again.
//!
//! A large copy of the program's memory to a device is cut into pieces that begin at fixed distances from its
//! start, so that the same data have the same pieces in every session. Each is named by its BLAKE3 hash, as
//! images of modules are, and its command goes out with the name alone. The server says of each whether it
//! has it; what it lacks is sent. Names go ahead of the answers, so a copy costs one round trip more, not one
//! for each piece.
//!
//! The copy returns when every piece is settled: the program may change its memory then. Whoever turns this
//! on pays for a hash of everything that is copied, some 2 GB/s on one core.

use crate::model::stream::StreamState;
use crate::remote::image::pending_images::{self, PendingImage};
use crate::remote::session;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::sys::CUresult;
use causeway_api::types::Region;
use causeway_config::read::PROCESS;
use causeway_config::table::DEDUP;
use core::slice;
use std::collections::VecDeque;
use std::sync::LazyLock;

/// Shorter copies go as they are, in bytes: a name, an answer and a file of the server are not worth less.
const MIN_CONTENT_BYTES: usize = 1 << 20;

/// Bytes of a piece. A smaller one would save more of data that have changed here and there, and cost more
/// files.
const PIECE: usize = 4 << 20;

/// Pieces that may be named and not settled: 256 MiB, enough for 10 Gbit/s and a round trip of 200 ms.
const MAX_UNCONFIRMED: usize = 64;

/// Whether a copy of so many bytes in a row is named by its content.
pub fn suits(bytes: usize) -> bool {
    static IS_ON: LazyLock<bool> = LazyLock::new(|| {
        // One that makes no sense has kept the session from being opened.
        PROCESS.is_on(&DEDUP).unwrap_or(false)
    });
    bytes >= MIN_CONTENT_BYTES && *IS_ON
}

/// Images under way, all of which are settled before this goes: they refer to the program's memory.
#[derive(Default)]
struct PendingUploads(VecDeque<PendingImage>);

impl Drop for PendingUploads {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|pending| pending.wait());
    }
}

/// Copies `length` bytes of the program to the device address `destination`, in the order of `stream`.
///
/// # Safety
/// `source` must be readable for `length` bytes.
pub unsafe fn copy(
    destination: u64,
    source: *const u8,
    length: usize,
    stream: &StreamState,
) -> Result<(), CUresult> {
    let session = session::of(stream.context)?;
    let mut unsettled = PendingUploads::default();
    for (offset, length) in pieces(length) {
        if unsettled.0.len() == MAX_UNCONFIRMED
            && let Some(oldest) = unsettled.0.pop_front()
        {
            oldest.wait();
        }
        // SAFETY: the piece lies in the source, which is readable until this function returns; all that is
        // referred to has been settled by then.
        let bytes = unsafe { slice::from_raw_parts(source.add(offset), length) };
        let pending = pending_images::refer_to_data(session.server(), bytes)?;
        let request = calls::copy_to_device {
            destination: Region::linear(destination + offset as u64, length as u64).into(),
            stream: stream.handle,
            publish: false,
            data: pending.payload(),
        };
        if let Err(status) = send::post_in(stream.context, &request) {
            pending.withdraw();
            return Err(status);
        }
        unsettled.0.push_back(pending);
        // The server looks while the next piece is being named.
        session.flush()?;
    }
    drop(unsettled);
    session.faults().check()
}

/// Where each piece begins, and how long it is.
fn pieces(length: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..length).step_by(PIECE).map(move |offset| (offset, PIECE.min(length - offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_copy_and_do_not_depend_on_its_length() {
        let of = |length| pieces(length).collect::<Vec<_>>();
        assert_eq!(of(MIN_CONTENT_BYTES), [(0, MIN_CONTENT_BYTES)]);
        assert_eq!(of(2 * PIECE + 5), [(0, PIECE), (PIECE, PIECE), (2 * PIECE, 5)]);
        assert_eq!(of(5 * PIECE)[..2], of(2 * PIECE));
    }

    #[test]
    fn it_is_off_unless_asked_for() {
        assert!(!suits(1 << 30));
    }
}
