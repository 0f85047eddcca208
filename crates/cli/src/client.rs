//! `causeway client`: the clients of a server that have keys of their own.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use causeway_access::keys::clients::{Client, Clients, ClientsError, InvitedClient, OTHERS};
use causeway_access::keys::file::KeyFileError;
use causeway_access::keys::groups::{GROUPS, Group, GroupName};
use causeway_access::keys::limits::{Bandwidth, ClientLimits, LimitChanges, NewLimit, SessionMemory, Share};
use causeway_access::target::ClientNameError;
use causeway_access::{ClientName, Invitation, Key, Target, TargetError};
use causeway_config::{Size, TimeSpan};
use clap::{Args, Subcommand};
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::own_server;

/// Manage clients with keys of their own: add, invite, limit and revoke them.
///
/// A holder of the server's own key has all rights of a client, and cannot be distinguished from other
/// holders. A client with a key of its own has a name in logs, `causeway sessions` and the audit log; it sees
/// only its own sessions, shares no memory and no cached images with others, and can be revoked, which ends
/// its sessions. Changes take effect at once. The clients are stored in clients.toml beside the server's key.
/// Tables `[groups.NAME]` of that file name groups of clients and local users that share limits.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// The server's key file, beside which clients.toml is. Default: ~/.config/causeway/key, or
    /// /etc/causeway/key of this machine's service.
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a client, and print its connect string with its key. Keep it secret.
    Add {
        /// Its name: letters, digits, `-` and `_`.
        name: ClientName,
        /// Address at which clients reach the server: HOST:PORT. Default: this machine's name and the default
        /// port.
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
        /// Days until the client's access expires. Default: never.
        #[arg(long, value_name = "DAYS", value_parser = days)]
        days: Option<u16>,
        #[command(flatten)]
        limits: LimitOptions,
    },
    /// Invite a client, and print the invitation: `causeway login` on the client's machine creates its key
    /// and enrols it here.
    ///
    /// An invitation works once, and the key never leaves the client and this server. Whoever uses it first
    /// becomes the client, so send it by a private channel. Inviting a client again that has not enrolled a
    /// key replaces its invitation.
    Invite {
        /// Its name: letters, digits, `-` and `_`.
        name: ClientName,
        /// Address at which clients reach the server, as for `add`.
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
        /// Time until the invitation expires: 30m, 8h or 2d.
        #[arg(long, value_name = "TIME", default_value_t = TimeSpan(Duration::from_secs(24 * 3600)))]
        expires: TimeSpan,
        /// Days until the client's access expires, as for `add`.
        #[arg(long, value_name = "DAYS", value_parser = days)]
        days: Option<u16>,
        #[command(flatten)]
        limits: LimitOptions,
    },
    /// Change the limits of a client. Limits that are not given stay. The change takes effect at once, but
    /// running sessions keep the resources that they have.
    Limit {
        /// Name of the client; `groups.NAME` for all members of a group together; or `*` for each peer without
        /// a key of its own, and for clients without a limit of their own.
        #[arg(value_name = "NAME")]
        limited: Limited,
        #[command(flatten)]
        limits: LimitOptions,
    },
    /// List the clients; their keys are not printed.
    List {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a client: its key and its invitation become invalid, and its sessions end within a second.
    Revoke {
        /// Its name.
        name: ClientName,
    },
    /// Replace a client's key, and print its new connect string. Its sessions continue.
    Rotate {
        /// Its name.
        name: ClientName,
        /// Address at which clients reach the server, as for `add`.
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
        /// Hours for which the old key is still accepted.
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        overlap: u16,
    },
}

/// A number of days, with or without its unit.
fn days(text: &str) -> Result<u16, String> {
    let days = text.strip_suffix('d').unwrap_or(text).parse().ok().filter(|days| *days > 0);
    days.ok_or_else(|| "give a number of days from 1 to 65535, such as 90 or 90d".to_owned())
}

