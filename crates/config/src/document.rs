//! Documentation of the variables: in the book, in `--help`, and as an example of a configuration file.

use core::fmt::Write as _;

use crate::file::Section;
use crate::file::keys::{ADDRESS, CLEAR};
use crate::size::Size;
use crate::table::{ALL, LANES, ON, PIPELINE};
use crate::variable::{Component, Fallback, Values, Variable};

/// Which part of the book's page a variable is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Most of them.
    Default,
    /// How InfiniBand and its like are used.
    Verbs,
}

impl Part {
    fn holds(self, variable: &Variable) -> bool {
        !variable.components.contains(&Component::Test)
            && (self == Self::Verbs) == variable.name.starts_with("CAUSEWAY_VERBS_")
    }
}

/// The table of a part of `docs/src/reference/environment.md`, in Markdown. It has two columns: with three it is wider than
/// the page, since names do not break.
pub fn markdown(part: Part) -> String {
    let mut out =
        "| variable, its readers and key | what it does, values, default |\n| --- | --- |\n".to_owned();
    for variable in ALL.iter().filter(|variable| part.holds(variable)) {
        let Variable { name, components, text, more, .. } = variable;
        let readers: Vec<_> = components.iter().map(|component| name_of(*component)).collect();
        let more = if more.is_empty() { String::new() } else { format!(". {more}") };
        let lines = |all: [String; 3]| {
            all.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("<br>")
        };
        let first = lines([code(name), readers.join(", "), in_files(variable)]);
        let values = values(variable);
        let values = if values.is_empty() { values } else { format!("values: {values}") };
        let default = default(variable);
        let default = if default.is_empty() { String::new() } else { format!("not set: {default}") };
        let last = lines([format!("{text}{more}"), values, default]);
        let _ = writeln!(out, "| {first} | {last} |");
    }
    out
}

/// A name as code. A long one may be broken at an underscore, where it needs no hyphen.
fn code(name: &str) -> String {
    const UNBROKEN: usize = 40;
    match name.get(..UNBROKEN).and_then(|begin| begin.rfind('_')) {
        Some(last) if name.len() > UNBROKEN => {
            let (begin, end) = name.split_at(last + 1);
            format!("<code>{begin}<wbr>{end}</code>")
        }
        _ => format!("`{name}`"),
    }
}

/// The sections of configuration files, of which servers have one each.
fn sections() -> [Section; 3] {
    [Section::Client, Section::Server("NAME".to_owned()), Section::Serve]
}

/// What a variable is called in configuration files, and in which sections.
fn in_files(variable: &Variable) -> String {
    let Some(key) = variable.key() else { return String::new() };
    let sections = sections().into_iter().filter(|section| variable.stands_in(section));
    let sections: Vec<_> = sections.map(|section| format!("`{section}`")).collect();
    if sections.is_empty() { String::new() } else { format!("`{key}` in {}", sections.join(", ")) }
}

fn name_of(components: Component) -> &'static str {
    match components {
        Component::Client => "client",
        Component::Worker => "worker",
        Component::Server => "server",
        Component::Run => "`causeway run`",
        Component::Mpirun => "`causeway mpirun`, `causeway bench mpi`",
        Component::Rank => "`libcauseway_mpi.so`",
        Component::Team => "`libcauseway_comm.so`",
        Component::Nccl => "`libnccl-net-causeway.so`",
        Component::Test => "test",
    }
}

/// What may be given, for people.
fn values(variable: &Variable) -> String {
    match variable.values {
        Values::Path => "a path".to_owned(),
        Values::Number(min, max) => format!("{min} to {max}"),
        Values::Seconds(min, max) => format!("{min} to {max}, or a time such as `90s` or `10m`"),
        Values::Size(min, u64::MAX) => format!("a size, {} or more", Size(min)),
        Values::Size(min, max) => format!("a size, {} to {}", Size(min), Size(max)),
        Values::Switch => "`on` or `1`, `off` or `0`".to_owned(),
        Values::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Values::NumberOf(_) | Values::Text(_) => variable.values.expected().unwrap_or_default(),
    }
}

/// What counts where it is not set, for people.
fn default(variable: &Variable) -> String {
    match variable.default {
        Fallback::Text(words) => words.to_owned(),
        Fallback::Number(number) => number.to_string(),
        Fallback::Size(bytes) => Size(bytes).to_string(),
    }
}

/// The variables of the client and of `causeway run`, for the end of `causeway --help`: lines of at most
/// so many characters.
pub fn help(width: usize) -> String {
    let is_listed = |variable: &&&Variable| {
        Part::Default.holds(variable)
            && variable.name.starts_with("CAUSEWAY_")
            && variable.components.iter().any(|components| {
                matches!(components, Component::Client | Component::Run | Component::Worker)
            })
    };
    let mut out = String::new();
    for variable in ALL.iter().filter(is_listed) {
        let mut text = variable.text.to_owned();
        let values = values(variable);
        if !matches!(variable.values, Values::Path) && !values.is_empty() {
            let _ = write!(text, ": {values}");
        }
        let default = default(variable);
        if !default.is_empty() {
            let _ = write!(text, "; if not set, {default}");
        }
        let _ = writeln!(out, "  {}", variable.name);
        // What is code in the book is as it is on a terminal.
        out.push_str(&wrapped("      ", &text.replace('`', ""), width));
    }
    out
}

