//! What has gone over a link.

use std::sync::atomic::{AtomicU64, Ordering};

/// One list for the counters and for their values at a moment.
macro_rules! counters {
    ($($(#[$text:meta])+ $name:ident,)+) => {
        /// What has gone over a link so far.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$text])+ pub $name: u64,)+
        }

        /// The counters of a link, which its threads add to.
        #[derive(Debug, Default)]
        pub struct AtomicCounters {
            $($(#[$text])+ pub $name: AtomicU64,)+
        }

        impl AtomicCounters {
            /// Their values now.
            pub fn now(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Frames sent on the command connection.
    frames_sent,
    /// Frames received on the command connection.
    frames_received,
    /// Bytes of messages sent.
    message_bytes_sent,
    /// Bytes of messages received.
    message_bytes_received,
    /// Bytes of transfers sent.
    transfer_bytes_sent,
    /// Bytes of transfers received.
    transfer_bytes_received,
    /// Of the bytes sent, those that a network card wrote to a GPU's memory or read there (GPUDirect).
    direct_bytes_sent,
    /// Of the bytes received, likewise.
    direct_bytes_received,
    /// Of the other bytes sent, those that a network card took out of registered memory of the program.
    registered_bytes_sent,
    /// Of the other bytes received, those that the peer's card put there.
    registered_bytes_received,
}

/// Adds to a counter.
#[inline]
pub fn count(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Ordering::Relaxed);
}
