//! Credit of device-to-host copies: bytes in flight, in all and per stream.
//!
//! A copy counts from when it is put into its stream, since it has its memory from then on, and a stream may
//! stand still for as long as the program likes. So what others have under way never keeps a stream from
//! having some itself: each has a share that is its own.

use super::session::Session;
use crate::locks::{Mutex, rank};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Bytes of copies to the client that may be under way; a copy beyond it is deferred. Enough for several
/// milliseconds of any network, and far less than the staging that is kept for reuse: pinning fresh memory is
/// slower than networks are.
const MAX_CREDIT_BYTES: usize = 128 << 20;

/// Bytes that a stream may have under way whatever the others have: a few pieces, so that one is sent while
/// the device fills the next.
const SHARE_OF_A_STREAM: usize = 16 << 20;

/// Bytes under way.
#[derive(Default)]
struct InFlight {
    all: usize,
    /// By stream, for those that have any.
    of_streams: FxHashMap<u64, usize>,
}

/// Bytes of copies to the client that are under way. Clones share it.
#[derive(Clone, Default)]
pub struct Account(Arc<Mutex<rank::Leaf, InFlight>>);

impl Account {
    /// Whether another copy of a stream may start.
    pub fn has_credit(&self, stream: u64) -> bool {
        let in_flight = self.0.lock();
        in_flight.all < MAX_CREDIT_BYTES
            || in_flight.of_streams.get(&stream).is_none_or(|bytes| *bytes < SHARE_OF_A_STREAM)
    }

    /// Whether nothing is under way.
    pub fn is_unused(&self) -> bool {
        self.0.lock().all == 0
    }

    /// So many bytes of a stream are under way until the result is dropped, which wakes the session.
    pub fn take(&self, session: &Arc<Session>, stream: u64, bytes: usize) -> DownloadCredit {
        self.add(stream, bytes);
        DownloadCredit { session: Arc::clone(session), account: self.clone(), stream, bytes }
    }

    fn add(&self, stream: u64, bytes: usize) {
        let mut in_flight = self.0.lock();
        in_flight.all += bytes;
        *in_flight.of_streams.entry(stream).or_default() += bytes;
    }

    fn release(&self, stream: u64, bytes: usize) {
        let mut in_flight = self.0.lock();
        in_flight.all -= bytes;
        if let Some(of_stream) = in_flight.of_streams.get_mut(&stream) {
            *of_stream -= bytes;
            if *of_stream == 0 {
                in_flight.of_streams.remove(&stream);
            }
        }
    }
}

/// Bytes that are under way.
pub struct DownloadCredit {
    session: Arc<Session>,
    account: Account,
    stream: u64,
    bytes: usize,
}

impl Drop for DownloadCredit {
    fn drop(&mut self) {
        self.account.release(self.stream, self.bytes);
        // A copy may have been deferred for lack of it.
        self.session.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_stream_has_under_way_leaves_each_other_one_its_share() {
        let account = Account::default();
        account.add(1, MAX_CREDIT_BYTES - 1);
        assert!(account.has_credit(1) && account.has_credit(2));
        account.add(1, 1);
        assert!(!account.has_credit(1) && account.has_credit(2));
        account.add(2, SHARE_OF_A_STREAM);
        assert!(!account.has_credit(2) && account.has_credit(3));
        account.release(2, SHARE_OF_A_STREAM);
        assert!(account.has_credit(2) && !account.has_credit(1));
        account.release(1, MAX_CREDIT_BYTES);
        assert!(account.has_credit(1) && account.0.lock().of_streams.is_empty());
    }
}
