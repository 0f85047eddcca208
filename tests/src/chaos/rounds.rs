//! The program `counted_rounds`, which says of each round whether anything was lost, doubled or out of order.

use super::Chaos;
use crate::built::cuda_program;
use crate::client::by_itself;
use crate::process::Running;
use std::time::{Duration, Instant};

/// A program that works a round for each number that it reads.
#[derive(Debug)]
pub struct Rounds {
    program: Running,
    done: usize,
    longest: Duration,
}

impl Rounds {
    /// Starts it behind a relay. Lost connections are waited for a minute.
    pub fn start(chaos: &Chaos, variables: &[(&str, &str)]) -> Self {
        let mut command = by_itself(&chaos.target().connect_string(), &cuda_program("counted_rounds"));
        command.env("CAUSEWAY_VIA", "tcp").env("CAUSEWAY_LANES", "2").env("CAUSEWAY_RESUME_TIMEOUT", "60");
        let program = Running::start_to_talk(command.envs(variables.iter().copied()));
        Self { program, done: 0, longest: Duration::ZERO }
    }

    /// Works a round, at most for so long; the number that it gives.
    ///
    /// What it said instead.
    pub fn work(&mut self, seed: u64, limit: Duration) -> Result<String, String> {
        self.work_beside(seed, limit, || ())
    }

    /// The same, and something else once it has begun.
    ///
    /// What it said instead.
    pub fn work_beside(
        &mut self,
        seed: u64,
        limit: Duration,
        beside: impl FnOnce(),
    ) -> Result<String, String> {
        let begun = Instant::now();
        self.program.say(&seed.to_string());
        beside();
        let line = |printed: &str| {
            let complete = &printed[..printed.rfind('\n')?];
            complete.lines().nth(self.done).map(str::to_owned)
        };
        let found = self.program.find(limit, line);
        self.longest = self.longest.max(begun.elapsed());
        self.done += 1;
        let what = match found {
            Some(line) => match line.strip_prefix(&format!("round {seed} gives ")) {
                Some(number) => return Ok(number.to_owned()),
                None => line,
            },
            None => format!("it said nothing for {:.0} s", limit.as_secs_f64()),
        };
        Err(format!("{what}\n-- standard error\n{}", self.program.stderr()))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// How long the longest round took.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Has it end, which must succeed.
    ///
    /// When it does not.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) {
        self.program.end_input();
        self.program.finish(limit).must_succeed();
    }
}