/// Generates the options from the table of limits.
macro_rules! limit_options {
    ($($(#[$documentation:meta])*
       $limit:ident: $plain:ty as $value:ty, $key:literal, value $value_name:literal, json $json:literal,
       note $note:literal;)+) => {
        /// Limits of a client. `none` removes a limit.
        #[derive(Debug, Clone, Copy, Args)]
        struct LimitOptions {
            $($(#[$documentation])* #[arg(long, value_name = $value_name)] $limit: Option<NewLimit<$value>>,)+
        }

        impl From<LimitOptions> for LimitChanges {
            fn from(options: LimitOptions) -> Self {
                Self { $($limit: options.$limit),+ }
            }
        }
    };
}

causeway_access::for_each_client_limit!(limit_options);

/// Whose limits they are.
#[derive(Debug, Clone, Copy)]
enum Limited {
    Client(ClientName),
    Group(GroupName),
    Others,
}

impl FromStr for Limited {
    type Err = ClientNameError;

    fn from_str(text: &str) -> Result<Self, ClientNameError> {
        match text.strip_prefix(GROUPS).and_then(|rest| rest.strip_prefix('.')) {
            Some(group) => group.parse().map(Self::Group),
            None if text == OTHERS => Ok(Self::Others),
            None => text.parse().map(Self::Client),
        }
    }
}

/// Why nothing was done about a client.
#[derive(Debug, Error)]
pub enum ClientCommandError {
    /// There is no place where keys are kept.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The list cannot be read or written.
    #[error(transparent)]
    Clients(#[from] ClientsError),
    /// The address makes no sense.
    #[error(transparent)]
    Address(#[from] TargetError),
    /// There is no server yet whose clients these could be.
    #[error(
        "there is no key file {0}, so no server of this user has been started here: start `causeway serve`, or name its file with --key-file"
    )]
    NoServer(String),
    /// There is a client of that name.
    #[error(
        "there is a client {0} already: `causeway client rotate {0}` gives it a new key, `causeway client revoke {0}` revokes it"
    )]
    Exists(ClientName),
    /// The address cannot be in an invitation.
    #[error("no client can be invited to `{0}`: give HOST:PORT of a server that has a key")]
    NoInvitations(String),
    /// It has no key that could be replaced.
    #[error(
        "the client {0} has not enrolled a key yet: `causeway client invite {0}` gives it a new invitation"
    )]
    Invited(ClientName),
    /// There is no client of that name.
    #[error("there is no client {0}: `causeway client list` lists them")]
    Unknown(ClientName),
    /// There is no group of that name.
    #[error("there is no group {0}: write a table [{GROUPS}.{0}] with its `members` into clients.toml")]
    UnknownGroup(GroupName),
    /// The name stands for something else in the list.
    #[error("no client can be called {GROUPS}: the list of clients has groups under this name")]
    Reserved,
    /// No limit is named.
    #[error(
        "no limit is named, so nothing was changed: name one or more, such as --sessions 4, or --sessions \
         none to remove one; `causeway client list` shows the current limits"
    )]
    NoLimits,
    /// Nothing can be printed.
    #[error("standard output failed: {0}")]
    Io(#[from] io::Error),
}