/// A text in lines of at most so many characters, each of which begins with this.
fn wrapped(begin: &str, text: &str, width: usize) -> String {
    let (mut out, mut line) = (String::new(), begin.to_owned());
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > width && line.len() > begin.len() {
            let _ = writeln!(out, "{line}");
            line = begin.to_owned();
        }
        if line.len() > begin.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
    out
}

/// A section of a configuration file with all keys of the table, each behind `#` with what it does.
pub fn example(section: &Section) -> String {
    const WIDTH: usize = 100;
    let mut out = format!("[{}]\n", section.to_string().trim_matches(['[', ']']));
    let mut entry = |text: &str, key: &str, value: &str| {
        out.push_str(&wrapped("# ", &text.replace('`', ""), WIDTH));
        let _ = writeln!(out, "#{key} = {value}\n");
    };
    if matches!(section, Section::Server(_)) {
        let text = "where the server is: HOST:PORT, unix:PATH, vsock:CID:PORT, or the connect string that `causeway serve` printed, if \
                    no other user can read this file";
        entry(text, ADDRESS, "\"gpu-box.example.org:7690\"");
        entry("nothing is encrypted, for servers that were started with --clear", CLEAR, "false");
    }
    for variable in ALL.iter().filter(|variable| variable.stands_in(section)) {
        let (values, default) = (values(variable), default(variable));
        let mut text = variable.text.to_owned();
        if !matches!(variable.values, Values::Path) && !values.is_empty() {
            let _ = write!(text, ": {values}");
        }
        if !default.is_empty() {
            let _ = write!(text, "; if not set, {default}");
        }
        let key = variable.key().unwrap_or_default();
        entry(&text, &key, &sample(variable));
    }
    out
}

/// A value that a variable may have, as TOML.
fn sample(variable: &Variable) -> String {
    match (variable.values, variable.default) {
        (_, Fallback::Number(number)) => number.to_string(),
        (_, Fallback::Size(bytes)) => format!("\"{}\"", Size(bytes)),
        (Values::Switch, _) => "false".to_owned(),
        _ if *variable == LANES => "4".to_owned(),
        (Values::Number(min, _) | Values::Seconds(min, _), _) => min.to_string(),
        (Values::NumberOf(numbers), _) => numbers.first().map(u64::to_string).unwrap_or_default(),
        (Values::Size(min, _), _) => format!("\"{}\"", Size(min)),
        (Values::Word(words), _) => format!("\"{}\"", words.first().copied().unwrap_or_default()),
        (Values::Path, _) => "\"/a/path\"".to_owned(),
        (Values::Text(_), _) if *variable == ON => "\"gpu-box\"".to_owned(),
        (Values::Text(_), _) if *variable == PIPELINE => "\"..1M: 4x256K\"".to_owned(),
        (Values::Text(_), _) => "\"\"".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_every_variable_of_the_client_in_short_lines() {
        let help = help(100);
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        for name in ["CAUSEWAY_ON", "CAUSEWAY_LANES", "CAUSEWAY_LIB_DIR"] {
            assert!(help.contains(&format!("  {name}\n")), "{help}");
        }
        assert!(
            help.contains("number of connections that carry large copies: 1 to 32; if not set, 4; 8"),
            "{help}"
        );
        assert!(!help.contains('`') && !help.contains("CAUSEWAY_TEST") && !help.contains("CAUSEWAY_DRIVER"));
    }

    #[test]
    fn every_key_of_the_example_may_be_given_as_it_stands_there() {
        use crate::file::{keys, text};
        for section in sections() {
            let example = example(&section);
            assert!(example.lines().all(|line| line.chars().count() <= 100), "{example}");
            let given: String = example
                .lines()
                .filter(|line| !line.starts_with("# "))
                .fold(String::new(), |out, line| out + line.trim_start_matches('#') + "\n");
            let (entries, errors) = text::entries(&std::sync::Arc::new("c.toml".into()), &given);
            assert_eq!(errors, [], "{given}");
            assert_eq!(entries.len(), keys::all(&section).count());
            assert!(entries.iter().all(|entry| keys::examine(entry).is_none()), "{given}");
        }
    }

    #[test]
    fn the_example_of_lanes_is_their_default() {
        assert!(example(&Section::Client).contains("\n#lanes = 4\n"));
    }

    #[test]
    fn only_a_long_name_may_be_broken_in_the_page() {
        assert_eq!(code("CAUSEWAY_COMM_COLLECTIVE_THRESHOLD"), "`CAUSEWAY_COMM_COLLECTIVE_THRESHOLD`");
        assert_eq!(
            code("CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT"),
            "<code>CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_<wbr>PERCENTAGE_LIMIT</code>"
        );
    }

    #[test]
    fn cells_have_no_bars() {
        for part in [Part::Default, Part::Verbs] {
            assert!(markdown(part).lines().all(|line| line.matches('|').count() == 3));
        }
    }
}
