//! Session setup: from `CAUSEWAY_ON` to running connections, with the address ranges in use where a server
//! would reserve windows, and the driver version that the program gets (`cuDriverGetVersion`).

use core::ops::Range;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use causeway_access::{Target, servers};
use causeway_api::calls::COMMANDS;
use causeway_api::handle::MAX_SERVERS;
use causeway_api::snapshot::Snapshot;
use causeway_api::sys::CUresult;
use causeway_config::read::PROCESS;
use causeway_config::table::{ADDRESSES_TAKEN, CUDA_LAUNCH_BLOCKING, ON, PIPELINE, SOCKET_DIR, SYNC, VIA};
use causeway_link::{ConnectOptions, Relocations, SharedReceiver, TransportChoice, describe_process};
use causeway_pipeline::{DEFAULT_LANES, Table};
use causeway_sync::threads;
use causeway_wire::codec::Decoder;
use causeway_wire::handshake::{Features, LaneToken, OwnVersion};

use crate::locks::{Mutex, rank};
use crate::log::{self, Level, debug, info};
use crate::model::address::window;
use crate::model::{completion, context, device};
use crate::remote::callbacks::SessionCallbacks;
use crate::remote::plans::Plans;
use crate::remote::session::faults::Faults;
use crate::remote::session::replies::{CommonCommands, Replies};
use crate::remote::session::{Direct, SESSIONS, Session, all, receive};
use crate::{environment, process};

/// Opens the sessions if they are not open yet. When there is no server, or none has a device for us, the
/// program learns what a machine without a GPU tells it, which every runtime handles; the reason goes to the
/// log. `callbacks` hears from the sessions.
pub fn open(callbacks: &'static dyn SessionCallbacks) -> Result<(), CUresult> {
    /// What went wrong last time, so that a program that tries again and again logs it once.
    static LAST_MESSAGE: Mutex<rank::ConnectionMessages, String> = Mutex::new(String::new());
    let mut last_message = LAST_MESSAGE.lock();
    if super::with(0).is_ok() {
        return Ok(());
    }
    connect(callbacks).map_err(|ConnectFailure { code, why }| {
        if *last_message != why {
            log::write(Level::Error, format_args!("{why}"));
            *last_message = why;
        }
        code
    })
}

/// Why there is no session: what `cuInit` answers, and a sentence for the user.
struct ConnectFailure {
    code: CUresult,
    why: String,
}

impl From<String> for ConnectFailure {
    fn from(why: String) -> Self {
        Self { code: CUresult::CUDA_ERROR_NO_DEVICE, why }
    }
}

/// A session that the server has granted.
struct Granted {
    target: Target,
    via: TransportChoice,
    /// The user's plans for copies.
    plans: Table,
    opened: causeway_link::Session,
    relocations: Arc<Relocations>,
    /// How many commands, from number 0 on, the server knows, too.
    commands: u16,
    snapshot: Snapshot,
    started: Instant,
}

/// What became of asking for a session before `cuInit`: the runtime asks for the driver's version first, and
/// refuses to start when it is older than itself.
static HELD: Mutex<rank::HeldConnections, Option<Result<Vec<Granted>, String>>> = Mutex::new(None);

/// The oldest driver version of the servers, when no session is open yet; nothing when there is no server.
/// The sessions that this takes are kept for `cuInit`.
pub fn driver_version_before_init() -> Option<i32> {
    let mut held = HELD.lock();
    watch_process();
    let granted = held.get_or_insert_with(request_sessions);
    granted.as_ref().ok()?.iter().map(|granted| granted.snapshot.driver_version).min()
}

/// Has sessions end with the process, and let go of in its forked children.
fn watch_process() {
    process::watch(process::Handlers {
        forked: super::abandon_after_fork,
        forked_before_init: abandon_held_after_fork,
        at_exit: super::close,
    });
}

/// Lets go, in a forked child, of sessions that its parent keeps for its own `cuInit`.
fn abandon_held_after_fork() {
    // Another thread of the parent may have held the lock: then the child keeps a connection that it never
    // uses.
    let Some(mut held) = HELD.try_lock() else { return };
    if let Some(Ok(granted)) = held.take() {
        granted.iter().for_each(|granted| granted.opened.link.abandon_after_fork());
        // Their threads do not exist here, so nothing of them may be dropped.
        core::mem::forget(granted);
    }
}

