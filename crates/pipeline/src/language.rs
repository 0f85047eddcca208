//! Text form of a plan table. As [rules] by sizes.
//!
//! ```text
//! table  =  rule *( ";" rule )
//! rule   =  [ module ] [ direction ] [ sizes ":" ] part *( "," part )
//! module =  "tcp" | "shm" | "verbs"              direction =  "to-device" | "from-device"
//! sizes  =  [ size ] ".." [ size ]               the second one is not included
//! part   =  number "x" size                      so many buffers of so many bytes
//!        |  number "lanes"  |  number "threads"  (also "lane", "thread")
//! size   =  number [ "K" | "M" | "G" ]           in powers of two
//! ```
//!
//! A rule without module, direction or sizes is for all of them. What a rule leaves out stays as it would be
//! without it; of several rules that fit a copy, the last one counts.

use core::fmt;

use causeway_config::rules::{self, RuleError};
use causeway_config::table::PIPELINE;
use causeway_config::{Environment, Size};
use thiserror::Error;

use super::plan::{Direction, Plan};
use super::table::{Change, Rule, Table};
use causeway_config::TransportKind;

/// The variable that holds the user's table.
pub const VARIABLE: &str = PIPELINE.name;

/// A table of the user's that is none, with what says so.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{origin}: {cause}")]
pub struct UserTableError {
    /// The variable, or file, line and key.
    origin: String,
    cause: Box<PipelineError>,
}

/// Why a text is no table. Each sentence says what was found, what was expected and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PipelineError {
    /// A part is none that the language has.
    #[error(
        "`{part}` in the rule `{rule}` is invalid; a part is written like `8x4M` (buffers and their size), \
         `4 lanes` or `2 threads`, with commas between them"
    )]
    Part {
        /// The part.
        part: String,
        /// The rule that it stands in.
        rule: String,
    },
    /// What stands before the colon is no range of sizes.
    #[error(
        "{0}; a range of sizes comes before the colon, such as `..1M`, `64K..1M` or `1M..`, and optionally, \
         before that, tcp, shm or verbs, and to-device or from-device"
    )]
    Head(RuleError),
    /// A range ends before it begins.
    #[error(transparent)]
    NoSizes(RuleError),
    /// A number is beyond what can be.
    #[error("`{part}` requests {found} {what}; it must be from {min} to {max}")]
    Limit {
        /// The part.
        part: String,
        /// What is counted.
        what: &'static str,
        /// The number.
        found: String,
        /// The least.
        min: String,
        /// The most.
        max: String,
    },
    /// A rule says the same thing twice.
    #[error("the rule `{rule}` states its {what} twice; remove one")]
    Twice {
        /// What is stated twice.
        what: &'static str,
        /// The rule.
        rule: String,
    },
    /// There is nothing between two semicolons.
    #[error("a rule is empty; write one such as `1M..: 8x4M, 4 lanes` between semicolons")]
    NoRule,
}

impl From<RuleError> for PipelineError {
    fn from(error: RuleError) -> Self {
        match error {
            RuleError::Empty => Self::NoRule,
            RuleError::Head { .. } => Self::Head(error),
            RuleError::NoSizes { .. } => Self::NoSizes(error),
        }
    }
}

impl Table {
    /// The user's table, as variables and configuration files say it.
    ///
    /// # Errors
    /// For a text that is no table.
    pub fn of_user(environment: Environment<'_>) -> Result<Self, UserTableError> {
        let text = environment.text(&PIPELINE).unwrap_or_default();
        Self::parse(&text)
            .map_err(|cause| UserTableError { origin: environment.origin(&PIPELINE), cause: Box::new(cause) })
    }

    /// Reads a table. A semicolon may stand behind the last rule; a text of blanks is the table that changes
    /// nothing.
    pub fn parse(text: &str) -> Result<Self, PipelineError> {
        let written = rules::parse(text, is_name)?;
        Ok(Self { rules: written.iter().map(read_rule).collect::<Result<_, _>>()? })
    }
}

fn module(word: &str) -> Option<TransportKind> {
    TransportKind::ALL.into_iter().find(|module| module.name() == word)
}

fn direction(word: &str) -> Option<Direction> {
    Direction::ALL.into_iter().find(|direction| direction.name() == word)
}

/// Each rule names a module and a direction at most, in any order.
fn is_name(before: &[&str], word: &str) -> bool {
    let is_first = |kind: &dyn Fn(&str) -> bool| kind(word) && !before.iter().any(|name| kind(name));
    is_first(&|name| module(name).is_some()) || is_first(&|name| direction(name).is_some())
}

fn read_rule(written: &rules::Rule<'_>) -> Result<Rule, PipelineError> {
    let mut change = Change::default();
    for part in &written.parts {
        parse_part(part, written.text, &mut change)?;
    }
    Ok(Rule {
        module: written.names.iter().find_map(|name| module(name)),
        direction: written.names.iter().find_map(|name| direction(name)),
        sizes: written.sizes.clone(),
        change,
    })
}

