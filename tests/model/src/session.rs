//! A process that runs programs, so that one that hangs or dies takes nothing else along.
//!
//! The parent writes a line for each program, its seed and which operations to keep, and the child answers
//! with a line.

use crate::generate::{Profile, Setting, generate};
use crate::run::{self, Machine, Outcome};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How a program ended, as the parent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the model says.
    Right,
    /// Memory held something else.
    Wrong(String),
    /// A call failed.
    Failed(String),
    /// It took longer than it may.
    Hung,
    /// The process ended.
    Died,
}

/// What is the same for all sessions.
#[derive(Clone, Debug)]
pub struct Options {
    /// The arguments for the child's command line.
    pub arguments: Vec<String>,
    /// How long a program may take.
    pub limit: Duration,
}

/// A child process.
pub struct Session {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    limit: Duration,
    /// What programs may use there.
    pub setting: Setting,
}

impl Session {
    /// Starts a child, and waits until it has found a driver.
    pub fn start(options: &Options, profile: Profile) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(&options.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let (Some(requests), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the child has no pipes".to_owned());
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        // A connection may take a while.
        let first =
            answers.recv_timeout(Duration::from_secs(60)).map_err(|_| "no driver was found".to_owned())?;
        let setting = parse_setting(&first, profile).ok_or(first)?;
        Ok(Self { child, requests, answers, limit: options.limit, setting })
    }

    /// Runs a program, or a part of one. After anything but an answer, the session is of no more use.
    pub fn run(&mut self, seed: u64, kept: Option<&[usize]>) -> Verdict {
        let list = kept.map_or("all".to_owned(), write_list);
        if writeln!(self.requests, "{seed} {list}").is_err() {
            return Verdict::Died;
        }
        match self.answers.recv_timeout(self.limit) {
            Ok(answer) => match answer.split_once(' ').unwrap_or((&answer, "")) {
                ("right", _) => Verdict::Right,
                ("wrong", what) => Verdict::Wrong(what.to_owned()),
                (_, what) => Verdict::Failed(what.to_owned()),
            },
            Err(RecvTimeoutError::Timeout) => Verdict::Hung,
            Err(RecvTimeoutError::Disconnected) => Verdict::Died,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child: answers until its input ends.
pub fn serve(library: &Path, devices: usize, without: &[String], profile: Profile) -> Result<(), String> {
    let machine = Machine::open(library)?;
    let has = |feature: bool, name: &str| feature && !without.iter().any(|other| other == name);
    let setting = Setting {
        devices: machine.contexts.len().min(devices),
        managed: has(machine.managed, "managed"),
        pools: has(machine.pools, "pools"),
        values: has(machine.values, "values"),
        uploads_wait: has(true, "upload-waits"),
        host_order: has(true, "host-order"),
        host_sources: has(true, "host-sources"),
        profile,
    };
    let mut output = io::stdout();
    let Setting { devices, managed, pools, values, uploads_wait, host_order, host_sources, .. } = setting;
    let mut answer = |line: String| writeln!(output, "{line}").and_then(|()| output.flush());
    answer(format!("ready {devices} {managed} {pools} {values} {uploads_wait} {host_order} {host_sources}"))
        .map_err(|error| error.to_string())?;
    for line in io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let Some((seed, list)) = line.split_once(' ') else { continue };
        let program = generate(seed.parse().map_err(|_| "no seed".to_owned())?, &setting);
        let program = match parse_list(list) {
            Some(kept) => program.keep(&kept),
            None => program,
        };
        let line = match run::run(&machine, &program) {
            Outcome::Right => "right".to_owned(),
            Outcome::Wrong(what) => format!("wrong {what}"),
            Outcome::Failed(what) => format!("failed {what}"),
        };
        answer(line).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn parse_setting(line: &str, profile: Profile) -> Option<Setting> {
    let mut words = line.strip_prefix("ready ")?.split(' ');
    let devices = words.next()?.parse().ok()?;
    let mut flag = || words.next()?.parse().ok();
    let (managed, pools, values) = (flag()?, flag()?, flag()?);
    let (uploads_wait, host_order, host_sources) = (flag()?, flag()?, flag()?);
    Some(Setting { devices, managed, pools, values, uploads_wait, host_order, host_sources, profile })
}

/// Numbers as ranges: `0-3,7`.
pub fn write_list(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// Reads what [`write_list`] writes; none if it is no list.
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::{parse_list, write_list};

    #[test]
    fn lists_are_read_as_they_are_written() {
        for numbers in [vec![], vec![4], vec![0, 1, 2, 7], vec![3, 5, 6]] {
            assert_eq!(parse_list(&write_list(&numbers)), Some(numbers));
        }
        assert_eq!(write_list(&[0, 1, 2, 7]), "0-2,7");
        assert_eq!(parse_list("all"), None);
    }
}
