//! Whether two ends can talk to each other, and which version of the protocol they talk.

use thiserror::Error;

use super::{Abilities, ClientHello, CommandTable, Offer, OtherCommands, VERSIONS, VersionRange, Welcome};

/// Why two ends cannot talk to each other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VersionMismatch {
    /// No protocol version is spoken by both.
    #[error(
        "the server is Causeway {} ({}) and the client is Causeway {} ({}), and they have no protocol \
         version in common; install the same release on both machines",
        server.release, server.versions, client.release, client.versions
    )]
    Protocol {
        /// What the server can talk.
        server: Offer,
        /// What the client can talk.
        client: Offer,
    },
    /// The ends mean different commands by the same number.
    #[error(
        "the server is Causeway {} (API list {:016x}) and the client is Causeway {} (API list {:016x}), and \
         their lists of driver functions contradict each other; install the same release on both machines",
        server.release, server.fingerprint, client.release, client.fingerprint
    )]
    Functions {
        /// What the server can talk.
        server: Offer,
        /// What the client can talk.
        client: Offer,
    },
}

/// What this end is, for agreeing with the other one.
#[derive(Debug, Clone)]
pub struct OwnVersion {
    /// Its description of itself.
    pub offer: Offer,
    /// The commands that it knows.
    pub commands: CommandTable,
}

impl OwnVersion {
    /// This build's, with the commands of `commands`.
    pub fn new(commands: CommandTable) -> Self {
        let fingerprint = commands.known().fingerprint;
        let release = env!("CARGO_PKG_VERSION").into();
        Self { offer: Offer { versions: VERSIONS, fingerprint, release }, commands }
    }

    /// Chooses, as a server, the protocol version to talk: the newest that both ends speak.
    pub fn negotiate(&self, client: &Offer) -> Result<u16, VersionMismatch> {
        let server = &self.offer;
        let newest = server.versions.newest.min(client.versions.newest);
        if newest < server.versions.oldest.max(client.versions.oldest) {
            return Err(VersionMismatch::Protocol { server: server.clone(), client: client.clone() });
        }
        Ok(newest)
    }

    /// How many commands, from number 0 on, a server with this version has in common with a client.
    pub fn common_with_client(&self, client: &ClientHello) -> Result<u16, VersionMismatch> {
        self.commands.common(client.abilities.commands).map_err(|OtherCommands| VersionMismatch::Functions {
            server: self.offer.clone(),
            client: client.offer.clone(),
        })
    }

    /// How many commands, from number 0 on, a client with this version has in common with a server.
    pub fn common_with_server(&self, server: &Welcome) -> Result<u16, VersionMismatch> {
        let Abilities { commands, .. } = server.abilities;
        self.commands.common(commands).map_err(|OtherCommands| VersionMismatch::Functions {
            server: Offer {
                versions: VersionRange { oldest: server.version, newest: server.version },
                fingerprint: commands.fingerprint,
                release: server.release.clone(),
            },
            client: self.offer.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static COMMANDS: CommandTable = CommandTable::new(&[1, 20, 300]);

    fn offer(oldest: u16, newest: u16) -> Offer {
        Offer {
            versions: VersionRange { oldest, newest },
            fingerprint: 300,
            release: format!("0.{newest}.0").into(),
        }
    }

    fn negotiate(server: &Offer, client: &Offer) -> Result<u16, VersionMismatch> {
        OwnVersion { offer: server.clone(), commands: COMMANDS }.negotiate(client)
    }

    #[test]
    fn the_newest_common_version_is_chosen() {
        assert_eq!(negotiate(&offer(1, 4), &offer(2, 3)), Ok(3));
        assert_eq!(negotiate(&offer(3, 4), &offer(2, 3)), Ok(3));
        assert_eq!(negotiate(&offer(2, 3), &offer(1, 9)), Ok(3));
    }

    #[test]
    fn a_mismatch_names_both_versions_and_says_what_to_do() {
        let text = negotiate(&offer(3, 4), &offer(1, 2)).unwrap_err().to_string();
        assert_eq!(
            text,
            "the server is Causeway 0.4.0 (protocols 3 to 4) and the client is Causeway 0.2.0 (protocols 1 \
             to 2), \
             and they have no protocol version in common; install the same release on both machines"
        );
        let ours = OwnVersion::new(COMMANDS);
        let mut abilities = Abilities::ours(&COMMANDS);
        abilities.commands.fingerprint = 10;
        let hello = ClientHello {
            offer: Offer { fingerprint: 10, ..offer(1, 1) },
            pid: 1,
            host: "h".into(),
            program: "p".into(),
            environment: Vec::new(),
            lanes: 1,
            abilities,
            user: Default::default(),
            job: Default::default(),
            fork: None,
        };
        let text = ours.common_with_client(&hello).unwrap_err().to_string();
        assert!(text.contains("API list 000000000000012c") && text.contains("API list 000000000000000a"));
    }
}
