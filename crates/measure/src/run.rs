//! Run: all cases on all targets.

use core::convert::Infallible;
use core::time::Duration;
use std::io::{self, Write};
use std::process::Command;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::case::Case;
use crate::machine::{self, Machine};
use crate::prng::Random;
use crate::protocol::{Reply, Request, Samples};
use crate::reference::Rate;
use crate::results::{CaseRecord, CaseResult, Kind, Outcome, Run, TargetRecord};
use crate::schedule::{Plan, interleaved, untimed_before};
use crate::table::significant;
use crate::worker_process::{Measurer, Process, Sharing, Target, TargetError, TargetLocation};

/// What is to be measured.
#[derive(Debug)]
pub struct RunSpec {
    /// The subcommand.
    pub kind: Kind,
    /// The command line for the record, without keys.
    pub command: String,
    /// Causeway's version.
    pub version: String,
    /// What is measured on each target.
    pub cases: Vec<Case>,
    /// Rates that copies are compared with.
    pub references: Vec<Rate>,
    /// How much.
    pub plan: Plan,
    /// On what.
    pub groups: Vec<Group>,
}

/// Targets that one process measures, in one session.
#[derive(Debug)]
pub struct Group {
    /// The targets. They differ in their plans alone, of which the first has those with which the process
    /// begins.
    pub targets: Vec<Target>,
    /// What starts the process, or why there is none.
    pub command: Result<Command, String>,
}

impl Group {
    /// Starts the process.
    fn start(self) -> Vec<(TargetRecord, TargetState<Sharing>)> {
        let plans: Vec<_> = self
            .targets
            .iter()
            .map(|target| match &target.location {
                TargetLocation::Server { pipeline, .. } => pipeline.clone(),
                TargetLocation::Native => None,
            })
            .collect();
        let started =
            self.command.and_then(|command| Process::start(command).map_err(|error| error.to_string()));
        let (introduction, states): (_, Vec<_>) = match started {
            Ok(process) => {
                let introduction = process.introduction().clone();
                let sharing = Sharing::between(process, plans).into_iter();
                (Some(introduction), sharing.map(TargetState::Measuring).collect())
            }
            Err(reason) => (None, plans.iter().map(|_| TargetState::Lost(reason.clone())).collect()),
        };
        let record =
            |target| TargetRecord { target, introduction: introduction.clone(), module: None, error: None };
        self.targets.into_iter().map(record).zip(states).collect()
    }
}

/// Starts a process for each group of targets, measures, and ends them. Shows on standard error how far it is: by a bar, or,
/// where that is no terminal, by a line for each case.
pub fn run(order: RunSpec) -> Run {
    let date = machine::now();
    let (mut targets, mut states): (Vec<_>, Vec<_>) = order.groups.into_iter().flat_map(Group::start).unzip();
    let bar = progress_bar();
    let cases = measure_all(&order.cases, &order.plan, &mut states, &bar);
    bar.finish_and_clear();
    for (record, state) in targets.iter_mut().zip(states) {
        if let TargetState::Lost(reason) = state {
            record.error = Some(reason);
        }
    }
    Run {
        kind: order.kind,
        command: order.command,
        version: order.version,
        date,
        machine: Machine::this(),
        references: order.references,
        targets,
        cases,
    }
}

/// How far something is, on standard error if that is a terminal.
pub fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {pos} of {len}, {elapsed}  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
}

/// A target while the cases are measured.
#[derive(Debug)]
pub enum TargetState<M> {
    /// It answers.
    Measuring(M),
    /// It is measured no longer; the text says why.
    Lost(String),
}

impl<M: Measurer> TargetState<M> {
    /// Asks it. A target that fails is lost, and has no answer then and later.
    fn ask(&mut self, request: &Request) -> Option<Reply> {
        let Self::Measuring(measurer) = self else { return None };
        let error = match measurer.ask(request) {
            Ok(Reply::Unable { reason }) => TargetError::Unable(reason),
            Ok(reply) => return Some(reply),
            Err(error) => error,
        };
        *self = Self::Lost(error.to_string());
        None
    }
}

/// What has come of the current case on one target so far.
enum Progress {
    /// Samples so far.
    Going(Samples),
    /// It is over before its time; none where the target is lost.
    Over(Option<Outcome>),
}

