//! Transport selection by the user, and why another is not in use. Pure decisions, and the sentences that
//! explain them.

use core::fmt;
use core::str::FromStr;

use causeway_pipeline::TransportKind;
use thiserror::Error;

/// Which transport a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportChoice {
    /// The best that works.
    #[default]
    Auto,
    /// This one or none.
    Only(TransportKind),
}

/// A text that names no [`TransportChoice`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a transport: choose auto, tcp, shm (the same host's memory) or verbs (InfiniBand, RoCE)"
)]
pub struct UnknownTransport(String);

impl FromStr for TransportChoice {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Self, UnknownTransport> {
        match text.trim() {
            "" | "auto" => Ok(Self::Auto),
            name => {
                let kind = TransportKind::named(name).ok_or_else(|| UnknownTransport(name.to_owned()));
                kind.map(Self::Only)
            }
        }
    }
}

impl fmt::Display for TransportChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(kind) => kind.fmt(f),
        }
    }
}

impl TransportChoice {
    /// Whether a transport may be used.
    pub fn admits(self, kind: TransportKind) -> bool {
        self == Self::Auto || self == Self::Only(kind)
    }
}

/// Why a transport is not in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The transport.
    pub kind: TransportKind,
    /// Why, as a sentence without its full stop.
    pub text: String,
}

/// Why each transport is not in use, but for the one that is. `tried` says why those failed that were tried.
pub fn reasons(choice: TransportChoice, used: TransportKind, tried: &[Reason]) -> Vec<Reason> {
    let reason = |kind| {
        let failure = tried.iter().find(|reason| reason.kind == kind);
        let text = match (failure, choice) {
            (Some(failure), _) => failure.text.clone(),
            (None, TransportChoice::Only(only)) => format!("only {only} was requested"),
            (None, TransportChoice::Auto) => format!("{used} is faster"),
        };
        Reason { kind, text }
    };
    let own = TransportKind::ALL.into_iter();
    let others = tried.iter().map(|reason| reason.kind).filter(|kind| !TransportKind::ALL.contains(kind));
    own.chain(others).filter(|kind| *kind != used).map(reason).collect()
}

/// Why no better transport than `used` is in use, as the rest of a sentence; empty where there is none
/// better.
pub fn why_not_better(used: TransportKind, reasons: &[Reason]) -> String {
    let better = TransportKind::ALL.into_iter().take_while(|kind| *kind != used);
    let reasons = better.filter_map(|kind| reasons.iter().find(|reason| reason.kind == kind));
    reasons.map(|reason| format!("; not {}: {}", reason.kind, reason.text)).collect()
}

#[cfg(test)]
mod tests {
    use causeway_config::{Values, table};

    use super::*;

    #[test]
    fn choices_are_read_and_shown() {
        for text in ["auto", "tcp", "shm", "verbs"] {
            assert_eq!(text.parse::<TransportChoice>().unwrap().to_string(), text);
        }
        assert_eq!("".parse(), Ok(TransportChoice::Auto));
        let Values::Word(choices) = table::VIA.values else { panic!("it is a choice") };
        assert!(choices.iter().all(|choice| choice.parse::<TransportChoice>().is_ok()), "{choices:?}");
        let error = "rdma".parse::<TransportChoice>().unwrap_err().to_string();
        for kind in TransportKind::ALL {
            assert!(choices.contains(&kind.name()) && error.contains(kind.name()), "{kind}");
        }
        assert!(
            TransportChoice::Only(TransportKind::Shm).admits(TransportKind::Shm)
                && !TransportChoice::Only(TransportKind::Shm).admits(TransportKind::Tcp)
        );
    }

    #[test]
    fn every_transport_that_is_not_used_has_its_reason() {
        let told = |choice, used, failure: Option<&str>| {
            let tried = failure.map(|text| Reason { kind: TransportKind::Shm, text: text.to_owned() });
            let reasons = reasons(choice, used, tried.as_slice());
            assert!(reasons.len() == 2 && reasons.iter().all(|reason| reason.kind != used));
            reasons.into_iter().map(|reason| format!("{}: {}", reason.kind, reason.text)).collect::<Vec<_>>()
        };
        assert_eq!(told(TransportChoice::Auto, TransportKind::Shm, None)[1], "tcp: shm is faster");
        assert_eq!(told(TransportChoice::Auto, TransportKind::Tcp, Some("it is far"))[0], "shm: it is far");
        assert_eq!(
            told(TransportChoice::Only(TransportKind::Tcp), TransportKind::Tcp, None)[0],
            "shm: only tcp was requested"
        );
        assert_eq!(
            told(TransportChoice::Only(TransportKind::Tcp), TransportKind::Tcp, None)[1],
            "verbs: only tcp was requested"
        );
    }

    #[test]
    fn only_better_transports_are_explained() {
        let told = reasons(
            TransportChoice::Auto,
            TransportKind::Verbs,
            &[Reason { kind: TransportKind::Shm, text: "far".into() }],
        );
        assert_eq!(why_not_better(TransportKind::Verbs, &told), "; not shm: far");
        assert_eq!(
            why_not_better(TransportKind::Shm, &reasons(TransportChoice::Auto, TransportKind::Shm, &[])),
            ""
        );
    }
}
