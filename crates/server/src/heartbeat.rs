//! Heartbeat of workers: the watchdog, which says when a worker is pinged and what its pongs mean, and the
//! progress counter of the thread that handles commands.
//!
//! A worker that hangs looks like one that computes: its process is there, and its kernel goes on
//! acknowledging what its client sends. So the broker asks it now and then over the control socket. The
//! thread that attends to that socket answers, with how many steps the thread that handles commands has made.
//! One that does not answer at all is stopped or has lost a lock for ever, and is ended; one whose commands
//! do not go on may wait for a kernel that runs for hours, so that it is the user who says what happens.

use causeway_config::TimeSpan;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// A count of beginnings and ends of work, in the worker: odd while its thread is at work, even while that
/// waits for something to do. One thread counts, any may read.
#[derive(Debug, Default)]
pub struct ProgressCounter(AtomicU64);

/// A count that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress(pub u64);

impl ProgressCounter {
    /// Does some work that the thread is expected to come back from.
    pub fn at_work<R>(&self, work: impl FnOnce() -> R) -> R {
        self.step();
        let result = work();
        self.step();
        result
    }

    /// The count now.
    pub fn now(&self) -> Progress {
        Progress(self.0.load(Ordering::Relaxed))
    }

    /// A load and a store: no other thread counts, and the thread that looks for work makes millions of steps
    /// a second.
    fn step(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

impl Progress {
    /// Whether the thread has been in the same piece of work since `earlier`.
    pub fn stands_still_since(self, earlier: Self) -> bool {
        self == earlier && self.0 % 2 == 1
    }
}

/// Looks in the shorter of the times after which something is done.
const LOOKS: u32 = 12;

/// Looks come no faster than this, in milliseconds.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// What is done about a worker whose commands do not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HungAction {
    /// The log says so, once.
    Warn,
    /// It is killed.
    Kill,
}

/// When that is done, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HungWorker {
    /// What is done.
    pub action: HungAction,
    /// How long one command may take before.
    pub after: Duration,
}

impl Default for HungWorker {
    /// A warning after ten minutes: kernels may run for hours, and some calls of the driver wait for them.
    fn default() -> Self {
        Self { action: HungAction::Warn, after: Duration::from_secs(600) }
    }
}

/// A text that names no [`HungWorker`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not an action for a hung worker: give warn or kill, optionally with a time after a colon, for \
     example kill:3600 or kill:1h"
)]
pub struct UnknownHungWorker(String);

impl FromStr for HungWorker {
    type Err = UnknownHungWorker;

    fn from_str(text: &str) -> Result<Self, UnknownHungWorker> {
        let wrong = || UnknownHungWorker(text.to_owned());
        let (action, after) = match text.split_once(':') {
            Some((action, time)) => {
                let TimeSpan(after) = time.parse().map_err(|_| wrong())?;
                (action, after)
            }
            None => (text, Self::default().after),
        };
        let action = match action {
            "warn" => HungAction::Warn,
            "kill" => HungAction::Kill,
            _ => return Err(wrong()),
        };
        Ok(Self { action, after })
    }
}

impl fmt::Display for HungWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            HungAction::Warn => "warn",
            HungAction::Kill => "kill",
        };
        write!(f, "{action}:{}", TimeSpan(self.after))
    }
}

/// How long which silence is borne.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatTimeouts {
    /// Without any answer, before the worker is killed.
    pub silent: Duration,
    /// Within one command, or while the GPU is started.
    pub hung: HungWorker,
}

/// What is wrong with a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It does not answer.
    Silent,
    /// It does not come to the end of starting the GPU.
    DoesNotStart,
    /// It does not come to the end of a command.
    Hangs,
}

impl Finding {
    /// Why it is killed, for a log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Silent => "it did not answer the broker any more",
            Self::DoesNotStart => "it did not come to the end of starting the GPU",
            Self::Hangs => "it did not come to the end of a command",
        }
    }
}

/// What is to be done after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// The worker is to be asked this question.
    Query(u32),
    /// The log is to say what is wrong.
    Report(Finding),
    /// The worker is to be killed.
    Kill(Finding),
}

