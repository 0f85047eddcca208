//! The CUDA programs of `tests/cuda/programs.txt`, what each of them must do, and how all of them are run.

use crate::built;
use crate::process::{Outcome, Running};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

/// One way to run one program.
#[derive(Debug, Clone)]
pub struct Case {
    /// The program's name.
    pub program: String,
    /// `static`, `shared`, `cudart12`, `cudart12.shared` or `driver`.
    pub variant: String,
    /// The program is to be run twice at the same time.
    pub twice: bool,
    /// The program uses what the software GPU does not have.
    pub needs_gpu: bool,
    /// Program and server must share memory.
    pub needs_same_host: bool,
    /// No other program may run on the device meanwhile.
    pub needs_alone: bool,
    /// What it must do.
    pub expects: Expectation,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// What a program must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// End with 0, and `PASS program` as the last line.
    Pass,
    /// As [`Pass`](Self::Pass), with this standard output.
    Output(String),
    /// As [`Pass`](Self::Pass), with these lines of `what = answer` on standard output, of which those may
    /// differ of which one of the patterns names what is answered.
    Answers {
        /// What a real driver answers.
        real: String,
        /// Names, in which a `*` is any text.
        may_differ: Vec<String>,
    },
    /// End with this exit status.
    Exit(i32),
    /// End by this signal.
    Signal(i32),
}

/// Every case in the list.
///
/// # Panics
/// When the list cannot be read, or has a line that does not follow its own explanation.
pub fn cases() -> Vec<Case> {
    let folder = built::source_tree().join("tests/cuda");
    let path = folder.join("programs.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut cases = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [program, variants, needs, expects, arguments @ ..] = columns.as_slice() else {
            panic!("{}: {line:?} has fewer than four columns", path.display());
        };
        let beside = |ending: &str| {
            let path = folder.join("expected").join(format!("{program}.{ending}"));
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let expects = match expects.split_once('=') {
            None if *expects == "pass" => Expectation::Pass,
            None if *expects == "output" => {
                Expectation::Output(beside("txt").unwrap_or_else(|error| panic!("{error}")))
            }
            // What depends on the device is compared where there is one.
            None if *expects == "answers" && needs.split(',').any(|need| need == "gpu") => Expectation::Pass,
            None if *expects == "answers" => {
                let [real, may_differ] =
                    ["txt", "differ"].map(|ending| beside(ending).unwrap_or_else(|error| panic!("{error}")));
                let patterns = may_differ.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
                Expectation::Answers { may_differ: patterns.map(str::to_owned).collect(), real }
            }
            Some(("exit", status)) => Expectation::Exit(status.parse().expect("an exit status is a number")),
            Some(("signal", signal)) => Expectation::Signal(signal.parse().expect("a signal is a number")),
            _ => panic!("{}: {expects:?} is no expectation", path.display()),
        };
        cases.extend(variants.split(',').map(|variant| Case {
            program: (*program).to_owned(),
            variant: variant.to_owned(),
            twice: needs.split(',').any(|need| need == "twice"),
            needs_same_host: needs.split(',').any(|need| need == "same-host"),
            needs_alone: needs.split(',').any(|need| need == "alone"),
            needs_gpu: needs.split(',').any(|need| need == "gpu"),
            expects: expects.clone(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        }));
    }
    cases
}

impl Case {
    /// Its file's name in the folder of compiled programs.
    pub fn file_name(&self) -> String {
        match self.variant.as_str() {
            "static" | "driver" => self.program.clone(),
            variant => format!("{}.{variant}", self.program),
        }
    }

    /// Its compiled program.
    pub fn path(&self) -> PathBuf {
        built::programs_folder().join(self.file_name())
    }

    /// The file's name with the arguments.
    pub fn title(&self) -> String {
        let mut title = self.file_name();
        for argument in &self.arguments {
            title += " ";
            title += argument;
        }
        title
    }

    /// Compares what the program did with what it must do.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub fn judge(&self, outcome: &Outcome) -> Result<(), String> {
        if outcome.timed_out {
            return Err("it did not end".to_owned());
        }
        match &self.expects {
            Expectation::Exit(expected) if outcome.code() != Some(*expected) => {
                Err(format!("it must end with exit status {expected}"))
            }
            Expectation::Signal(expected) if outcome.signal() != Some(*expected) => {
                Err(format!("it must end by signal {expected}"))
            }
            Expectation::Exit(_) | Expectation::Signal(_) => Ok(()),
            Expectation::Pass | Expectation::Output(_) | Expectation::Answers { .. } => {
                self.judge_pass(outcome)
            }
        }
    }

    fn judge_pass(&self, outcome: &Outcome) -> Result<(), String> {
        let last = outcome.stdout.lines().last().unwrap_or_default();
        if outcome.code() != Some(0) {
            Err("it must end with exit status 0".to_owned())
        } else if last != format!("PASS {}", self.program) {
            Err(format!("its last line must be `PASS {}`", self.program))
        } else if let Expectation::Output(expected) = &self.expects
            && outcome.stdout != *expected
        {
            Err(format!("its standard output must be\n{}", expected.trim_end()))
        } else if let Expectation::Answers { real, may_differ } = &self.expects
            && let Some(sentence) = differing(real, &outcome.stdout, may_differ)
        {
            Err(sentence)
        } else if outcome.stderr.lines().any(|line| !is_assertion(line)) {
            Err("nothing but failed assertions of kernels may be on its standard error".to_owned())
        } else {
            Ok(())
        }
    }
}

