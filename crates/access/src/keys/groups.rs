//! Groups: clients and local users that share limits, as the list of clients names them.
//!
//! A table `[groups.NAME]` has `members`, and limits that hold for all sessions of its members together, beside each
//! member's own. A member is a client, or `@NAME` for the local users of a Unix group. A client is in one group at most,
//! and groups are no members, so that each session counts for one group at most. A local user is in the first group of
//! the file that has one of the user's Unix groups.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::keys::limits::{self, ClientLimits};
use crate::keys::values::{LineError, named, set_limit};
use crate::target::ClientName;

/// The table of groups, which no client's name can be.
pub const GROUPS: &str = "groups";

/// What a member begins with that stands for the local users of a Unix group.
const UNIX: char = '@';

/// A group is named as clients are.
pub type GroupName = ClientName;

/// One that is in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    /// A client with a key of its own, or one that is invited.
    Client(ClientName),
    /// The users of this host that are in a Unix group.
    UnixGroup(String),
}

/// Clients and local users that share limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: GroupName,
    /// Who is in it.
    pub members: Vec<Member>,
    /// What all sessions of its members may have together.
    pub limits: ClientLimits,
}

/// What a peer may have: by itself, and together with the other members of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerLimits {
    /// What it may have by itself.
    pub own: ClientLimits,
    /// Its group, and what all members of that may have together.
    pub group: Option<(GroupName, ClientLimits)>,
}

impl PeerLimits {
    /// Its group.
    pub fn group_name(&self) -> Option<GroupName> {
        self.group.map(|(name, _)| name)
    }

    /// The lower one of its own limit and its group's, and the group if it is that one's.
    pub fn lowest<T: Ord>(
        &self,
        limit: impl Fn(&ClientLimits) -> Option<T>,
    ) -> Option<(T, Option<GroupName>)> {
        let of_group = self.group.and_then(|(name, limits)| Some((limit(&limits)?, Some(name))));
        match (limit(&self.own).map(|own| (own, None)), of_group) {
            (Some(own), Some(of_group)) if of_group.0 < own.0 => Some(of_group),
            (own, of_group) => own.or(of_group),
        }
    }
}

impl Member {
    /// How a file has it.
    fn to_toml(&self) -> String {
        match self {
            Self::Client(name) => format!("\"{name}\""),
            Self::UnixGroup(name) => {
                format!("\"{UNIX}{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
            }
        }
    }
}

impl core::fmt::Display for Member {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Client(name) => name.fmt(f),
            Self::UnixGroup(name) => write!(f, "{UNIX}{name}"),
        }
    }
}

impl Group {
    /// Its table, as a file has it.
    pub(super) fn text(&self) -> String {
        let members: Vec<_> = self.members.iter().map(Member::to_toml).collect();
        format!("\n[{GROUPS}.{}]\nmembers = [{}]\n", self.name, members.join(", "))
    }
}

/// Where each member was named first.
type Named = BTreeMap<String, GroupName>;

/// The groups of a file in its order, whose clients are known by now. `check_unix_group` says what is wrong with the name of a
/// Unix group.
pub(super) fn parse(
    table: &Spanned<DeValue<'_>>,
    is_client: &dyn Fn(&ClientName) -> bool,
    check_unix_group: &dyn Fn(&str) -> Result<(), String>,
) -> Result<Vec<Group>, LineError> {
    let wrong = |at, what: &str| {
        Err((at, format!("`{what}` must be a table: write [{GROUPS}.NAME] above what concerns a group")))
    };
    let DeValue::Table(tables) = table.get_ref() else { return wrong(table.span().start, GROUPS) };
    let mut tables: Vec<_> = tables.iter().collect();
    tables.sort_by_key(|(name, _)| name.span().start);
    let mut groups = Vec::new();
    // Before their members: what is named as one may be a group.
    for (text, value) in &tables {
        let at = text.span().start;
        if !matches!(value.get_ref(), DeValue::Table(_)) {
            return wrong(at, text.get_ref());
        }
        let name = text.get_ref().parse();
        let name = name.map_err(|cause| (at, format!("[{GROUPS}.{}]: {cause}", text.get_ref())))?;
        groups.push(Group { name, members: Vec::new(), limits: ClientLimits::default() });
    }
    let names: Vec<_> = groups.iter().map(|group| group.name).collect();
    let mut known = Known { is_client, groups: &names, named: Named::new(), check_unix_group };
    for (group, (_, value)) in groups.iter_mut().zip(&tables) {
        if let DeValue::Table(table) = value.get_ref() {
            fill(group, table, &mut known)?;
        }
    }
    Ok(groups)
}