/// Asks every server for a session, all at once.
fn request_sessions() -> Result<Vec<Granted>, String> {
    environment::must_be_usable()?;
    let on = PROCESS.text(&ON).ok_or(
        "no server is named, so there is no GPU. Set CAUSEWAY_ON=HOST:PORT, write `on` in a configuration file, or \
         start the program with `causeway run --on HOST:PORT -- PROGRAM`",
    )?;
    let origin = PROCESS.origin(&ON);
    let targets = servers(&on, None).map_err(|cause| format!("{origin} cannot be used: {cause}"))?;
    if targets.len() > MAX_SERVERS {
        let count = targets.len();
        return Err(format!("{origin} names {count} servers, and one program can have {MAX_SERVERS}"));
    }
    let (first, others) = targets.split_first().ok_or_else(|| format!("{origin} names no server"))?;
    device::while_opening(|| {
        let others: Vec<_> = others.iter().map(BackgroundConnect::begin).collect();
        let first = request_session(first, None);
        let results: Vec<_> =
            core::iter::once(first).chain(others.into_iter().map(BackgroundConnect::end)).collect();
        results.into_iter().collect()
    })
}

/// A server that a thread asks, if it comes to that before the caller of `cuInit` does. A library's constructor
/// may call `cuInit`, as UCX's does: its thread has the lock of the dynamic loader, without which no other thread
/// gets thread-local variables, and must wait for none.
struct BackgroundConnect {
    target: Target,
    is_taken: Arc<AtomicBool>,
    receiver: Receiver<Result<Granted, String>>,
}

impl BackgroundConnect {
    fn begin(target: &Target) -> Self {
        let (sender, receiver) = channel();
        let is_taken = Arc::new(AtomicBool::new(false));
        let background = Self { target: target.clone(), is_taken: Arc::clone(&is_taken), receiver };
        let target = target.clone();
        // Without a thread the caller asks.
        let _ = threads::spawn("connect", move || {
            wait_for_loader();
            if !is_taken.swap(true, Ordering::Relaxed) {
                // A caller that has gone wants no answer.
                let _ = sender.send(request_session(&target, None));
            }
        });
        background
    }

    fn end(self) -> Result<Granted, String> {
        if !self.is_taken.swap(true, Ordering::Relaxed) {
            return request_session(&self.target, None);
        }
        let panicked = || Err("requesting a session failed inside the library".to_owned());
        self.receiver.recv().unwrap_or_else(|_| panicked())
    }
}

/// Waits until no other thread has the lock of the dynamic loader: glibc 2.36 takes it to note the destructor of a
/// thread's first variable that has one.
fn wait_for_loader() {
    thread_local! {
        static FIRST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    // It is a thread of ours at its beginning.
    let _ = FIRST.try_with(|first| drop(first.borrow()));
}

/// Asks one server for a session; of a fork by the ticket of its parent's state.
fn request_session(target: &Target, fork: Option<LaneToken>) -> Result<Granted, String> {
    let started = Instant::now();
    let mut for_worker = environment::for_worker();
    let taken =
        variable().filter(|(name, _)| !for_worker.iter().any(|(last_message, _)| last_message == name));
    for_worker.extend(taken);
    debug!("variables for the worker: {for_worker:?}");
    let mut hello = describe_process(COMMANDS, for_worker);
    hello.fork = fork;
    let settings = PROCESS.of_server(target.name.as_deref());
    let mut options = ConnectOptions {
        via: settings.parsed::<TransportChoice>(&VIA).map_err(|cause| cause.to_string())?.unwrap_or_default(),
        socket_folder: PROCESS.path(&SOCKET_DIR),
        ..ConnectOptions::default()
    };
    let plans = Table::of_user(settings).map_err(|cause| cause.to_string())?;
    let planned = plans.max_lanes();
    if options.lanes_by_distance && planned > 0 {
        // As many as the user's plans ask for, so that they can be had.
        (hello.lanes, options.lanes_by_distance) = (planned.max(DEFAULT_LANES), false);
    }
    let opened = causeway_link::connect(target, hello, &options).map_err(|cause| cause.to_string())?;
    let common = OwnVersion::new(COMMANDS).common_with_server(&opened.welcome);
    let commands = common.map_err(|mismatch| format!("{target} cannot be used: {mismatch}"))?;
    let snapshot: Snapshot = Decoder::new(&opened.welcome.snapshot)
        .value()
        .map_err(|cause| format!("the device list of {target} is malformed: {cause}"))?;
    let relocations = options.relocations;
    Ok(Granted {
        target: target.clone(),
        via: options.via,
        plans,
        opened,
        relocations,
        commands,
        snapshot,
        started,
    })
}

fn connect(callbacks: &'static dyn SessionCallbacks) -> Result<(), ConnectFailure> {
    let held = HELD.lock().take();
    let mut granted = held.unwrap_or_else(request_sessions)?;
    let snapshots: Vec<_> = granted.iter().map(|granted| &granted.snapshot).collect();
    let devices = device::visible(&snapshots);
    let all: usize = snapshots.iter().map(|snapshot| snapshot.devices.len()).sum();
    // No thread receives from these sessions yet.
    let close_all = |granted: &mut Vec<Granted>| {
        granted
            .iter_mut()
            .for_each(|granted| granted.opened.link.close_receiving(&mut granted.opened.receiver));
    };
    let devices = devices.map_err(|twice| {
        let why = twice.to_string();
        close_all(&mut granted);
        ConnectFailure { code: CUresult::CUDA_ERROR_INVALID_DEVICE, why }
    })?;
    if devices.is_empty() {
        close_all(&mut granted);
        let why = match granted.len() {
            1 if all == 0 => "the server offers no device".to_owned(),
            1 => {
                format!("the server has {all} device(s), and CUDA_VISIBLE_DEVICES lets the program see none")
            }
            servers => format!(
                "the {servers} servers have {all} device(s), and CUDA_VISIBLE_DEVICES lets the program see none"
            ),
        };
        return Err(why.into());
    }
    context::prepare(&devices);
    device::open(devices);
    let sessions =
        granted.into_iter().enumerate().map(|(server, granted)| open_one(server, granted, callbacks));
    for session in sessions.collect::<Result<Vec<_>, _>>()? {
        open_windows(session);
        SESSIONS[session.server].store(core::ptr::from_ref(session).cast_mut(), Ordering::Release);
    }
    watch_process();
    process::opened();
    Ok(())
}

/// Opens the session of a forked child, which has what the parent had, at the same addresses. The parent's is
/// left as it is.
pub(super) fn open_fork(parent: &Session, ticket: LaneToken) -> Result<&'static Session, String> {
    let granted = request_session(&parent.target, Some(ticket))?;
    let session = open_one(parent.server, granted, parent.callbacks)?;
    SESSIONS[session.server].store(core::ptr::from_ref(session).cast_mut(), Ordering::Release);
    Ok(session)
}

