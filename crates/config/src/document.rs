//! How do people read the table, in the book and in `--help`?

use core::fmt::Write as _;

use crate::size::Size;
use crate::table::ALL;
use crate::variable::{Default, Values, Variable, Who};

/// Which part of the book's page a variable is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Most of them.
    Usual,
    /// How InfiniBand and its like are used.
    Verbs,
}

impl Part {
    fn holds(self, variable: &Variable) -> bool {
        !variable.who.contains(&Who::Test)
            && (self == Self::Verbs) == variable.name.starts_with("CAUSEWAY_VERBS_")
    }
}

/// The table of a part of `docs/src/reference/environment.md`, in Markdown.
pub fn markdown(part: Part) -> String {
    let mut out = "| variable | who acts on it | what it does | values | if not set |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for variable in ALL.iter().filter(|variable| part.holds(variable)) {
        let Variable { name, who, text, more, .. } = variable;
        let who: Vec<_> = who.iter().map(|who| name_of(*who)).collect();
        let more = if more.is_empty() { String::new() } else { format!(". {more}") };
        let (values, default) = (values(variable), default(variable));
        let _ = writeln!(out, "| `{name}` | {} | {text}{more} | {values} | {default} |", who.join(", "));
    }
    out
}

fn name_of(who: Who) -> &'static str {
    match who {
        Who::Client => "client",
        Who::Worker => "worker",
        Who::Server => "server",
        Who::Run => "`causeway run`",
        Who::Mpirun => "`causeway mpirun`, `causeway bench mpi`",
        Who::Rank => "`libcauseway_mpi.so`",
        Who::Test => "test",
    }
}

/// What may be given, for people.
fn values(variable: &Variable) -> String {
    match variable.values {
        Values::Path => "a path".to_owned(),
        Values::Number(least, most) => format!("{least} to {most}"),
        Values::Size(least, u64::MAX) => format!("a size, {} or more", Size(least)),
        Values::Size(least, most) => format!("a size, {} to {}", Size(least), Size(most)),
        Values::Switch => "`on` or `1`, `off` or `0`".to_owned(),
        Values::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Values::NumberOf(_) | Values::Text(_) => variable.values.expected().unwrap_or_default(),
    }
}

/// What counts where it is not set, for people.
fn default(variable: &Variable) -> String {
    match variable.default {
        Default::Words(words) => words.to_owned(),
        Default::Number(number) => number.to_string(),
        Default::Size(bytes) => Size(bytes).to_string(),
    }
}

/// The variables of the client and of `causeway run`, for the end of `causeway --help`: lines of at most
/// so many characters.
pub fn help(width: usize) -> String {
    const INDENT: &str = "      ";
    let is_shown = |variable: &&&Variable| {
        Part::Usual.holds(variable)
            && variable.name.starts_with("CAUSEWAY_")
            && variable.who.iter().any(|who| matches!(who, Who::Client | Who::Run | Who::Worker))
    };
    let mut out = String::new();
    for variable in ALL.iter().filter(is_shown) {
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
        let mut line = INDENT.to_owned();
        // What is code in the book is as it is on a terminal.
        for word in text.replace('`', "").split(' ') {
            if line.chars().count() + 1 + word.chars().count() > width && line.len() > INDENT.len() {
                let _ = writeln!(out, "{line}");
                line = INDENT.to_owned();
            }
            if line.len() > INDENT.len() {
                line.push(' ');
            }
            line.push_str(word);
        }
        let _ = writeln!(out, "{line}");
    }
    out
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
            help.contains("how many connections carry large copies: 1 to 32; if not set, 4, or 8"),
            "{help}"
        );
        assert!(!help.contains('`') && !help.contains("CAUSEWAY_TEST") && !help.contains("CAUSEWAY_DRIVER"));
    }

    #[test]
    fn cells_have_no_bars() {
        for part in [Part::Usual, Part::Verbs] {
            assert!(markdown(part).lines().all(|line| line.matches('|').count() == 6));
        }
    }
}