/// What members may be.
struct Known<'a> {
    is_client: &'a dyn Fn(&ClientName) -> bool,
    groups: &'a [GroupName],
    named: Named,
    check_unix_group: &'a dyn Fn(&str) -> Result<(), String>,
}

fn fill(group: &mut Group, table: &DeTable<'_>, known: &mut Known<'_>) -> Result<(), LineError> {
    let title = format!("{GROUPS}.{}", group.name);
    for (field, value) in table {
        match field.get_ref().as_ref() {
            "members" => {
                let list = value.get_ref().as_array();
                let error =
                    || (value.span().start, "this must be a list of texts in quotation marks".to_owned());
                for member in list.ok_or_else(error).map_err(named(&title, field))? {
                    let read = known.member(group.name, member).map_err(|cause| (member.span().start, cause));
                    group.members.push(read.map_err(named(&title, field))?);
                }
            }
            key if set_limit(&mut group.limits, key, value).map_err(named(&title, field))? => {}
            key => {
                let keys = ClientLimits::KEYS.join(", ");
                let text = format!("[{title}] has no key `{key}`: there are members, {keys}");
                return Err((field.span().start, text));
            }
        }
    }
    Ok(())
}

impl Known<'_> {
    fn member(&mut self, group: GroupName, value: &Spanned<DeValue<'_>>) -> Result<Member, String> {
        let text = limits::text(value.get_ref())?;
        let member = match text.strip_prefix(UNIX) {
            Some(name) => {
                if name.is_empty() || name.chars().any(|letter| letter.is_control() || letter == ':') {
                    return Err(format!("`{text}` names no Unix group: write {UNIX} and its name"));
                }
                (self.check_unix_group)(name)?;
                Member::UnixGroup(name.to_owned())
            }
            None => self.client(text)?,
        };
        match self.named.insert(text.to_owned(), group) {
            None => Ok(member),
            Some(first) if first == group => Err(format!("`{text}` is named twice")),
            Some(first) => {
                Err(format!("`{text}` is in [{GROUPS}.{first}] already, and can be in one group only"))
            }
        }
    }

    fn client(&self, text: &str) -> Result<Member, String> {
        let name: Option<ClientName> = text.parse().ok();
        match name {
            Some(name) if (self.is_client)(&name) => Ok(Member::Client(name)),
            Some(name) if self.groups.contains(&name) => {
                Err(format!("`{text}` is a group, which cannot be in a group: name its members here instead"))
            }
            _ => Err(format!(
                "there is no client `{text}` (`causeway client list` lists them; local users are named by their Unix \
                 group: \"{UNIX}NAME\")"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::clients::{Client, Clients};
    use std::time::Duration;

    fn name(text: &str) -> ClientName {
        text.parse().unwrap()
    }

    /// A file with two clients, and this behind them; how many lines are before it.
    fn file(groups: &str) -> (tempfile::TempDir, std::path::PathBuf, usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clients.toml");
        let clients = ["ada", "bob"].map(|text| (name(text), Client::new(name(text))));
        Clients { named: clients.into(), ..Clients::default() }.write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{groups}")).unwrap();
        (folder, path, text.lines().count())
    }

    #[test]
    fn groups_are_read_in_their_order_and_written_again() {
        let (_folder, path, _) = file(
            "[groups.z]\nmembers = [\"bob\", '@domain\\users \"x\"']\nsessions = 4\nshare = 3\n[groups.a]\nmembers = [\"ada\"]\n\
             device-memory = \"8G\"\n",
        );
        let clients = Clients::read(&path).unwrap();
        let [z, a] = &clients.groups[..] else { panic!("{:?}", clients.groups) };
        assert_eq!((z.name, z.limits.sessions, a.name), (name("z"), Some(4), name("a")));
        let unix = Member::UnixGroup("domain\\users \"x\"".to_owned());
        assert_eq!(z.members, [Member::Client(name("bob")), unix]);
        assert!(clients.has_shares());
        clients.write(&path).unwrap();
        assert_eq!(Clients::read(&path).unwrap(), clients);
        // Who is revoked is in no group any more, so that the file can be used.
        let mut clients = clients;
        assert!(clients.remove(name("bob")) && !clients.remove(name("bob")));
        clients.write(&path).unwrap();
        assert_eq!(Clients::read(&path).unwrap().groups[0].members.len(), 1);
    }

    #[test]
    fn members_that_make_no_sense_are_named_with_their_line() {
        for (groups, line, expected) in [
            (
                "[groups.a]\nmembers = [\"ada\",\n\"eve\"]\n",
                3,
                "[groups.a] members: there is no client `eve`",
            ),
            ("[groups.a]\nmembers = [\"b c\"]\n", 2, "there is no client `b c`"),
            ("[groups.a]\nmembers = [\"ada\", \"ada\"]\n", 2, "`ada` is named twice"),
            (
                "[groups.a]\nmembers = [\"ada\"]\n[groups.b]\nmembers = [\"bob\", \"ada\"]\n",
                4,
                "[groups.b] members: `ada` is in [groups.a] already",
            ),
            (
                "[groups.a]\nmembers = [\"@users\"]\n[groups.b]\nmembers = [\"@users\"]\n",
                4,
                "`@users` is in [groups.a] already",
            ),
            // A cycle, of one and of two.
            ("[groups.a]\nmembers = [\"a\"]\n", 2, "`a` is a group, which cannot be in a group"),
            ("[groups.a]\nmembers = [\"b\"]\n[groups.b]\nmembers = [\"a\"]\n", 2, "`b` is a group"),
            ("[groups.a]\nmembers = [\"@\"]\n", 2, "names no Unix group"),
            ("[groups.a]\nmembers = \"ada\"\n", 2, "[groups.a] members: this must be a list"),
            ("[groups.a]\nmembers = [1]\n", 2, "quotation marks"),
            ("[groups.a]\nkey = 1\n", 2, "[groups.a] has no key `key`: there are members, sessions"),
            ("[groups.a]\nshare = 0\n", 2, "[groups.a] share: a share is a whole number"),
            ("[groups.\"a b\"]\nmembers = []\n", 1, "1 to 32 letters"),
            ("[groups]\na = 1\n", 2, "`a` must be a table"),
        ] {
            let (_folder, path, before) = file(groups);
            let error = Clients::read(&path).unwrap_err().to_string();
            let at = format!("clients.toml:{}: ", before + line);
            assert!(error.contains(&at) && error.contains(expected), "{groups}: {error}");
        }
        let (_folder, path, before) = file("[groups.a]\nmembers = [\"@nogroup\"]\n");
        let check = |group: &str| Err(format!("this machine has no group `{group}`"));
        let error = Clients::read_checked(&path, &check).unwrap_err().to_string();
        let expected =
            format!("toml:{}: [groups.a] members: this machine has no group `nogroup`", before + 2);
        assert!(error.contains(&expected), "{error}");
        assert!(Clients::read(&path).is_ok(), "which another machine may have");
    }

    #[test]
    fn the_lower_limit_counts_and_says_whose_it_is() {
        let limits = |sessions, seconds: Option<u64>| ClientLimits {
            sessions,
            idle_timeout: seconds.map(Duration::from_secs),
            ..ClientLimits::default()
        };
        let staff = name("staff");
        let peer = PeerLimits { own: limits(Some(3), None), group: Some((staff, limits(Some(3), Some(5)))) };
        assert_eq!(peer.lowest(|limits| limits.sessions), Some((3, None)));
        assert_eq!(peer.lowest(|limits| limits.idle_timeout), Some((Duration::from_secs(5), Some(staff))));
        assert_eq!(peer.lowest(|limits| limits.share), None);
        let lower = PeerLimits { group: Some((staff, limits(Some(2), None))), ..peer };
        assert_eq!(lower.lowest(|limits| limits.sessions), Some((2, Some(staff))));
        let alone = PeerLimits { group: None, ..peer };
        assert_eq!((alone.lowest(|limits| limits.sessions), alone.group_name()), (Some((3, None)), None));
    }
}