/// What is known of one worker.
#[derive(Debug)]
pub struct Watchdog {
    interval: Duration,
    /// So many looks without an answer are too many.
    max_silent: u32,
    /// So many within one command are worth a word, or the worker's life.
    max_hung: u32,
    action: HungAction,
    stage: Stage,
    /// Looks since the last sign of what is waited for.
    silent: u32,
    /// Looks in which the commands have not gone on.
    hung: u32,
    is_reported: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It starts the GPU, and attends to nothing else.
    Starting,
    /// It has answered the newest question: this number, and that count.
    Answered(u32, Progress),
    /// It has been asked this, and the last time it answered that.
    Queried(u32, Progress),
}

impl Watchdog {
    /// That of a worker that begins to start.
    pub fn new(timeouts: &HeartbeatTimeouts) -> Self {
        let shorter = timeouts.silent.min(timeouts.hung.after);
        let interval = (shorter / LOOKS).max(MIN_INTERVAL);
        let looks = |time: Duration| {
            u32::try_from(time.as_nanos().div_ceil(interval.as_nanos())).unwrap_or(u32::MAX).max(2)
        };
        Self {
            interval,
            max_silent: looks(timeouts.silent),
            max_hung: looks(timeouts.hung.after),
            action: timeouts.hung.action,
            stage: Stage::Starting,
            silent: 0,
            hung: 0,
            is_reported: false,
        }
    }

    /// How long it is from one look to the next.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The GPU has been started: from here on the worker answers.
    pub fn started(&mut self) {
        if self.stage == Stage::Starting {
            self.stage = Stage::Answered(0, Progress(0));
            self.is_progressing();
        }
    }

    /// An answer has come. Only that to the newest question counts.
    pub fn answered(&mut self, number: u32, progress: Progress) {
        if let Stage::Queried(asked, before) = self.stage
            && asked == number
        {
            self.stage = Stage::Answered(number, progress);
            self.silent = 0;
            if !progress.stands_still_since(before) {
                self.is_progressing();
            }
        }
    }

    fn is_progressing(&mut self) {
        self.hung = 0;
        self.is_reported = false;
    }

