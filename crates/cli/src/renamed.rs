//! Renamed options: the former name of an option still works, with a warning, until the next minor version.

use std::ffi::OsString;
use std::io::Write as _;

/// An option that had another name.
struct Renamed {
    /// The words of the command, such as `bench mpi`.
    command: &'static str,
    former: &'static str,
    current: &'static str,
}

/// Every option that had another name. What stands here goes with version 0.4.
const RENAMED: &[Renamed] = &[
    Renamed { command: "serve", former: "most-sessions", current: "max-sessions" },
    Renamed { command: "serve", former: "most-sessions-per-peer", current: "max-sessions-per-peer" },
    Renamed { command: "serve", former: "drain", current: "grace-period" },
    Renamed { command: "drain", former: "limit", current: "timeout" },
    Renamed { command: "top", former: "every", current: "interval" },
    Renamed { command: "doctor", former: "meet", current: "rendezvous" },
    Renamed { command: "bench mpi", former: "place", current: "placement" },
    Renamed { command: "bench mpi", former: "own-options", current: "launcher-options" },
    Renamed { command: "bench mpi", former: "limit", current: "timeout" },
    Renamed { command: "bench device", former: "limit", current: "timeout" },
];

/// The name that an option of `command` has today; `name` itself where it is not a former one. Names have no dashes
/// in front.
pub fn current<'a>(command: &str, name: &'a str) -> &'a str {
    let renamed = RENAMED.iter().find(|renamed| renamed.command == command && renamed.former == name);
    renamed.map_or(name, |renamed| renamed.current)
}

/// The command line with former names replaced by today's; standard error has a warning for each.
pub fn with_current_names(words: Vec<OsString>) -> Vec<OsString> {
    let (words, warnings) = replace(words);
    for warning in warnings {
        let _ = writeln!(std::io::stderr(), "causeway: warning: {warning}");
    }
    words
}

/// The command line with today's names, and a sentence for each former one. Words behind `--` belong to programs.
fn replace(mut words: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut warnings = Vec::new();
    let text = |index: usize| words.get(index).and_then(|word| word.to_str()).unwrap_or_default();
    let command = match text(1) {
        "bench" => format!("bench {}", text(2)),
        other => other.to_owned(),
    };
    for word in words.iter_mut().skip(2).take_while(|word| *word != "--") {
        let Some(option) = word.to_str().and_then(|word| word.strip_prefix("--")) else { continue };
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let today = current(&command, name);
        if today != name {
            warnings
                .push(format!("--{name} of causeway {command} has been renamed --{today}; use that name"));
            *word = value.map_or_else(|| format!("--{today}"), |value| format!("--{today}={value}")).into();
        }
    }
    (words, warnings)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn former_names_are_replaced_up_to_the_program() {
        let replaced = |line: &str| {
            let (words, warnings) = replace(line.split(' ').map(OsString::from).collect());
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            (words.join(" "), warnings.len())
        };
        let pairs = [
            (
                "causeway serve --most-sessions 7 --drain=3",
                "causeway serve --max-sessions 7 --grace-period=3",
                2,
            ),
            (
                "causeway bench mpi --place same -- mpirun --place x",
                "causeway bench mpi --placement same -- mpirun --place x",
                1,
            ),
            ("causeway run --every 1", "causeway run --every 1", 0),
            ("causeway top --interval 1", "causeway top --interval 1", 0),
        ];
        for (typed, expected, warnings) in pairs {
            assert_eq!(replaced(typed), (expected.to_owned(), warnings));
        }
    }

    #[test]
    fn current_names_are_options_and_former_ones_are_not() {
        let all = crate::Arguments::command();
        for Renamed { command, former, current } in RENAMED {
            let found = command.split(' ').try_fold(&all, |all, word| all.find_subcommand(word)).unwrap();
            let has = |name: &str| found.get_arguments().any(|option| option.get_long() == Some(name));
            assert!(has(current) && !has(former), "{command} --{former}");
        }
    }
}