/// Does what was asked.
pub fn client(arguments: &Arguments) -> Result<ExitCode, ClientCommandError> {
    if matches!(&arguments.action, Action::Limit { limits, .. } if LimitChanges::from(*limits) == LimitChanges::default())
    {
        return Err(ClientCommandError::NoLimits);
    }
    let key_file = own_server::key_file(arguments.key_file.clone())?;
    if !key_file.exists() {
        return Err(ClientCommandError::NoServer(key_file.display().to_string()));
    }
    let path = Clients::path_in_folder_of(&key_file);
    if let Action::Add { name, .. } | Action::Invite { name, .. } = &arguments.action
        && name.as_str() == GROUPS
    {
        return Err(ClientCommandError::Reserved);
    }
    match &arguments.action {
        Action::Add { name, address, days, limits } => {
            add(&path, *name, address.as_deref(), expiry(*days), (*limits).into())?;
        }
        Action::Invite { name, address, expires, days, limits } => {
            let until = Timestamp::now().saturating_add(expires.0).unwrap_or(Timestamp::MAX);
            invite(&path, *name, address.as_deref(), until, expiry(*days), (*limits).into())?;
        }
        Action::Limit { limited, limits } => {
            let notes = Clients::update(&path, |clients| {
                let own = match limited {
                    Limited::Others => Some(&mut clients.others),
                    Limited::Group(name) => {
                        let group = clients.groups.iter_mut().find(|group| group.name == *name);
                        group.map(|group| &mut group.limits)
                    }
                    Limited::Client(name) => {
                        let invited = clients.invited.get_mut(name).map(|invited| &mut invited.limits);
                        clients.named.get_mut(name).map(|client| &mut client.limits).or(invited)
                    }
                };
                let unknown = || match limited {
                    Limited::Others => unreachable!("there are always others"),
                    Limited::Client(name) => ClientCommandError::Unknown(*name),
                    Limited::Group(name) => ClientCommandError::UnknownGroup(*name),
                };
                let own = own.ok_or_else(unknown)?;
                LimitChanges::from(*limits).apply(own);
                Ok::<_, ClientCommandError>(own.notes())
            })?;
            let (subject, notes) = match limited {
                Limited::Others => ("other clients".to_owned(), notes),
                Limited::Client(name) => (format!("the client {name}"), notes),
                Limited::Group(name) => (format!("the group {name}"), notes),
            };
            let notes = if notes.is_empty() { "none".to_owned() } else { notes.join(", ") };
            writeln!(io::stdout(), "The limits of {subject} are now: {notes}")?;
        }
        Action::List { json } => list(&Clients::read(&path)?, *json)?,
        Action::Revoke { name } => {
            Clients::update(&path, |clients| {
                if clients.remove(*name) { Ok(()) } else { Err(ClientCommandError::Unknown(*name)) }
            })?;
            writeln!(
                io::stdout(),
                "The client {name} is revoked: its key and its invitation are no longer accepted"
            )?;
        }
        Action::Rotate { name, address, overlap } => {
            let server = own_server::target(address.as_deref())?;
            let key = Clients::update(&path, |clients| {
                let is_invited = clients.invited.contains_key(name);
                let client = clients.named.get_mut(name).ok_or(match is_invited {
                    true => ClientCommandError::Invited(*name),
                    false => ClientCommandError::Unknown(*name),
                })?;
                client.rotate(*name, Timestamp::now() + i64::from(*overlap).hours());
                Ok::<_, ClientCommandError>(client.key.clone())
            })?;
            print(server, key)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// When a client is shut out that is let in for so many days.
fn expiry(days: Option<u16>) -> Option<Timestamp> {
    days.map(|days| Timestamp::now() + (24 * i64::from(days)).hours())
}

fn add(
    path: &Path,
    name: ClientName,
    address: Option<&str>,
    expires: Option<Timestamp>,
    limits: LimitChanges,
) -> Result<(), ClientCommandError> {
    let server = own_server::target(address)?;
    let mut client = Client { expires, ..Client::new(name) };
    limits.apply(&mut client.limits);
    let key = client.key.clone();
    Clients::update(path, |clients| {
        if clients.named.contains_key(&name) || clients.invited.contains_key(&name) {
            return Err(ClientCommandError::Exists(name));
        }
        clients.named.insert(name, client);
        Ok(())
    })?;
    print(server, key)
}

fn invite(
    path: &Path,
    name: ClientName,
    address: Option<&str>,
    until: Timestamp,
    expires: Option<Timestamp>,
    limits: LimitChanges,
) -> Result<(), ClientCommandError> {
    let invited = InvitedClient { expires, ..InvitedClient::new(name, until) };
    let server = Target { key: Some(invited.secret.clone()), ..own_server::target(address)? };
    let text = server.to_string();
    let invitation = Invitation::new(server).map_err(|_| ClientCommandError::NoInvitations(text))?;
    Clients::update(path, |clients| {
        if clients.named.contains_key(&name) {
            return Err(ClientCommandError::Exists(name));
        }
        let earlier = clients.invited.get(&name).cloned().unwrap_or_else(|| invited.clone());
        let mut invited = InvitedClient { limits: earlier.limits, ..invited };
        limits.apply(&mut invited.limits);
        invited.expires = invited.expires.or(earlier.expires);
        clients.invited.insert(name, invited);
        Ok(())
    })?;
    Ok(writeln!(io::stdout(), "{}", *invitation.to_text())?)
}

fn print(server: Target, key: Key) -> Result<(), ClientCommandError> {
    let target = Target { key: Some(key), ..server };
    Ok(writeln!(io::stdout(), "{}", *target.connect_string())?)
}

fn list(clients: &Clients, as_json: bool) -> Result<(), ClientCommandError> {
    let mut out = io::stdout().lock();
    if as_json {
        let each = clients.named.iter().map(|(name, client)| {
            let mut row = json!({
                "name": name.as_str(),
                "expires": client.expires.map(|time| time.to_string()),
                "old_key_until": client.previous.as_ref().map(|(_, until)| until.to_string()),
            });
            merge(&mut row, json_of(&client.limits));
            row
        });
        let invited = clients.invited.iter().map(|(name, invited)| {
            let (until, expires) = (invited.until.to_string(), invited.expires.map(|time| time.to_string()));
            let mut row = json!({ "name": name.as_str(), "invited_until": until, "expires": expires });
            merge(&mut row, json_of(&invited.limits));
            row
        });
        let each = each.chain(invited);
        let groups = clients.groups.iter().map(|group| {
            let mut row = json!({ "name": group.name.as_str(), "members": members(group) });
            merge(&mut row, json_of(&group.limits));
            row
        });
        let all = json!({
            "clients": each.collect::<Vec<_>>(),
            "groups": groups.collect::<Vec<_>>(),
            "others": json_of(&clients.others),
        });
        writeln!(out, "{all:#}")?;
        return Ok(());
    }
    if clients.named.is_empty() && clients.invited.is_empty() {
        writeln!(
            out,
            "no client has a key of its own: `causeway client add NAME` and `causeway client invite NAME` \
             create some"
        )?;
    }
    for (name, client) in &clients.named {
        let mut notes = Vec::new();
        if let Some(expires) = client.expires {
            let word = if expires <= Timestamp::now() { "expired" } else { "expires" };
            notes.push(format!("{word} {expires:.0}"));
        }
        notes.extend(client.limits.notes());
        if let Some((_, until)) = client.previous.as_ref().filter(|(_, until)| *until > Timestamp::now()) {
            notes.push(format!("old key valid until {until:.0}"));
        }
        writeln!(out, "{}", format!("{name:<20} {}", notes.join(", ")).trim_end())?;
    }
    for (name, invited) in &clients.invited {
        let is_over = invited.until <= Timestamp::now();
        let word = if is_over { "its invitation has expired" } else { "invited until" };
        let mut notes = vec![if is_over { word.to_owned() } else { format!("{word} {:.0}", invited.until) }];
        notes.extend(invited.limits.notes());
        writeln!(out, "{name:<20} {}", notes.join(", "))?;
    }
    let notes = clients.others.notes();
    if !notes.is_empty() {
        writeln!(out, "{OTHERS:<20} {}", notes.join(", "))?;
    }
    for group in &clients.groups {
        let mut notes = vec![format!("members: {}", members(group).join(" "))];
        notes.extend(group.limits.notes());
        writeln!(out, "{:<20} {}", format!("{GROUPS}.{}", group.name), notes.join(", "))?;
    }
    Ok(())
}

fn members(group: &Group) -> Vec<String> {
    group.members.iter().map(ToString::to_string).collect()
}

fn json_of(limits: &ClientLimits) -> Value {
    limits.numbers().map(|(name, number)| (name.to_owned(), json!(number))).collect::<Map<_, _>>().into()
}

fn merge(row: &mut Value, more: Value) {
    if let (Value::Object(row), Value::Object(more)) = (row, more) {
        row.extend(more);
    }
}