/// Measures the cases one after the other, each on all targets in turns. A target that fails is left out from
/// then on; the others go on.
pub fn measure_all<M: Measurer>(
    cases: &[Case],
    plan: &Plan,
    targets: &mut [TargetState<M>],
    bar: &ProgressBar,
) -> Vec<CaseRecord> {
    bar.set_length(cases.len() as u64);
    let mut records = Vec::with_capacity(cases.len());
    for case in cases {
        if targets.iter().all(|target| matches!(target, TargetState::Lost(_))) {
            break;
        }
        let before = records.last().map(rates).unwrap_or_default();
        let message = format!("{case}{before}");
        if bar.is_hidden() {
            // A log shows that it goes on.
            report_step(&mut io::stderr(), records.len(), cases.len(), bar.elapsed(), &message);
        }
        bar.set_message(message);
        records.push(CaseRecord { case: *case, outcomes: measure_case(*case, plan, targets) });
        bar.inc(1);
    }
    records
}

/// Writes how far it is, where no bar can be drawn.
fn report_step(out: &mut impl Write, done: usize, count: usize, elapsed: Duration, message: &str) {
    // Without a standard error it cannot be said.
    let _ = writeln!(out, "causeway: {} of {count}, {} s: {message}", done + 1, elapsed.as_secs());
}

/// What was measured of a case, for who watches: a rate or a time of each target.
fn rates(record: &CaseRecord) -> String {
    let rates = (0..record.outcomes.len()).map(|target| match record.results(target) {
        Some(CaseResult { gb_per_s: Some(rate), .. }) => format!("{} GB/s", significant(rate.median)),
        Some(results) => format!("{} us", significant(results.done_us.median)),
        None => "none".to_owned(),
    });
    format!("; {} was {}", record.case, rates.collect::<Vec<_>>().join(", "))
}

fn measure_case<M: Measurer>(
    case: Case,
    plan: &Plan,
    targets: &mut [TargetState<M>],
) -> Vec<Option<Outcome>> {
    let mut all: Vec<Progress> = Vec::with_capacity(targets.len());
    let mut slowest = Duration::ZERO;
    for target in targets.iter_mut() {
        let (progress, took) = prepare(case, plan, target);
        all.push(progress);
        slowest = slowest.max(took);
    }
    let mut random = Random::default();
    let Ok(()) = interleaved(plan.repetitions_of(case, slowest), targets.len(), |_, index| {
        let progress = &mut all[index];
        let Progress::Going(samples) = progress else { return Ok::<_, Infallible>(false) };
        let request = Request::Measure { untimed: untimed_before(case, &mut random), timed: 1 };
        match targets[index].ask(&request) {
            Some(Reply::Measured(more)) => samples.append(more),
            other => *progress = Progress::Over(other.map(outcome)),
        }
        Ok(true)
    });
    all.into_iter()
        .map(|progress| match progress {
            Progress::Going(samples) => {
                let results = CaseResult::of(case, samples)?;
                Some(Outcome::Measured(Box::new(results)))
            }
            Progress::Over(outcome) => outcome,
        })
        .collect()
}

/// Gets a target ready for a case and warms it up; also says how long the last repetition took.
fn prepare<M: Measurer>(case: Case, plan: &Plan, target: &mut TargetState<M>) -> (Progress, Duration) {
    match target.ask(&Request::Prepare { case }) {
        Some(Reply::Prepared) => {}
        other => return (Progress::Over(other.map(outcome)), Duration::ZERO),
    }
    match target.ask(&Request::Measure { untimed: 0, timed: plan.warm_up_of(case) }) {
        Some(Reply::Measured(samples)) => {
            let last = samples.done_us.last().copied().unwrap_or(0.0) * case.row() as f64;
            // A clock that gives more than a duration holds is nobody's; the case then gets the fewest
            // repetitions.
            let took = Duration::try_from_secs_f64(last / 1e6).unwrap_or(Duration::MAX);
            (Progress::Going(Samples::default()), took)
        }
        other => (Progress::Over(other.map(outcome)), Duration::ZERO),
    }
}

