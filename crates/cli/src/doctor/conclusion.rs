//! Conclusion of a diagnosis: the last line, and the advice.

use causeway_wire::text::{MAX_LINE_BYTES, printable};

/// The last lines: how many problems there are, and what to do about them.
pub(super) fn conclusion(problems: usize, advice: &[&str]) -> String {
    let mut out = match problems {
        0 => "No problem.\n".to_owned(),
        1 => "One problem.\n".to_owned(),
        _ => format!("{problems} problems.\n"),
    };
    if !advice.is_empty() {
        out += "What to do:\n";
    }
    for (number, advice) in advice.iter().enumerate() {
        out += &format!("  {}. {}\n", number + 1, printable(advice, MAX_LINE_BYTES));
    }
    out
}
