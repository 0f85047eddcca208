//! Invitation: a server's address with a secret by which one new client enrols its key there, once.

use core::fmt;
use core::str::FromStr;

use causeway_wire::handshake::Protection;
use thiserror::Error;
use zeroize::Zeroizing;

use super::address::{INVITATION_SCHEME, SCHEME, Target};
use crate::target::address::TargetError;

/// An invitation to a server, as `causeway client invite` prints it and `causeway login` reads it:
/// `causeway-invitation://NAME:SECRET@HOST:PORT`.
///
/// The secret takes a client's place in the proofs of the handshake, and opens nothing but the enrolment of the client
/// that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// The server, with the secret in the place of a client's key.
    target: Target,
}

/// A text is no [`Invitation`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvitationError {
    /// It begins with something else.
    #[error(
        "this is no invitation: `causeway client invite` prints one on the server, which begins with {INVITATION_SCHEME}; the \
         key in a connect string is kept by `causeway key add`"
    )]
    NoInvitation,
    /// It lacks the client's name and the secret.
    #[error("the invitation is incomplete: copy all of {INVITATION_SCHEME}NAME:SECRET@HOST:PORT")]
    NotWhole,
    /// What follows makes no sense.
    #[error("the invitation cannot be used: {0}")]
    Target(#[from] TargetError),
}

impl Invitation {
    /// An invitation to a server by the secret, which names the client.
    ///
    /// # Errors
    /// Where the secret names none, or clients of this address have no keys.
    pub fn new(target: Target) -> Result<Self, InvitationError> {
        let names_client = target.key.as_ref().is_some_and(|key| key.client().is_some());
        if names_client && target.protection.needs_key() {
            Ok(Self { target })
        } else {
            Err(InvitationError::NotWhole)
        }
    }

    /// The server with the secret, for a connection that is encrypted in any case.
    pub fn enrolment_target(&self) -> Target {
        Target { protection: Protection::Encrypted, ..self.target.clone() }
    }

    /// The server as its clients reach it, without a key.
    pub fn server(&self) -> Target {
        Target { key: None, ..self.target.clone() }
    }

    /// The whole text with the secret. Keep it out of logs.
    pub fn to_text(&self) -> Zeroizing<String> {
        let text = self.target.connect_string();
        Zeroizing::new(text.replacen(SCHEME, INVITATION_SCHEME, 1))
    }
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

impl FromStr for Invitation {
    type Err = InvitationError;

    fn from_str(text: &str) -> Result<Self, InvitationError> {
        let rest = text.trim().strip_prefix(INVITATION_SCHEME).ok_or(InvitationError::NoInvitation)?;
        if !rest.contains('@') {
            return Err(InvitationError::NotWhole);
        }
        let text = Zeroizing::new(format!("{SCHEME}{rest}"));
        Self::new(text.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Key;

    #[test]
    fn an_invitation_survives_a_round_trip_and_is_no_connect_string() {
        let secret = Key::generate_for("ada".parse().unwrap());
        for protection in [Protection::Encrypted, Protection::Authenticated] {
            let invitation =
                Invitation::new(Target::tcp("::1", 7, protection, Some(secret.clone()))).unwrap();
            let text = invitation.to_text();
            assert!(text.starts_with("causeway-invitation://ada:"), "{}", *text);
            assert_eq!(text.parse::<Invitation>(), Ok(invitation.clone()));
            assert_eq!(invitation.enrolment_target().protection, Protection::Encrypted);
            assert_eq!((invitation.server().protection, invitation.server().key), (protection, None));
            let shown = format!("{invitation} {invitation:?}");
            assert!(!shown.contains(secret.to_text().split(':').nth(1).unwrap()), "{shown}");
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("causeway login"), "{error}");
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let message = |text: &str| text.parse::<Invitation>().unwrap_err().to_string();
        let key = Key::generate();
        assert!(
            message(&Target::tcp("a", 1, Protection::Encrypted, Some(key.clone())).connect_string())
                .contains("key add")
        );
        assert!(message("causeway-invitation://a:1").contains("copy all"));
        assert!(message(&format!("causeway-invitation://{}@a:1", *key.to_text())).contains("copy all"));
        assert!(message("causeway-invitation://ada:short@a:1").contains("43 characters"));
        let named = Key::generate_for("ada".parse().unwrap());
        assert!(message(&format!("causeway-invitation://{}@a:x", *named.to_text())).contains("no port"));
        assert!(
            message(&format!("causeway-invitation://{}@a?insecure-no-key", *named.to_text()))
                .contains("has no key")
        );
    }
}
