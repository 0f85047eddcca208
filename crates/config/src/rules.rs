//! Rules by size, which several variables hold.
//!
//! ```text
//! rules  =  rule *( ";" rule )
//! rule   =  *name [ sizes ":" ] part *( "," part )
//! sizes  =  [ size ] ".." [ size ]               the second one is not included
//! size   =  number [ "K" | "M" | "G" | "T" ]     in powers of two
//! ```
//!
//! The reader of the rules defines which names and parts there are.

use core::fmt;
use core::ops::Range;

use thiserror::Error;

use super::size::Size;

/// A rule as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule<'a> {
    /// All of it.
    pub text: &'a str,
    /// The names in front, in their order.
    pub names: Vec<&'a str>,
    /// The sizes that it is for, without the end. An end of `u64::MAX` is none.
    pub sizes: Range<u64>,
    /// What stands between commas.
    pub parts: Vec<&'a str>,
}

/// Why a text is no rules.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleError {
    /// There is nothing between two semicolons.
    #[error("a rule is empty")]
    Empty,
    /// What stands before the colon is no range of sizes.
    #[error("`{head}` in the rule `{rule}` is invalid")]
    Head {
        /// What was not understood.
        head: String,
        /// The rule that it stands in.
        rule: String,
    },
    /// A range ends before it begins.
    #[error("the range `{range}` is empty; its second size must be larger than its first")]
    NoSizes {
        /// The range.
        range: String,
    },
}

/// Reads rules. A semicolon may stand behind the last one; a text of blanks has none. `matches` says of each word in
/// front, with those before it in the rule, whether it is a name.
///
/// # Errors
/// For a text that is none.
pub fn parse<'a>(text: &'a str, matches: impl Fn(&[&str], &str) -> bool) -> Result<Vec<Rule<'a>>, RuleError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let rules = text.strip_suffix(';').unwrap_or(text).split(';');
    rules.map(|rule| parse_rule(rule.trim(), &matches)).collect()
}

fn parse_rule<'a>(text: &'a str, matches: &impl Fn(&[&str], &str) -> bool) -> Result<Rule<'a>, RuleError> {
    if text.is_empty() {
        return Err(RuleError::Empty);
    }
    let mut names = Vec::new();
    let (sizes, parts) = match text.split_once(':') {
        Some((head, parts)) => match take_names(head.trim(), &mut names, matches) {
            "" => (0..u64::MAX, parts.trim()),
            rest => (parse_sizes(rest, text)?, parts.trim()),
        },
        // The names stand directly before the parts.
        None => (0..u64::MAX, take_names(text, &mut names, matches)),
    };
    Ok(Rule { text, names, sizes, parts: parts.split(',').map(str::trim).collect() })
}

/// Takes names from the front of a text; what remains.
fn take_names<'a>(
    mut text: &'a str,
    names: &mut Vec<&'a str>,
    matches: &impl Fn(&[&str], &str) -> bool,
) -> &'a str {
    loop {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if word.is_empty() || !matches(names, word) {
            return text;
        }
        names.push(word);
        text = rest.trim_start();
    }
}

fn parse_sizes(text: &str, rule: &str) -> Result<Range<u64>, RuleError> {
    let not_understood = || RuleError::Head { head: text.to_owned(), rule: rule.to_owned() };
    let (start, end) = text.split_once("..").ok_or_else(not_understood)?;
    let bound = |bound: &str, none| match bound.trim() {
        "" => Ok(none),
        size => size.parse().map(|Size(bytes)| bytes).map_err(|_| not_understood()),
    };
    let (start, end) = (bound(start, 0)?, bound(end, u64::MAX)?);
    if start >= end {
        return Err(RuleError::NoSizes { range: text.to_owned() });
    }
    Ok(start..end)
}

/// Whether sizes, as rules have them, hold a number.
pub fn holds(sizes: &Range<u64>, bytes: u64) -> bool {
    sizes.contains(&bytes) || bytes == u64::MAX && sizes.end == u64::MAX
}

/// Writes sizes as rules have them, with the colon; nothing where they are all.
///
/// # Errors
/// When it cannot be written.
pub fn write_sizes(sizes: &Range<u64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if *sizes == (0..u64::MAX) {
        return Ok(());
    }
    if sizes.start > 0 {
        write!(f, "{}", Size(sizes.start))?;
    }
    f.write_str("..")?;
    if sizes.end < u64::MAX {
        write!(f, "{}", Size(sizes.end))?;
    }
    f.write_str(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of two names once.
    fn matches(before: &[&str], word: &str) -> bool {
        ["a", "b"].contains(&word) && !before.contains(&word)
    }

    #[test]
    fn rules_have_names_sizes_and_parts() {
        let rules = parse(" b a 64K..1M: x, y z ; a x; ..: q;", matches).unwrap();
        let found: Vec<_> =
            rules.iter().map(|rule| (&*rule.names, rule.sizes.clone(), &*rule.parts)).collect();
        assert_eq!(
            found,
            [
                (&["b", "a"][..], 64 << 10..1 << 20, &["x", "y z"][..]),
                (&["a"][..], 0..u64::MAX, &["x"][..]),
                (&[][..], 0..u64::MAX, &["q"][..]),
            ]
        );
        assert_eq!(rules[1].text, "a x");
        assert!(parse("  ", matches).unwrap().is_empty());
    }

    #[test]
    fn what_is_none_is_told_by_its_words() {
        for (text, wanted) in [
            ("x; ; y", "a rule is empty"),
            ("1M: x", "`1M` in the rule `1M: x` is invalid"),
            ("a a ..1M: x", "`a ..1M` in the rule"),
            ("..1X: x", "`..1X` in the rule"),
            ("2M..1M: x", "the range `2M..1M` is empty"),
        ] {
            let error = parse(text, matches).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn the_end_of_all_sizes_is_one_of_them() {
        assert!(holds(&(5..u64::MAX), u64::MAX) && holds(&(5..7), 6) && !holds(&(5..7), 7));
    }
}
