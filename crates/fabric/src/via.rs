//! Which module is in use, and why not another? Pure decisions, and the sentences that explain them.

use core::fmt;
use core::str::FromStr;

use causeway_wire::handshake::Locality;
use thiserror::Error;

use crate::shm::JoinError;

/// A module of the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// TCP connections.
    Tcp,
    /// Memory that both processes map.
    Shm,
    /// InfiniBand and its like.
    Verbs,
}

impl Via {
    /// All of them, the best first.
    pub const ALL: [Self; 3] = [Self::Shm, Self::Verbs, Self::Tcp];
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Shm => "shm",
            Self::Verbs => "verbs",
        })
    }
}

/// Which module a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ViaChoice {
    /// The best that works.
    #[default]
    Auto,
    /// This one or none.
    Only(Via),
}

/// A text that names no [`ViaChoice`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no way to a server: choose auto, tcp, shm (the same host's memory) or verbs (InfiniBand, RoCE)"
)]
pub struct UnknownVia(String);

impl FromStr for ViaChoice {
    type Err = UnknownVia;

    fn from_str(text: &str) -> Result<Self, UnknownVia> {
        match text.trim() {
            "" | "auto" => Ok(Self::Auto),
            "tcp" => Ok(Self::Only(Via::Tcp)),
            "shm" => Ok(Self::Only(Via::Shm)),
            "verbs" => Ok(Self::Only(Via::Verbs)),
            other => Err(UnknownVia(other.to_owned())),
        }
    }
}

impl fmt::Display for ViaChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(via) => via.fmt(f),
        }
    }
}

impl ViaChoice {
    /// Whether a module may be used.
    pub fn admits(self, via: Via) -> bool {
        self == Self::Auto || self == Self::Only(via)
    }
}

/// Why a module is not in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The module.
    pub via: Via,
    /// Why, as a sentence without its full stop.
    pub text: String,
}

/// Why each module is not in use, but for the one that is. `tried` says why those failed that were tried.
pub fn reasons(choice: ViaChoice, used: Via, tried: &[Reason]) -> Vec<Reason> {
    let reason = |via| {
        let failure = tried.iter().find(|reason| reason.via == via);
        let text = match (failure, choice) {
            (Some(failure), _) => failure.text.clone(),
            (None, ViaChoice::Only(only)) => format!("only {only} was asked for"),
            (None, ViaChoice::Auto) => format!("{used} is faster"),
        };
        Reason { via, text }
    };
    Via::ALL.into_iter().filter(|via| *via != used).map(reason).collect()
}

/// Why no better module than `used` is in use, as the rest of a sentence; empty where there is none better.
pub fn why_not_better(used: Via, reasons: &[Reason]) -> String {
    let better = Via::ALL.into_iter().take_while(|via| *via != used);
    let reasons = better.filter_map(|via| reasons.iter().find(|reason| reason.via == via));
    reasons.map(|reason| format!("; not {}: {}", reason.via, reason.text)).collect()
}

/// Why a client and its server do not share memory. `boot_id` is the client's own.
pub fn explain_no_shm(locality: &Locality, boot_id: &str, error: &JoinError) -> String {
    let same_kernel = !boot_id.is_empty() && locality.boot_id == boot_id;
    match error {
        _ if locality.sockets.is_empty() && same_kernel => {
            "the server is on this host and listens at no Unix socket: its log says why".to_owned()
        }
        JoinError::Unreachable { .. } | JoinError::Refused(_) if locality.sockets.is_empty() => {
            "the server is on another host".to_owned()
        }
        JoinError::Unreachable { .. } if same_kernel => format!(
            "the server is on this host (its boot id is the same), but {error}; containers need a folder that both \
             see: name it with `causeway serve --socket-dir` and CAUSEWAY_SOCKET_DIR"
        ),
        JoinError::Unreachable { .. } => {
            "the server is on another host: its boot id is another, and none of its sockets can be reached here"
                .to_owned()
        }
        other => format!("the server is on this host, but {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn choices_are_read_and_shown() {
        for text in ["auto", "tcp", "shm", "verbs"] {
            assert_eq!(text.parse::<ViaChoice>().unwrap().to_string(), text);
        }
        assert_eq!("".parse(), Ok(ViaChoice::Auto));
        assert!("rdma".parse::<ViaChoice>().unwrap_err().to_string().contains("verbs"));
        assert!(ViaChoice::Only(Via::Shm).admits(Via::Shm) && !ViaChoice::Only(Via::Shm).admits(Via::Tcp));
    }

    #[test]
    fn every_module_that_is_not_used_has_its_reason() {
        let told = |choice, used, failure: Option<&str>| {
            let tried = failure.map(|text| Reason { via: Via::Shm, text: text.to_owned() });
            let reasons = reasons(choice, used, tried.as_slice());
            assert!(reasons.len() == 2 && reasons.iter().all(|reason| reason.via != used));
            reasons.into_iter().map(|reason| format!("{}: {}", reason.via, reason.text)).collect::<Vec<_>>()
        };
        assert_eq!(told(ViaChoice::Auto, Via::Shm, None)[1], "tcp: shm is faster");
        assert_eq!(told(ViaChoice::Auto, Via::Tcp, Some("it is far"))[0], "shm: it is far");
        assert_eq!(told(ViaChoice::Only(Via::Tcp), Via::Tcp, None)[0], "shm: only tcp was asked for");
        assert_eq!(told(ViaChoice::Only(Via::Tcp), Via::Tcp, None)[1], "verbs: only tcp was asked for");
    }

    #[test]
    fn only_better_modules_are_explained() {
        let told = reasons(ViaChoice::Auto, Via::Verbs, &[Reason { via: Via::Shm, text: "far".into() }]);
        assert_eq!(why_not_better(Via::Verbs, &told), "; not shm: far");
        assert_eq!(why_not_better(Via::Shm, &reasons(ViaChoice::Auto, Via::Shm, &[])), "");
    }

    #[test]
    fn the_boot_id_decides_what_is_advised_and_nothing_else() {
        let locality = Locality { boot_id: "a".into(), sockets: vec!["@causeway-1".into()] };
        let unreachable =
            JoinError::Unreachable { name: "@causeway-...".into(), cause: io::Error::from_raw_os_error(111) };
        assert!(explain_no_shm(&locality, "a", &unreachable).contains("--socket-dir"));
        assert!(explain_no_shm(&locality, "b", &unreachable).contains("another host"));
        let refused = JoinError::Refused("no memory".into());
        assert!(
            explain_no_shm(&locality, "b", &refused)
                .contains("on this host, but the server refused it: no memory")
        );
    }
}