    /// One more interval has passed.
    pub fn look(&mut self) -> Step {
        self.hung = self.hung.saturating_add(1);
        let finding = if self.stage == Stage::Starting { Finding::DoesNotStart } else { Finding::Hangs };
        match self.stage {
            Stage::Queried(..) => {
                self.silent += 1;
                if self.silent >= self.max_silent { Step::Kill(Finding::Silent) } else { Step::Wait }
            }
            // With each answer they are counted anew, unless that says that nothing has gone on.
            _ if self.hung > self.max_hung && !self.is_reported => {
                self.is_reported = true;
                match self.action {
                    HungAction::Warn => Step::Report(finding),
                    HungAction::Kill => Step::Kill(finding),
                }
            }
            Stage::Starting => Step::Wait,
            Stage::Answered(number, progress) => {
                let next = number.wrapping_add(1);
                self.stage = Stage::Queried(next, progress);
                Step::Query(next)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_who_is_in_the_same_piece_of_work_stands_still() {
        let counter = ProgressCounter::default();
        let idle = counter.now();
        assert!(!counter.now().stands_still_since(idle), "it waits for work");
        let busy = counter.at_work(|| {
            let busy = counter.now();
            assert!(!busy.stands_still_since(idle) && counter.now().stands_still_since(busy));
            busy
        });
        assert!(!counter.now().stands_still_since(busy));
        counter.at_work(|| assert!(!counter.now().stands_still_since(busy), "it is the next one"));
    }

    fn timeouts(action: HungAction) -> HeartbeatTimeouts {
        let hung = HungWorker { action, after: Duration::from_secs(240) };
        HeartbeatTimeouts { silent: Duration::from_secs(60), hung }
    }

    /// Looks until something is to be done besides asking, or `most` times; answers what is asked by
    /// `progress`.
    fn look_until(
        watchdog: &mut Watchdog,
        most: u32,
        mut progress: impl FnMut() -> Option<u64>,
    ) -> Option<(u32, Step)> {
        for count in 1..=most {
            match watchdog.look() {
                Step::Wait => {}
                Step::Query(number) => {
                    if let Some(progress) = progress() {
                        watchdog.answered(number, Progress(progress));
                    }
                }
                other => return Some((count, other)),
            }
        }
        None
    }

    #[test]
    fn a_worker_that_does_not_answer_is_killed_after_the_time_and_not_before() {
        let mut watchdog = Watchdog::new(&timeouts(HungAction::Warn));
        assert_eq!(watchdog.interval(), Duration::from_secs(5));
        watchdog.started();
        // Asked by the first look, and silent in the twelve after that.
        assert_eq!(look_until(&mut watchdog, 99, || None), Some((13, Step::Kill(Finding::Silent))));
    }

    #[test]
    fn a_worker_that_waits_for_commands_or_goes_on_with_them_is_well() {
        let mut watchdog = Watchdog::new(&timeouts(HungAction::Kill));
        watchdog.started();
        assert_eq!(look_until(&mut watchdog, 10_000, || Some(8)), None);
        let mut count = 1;
        let moving = || {
            count += 2;
            Some(count)
        };
        assert_eq!(look_until(&mut watchdog, 10_000, moving), None);
    }

    #[test]
    fn a_command_without_end_is_reported_once_and_again_when_another_one_has_none() {
        let mut watchdog = Watchdog::new(&timeouts(HungAction::Warn));
        watchdog.started();
        let (count, step) = look_until(&mut watchdog, 200, || Some(3)).unwrap();
        assert_eq!(step, Step::Report(Finding::Hangs));
        // 240 s are 48 looks, and it takes two of them to learn of the first answer.
        assert!((48..=51).contains(&count), "{count}");
        assert_eq!(look_until(&mut watchdog, 10_000, || Some(3)), None);
        assert!(matches!(look_until(&mut watchdog, 200, || Some(5)), Some((_, Step::Report(_)))));
    }

    #[test]
    fn who_wants_it_has_workers_killed_that_hang_in_a_command_or_at_the_start() {
        let mut watchdog = Watchdog::new(&timeouts(HungAction::Kill));
        let (count, step) = look_until(&mut watchdog, 200, || None).unwrap();
        assert_eq!(step, Step::Kill(Finding::DoesNotStart));
        assert!((48..=49).contains(&count), "{count}");
        let mut watchdog = Watchdog::new(&timeouts(HungAction::Kill));
        watchdog.started();
        let killed = look_until(&mut watchdog, 200, || Some(1));
        assert!(matches!(killed, Some((_, Step::Kill(Finding::Hangs)))), "{killed:?}");
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let mut watchdog = Watchdog::new(&timeouts(HungAction::Warn));
        watchdog.started();
        let Step::Query(number) = watchdog.look() else { panic!("it is not asked") };
        watchdog.answered(number.wrapping_sub(1), Progress(2));
        watchdog.answered(number.wrapping_add(1), Progress(2));
        assert_eq!(watchdog.look(), Step::Wait);
        watchdog.answered(number, Progress(2));
        assert!(matches!(watchdog.look(), Step::Query(next) if next != number));
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<HungWorker>();
        assert_eq!(read("warn"), Ok(HungWorker::default()));
        let hour = HungWorker { action: HungAction::Kill, after: Duration::from_secs(3600) };
        assert_eq!((read("kill:3600"), read("kill:60m")), (Ok(hour), Ok(hour)));
        assert_eq!(hour.to_string(), "kill:1h");
        for wrong in ["", "kill:", "kill:0", "kill:500ms", "stop", "warn:-1"] {
            assert!(read(wrong).unwrap_err().to_string().contains("warn or kill"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_done_to_a_worker_that_answers_and_goes_on(
            silent in 1_u64..100_000,
            after in 1_u64..100_000,
            // How many looks each answer is late, and whether it came from within a command.
            answers in proptest::collection::vec((0_u32..8, any::<bool>()), 1..200),
        ) {
            let hung = HungWorker { action: HungAction::Kill, after: Duration::from_millis(after) };
            let mut watchdog = Watchdog::new(&HeartbeatTimeouts { silent: Duration::from_millis(silent), hung });
            let most_late = watchdog.max_silent.min(watchdog.max_hung).saturating_sub(2);
            watchdog.started();
            let mut progress = 0;
            for (late, is_at_work) in answers {
                let Step::Query(number) = watchdog.look() else {
                    return Err(TestCaseError::fail("it is not asked"));
                };
                for _ in 0..late.min(most_late) {
                    prop_assert_eq!(watchdog.look(), Step::Wait);
                }
                progress += if (progress % 2 == 1) == is_at_work { 2 } else { 1 };
                watchdog.answered(number, Progress(progress));
            }
        }
    }
}