/// Reserves the addresses that a server has offered.
fn open_windows(session: &Session) {
    window::offer(session.server, session.snapshot.device_window);
    crate::model::host_window::open(session.snapshot.host_window);
    if let Err(cause) = crate::model::host_window::managed().open(session.snapshot.managed_window) {
        info!("no addresses for managed memory of devices ({cause}): it is in host memory");
    }
}

/// Starts the session that a server has granted.
fn open_one(
    server: usize,
    granted: Granted,
    callbacks: &'static dyn SessionCallbacks,
) -> Result<&'static Session, String> {
    let Granted { target, via, plans, opened, relocations, commands, snapshot, started } = granted;
    let seen = device::all().iter().filter(|device| device.server == server).count();
    info!(
        "connected to {target} via {} in {:.1} ms: {}, {seen} of {} device(s), first {}",
        opened.link.kind(),
        started.elapsed().as_secs_f64() * 1e3,
        snapshot.backend,
        snapshot.devices.len(),
        snapshot.devices.first().map_or("none", |device| device.name.as_str())
    );
    for reason in &opened.reasons {
        info!("not via {}: {}", reason.kind, reason.text);
    }
    if let Some(shortage) = opened.link.shortage() {
        info!("copies are slower than they could be: {shortage}");
    }
    let transport = opened.link.kind();
    let plans_origin = PROCESS.of_server(target.name.as_deref()).origin(&PIPELINE);
    let first = snapshot.devices.first().map(|device| device.uuid_text()).unwrap_or_default();
    let session: &'static Session = Box::leak(Box::new(Session {
        server,
        target: target.clone(),
        via,
        address: opened
            .local_address
            .map_or_else(|| target.address(), |address| target.at(address).address()),
        locality: opened.welcome.locality,
        link: opened.link,
        relocations,
        callbacks,
        reasons: opened.reasons,
        receiver: SharedReceiver::new(opened.receiver),
        replies: Replies::new(),
        commands: CommonCommands::new(commands, opened.welcome.release),
        faults: Faults::default(),
        sequence_numbers: completion::sequence_numbers(server),
        plans: Plans::find(
            (plans, &plans_origin),
            target.endpoint.host(),
            &first,
            transport,
            opened.distance,
        ),
        identity: (opened.welcome.session, opened.welcome.token),
        can_fork: opened.welcome.abilities.features.contain(Features::FORKS),
        snapshot,
        synchronous: PROCESS.is_on(&SYNC).unwrap_or(false),
        launches_wait: environment::is_on(&CUDA_LAUNCH_BLOCKING),
        started,
        copies_from_device: Mutex::default(),
        direct: Direct::default(),
        end: OnceLock::new(),
        opening: opened.round_trips,
    }));
    session.link.start(Arc::new(receive::Events(session)));
    threads::spawn("replies", move || receive::run(session))
        .map_err(|cause| format!("cannot start a thread for the server's replies: {cause}"))?;
    Ok(session)
}

