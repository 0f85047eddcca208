//! Copy plan lookup.
//!
//! What `CAUSEWAY_PIPELINE` or a configuration file says comes first, then what `causeway tune` has measured for this server, then
//! the built-in table; see [`causeway_pipeline`].

use crate::locks::{RwLock, rank};
use crate::log::{error, info};
use causeway_pipeline::profile::{self, Pair};
use causeway_pipeline::{Direction, Plan, Profile, Table, TransportKind, for_distance};
use std::time::Duration;

/// How the copies of one session are carried.
pub struct Plans {
    module: TransportKind,
    /// What the length of the network asks for.
    by_distance: Table,
    /// What the session began with.
    of_beginning: Table,
    table: RwLock<rank::Plans, Table>,
    /// Where the table comes from.
    source: String,
    /// Whose copies they are for.
    pub pair: Pair,
}

/// The name of the source when none is configured.
const BUILT_IN: &str = "built-in";

impl Plans {
    /// Looks for the plans for a session with a server whose first device has this UUID, over a network with
    /// this round trip. The user's own table, which comes with what says it, counts first.
    pub fn find(
        (user, origin): (Table, &str),
        server: &str,
        device: &str,
        module: TransportKind,
        distance: Duration,
    ) -> Self {
        let pair = Pair::of_this_host(server, device, module);
        let profile = find(&pair);
        let mut sources = Vec::new();
        if !user.is_empty() {
            sources.push(origin.to_owned());
        }
        sources.extend(profile.as_ref().map(|_| format!("profile {}", pair.file_name())));
        sources.push(BUILT_IN.to_owned());
        let source = sources.join(", ");
        info!("plans for copies: {source}");
        let by_distance = for_distance(distance);
        let table = by_distance.clone().under(profile.unwrap_or_default()).under(user);
        Self { module, by_distance, of_beginning: table.clone(), table: RwLock::new(table), source, pair }
    }

    /// Carries copies as this table says, and as without the user's and the profile's where it says nothing;
    /// without a table as the session began.
    pub fn replace(&self, table: Option<&Table>) {
        *self.table.write() = match table {
            Some(table) => self.by_distance.clone().under(table.clone()),
            None => self.of_beginning.clone(),
        };
    }

    /// The plan for a copy of `bytes` bytes.
    pub fn plan(&self, direction: Direction, bytes: usize) -> Plan {
        self.table.read().plan(self.module, direction, bytes)
    }

    /// Where the plans come from, the first source before the others.
    pub fn source(&self) -> &str {
        &self.source
    }
}

fn find(pair: &Pair) -> Option<Table> {
    // Without a folder nobody can have kept a profile there.
    let folder = profile::folder().ok()?;
    let found = Profile::find(&folder, pair).unwrap_or_else(|cause| {
        error!("{cause}");
        None
    });
    found?.table().ok()
}