/// What a reply means that is not the one that was hoped for.
fn outcome(reply: Reply) -> Outcome {
    match reply {
        Reply::Wrong { reason } => Outcome::Wrong { reason },
        Reply::Refused { reason } | Reply::Unable { reason } => Outcome::Refused { reason },
        Reply::Ready(_) | Reply::Prepared | Reply::Measured(_) => {
            Outcome::Refused { reason: "the measuring process sent an unexpected response".to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::case::{Path, Wait};

    /// What a target answers to a request; none for the usual.
    type Answer<'a> = Box<dyn FnMut(&Request) -> Option<Result<Reply, TargetError>> + 'a>;

    /// A target that notes when it was measured.
    struct Recording<'a> {
        name: char,
        log: &'a RefCell<String>,
        answer: Answer<'a>,
    }

    impl Measurer for Recording<'_> {
        fn ask(&mut self, request: &Request) -> Result<Reply, TargetError> {
            if let Some(answer) = (self.answer)(request) {
                return answer;
            }
            match request {
                Request::Prepare { .. } | Request::UsePlans { .. } => Ok(Reply::Prepared),
                Request::Measure { timed, .. } => {
                    self.log.borrow_mut().push(self.name);
                    let times = vec![2.0; *timed as usize];
                    let (returned_us, done_us) = (times.clone(), times.clone());
                    Ok(Reply::Measured(Samples { returned_us, done_us, processor_s: times }))
                }
            }
        }
    }

    fn recording<'a>(
        name: char,
        log: &'a RefCell<String>,
        answer: impl FnMut(&Request) -> Option<Result<Reply, TargetError>> + 'a,
    ) -> TargetState<Recording<'a>> {
        TargetState::Measuring(Recording { name, log, answer: Box::new(answer) })
    }

    const PLAN: Plan = Plan { repetitions: 4, budget: Duration::from_secs(1) };
    const CASES: [Case; 2] =
        [Case::Wait { wait: Wait::QueryIdle }, Case::Copy { path: Path::Peer, bytes: 1 << 20 }];

    #[test]
    fn targets_are_measured_in_turns() {
        let log = RefCell::default();
        let mut targets = ['a', 'b', 'c'].map(|name| recording(name, &log, |_| None));
        let records = measure_all(&CASES[..1], &PLAN, &mut targets, &ProgressBar::hidden());
        // The warm-up, then four repetitions.
        assert_eq!(*log.borrow(), "abc".to_owned() + "abc" + "bca" + "cab" + "cba");
        for target in 0..3 {
            assert_eq!(records[0].results(target).unwrap().done_us.count, 4);
        }
    }

    #[test]
    fn a_log_has_a_line_for_each_case() {
        let mut log = Vec::new();
        report_step(&mut log, 2, 20, Duration::from_millis(5900), "a case; before it");
        assert_eq!(String::from_utf8(log).unwrap(), "causeway: 3 of 20, 5 s: a case; before it\n");
    }

    #[test]
    fn who_watches_is_told_the_rates_of_the_case_before() {
        let log = RefCell::default();
        let mut targets = ['a', 'b'].map(|name| recording(name, &log, |_| None));
        let bar = ProgressBar::hidden();
        let copies = [16, 20].map(|shift| Case::Copy { path: Path::PinnedToDevice, bytes: 1 << shift });
        let records = measure_all(&copies, &PLAN, &mut targets, &bar);
        // 65536 bytes in 2 us.
        assert_eq!(rates(&records[0]), format!("; {} was 32.8 GB/s, 32.8 GB/s", copies[0]));
        assert_eq!(bar.message(), format!("{}{}", copies[1], rates(&records[0])));
        let record = CaseRecord { case: CASES[0], outcomes: vec![None] };
        assert!(rates(&record).ends_with(" was none"));
    }

    #[test]
    fn a_target_that_fails_in_the_middle_does_not_stop_the_others() {
        let log = RefCell::default();
        let mut asked = 0;
        let failing = recording('a', &log, move |_| {
            asked += 1;
            // It prepares, warms up and is measured once.
            (asked > 3).then_some(Err(TargetError::Ended("signal: 9".into())))
        });
        let mut targets = [failing, recording('b', &log, |_| None)];
        let records = measure_all(&CASES, &PLAN, &mut targets, &ProgressBar::hidden());
        assert!(matches!(&targets[0], TargetState::Lost(reason) if reason.contains("signal: 9")));
        for record in &records {
            assert!(record.outcomes[0].is_none());
            assert_eq!(record.results(1).unwrap().done_us.count, 4);
        }
    }

    #[test]
    fn a_case_that_cannot_be_measured_costs_only_itself() {
        let log = RefCell::default();
        let refusing = recording('a', &log, |request| match request {
            Request::Prepare { case: Case::Copy { .. }, .. } => {
                Some(Ok(Reply::Refused { reason: "one device".into() }))
            }
            _ => None,
        });
        let wrong = recording('b', &log, |request| match request {
            Request::Prepare { case: Case::Copy { .. }, .. } => {
                Some(Ok(Reply::Wrong { reason: "byte 3".into() }))
            }
            _ => None,
        });
        let mut targets = [refusing, wrong];
        let records = measure_all(&CASES, &PLAN, &mut targets, &ProgressBar::hidden());
        assert!(records[0].results(0).is_some() && records[0].results(1).is_some());
        assert!(matches!(records[1].outcomes[0], Some(Outcome::Refused { .. })));
        assert!(matches!(records[1].outcomes[1], Some(Outcome::Wrong { .. })));
        assert!(targets.iter().all(|target| matches!(target, TargetState::Measuring(_))));
    }
}