/// Where servers place windows: from 16 to 64 TiB. Programs, their libraries and stacks lie above.
const WINDOW_RANGE: Range<u64> = 1 << 44..1 << 46;

/// What lies nearer together than this is one range: no window fits between.
const GAP: u64 = 1 << 30;

/// Maximum number of ranges that are sent.
const MAX_TAKEN: usize = 64;

/// The ranges as a variable for the worker, with its value; nothing if there are none, as in most programs.
///
/// It is found out once: windows that servers have come to have later are no obstacle to those of other servers.
pub fn variable() -> Option<(String, String)> {
    static FOUND: OnceLock<String> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let maps = std::fs::read("/proc/self/maps");
        maps.map_or_else(|_| String::new(), |maps| text(&ranges(maps.as_slice())))
    });
    (!found.is_empty()).then(|| (ADDRESSES_TAKEN.name.to_owned(), found.clone()))
}

/// The ranges of a list of mappings that lie where servers place windows.
fn ranges(maps: impl BufRead) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for line in maps.lines().map_while(Result::ok) {
        let mut ends = line.split([' ', '-']).map(|text| u64::from_str_radix(text, 16));
        let (Some(Ok(start)), Some(Ok(end))) = (ends.next(), ends.next()) else { continue };
        let found = start.max(WINDOW_RANGE.start)..end.min(WINDOW_RANGE.end);
        if found.is_empty() {
            continue;
        }
        let is_full = ranges.len() == MAX_TAKEN;
        match ranges.last_mut() {
            Some(last) if is_full || found.start - last.end < GAP => last.end = found.end,
            _ => ranges.push(found),
        }
    }
    ranges
}

fn text(ranges: &[Range<u64>]) -> String {
    let mut text = String::new();
    for range in ranges {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{:x}-{:x}", range.start, range.end);
    }
    text
}

/// The CUDA version whose driver API this library has.
const VERSION: i32 = 13000;

/// The driver version that the program gets: the server's. The runtime asks before `cuInit`, and does not
/// call that when the driver is older than itself. Without a server it is this library's own, so that
/// `cuInit` says what is wrong. Once told it stays, for the runtime takes a later change for a broken driver.
pub fn reported_driver_version() -> i32 {
    static REPORTED: AtomicI32 = AtomicI32::new(0);
    match REPORTED.load(Ordering::Acquire) {
        0 => {}
        reported => return reported,
    }
    let version = match all().map(|session| session.snapshot.driver_version).min() {
        Some(version) => Some(version),
        None if process::is_fresh() => driver_version_before_init(),
        None => None,
    };
    let version = version.map_or(VERSION, |version| version.min(VERSION));
    match REPORTED.compare_exchange(0, version, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => version,
        Err(reported) => reported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_where_windows_would_lie_are_told() {
        let maps = "\
00400000-00401000 r-xp 00000000 00:00 0 program
040000000000-048000000000 ---p 00000000 00:00 0
0fffffff0000-100080000000 ---p 00000000 00:00 0
1000a0000000-1000b0000000 rw-p 00000000 00:00 0
108000000000-108000001000 rw-p 00000000 00:00 0
555555554000-555555555000 r-xp 00000000 00:00 0 program
7ffff7fc5000-7ffff7fff000 r-xp 00000000 00:00 0 [vdso]
";
        let found = ranges(maps.as_bytes());
        assert_eq!(text(&found), "100000000000-1000b0000000,108000000000-108000001000");
        assert_eq!(text(&ranges(&b"no list\n"[..])), "");
        let many: String = (0..2 * MAX_TAKEN as u64)
            .map(|number| {
                format!(
                    "{:x}-{:x} rw-p\n",
                    WINDOW_RANGE.start + (number << 32),
                    WINDOW_RANGE.start + (number << 32) + 4096
                )
            })
            .collect();
        let found = ranges(many.as_bytes());
        assert_eq!(
            (found.len(), found[MAX_TAKEN - 1].end),
            (MAX_TAKEN, WINDOW_RANGE.start + (127 << 32) + 4096)
        );
    }
}
