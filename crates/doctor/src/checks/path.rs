//! Paths: between a client and its server, and between two servers for copies between their devices.

use serde::{Deserialize, Serialize};

use crate::checks::{About, Finding};
use crate::facts::{Facts, Port};

/// What was measured between here and a server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ServerPath {
    /// The server's address.
    pub target: String,
    /// Microseconds from a question to its answer over TCP, the shortest and the median.
    pub round_trip: Option<(f64, f64)>,
    /// Bytes of the longest packet on the way, as TCP has found.
    pub path_mtu: Option<u32>,
    /// Why the server does not say what its machine is like, if so.
    pub silence: Option<String>,
    /// What executes a session's calls.
    pub backend: Option<String>,
    /// What a session uses; nothing when there is none.
    pub used: Option<String>,
    /// Whether the user asked for one module.
    pub is_chosen: bool,
    /// Each module that a session does not use, and why.
    pub not_used: Vec<(String, String)>,
    /// Why there is no session.
    pub failure: Option<String>,
    /// What to do about that, where more can be said than the reason itself does.
    pub advice: Option<String>,
}

/// Judges the way between two machines; `there` is the default where the server does not tell.
pub fn check(here: &Facts, there: &Facts, path: &ServerPath) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(why) = &path.silence {
        findings.push(Finding::problem(
            About::Path,
            format!("The server does not describe its machine: {why}."),
            "Look at its log, or run `causeway doctor` there.",
        ));
    }
    if let Some((min, median)) = path.round_trip {
        let text = format!("A round trip takes {min:.0} us at best, {median:.0} us in the median.");
        findings.push(if median < 1000.0 {
            Finding::good(About::Path, text)
        } else {
            Finding::note(About::Path, text).advise(
                "Each call that waits costs that much; `causeway run --stats` reports how many a \
                    program makes.",
            )
        });
    }
    findings.extend(path.path_mtu.map(|mtu| path_mtu(mtu, here, there)));
    match (&path.used, &path.failure) {
        (Some(used), _) => {
            let backend = path.backend.as_deref().unwrap_or("an unknown GPU");
            findings.push(Finding::good(About::Path, format!("Sessions use {used} and {backend}.")));
            let reasons = path.not_used.iter();
            findings.extend(reasons.map(|(via, why)| not_used(path, used, via, why, here, there)));
        }
        (None, Some(why)) => findings.push(Finding {
            advice: path.advice.clone(),
            ..Finding::problem(
                About::Path,
                format!("The server opens no session: {}.", why.trim_end_matches(['.', '?'])),
                "",
            )
        }),
        (None, None) => {}
    }
    if !there.live.release.is_empty() && here.live.release != there.live.release {
        findings.push(
            Finding::note(
                About::Path,
                format!("This is Causeway {}, the server's is {}.", here.live.release, there.live.release),
            )
            .advise(
                "Incompatible versions report an error; the same version on both machines is tested \
                best.",
            ),
        );
    }
    findings
}

/// Whether a faster network is cut into packets that are too short for it.
fn path_mtu(mtu: u32, here: &Facts, there: &Facts) -> Finding {
    let is_fast = |facts: &Facts| active(facts).any(Port::is_ethernet);
    let text = format!("TCP's longest packets on the path have {mtu} bytes.");
    if mtu <= 1500 && is_fast(here) && is_fast(there) {
        Finding::note(About::Path, text).advise(
            "If this is the network of the RDMA devices, an MTU of 9000 on both machines and the \
                switch saves work.",
        )
    } else {
        Finding::good(About::Path, text)
    }
}

fn active(facts: &Facts) -> impl Iterator<Item = &Port> {
    facts.rdma.devices.iter().flat_map(|device| &device.ports).filter(|port| port.is_active())
}

fn not_used(path: &ServerPath, used: &str, via: &str, why: &str, here: &Facts, there: &Facts) -> Finding {
    let text = format!("Sessions cannot use {via}: {why}.");
    let link_layers = |facts| active(facts).map(|port| port.link_layer.as_str()).collect::<Vec<_>>();
    let (layers_here, layers_there) = (link_layers(here), link_layers(there));
    if via != "verbs" || used == "shm" || path.is_chosen {
        return Finding::good(About::Path, text);
    }
    if layers_here.iter().any(|layer| layers_there.contains(layer)) {
        Finding::problem(
            About::Path,
            text,
            "Both machines have a working RDMA port: see the findings for each, then try `causeway run --via \
             verbs`.",
        )
    } else if layers_here.is_empty() || layers_there.is_empty() {
        Finding::good(About::Path, text)
    } else {
        Finding::note(About::Path, text).advise(format!(
            "The ports here are {}, those there {}: they cannot be connected.",
            layers_here.join(" and "),
            layers_there.join(" and ")
        ))
    }
}

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
pub fn check_between(path: &Between) -> Finding {
    let Between { from, to, used, reason } = path;
    match used.as_deref() {
        Some("shm") => Finding::good(
            About::Path,
            format!(
                "Copies from devices of {from} to those of {to}: through shared memory, or by the devices \
                 themselves if they can access each other's memory{reason}."
            ),
        ),
        Some(used) => Finding::good(
            About::Path,
            format!("Copies from devices of {from} to those of {to}: over {used}{reason}."),
        ),
        None => Finding::problem(
            About::Path,
            format!("There is no path from {from} to {to}: {reason}."),
            "Copies between their devices go through the client. Let the receiving server connect to the \
             other one's port, and name servers by addresses that all machines can resolve.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Level;

    #[test]
    fn a_missing_path_is_a_problem_and_others_have_their_reasons() {
        let path =
            Between { from: "a:1".into(), to: "b:2".into(), used: None, reason: "nothing listens".into() };
        let missing = check_between(&path);
        assert!(missing.level == Level::Problem && missing.text.contains("from a:1 to b:2: nothing listens"));
        let used = |used: &str| {
            check_between(&Between {
                used: Some(used.into()),
                reason: "; not shm: far".into(),
                ..path.clone()
            })
        };
        assert!(used("tcp").text.ends_with("over tcp; not shm: far.") && used("tcp").level == Level::Good);
        assert!(used("shm").text.contains("by the devices themselves"));
    }
}
