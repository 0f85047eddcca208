//! GPU state: whether a client would get a GPU now.
//!
//! Only workers start it: those that are kept ready say how that went, and so do those that have to turn their
//! client away.

use crate::locks::{Mutex, rank};
use std::time::{Duration, Instant};

/// How long what one client met counts where no worker is kept ready: there the next client alone finds out
/// whether it is better now, and it may not come as long as the server does not call itself ready.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

/// How starting the GPU went the last time.
#[derive(Debug)]
pub struct GpuState {
    last: Mutex<rank::Leaf, Last>,
    /// Whether a worker is kept ready, so that one will say how it is.
    is_tried: bool,
}

#[derive(Debug, Clone)]
enum Last {
    /// Nobody has said anything yet.
    Unknown,
    Works,
    /// Why not, and since when that is known.
    Fails(String, Instant),
}

impl GpuState {
    /// Nothing is known yet. `is_tried`: a worker that is kept ready will tell.
    pub fn new(is_tried: bool) -> Self {
        Self { last: Mutex::new(Last::Unknown), is_tried }
    }

    /// A worker has started the GPU, or could not, for which it gives a reason.
    pub fn report(&self, outcome: Result<(), String>) {
        *self.last.lock() = match outcome {
            Ok(()) => Last::Works,
            Err(why) => Last::Fails(why, Instant::now()),
        };
    }

    /// Why a client would get none; nothing where it would.
    pub fn failure(&self, now: Instant) -> Option<String> {
        match &*self.last.lock() {
            Last::Unknown if self.is_tried => Some("the GPU is being started".to_owned()),
            Last::Unknown | Last::Works => None,
            Last::Fails(_, since) if !self.is_tried && now >= *since + FORGOTTEN_AFTER => None,
            Last::Fails(why, _) => Some(format!("cannot start the GPU: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_say_counts_until_another_one_says_otherwise() {
        let (state, now) = (GpuState::new(true), Instant::now());
        assert!(state.failure(now).unwrap().contains("being started"));
        state.report(Err("no driver".to_owned()));
        let later = now + FORGOTTEN_AFTER * 100;
        assert!(state.failure(now).unwrap().ends_with("no driver") && state.failure(later).is_some());
        state.report(Ok(()));
        assert_eq!(state.failure(now), None);
    }

    #[test]
    fn where_only_clients_find_out_the_next_one_may_come_after_a_while() {
        let (state, now) = (GpuState::new(false), Instant::now());
        assert_eq!(state.failure(now), None);
        state.report(Err("no driver".to_owned()));
        assert!(state.failure(Instant::now()).is_some());
        assert_eq!(state.failure(Instant::now() + FORGOTTEN_AFTER), None);
    }
}