/// What is wrong with lines of `what = answer`; nothing when all that differ may.
fn differing(real: &str, ours: &str, may_differ: &[String]) -> Option<String> {
    let (here, there) = (real.lines().count(), ours.lines().count());
    if here != there {
        return Some(format!("it must give {here} answers and not {there}"));
    }
    let wrong = real.lines().zip(ours.lines()).filter(|(real, ours)| {
        let what = real.split(" = ").next().unwrap_or_default();
        real != ours && !may_differ.iter().any(|pattern| matches(what, pattern))
    });
    let lines: Vec<_> = wrong.map(|(real, ours)| format!("{real:?} must not be {ours:?}")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Whether a text is a pattern, in which each `*` is any text.
fn matches(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).any(|at| text.get(at..).is_some_and(|text| matches(text, rest)))
        }),
    }
}

/// Whether a line is what CUDA says on standard error of an assertion that failed in a kernel.
fn is_assertion(line: &str) -> bool {
    line.contains("] Assertion `") && line.ends_with("` failed.")
}

/// What came of a case.
struct Row {
    title: String,
    seconds: f64,
    trouble: Option<String>,
}

/// Runs cases, so many at a time and each at most `limit` long, as `start` says; prints a table. Those that need to be alone
/// come last.
///
/// # Panics
/// When one of them does not do what it must.
pub fn run_all(cases: &[Case], at_once: usize, limit: Duration, start: impl Fn(&Case) -> Command + Sync) {
    let (alone, others): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.needs_alone);
    let rows = Mutex::new(Vec::new());
    for (cases, at_once) in [(others, at_once), (alone, 1)] {
        let waiting = Mutex::new(cases.into_iter());
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let next = waiting.lock().unwrap().next();
                        let Some(case) = next else { break };
                        let row = run_one(case, limit, &start);
                        rows.lock().unwrap().push(row);
                    }
                });
            }
        });
    }
    let mut rows = rows.into_inner().unwrap();
    rows.sort_by(|a, b| a.title.cmp(&b.title));
    // Past the test harness, which would swallow the table of a test that passes.
    let _ = std::io::stderr().write_all(table(&rows).as_bytes());
    let failed: Vec<_> =
        rows.iter().filter(|row| row.trouble.is_some()).map(|row| row.title.as_str()).collect();
    assert!(failed.is_empty(), "{} of {} failed: {}", failed.len(), rows.len(), failed.join(", "));
}

/// Runs a case, twice at the same time if it says so.
fn run_one(case: &Case, limit: Duration, start: impl Fn(&Case) -> Command) -> Row {
    if !case.path().is_file() {
        let trouble = Some("it has not been compiled: run `make programs`".to_owned());
        return Row { title: case.title(), seconds: 0.0, trouble };
    }
    let times = if case.twice { 2 } else { 1 };
    let running: Vec<_> = (0..times).map(|_| Running::start(&mut start(case))).collect();
    let outcomes: Vec<_> = running.into_iter().map(|mut process| process.finish(limit)).collect();
    let seconds = outcomes.iter().map(|outcome: &Outcome| outcome.took.as_secs_f64()).fold(0.0, f64::max);
    let trouble = outcomes.iter().find_map(|outcome| {
        case.judge(outcome).err().map(|sentence| format!("{sentence}, but was {outcome}"))
    });
    Row { title: case.title(), seconds, trouble }
}

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.title.len()).max().unwrap_or_default();
    let mut text = String::from("\n");
    for Row { title, seconds, trouble } in rows {
        let verdict = if trouble.is_some() { "FAILED" } else { "ok" };
        let _ = writeln!(text, "{title:width$}  {seconds:6.2} s  {verdict}");
    }
    for row in rows {
        if let Some(trouble) = &row.trouble {
            let _ = writeln!(text, "\n== {}: {trouble}", row.title);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_that_are_named_may_differ() {
        let real = "pinned, 5 = 1\npinned, 16 = 3\nPASS x\n";
        let patterns = ["*, 5".to_owned(), "a * in b *".to_owned()];
        assert_eq!(differing(real, real, &[]), None);
        assert_eq!(differing(real, &real.replace("5 = 1", "5 = error 1"), &patterns), None);
        assert!(
            differing(real, &real.replace("16 = 3", "16 = 2"), &patterns).unwrap().contains("pinned, 16")
        );
        assert!(differing(real, "PASS x\n", &patterns).is_some());
        assert!(matches("a 1 in b 2", &patterns[1]) && !matches("a 1 in c 2", &patterns[1]));
        assert!(!matches("pinned, 55", "*, 5") && !matches("x pinned", "pinned*"));
    }
}
