//! Unknown variables: `CAUSEWAY_...` that are set and that no component reads, such as one that is misspelt.

use core::fmt;
use std::ffi::OsString;

use crate::table::{ALL, RENAMED};

/// A variable that is set and means nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    name: String,
    hint: Hint,
}

/// What an unknown variable may be.
#[derive(Debug, PartialEq, Eq)]
enum Hint {
    /// The former name of this one, which still works.
    FormerNameOf(&'static str),
    /// This one, misspelt.
    Like(&'static str),
    /// None that is known.
    Nothing,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = "is set, and Causeway has no such variable";
        match self.hint {
            Hint::FormerNameOf(current) => {
                write!(f, "{} has been renamed {current}; use that name", self.name)
            }
            Hint::Like(likely) => write!(f, "{} {unknown}: is {likely} meant?", self.name),
            Hint::Nothing => write!(f, "{} {unknown}: `causeway --help` lists all", self.name),
        }
    }
}

/// What others set who begin their names alike: Kubernetes for a service called `causeway`, and what builds and
/// tests the source tree.
const OF_OTHERS: [&str; 5] =
    ["CAUSEWAY_SERVICE_", "CAUSEWAY_PORT", "CAUSEWAY_TEST_", "CAUSEWAY_CACHE", "CAUSEWAY_TARGET"];

/// How many letters two words differ by.
pub fn distance(one: &str, other: &str) -> usize {
    strsim::damerau_levenshtein(one, other)
}

/// The variables among these names that mean nothing.
pub fn among(names: impl Iterator<Item = OsString>) -> Vec<Unknown> {
    let text = |name: OsString| name.into_string().ok();
    let is_unknown = |name: &String| {
        name.starts_with("CAUSEWAY_")
            && !ALL.iter().any(|variable| variable.name == name)
            && !OF_OTHERS.iter().any(|others| name.starts_with(others))
    };
    let mut unknown: Vec<_> = names.filter_map(text).filter(is_unknown).map(Unknown::of).collect();
    unknown.sort_by(|one, other| one.name.cmp(&other.name));
    unknown
}

impl Unknown {
    fn of(name: String) -> Self {
        if let Some((_, variable)) = RENAMED.iter().find(|(former, _)| *former == name) {
            return Self { name, hint: Hint::FormerNameOf(variable.name) };
        }
        let distance = |other: &str| distance(&name, other);
        let likely = ALL.iter().map(|variable| (distance(variable.name), variable.name)).min();
        let likely = likely.filter(|(distance, _)| *distance <= 2);
        let hint = likely.map_or(Hint::Nothing, |(_, likely)| Hint::Like(likely));
        Self { name, hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_means_nothing_is_named() {
        let set = [
            "CAUSEWAY_ONN",
            "CAUSEWAY_ON",
            "CAUSEWAY_SERVICE_HOST",
            "HOME",
            "CAUSEWAY_ELEPHANT",
            "CAUSEWAY_VERBS_DEPTH",
        ];
        let said: Vec<_> = among(set.iter().map(OsString::from)).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "CAUSEWAY_ELEPHANT is set, and Causeway has no such variable: `causeway --help` lists all",
                "CAUSEWAY_ONN is set, and Causeway has no such variable: is CAUSEWAY_ON meant?",
                "CAUSEWAY_VERBS_DEPTH has been renamed CAUSEWAY_VERBS_QUEUE_DEPTH; use that name",
            ]
        );
    }
}
