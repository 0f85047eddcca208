//! Invitations: until when they count, and the enrolment of a key that uses one up.

use causeway_wire::handshake::KeyId;
use jiff::Timestamp;

use super::clients::{Client, Clients, NotAccepted};
use crate::target::{ClientName, Key, invitation_id};

impl Clients {
    /// The secret of an invitation, if a key may be enrolled with it now.
    ///
    /// # Errors
    /// Why none may.
    pub fn invitation(&self, id: KeyId, now: Timestamp) -> Result<&Key, NotAccepted> {
        if self.named.values().any(|client| client.used_invitation == Some(id)) {
            return Err(NotAccepted::InvitationUsed);
        }
        let invited = self.invited.values().find(|invited| invitation_id(&invited.secret) == id);
        let invited = invited.ok_or(NotAccepted::InvitationUnknown)?;
        if invited.until <= now || invited.expires.is_some_and(|expires| expires <= now) {
            return Err(NotAccepted::InvitationExpired);
        }
        Ok(&invited.secret)
    }

    /// Makes a client of the one that was invited, with this key: the invitation is used up. Returns its name.
    ///
    /// # Errors
    /// Why the invitation does not count.
    pub fn enrol(&mut self, id: KeyId, key: [u8; 32], now: Timestamp) -> Result<ClientName, NotAccepted> {
        let secret = self.invitation(id, now)?;
        let name = secret.client().ok_or(NotAccepted::InvitationUnknown)?;
        let invited = self.invited.remove(&name).ok_or(NotAccepted::InvitationUnknown)?;
        let client = Client {
            key: Key::of_client(name, key),
            previous: None,
            used_invitation: Some(id),
            expires: invited.expires,
            limits: invited.limits,
        };
        self.named.insert(name, client);
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::clients::InvitedClient;
    use crate::keys::limits::ClientLimits;
    use crate::target::key_id;
    use jiff::SignedDuration;

    #[test]
    fn an_invitation_enrols_one_key_until_it_expires() {
        let now = Timestamp::now();
        let later = now + SignedDuration::from_secs(5);
        let ada: ClientName = "ada".parse().unwrap();
        let limits = ClientLimits { sessions: Some(3), ..ClientLimits::default() };
        let invited = InvitedClient { limits, expires: Some(later), ..InvitedClient::new(ada, later) };
        let id = invitation_id(&invited.secret);
        let mut clients = Clients { invited: [(ada, invited.clone())].into(), ..Clients::default() };
        // The invitation's secret is no key.
        assert_eq!(clients.key(key_id(&invited.secret), now), Err(NotAccepted::Unknown));
        assert_eq!(clients.key(id, now), Err(NotAccepted::Unknown));
        assert_eq!(clients.enrol(id, [7; 32], later), Err(NotAccepted::InvitationExpired));
        assert_eq!(clients.enrol(KeyId([0; 8]), [7; 32], now), Err(NotAccepted::InvitationUnknown));
        assert_eq!(clients.enrol(id, [7; 32], now), Ok(ada));
        let client = &clients.named[&ada];
        assert_eq!((client.key.bytes(), client.key.client()), (&[7; 32], Some(ada)));
        assert_eq!((client.limits, client.expires), (limits, Some(later)));
        assert_eq!(clients.enrol(id, [8; 32], now), Err(NotAccepted::InvitationUsed));
        assert!(clients.invited.is_empty() && clients.named[&ada].key.bytes() == &[7; 32]);
        let text = [NotAccepted::InvitationUsed, NotAccepted::InvitationExpired].map(|why| why.to_string());
        assert!(text[0].contains("revoke") && text[1].contains("client invite"), "{text:?}");
    }
}
