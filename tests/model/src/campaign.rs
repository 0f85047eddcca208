//! Many programs, one after the other or several at a time, and what came of them.

use crate::Arguments;
use causeway_model::generate::generate;
use causeway_model::reduce::reduce;
use causeway_model::session::{self, Session, Verdict};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What came of the programs of one kind.
#[derive(Clone, Copy, Default)]
struct Count {
    programs: u64,
    wrong: u64,
    hung: u64,
    failed: u64,
}

#[derive(Default)]
struct Results {
    kinds: BTreeMap<&'static str, Count>,
    /// Seeds that did not go well.
    bad: Vec<(u64, Verdict)>,
}

impl Results {
    fn total(&self) -> Count {
        self.kinds.values().fold(Count::default(), |sum, count| Count {
            programs: sum.programs + count.programs,
            wrong: sum.wrong + count.wrong,
            hung: sum.hung + count.hung,
            failed: sum.failed + count.failed,
        })
    }

    fn add(&mut self, kind: &'static str, seed: u64, verdict: &Verdict) {
        let count = self.kinds.entry(kind).or_default();
        count.programs += 1;
        match verdict {
            Verdict::Right => return,
            Verdict::Wrong(_) => count.wrong += 1,
            Verdict::Hung => count.hung += 1,
            Verdict::Failed(_) | Verdict::Died => count.failed += 1,
        }
        self.bad.push((seed, verdict.clone()));
    }

    fn print(&self, seconds: f64) {
        let Count { programs, wrong, hung, failed } = self.total();
        let bad = |count: &Count| count.wrong + count.hung + count.failed;
        let kinds: Vec<String> = self
            .kinds
            .iter()
            .map(|(kind, count)| format!("{kind} {} of {}", bad(count), count.programs))
            .collect();
        println!(
            "model: {programs} programs, {wrong} wrong, {hung} hung, {failed} failed ({}), {seconds:.1} seconds",
            kinds.join(", ")
        );
    }
}

/// Runs what the command line asks for, and says whether all went well.
pub fn run(arguments: &Arguments) -> Result<bool, String> {
    let started = Instant::now();
    let results = match arguments.only {
        Some(seed) => repeat(arguments, seed)?,
        None => all(arguments, started)?,
    };
    let elapsed = started.elapsed().as_secs_f64();
    if arguments.keep.is_none() {
        for (seed, verdict) in results.bad.iter().take(arguments.reduce) {
            shrink(arguments, *seed, verdict)?;
        }
    }
    results.print(elapsed);
    Ok(results.bad.is_empty())
}

fn start(arguments: &Arguments, limit: u64) -> Result<Session, String> {
    Session::start(&arguments.options(limit), arguments.profile())
}

/// Whether a session can go on after a program that ended so. After a failed call, who knows what is left of
/// it.
fn is_usable(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Right | Verdict::Wrong(_))
}

fn repeat(arguments: &Arguments, seed: u64) -> Result<Results, String> {
    let kept = match &arguments.keep {
        Some(list) => Some(session::parse_list(list).ok_or("--keep is no list of numbers")?),
        None => None,
    };
    let mut results = Results::default();
    let mut session = start(arguments, arguments.limit)?;
    for _ in 0..arguments.times {
        let verdict = session.run(seed, kept.as_deref());
        report(&mut results, &session, seed, &verdict);
        if !is_usable(&verdict) {
            session = start(arguments, arguments.limit)?;
        }
    }
    Ok(results)
}

fn report(results: &mut Results, session: &Session, seed: u64, verdict: &Verdict) {
    let kind = generate(seed, &session.setting).kind;
    results.add(kind, seed, verdict);
    match verdict {
        Verdict::Right => {}
        Verdict::Wrong(what) => println!("wrong: seed {seed} ({kind}): {what}"),
        Verdict::Failed(what) => println!("failed: seed {seed} ({kind}): {what}"),
        Verdict::Hung => println!("hung: seed {seed} ({kind})"),
        Verdict::Died => println!("died: seed {seed} ({kind})"),
    }
}

fn all(arguments: &Arguments, started: Instant) -> Result<Results, String> {
    let (next, stop) = (AtomicU64::new(arguments.seeds.0), AtomicBool::new(false));
    let results = Mutex::new(Results::default());
    let has_time =
        || arguments.seconds.is_none_or(|seconds| started.elapsed() < Duration::from_secs(seconds));
    let job = || -> Result<(), String> {
        let mut session = start(arguments, arguments.limit)?;
        while has_time() && !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= arguments.seeds.1 {
                break;
            }
            let verdict = session.run(seed, None);
            let mut results = results.lock().map_err(|_| "another job panicked".to_owned())?;
            report(&mut results, &session, seed, &verdict);
            stop.fetch_or(arguments.first && verdict != Verdict::Right, Ordering::Relaxed);
            if !is_usable(&verdict) {
                drop(results);
                session = start(arguments, arguments.limit)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..arguments.jobs.max(1)).map(|_| scope.spawn(job)).collect();
        jobs.into_iter().try_for_each(|job| job.join().map_err(|_| "a job panicked".to_owned())?)
    })?;
    results.into_inner().map_err(|_| "a job panicked".to_owned())
}

/// Reduces a program that went wrong, and prints what is left.
fn shrink(arguments: &Arguments, seed: u64, verdict: &Verdict) -> Result<(), String> {
    // What takes a hundredth of a second, and hangs otherwise, need not be waited for that long.
    let limit = arguments.limit.min(4);
    let mut session = start(arguments, limit)?;
    let program = generate(seed, &session.setting);
    let end = Instant::now() + Duration::from_secs(arguments.reduce_seconds);
    let everything: Vec<usize> = (0..program.ops.len()).collect();
    let is_same = |other: &Verdict| core::mem::discriminant(other) == core::mem::discriminant(verdict);
    let mut last = verdict.clone();
    let mut fails = |kept: &[usize], tries: usize| {
        for _ in 0..tries {
            let found = session.run(seed, Some(kept));
            if !is_usable(&found) {
                match start(arguments, limit) {
                    Ok(fresh) => session = fresh,
                    Err(_) => return false,
                }
            }
            if is_same(&found) {
                last = found;
                return true;
            }
            if Instant::now() > end {
                break;
            }
        }
        false
    };
    // Faults come by chance: what fails in one of four tries is tried three times as often.
    let often = (0..12).filter(|_| fails(&everything, 1)).count();
    let tries = 36_usize.checked_div(often).unwrap_or(40).max(3);
    let kept = reduce(&program, everything, |kept| fails(kept, tries), || Instant::now() < end);
    println!("seed {seed}, which failed {often} of 12 times, reduced from {} operations:", program.ops.len());
    print!("{}", program.keep(&kept));
    if let Verdict::Wrong(what) | Verdict::Failed(what) = &last {
        println!("  {what}");
    }
    println!("  again: causeway-model --only {seed} --keep {} --times 20", session::write_list(&kept));
    Ok(())
}
