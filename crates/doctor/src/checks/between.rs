//! The ways between two servers, for copies between their devices.

use super::{About, Finding};
use serde::Serialize;

/// What was found when one server's worker connected to another's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Between {
    /// The server whose devices are copied from.
    pub from: String,
    /// The server whose devices are copied to; its worker connects to the other one's.
    pub to: String,
    /// The module that carries copies; nothing when there is no way.
    pub used: Option<String>,
    /// Why no better one does, or why none does.
    pub reason: String,
}

/// Judges a path between two servers.
pub fn check(path: &Between) -> Finding {
    let Between { from, to, used, reason } = path;
    match used.as_deref() {
        Some("shm") => Finding::good(
            About::Path,
            format!(
                "Copies from devices of {from} to those of {to}: through shared memory, or by the devices themselves where \
                 they reach each other's memory{reason}."
            ),
        ),
        Some(used) => Finding::good(
            About::Path,
            format!("Copies from devices of {from} to those of {to}: over {used}{reason}."),
        ),
        None => Finding::problem(
            About::Path,
            format!("There is no way from {from} to {to}: {reason}."),
            "Copies between their devices go by way of the client. Let the receiving server through to the other one's port, and \
             name servers by addresses that all machines understand.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_missing_way_is_a_problem_and_others_are_told_with_their_reasons() {
        let path =
            Between { from: "a:1".into(), to: "b:2".into(), used: None, reason: "nothing listens".into() };
        let missing = check(&path);
        assert!(missing.level == Level::Problem && missing.text.contains("from a:1 to b:2: nothing listens"));
        let used = |used: &str| {
            check(&Between { used: Some(used.into()), reason: "; not shm: far".into(), ..path.clone() })
        };
        assert!(used("tcp").text.ends_with("over tcp; not shm: far.") && used("tcp").level == Level::Good);
        assert!(used("shm").text.contains("by the devices themselves"));
    }
}
