//! Transport table: the one place that names them all.

use causeway_connection::channel::Connection;

use super::row::{NotJoined, Transport, Upgrade, upgrade_kind};
use super::{shm, tcp, verbs};
use crate::link::Link;
use crate::receiver::Receiver;

/// Causeway's transports, in the order of what each costs at best.
pub static TRANSPORTS: &[&Transport] = &[&shm::TRANSPORT, &verbs::TRANSPORT, &tcp::TRANSPORT];

impl Upgrade {
    /// Joins the other end. `command` is the connection over which its session was asked for.
    pub fn accept(self, command: &Connection) -> Result<(Link, Receiver), NotJoined> {
        let kind = upgrade_kind(&self.hello);
        let row = TRANSPORTS.iter().find(|row| row.kind == kind);
        let accept = row.and_then(|row| row.accept);
        let accept =
            accept.ok_or_else(|| NotJoined::Unusable(format!("{kind} is not requested in this way")))?;
        Ok(Link::new(accept(self, command)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_pipeline::TransportKind;

    #[test]
    fn every_transport_has_one_row_and_they_stand_in_order() {
        let kinds: Vec<_> = TRANSPORTS.iter().map(|row| row.kind).collect();
        assert_eq!(kinds, TransportKind::ALL);
        assert!(TRANSPORTS.is_sorted_by_key(|row| row.at_best));
    }
}