fn parse_part(part: &str, rule: &str, change: &mut Change) -> Result<(), PipelineError> {
    let not_understood = || PipelineError::Part { part: part.to_owned(), rule: rule.to_owned() };
    let digits = part.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = part.split_at(digits);
    let number: u64 = number.parse().map_err(|_| not_understood())?;
    let limited = |what, found: u64, min: usize, max: usize, show: fn(u64) -> String| {
        let fits = usize::try_from(found).ok().filter(|found| (min..=max).contains(found));
        fits.ok_or_else(|| PipelineError::Limit {
            part: part.to_owned(),
            what,
            found: show(found),
            min: show(min as u64),
            max: show(max as u64),
        })
    };
    let plain = |number: u64| number.to_string();
    let (what, is_set) = match unit.trim_start() {
        "lane" | "lanes" => {
            let lanes = limited("lanes", number, 1, Plan::MAX_LANES, plain)?;
            ("lanes", change.lanes.replace(lanes).is_some())
        }
        "thread" | "threads" => {
            let threads = limited("threads", number, 1, Plan::MAX_THREADS, plain)?;
            ("threads", change.threads.replace(threads).is_some())
        }
        other => {
            let size = other.strip_prefix('x').and_then(|size| size.parse::<Size>().ok());
            let size = size.ok_or_else(not_understood)?;
            let buffers = limited("buffers", number, 1, Plan::MAX_BUFFERS, plain)?;
            let bytes = limited("bytes a buffer", size.0, Plan::MIN_BYTES, Plan::MAX_BYTES, |bytes| {
                Size(bytes).to_string()
            })?;
            ("buffers", change.buffers.replace((buffers, bytes)).is_some())
        }
    };
    if is_set {
        return Err(PipelineError::Twice { what, rule: rule.to_owned() });
    }
    Ok(())
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(module) = self.module {
            write!(f, "{module} ")?;
        }
        if let Some(direction) = self.direction {
            write!(f, "{direction} ")?;
        }
        rules::write_sizes(&self.sizes, f)?;
        let Change { buffers, lanes, threads } = self.change;
        let parts = [
            buffers.map(|(count, bytes)| format!("{count}x{}", Size(bytes as u64))),
            lanes.map(|lanes| format!("{lanes} lanes")),
            threads.map(|threads| format!("{threads} threads")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.rules.iter().enumerate() {
            write!(f, "{}{rule}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_documented_examples_say_what_they_mean() {
        let table = Table::parse("..1M: 4x256K, 2 threads; 1M..: 8x4M, 8 lanes, 4 threads").unwrap();
        let plan = |table: &Table, bytes| table.plan(TransportKind::Tcp, Direction::ToDevice, bytes);
        assert_eq!((plan(&table, 1 << 19).buffers, plan(&table, 1 << 19).threads), (4, 2));
        let long = Plan { buffers: 8, buffer_bytes: 4 << 20, lanes: 8, threads: 4 };
        assert_eq!(plan(&table, 1 << 20), long);
        // One setting for everything, with and without the words in the plural.
        let fixed = Table::parse("1x1M, 1 lane, 1 thread").unwrap();
        let one = Plan { buffers: 1, buffer_bytes: 1 << 20, lanes: 1, threads: 1 };
        for module in TransportKind::ALL {
            for direction in Direction::ALL {
                assert!((0..40).all(|shift| fixed.plan(module, direction, 1 << shift) == one));
            }
        }
        let table = Table::parse("shm from-device 64K..1M: 3 threads; tcp 2 lanes;").unwrap();
        assert_eq!(table.plan(TransportKind::Shm, Direction::FromDevice, 1 << 16).threads, 3);
        assert_ne!(table.plan(TransportKind::Shm, Direction::ToDevice, 1 << 16).threads, 3);
        assert_eq!(plan(&table, 1 << 30).lanes, 2);
        assert!(Table::parse("  ").unwrap().is_empty());
    }

    #[test]
    fn errors_name_what_was_written_and_what_to_write() {
        for (text, required) in [
            ("4x4M; ; 2 lanes", "a rule is empty"),
            ("4x", "`4x` in the rule `4x` is invalid"),
            ("fast", "written like `8x4M`"),
            ("..1M: 4x4M 2 lanes", "is invalid"),
            ("1M: 4x4M", "`1M` in the rule"),
            ("udp ..1M: 4x4M", "tcp, shm or verbs"),
            ("tcp tcp ..1M: 4x4M", "`tcp ..1M` in the rule"),
            ("2M..1M: 4x4M", "must be larger"),
            ("0 lanes", "requests 0 lanes; it must be from 1 to 32"),
            ("4x1K", "requests 1K bytes a buffer; it must be from 64K to 64M"),
            ("2 lanes, 3 lanes", "states its lanes twice"),
            ("99999999999999999999 lanes", "is invalid"),
        ] {
            let error = Table::parse(text).unwrap_err().to_string();
            assert!(error.contains(required), "{text}: {error}");
        }
    }

    fn change() -> impl Strategy<Value = Change> {
        let buffers = proptest::option::of((1_usize..=64, 16_u32..=26));
        let numbers = (proptest::option::of(1_usize..=32), proptest::option::of(1_usize..=64));
        (buffers, numbers).prop_map(|(buffers, (lanes, threads))| {
            let buffers = buffers.map(|(count, shift)| (count, 1 << shift));
            let nothing = buffers.is_none() && lanes.is_none() && threads.is_none();
            Change { buffers, lanes: if nothing { Some(1) } else { lanes }, threads }
        })
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let names = (0..=TransportKind::ALL.len(), 0..=Direction::ALL.len());
        (names, change(), 0..1_u64 << 40, 1..1_u64 << 40, any::<bool>()).prop_map(
            |((module, direction), change, start, length, open)| Rule {
                module: TransportKind::ALL.get(module).copied(),
                direction: Direction::ALL.get(direction).copied(),
                sizes: start..if open { u64::MAX } else { start + length },
                change,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(rules in proptest::collection::vec(rule(), 0..6)) {
            let table = Table { rules };
            prop_assert_eq!(Table::parse(&table.to_string()).unwrap(), table);
        }

        #[test]
        fn no_text_is_too_strange(text in "[ -~é]{0,60}") {
            let _ = Table::parse(&text);
        }
    }
}
