//! Poll deadline.

use core::hint::spin_loop;
use std::time::{Duration, Instant};

use crate::endpoint::EndpointError;

/// Looks that find nothing before the processor is given away: tens of microseconds, more than any answer
/// takes.
const LOOKS: u32 = 300;

/// How long nothing may come.
const MAX_SILENCE: Duration = Duration::from_secs(20);

/// Somebody who looks for something again and again.
pub(crate) struct PollDeadline {
    looks: u32,
    since: Instant,
}

impl PollDeadline {
    pub(crate) fn new() -> Self {
        Self { looks: 0, since: Instant::now() }
    }

    /// Something came.
    pub(crate) fn reset(&mut self) {
        self.looks = 0;
    }

    /// Nothing was there: spins at first, and then lets others have the processor, which may be the only one.
    pub(crate) fn nothing(&mut self) -> Result<(), EndpointError> {
        self.looks = self.looks.saturating_add(1);
        if self.looks == 1 {
            self.since = Instant::now();
        }
        if self.looks < LOOKS {
            spin_loop();
            return Ok(());
        }
        if self.since.elapsed() > MAX_SILENCE {
            return Err(EndpointError::Silent(MAX_SILENCE.as_secs()));
        }
        std::thread::yield_now();
        Ok(())
    }
}
