//! Which plan does a copy of the program get?
//!
//! What `CAUSEWAY_PIPELINE` says comes first, then what `causeway tune` has measured for this server, then the built-in
//! table; see [`causeway_pipeline`].

use crate::environment;
use crate::locks::{RwLock, rank};
use crate::log::{error, info};
use crate::remote::session;
use causeway_pipeline::profile::{self, Pair};
use causeway_pipeline::{Direction, Module, Plan, Profile, Table, VARIABLE, for_distance};
use core::ffi::{CStr, c_char, c_int};
use std::time::Duration;

/// How the copies of one session are carried.
pub struct Plans {
    module: Module,
    /// What the length of the network asks for.
    by_distance: Table,
    /// What the session began with.
    of_beginning: Table,
    table: RwLock<rank::Plans, Table>,
    /// Where the table comes from.
    source: String,
    pair: Pair,
}

/// What stands for the source when nobody has said anything.
const BUILT_IN: &str = "built-in";

impl Plans {
    /// Looks for the plans for a session with a server whose first device has this UUID, over a network with this round trip.
    pub fn find(server: &str, device: &str, module: Module, distance: Duration) -> Self {
        let user = of_user();
        let pair = Pair::of_this_host(server, device, module);
        let profile = find(&pair);
        let mut sources = Vec::new();
        if !user.is_empty() {
            sources.push(VARIABLE.to_owned());
        }
        sources.extend(profile.as_ref().map(|_| format!("profile {}", pair.file_name())));
        sources.push(BUILT_IN.to_owned());
        let source = sources.join(", ");
        info!("plans for copies: {source}");
        let by_distance = for_distance(distance);
        let table = by_distance.clone().under(profile.unwrap_or_default()).under(user);
        Self { module, by_distance, of_beginning: table.clone(), table: RwLock::new(table), source, pair }
    }

    /// Carries copies as this table says, and as without the user's and the profile's where it says nothing; without a table as the
    /// session began.
    fn replace(&self, table: Option<&Table>) {
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

/// The user's own table. One with a mistake is reported and not used.
pub fn of_user() -> Table {
    let text = environment::read(VARIABLE).unwrap_or_default();
    Table::parse(&text).unwrap_or_else(|cause| {
        error!("{cause}; going on without it");
        Table::default()
    })
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

/// For `causeway tune` and `causeway bench pipeline`: carries copies as this table says, in the language of `CAUSEWAY_PIPELINE`, and the
/// built-in one where it says nothing; a null pointer brings back what the session began with. 0, or 1 when the text is no table.
///
/// # Safety
/// `text` must be null or point to a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_use_pipeline(text: *const c_char) -> c_int {
    // SAFETY: as this function demands.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy());
    let Ok(table) = text.map(|text| Table::parse(&text)).transpose() else { return 1 };
    session::all().for_each(|session| session.plans.replace(table.as_ref()));
    0
}

/// For `causeway tune`: how the first session carries a copy of so many bytes now, to a device where `to_device` is not 0. Writes the plan's
/// buffers, bytes of a buffer, lanes and threads; 0, or 1 when there is no session.
///
/// # Safety
/// `out` must point to four numbers that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_pipeline_plan(
    to_device: c_int,
    bytes: usize,
    out: *mut [usize; 4],
) -> c_int {
    let Ok(session) = session::with(0) else { return 1 };
    let direction = if to_device != 0 { Direction::ToDevice } else { Direction::FromDevice };
    let Plan { buffers, buffer_bytes, lanes, threads } = session.plans.plan(direction, bytes);
    // SAFETY: as this function demands.
    unsafe { out.write([buffers, buffer_bytes, lanes, threads]) };
    0
}

/// For `causeway tune`: the pair of the first session, as four lines: the server's host, the UUID of its first device, the
/// module and the client's host. The length of the text, of which as much is written as there is room for; 0 when there
/// is no session.
///
/// # Safety
/// `room` bytes at `out` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_pipeline_pair(out: *mut c_char, room: usize) -> usize {
    let Ok(session) = session::with(0) else { return 0 };
    let Pair { server, device, module, client } = &session.plans.pair;
    let text = format!("{server}\n{device}\n{module}\n{client}");
    // SAFETY: as this function demands.
    unsafe { out.cast::<u8>().copy_from(text.as_ptr(), text.len().min(room)) };
    text.len()
}
