//! Decoding of 16-byte requests. `layout.h` has the fields' places.
//!
//! Requests come from kernels of the program, which may have written anything: every value is checked here
//! or, where it needs the windows, by the proxy.

use thiserror::Error;

/// The phase bit of each half.
pub const PHASE: u64 = 1 << 63;

/// A range of a peer's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRange {
    /// Whose part.
    pub peer: u32,
    /// The window.
    pub window: u32,
    /// Bytes from its start.
    pub offset: u64,
}

/// What the proxy is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Bytes from a window here to a peer's, or back.
    Transfer {
        /// Whether the transfer is a get.
        is_get: bool,
        /// The peer's end.
        there: RemoteRange,
        /// This rank's window.
        local: u32,
        /// Bytes from its start.
        local_offset: u64,
        /// How many.
        bytes: u64,
    },
    /// A word is written, in no order with others.
    Store {
        /// Where.
        to: RemoteRange,
        /// What.
        value: u64,
    },
    /// A word is written or counted up, after all that came before.
    Signal {
        /// Where.
        to: RemoteRange,
        /// What.
        value: u64,
        /// Whether the value is added.
        adds: bool,
    },
    /// A word is read and perhaps changed, and what it was before is the answer.
    Atomic {
        /// Where.
        to: RemoteRange,
        /// How.
        operation: Atomic,
        /// What is added, or written.
        value: u64,
    },
    /// What the `CompareAndSwap` behind it compares with.
    Operand {
        /// The value.
        value: u64,
    },
}

/// Operations with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    /// Adds.
    Add,
    /// Writes, if the operand in front of it is there.
    CompareAndSwap,
    /// Reads.
    Fetch,
}

/// Bytes that are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RequestError {
    /// A number that no verb has.
    #[error("a kernel has posted a request of the unknown kind {0}")]
    Verb(u64),
}

const PUT: u64 = 1;
const GET: u64 = 2;
const STORE: u64 = 3;
const SIGNAL_SET: u64 = 4;
const SIGNAL_ADD: u64 = 5;
const ATOMIC_ADD: u64 = 6;
const ATOMIC_CAS: u64 = 7;
const FETCH: u64 = 8;
const OPERAND: u64 = 9;

/// `count` bits from `at` on.
fn bits(word: u64, at: u32, count: u32) -> u64 {
    word >> at & ((1 << count) - 1)
}

impl Request {
    /// Reads both halves. Phase bits don't matter.
    ///
    /// # Errors
    /// When it is of no kind that is known.
    pub fn decode(halves: [u64; 2]) -> Result<Self, RequestError> {
        let [first, second] = halves;
        let remote = RemoteRange {
            peer: bits(first, 53, 6) as u32,
            window: bits(first, 47, 6) as u32,
            offset: bits(first, 11, 36),
        };
        let value = (second & !PHASE) | first << 63;
        Ok(match bits(first, 59, 4) {
            verb @ (PUT | GET) => Self::Transfer {
                is_get: verb == GET,
                there: remote,
                local: bits(second, 57, 6) as u32,
                local_offset: bits(second, 21, 36),
                bytes: bits(second, 0, 21) << 11 | bits(first, 0, 11),
            },
            STORE => Self::Store { to: remote, value },
            verb @ (SIGNAL_SET | SIGNAL_ADD) => Self::Signal { to: remote, value, adds: verb == SIGNAL_ADD },
            ATOMIC_ADD => Self::Atomic { to: remote, operation: Atomic::Add, value },
            ATOMIC_CAS => Self::Atomic { to: remote, operation: Atomic::CompareAndSwap, value },
            FETCH => Self::Atomic { to: remote, operation: Atomic::Fetch, value },
            OPERAND => Self::Operand { value },
            other => return Err(RequestError::Verb(other)),
        })
    }

    /// The verb's number in the error record.
    pub fn verb(&self) -> u32 {
        let verb = match self {
            Self::Transfer { is_get: false, .. } => PUT,
            Self::Transfer { is_get: true, .. } => GET,
            Self::Store { .. } => STORE,
            Self::Signal { adds: false, .. } => SIGNAL_SET,
            Self::Signal { adds: true, .. } => SIGNAL_ADD,
            Self::Atomic { operation: Atomic::Add, .. } => ATOMIC_ADD,
            Self::Atomic { operation: Atomic::CompareAndSwap, .. } => ATOMIC_CAS,
            Self::Atomic { operation: Atomic::Fetch, .. } => FETCH,
            Self::Operand { .. } => OPERAND,
        };
        verb as u32
    }

    /// Writes both halves as kernels do, without phase bits.
    #[cfg(test)]
    pub fn encode(&self) -> [u64; 2] {
        let head = |remote: &RemoteRange| {
            u64::from(self.verb()) << 59
                | u64::from(remote.peer) << 53
                | u64::from(remote.window) << 47
                | remote.offset << 11
        };
        let word = |remote: &RemoteRange, value: u64| [head(remote) | value >> 63, value & !PHASE];
        match self {
            Self::Transfer { there, local, local_offset, bytes, .. } => {
                [head(there) | bytes & 0x7ff, u64::from(*local) << 57 | local_offset << 21 | bytes >> 11]
            }
            Self::Store { to, value } | Self::Signal { to, value, .. } | Self::Atomic { to, value, .. } => {
                word(to, *value)
            }
            Self::Operand { value } => word(&RemoteRange { peer: 0, window: 0, offset: 0 }, *value),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn remote() -> impl Strategy<Value = RemoteRange> {
        (0..64_u32, 0..64_u32, 0..1_u64 << 36).prop_map(|(peer, window, offset)| RemoteRange {
            peer,
            window,
            offset,
        })
    }

    fn request() -> impl Strategy<Value = Request> {
        let transfer = (any::<bool>(), remote(), 0..64_u32, 0..1_u64 << 36, 0..1_u64 << 32).prop_map(
            |(is_get, there, local, local_offset, bytes)| Request::Transfer {
                is_get,
                there,
                local,
                local_offset,
                bytes,
            },
        );
        let signal = (remote(), any::<u64>(), any::<bool>()).prop_map(|(to, value, adds)| Request::Signal {
            to,
            value,
            adds,
        });
        let operations = prop_oneof![Just(Atomic::Add), Just(Atomic::CompareAndSwap), Just(Atomic::Fetch)];
        let atomic = (remote(), operations, any::<u64>())
            .prop_map(|(to, operation, value)| Request::Atomic { to, operation, value });
        let store = (remote(), any::<u64>()).prop_map(|(to, value)| Request::Store { to, value });
        let operand = any::<u64>().prop_map(|value| Request::Operand { value });
        prop_oneof![transfer, signal, atomic, store, operand]
    }

    proptest! {
        #[test]
        fn requests_are_what_was_written_whatever_the_phase(request in request(), phase in any::<bool>()) {
            let halves = request.encode();
            prop_assert!(halves.iter().all(|word| word & PHASE == 0));
            let phase = if phase { PHASE } else { 0 };
            prop_assert_eq!(Request::decode(halves.map(|word| word | phase)), Ok(request));
        }

        #[test]
        fn no_bytes_do_harm(halves in any::<[u64; 2]>()) {
            match Request::decode(halves) {
                Ok(request) => prop_assert_eq!(u64::from(request.verb()), halves[0] >> 59 & 15),
                Err(RequestError::Verb(verb)) => prop_assert!(verb == 0 || verb > 9),
            }
        }
    }
}
