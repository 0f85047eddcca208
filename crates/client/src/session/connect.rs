//! Opening the session: from `CAUSEWAY_ON` to a running connection.

use super::{SESSION, Session, faults::Faults, receive, replies::Replies};
use crate::log::{Level, debug, info};
use crate::{context, device, environment, log, pipeline, process, visible};
use causeway_api::coverage::FINGERPRINT;
use causeway_api::snapshot::Snapshot;
use causeway_api::sys::CUresult;
use causeway_fabric::pipeline::Module;
use causeway_fabric::{ConnectOptions, DEFAULT_LANES, Target, Via, ViaChoice, describe_process, threads};
use causeway_wire::codec::Decoder;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Opens the session if it is not open yet. When there is no server, or it has no device for us, the program
/// learns what a machine without a GPU tells it, which every runtime handles; the reason goes to the log.
pub fn open() -> Result<(), CUresult> {
    /// What went wrong last time, so that a program that tries again and again logs it once.
    static SAID: Mutex<String> = Mutex::new(String::new());
    let mut said = SAID.lock();
    if super::session().is_ok() {
        return Ok(());
    }
    connect().map_err(|why| {
        if *said != why {
            log::write(Level::Error, format_args!("{why}"));
            *said = why;
        }
        CUresult::CUDA_ERROR_NO_DEVICE
    })
}

/// A session that the server has granted.
struct Granted {
    target: Target,
    opened: causeway_fabric::Session,
    snapshot: Snapshot,
    started: Instant,
}

/// What became of asking for a session before `cuInit`: the runtime asks for the driver's version first, and refuses to
/// start when it is older than itself.
static HELD: Mutex<Option<Result<Granted, String>>> = Mutex::new(None);

/// The driver version of the server, when no session is open yet; nothing when there is no server. The session that
/// this takes is kept for `cuInit`.
pub fn early_driver_version() -> Option<i32> {
    let mut held = HELD.lock();
    process::watch();
    let granted = held.get_or_insert_with(ask);
    granted.as_ref().ok().map(|granted| granted.snapshot.driver_version)
}

/// Lets go, in a forked child, of a session that its parent keeps for its own `cuInit`.
pub fn abandon_held_after_fork() {
    // Another thread of the parent may have held the lock: then the child keeps a connection that it never uses.
    let Some(mut held) = HELD.try_lock() else { return };
    if let Some(Ok(granted)) = held.take() {
        granted.opened.link.abandon_after_fork();
        // Its threads do not exist here, so nothing of it may be dropped.
        core::mem::forget(granted);
    }
}

/// Asks the server for a session.
fn ask() -> Result<Granted, String> {
    let started = Instant::now();
    let on = environment::read("CAUSEWAY_ON").filter(|text| !text.trim().is_empty()).ok_or(
        "no server is named, so there is no GPU. Set CAUSEWAY_ON=HOST:PORT, or start the program with \
         `causeway run --on HOST:PORT -- PROGRAM`",
    )?;
    let target: Target = on.parse().map_err(|cause| format!("CAUSEWAY_ON cannot be used: {cause}"))?;
    let for_worker = environment::for_worker();
    debug!("variables for the worker: {for_worker:?}");
    let mut hello = describe_process(FINGERPRINT, for_worker);
    let via = environment::read("CAUSEWAY_VIA").unwrap_or_default().parse::<ViaChoice>();
    let mut options = ConnectOptions {
        via: via.map_err(|cause| format!("CAUSEWAY_VIA cannot be used: {cause}"))?,
        socket_folder: environment::read("CAUSEWAY_SOCKET_DIR")
            .filter(|text| !text.is_empty())
            .map(PathBuf::from),
        ..ConnectOptions::default()
    };
    let planned = pipeline::of_user().most_lanes(Module::Tcp);
    if options.lanes_by_distance && planned > 0 {
        // As many as the user's plans ask for, so that they can be had.
        (hello.lanes, options.lanes_by_distance) = (planned.max(DEFAULT_LANES), false);
    }
    let opened = causeway_fabric::connect(&target, hello, &options).map_err(|cause| cause.to_string())?;
    let snapshot: Snapshot = Decoder::new(&opened.welcome.snapshot)
        .value()
        .map_err(|cause| format!("the server's list of devices makes no sense: {cause}"))?;
    Ok(Granted { target, opened, snapshot, started })
}

fn connect() -> Result<(), String> {
    let held = HELD.lock().take();
    let Granted { target, opened, snapshot, started } = held.unwrap_or_else(ask)?;
    let devices = device::visible(&snapshot);
    if devices.is_empty() {
        opened.link.close();
        return Err(format!(
            "the server has {} device(s), and CUDA_VISIBLE_DEVICES lets the program see none",
            snapshot.devices.len()
        ));
    }
    info!(
        "connected to {target} via {} in {:.1} ms: {}, {} of {} device(s), first {}",
        opened.link.via(),
        started.elapsed().as_secs_f64() * 1e3,
        snapshot.backend,
        devices.len(),
        snapshot.devices.len(),
        devices[0].info.name
    );
    for reason in &opened.reasons {
        info!("not via {}: {}", reason.via, reason.text);
    }
    let first = snapshot.devices.first().map(|device| device.uuid_text()).unwrap_or_default();
    let module = match opened.link.via() {
        Via::Tcp => Module::Tcp,
        Via::Shm => Module::Shm,
        Via::Verbs => Module::Verbs,
    };
    pipeline::open(&target.host, &first, module);
    context::prepare(devices.len());
    visible::window::open(snapshot.host_window);
    let session: &'static Session = Box::leak(Box::new(Session {
        link: opened.link,
        reasons: opened.reasons,
        replies: Replies::new(),
        faults: Faults::default(),
        devices,
        snapshot,
        synchronous: environment::is_on("CAUSEWAY_SYNC"),
        launches_wait: environment::is_on("CUDA_LAUNCH_BLOCKING"),
        started,
        opening: opened.round_trips,
    }));
    session.link.start(Arc::new(receive::Events(session)));
    let receiver = opened.receiver;
    threads::spawn("replies", move || receive::run(session, receiver))
        .map_err(|cause| format!("no thread for the server's replies could be started: {cause}"))?;
    SESSION.store(core::ptr::from_ref(session).cast_mut(), Ordering::Release);
    process::opened();
    Ok(())
}
