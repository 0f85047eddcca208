//! Percentages of a GPU: what part of it a peer has by the shares of the list of clients, where several use it at the same
//! time and not in turn.

use jiff::Timestamp;

use crate::keys::clients::Clients;
use crate::keys::groups::{Group, GroupName, Member, PeerLimits};
use crate::keys::limits::Share;
use crate::target::ClientName;

impl Clients {
    /// How many percent of a GPU a peer has, a client or one without a key of its own: its share in proportion to those of all
    /// clients and groups of the list, and in a group with a share its part of that. Clients that have expired have none;
    /// a peer that is not in the list has its share besides.
    pub fn percentage(&self, client: Option<ClientName>, limits: &PeerLimits, now: Timestamp) -> u32 {
        let own = u64::from(limits.own.share.unwrap_or(Share::DEFAULT));
        let is_listed = client.is_some_and(|client| self.named.contains_key(&client));
        let with_own = |listed: u64| if is_listed { listed } else { listed + own };
        let shares = |group| self.clients_of(group, now).map(|client| self.share(client)).sum::<u64>();
        let of_groups = self.groups.iter().filter_map(|group| group.limits.share).map(u64::from).sum::<u64>();
        let among_all = shares(None) + of_groups;
        let of_group = limits.group.and_then(|(name, limits)| Some((name, u64::from(limits.share?))));
        let (part, whole) = match of_group {
            Some((group, share)) => (share * own, among_all * with_own(shares(Some(group)))),
            None => (own, with_own(among_all)),
        };
        // Of no part a program would wait for ever.
        u32::try_from(100 * part / whole.max(part).max(1)).unwrap_or(100).max(1)
    }

    fn share(&self, client: ClientName) -> u64 {
        let own = self.named.get(&client).and_then(|client| client.limits.share);
        own.or(self.others.share).unwrap_or(Share::DEFAULT).into()
    }

    /// The clients of a group with a share, or those of none, that have not expired.
    fn clients_of(&self, group: Option<GroupName>, now: Timestamp) -> impl Iterator<Item = ClientName> {
        let is_in = |group: &Group, client| group.members.contains(&Member::Client(client));
        let group_of = move |client| {
            let with_share = self.groups.iter().filter(|group| group.limits.share.is_some());
            with_share.filter(|group| is_in(group, client)).map(|group| group.name).next()
        };
        let live =
            self.named.iter().filter(move |(_, client)| client.expires.is_none_or(|expires| expires > now));
        live.map(|(name, _)| *name).filter(move |name| group_of(*name) == group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::clients::Client;
    use crate::keys::limits::ClientLimits;
    use jiff::SignedDuration;

    fn name(text: &str) -> ClientName {
        text.parse().unwrap()
    }

    fn clients(shares: &[(&str, Option<u32>)]) -> Clients {
        let client = |(text, share): &(&str, Option<u32>)| {
            let limits = ClientLimits { share: *share, ..ClientLimits::default() };
            (name(text), Client { limits, ..Client::new(name(text)) })
        };
        Clients { named: shares.iter().map(client).collect(), ..Clients::default() }
    }

    fn of(clients: &Clients, client: &str) -> u32 {
        let client = name(client);
        clients.percentage(Some(client), &clients.limits_of_client(client), Timestamp::now())
    }

    #[test]
    fn shares_are_proportions_of_all_in_the_list() {
        let mut all = clients(&[("ada", Some(3)), ("bob", None)]);
        assert_eq!((of(&all, "ada"), of(&all, "bob")), (75, 25));
        // Whoever has no key of its own comes on top, with the share of all others.
        let other = |all: &Clients| all.percentage(None, &all.limits_of_other(|_| false), Timestamp::now());
        assert_eq!(other(&all), 20);
        all.others.share = Some(4);
        assert_eq!((of(&all, "ada"), of(&all, "bob"), other(&all)), (42, 57, 36));
        all.others.share = None;
        all.named.get_mut(&name("bob")).unwrap().expires =
            Some(Timestamp::now() - SignedDuration::from_secs(1));
        assert_eq!(of(&all, "ada"), 100);
        assert_eq!(other(&Clients::default()), 100);
        let many = clients(&[("ada", Some(1)), ("bob", Some(1000))]);
        assert_eq!((of(&many, "ada"), of(&many, "bob")), (1, 99));
    }

    #[test]
    fn a_group_with_a_share_divides_its_part() {
        let mut all = clients(&[("ada", Some(2)), ("bob", None), ("eve", None)]);
        let group = |share, members: &[Member]| Group {
            name: name("lab"),
            members: members.to_vec(),
            limits: ClientLimits { share, ..ClientLimits::default() },
        };
        let members = [Member::Client(name("ada")), Member::Client(name("bob"))];
        all.groups = vec![group(Some(3), &members)];
        assert_eq!(["ada", "bob", "eve"].map(|client| of(&all, client)), [50, 25, 25]);
        // Without a share of its own it changes nothing.
        all.groups = vec![group(None, &members)];
        assert_eq!(["ada", "bob", "eve"].map(|client| of(&all, client)), [50, 25, 25]);
        all.groups = vec![group(Some(1), &members)];
        assert_eq!(["ada", "bob", "eve"].map(|client| of(&all, client)), [33, 16, 50]);
        // A local user in it besides its clients.
        all.groups = vec![group(Some(4), &[members[0].clone(), Member::UnixGroup("lab".to_owned())])];
        let user = all.percentage(None, &all.limits_of_other(|group| group == "lab"), Timestamp::now());
        assert_eq!((of(&all, "ada"), user, of(&all, "eve")), (66, 22, 16));
    }
}
