//! Fork of a process together with its session: the child goes on with a copy of the GPU's state, at the
//! same addresses.
//!
//! Before the fork the calls of other threads are waited for, the server holds the session at a quiet point,
//! and the library's own threads rest. The child asks for a session, whose worker gets the state from the
//! parent's; then the parent's goes on. What the client knows of the session is in the child as the kernel
//! has copied it, so that no command may be sent between the quiet point and the fork, and nothing may be on
//! its way to the program.

use core::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use causeway_access::target::random_bytes;
use causeway_api::calls::{self, COMMANDS};
use causeway_connection::exchange::Exchange;
use causeway_link::{ConnectOptions, connect_status, describe_process};
use causeway_memory::copy_threads;
use causeway_wire::codec::{Decoder, Encode as _};
use causeway_wire::handshake::{Features, LaneToken};
use causeway_wire::moves::{MoveReply, MoveRequest, QUIET_TIMEOUT};
use causeway_wire::status::{Reply, StatusRequest};

use super::{Session, all, connect, with};
use crate::log::info;
use crate::model::{completion, context, host_writes, transfers};
use crate::remote::image::pending_images;
use crate::remote::mirrored;
use crate::{call_gate, process};

/// How long the server may take for a reply.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long there may be no quiet point; the server gives up before.
const HOLD_TIMEOUT: Duration = QUIET_TIMEOUT.saturating_mul(2);

/// How long what the server has sent before may be on its way.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// How often is looked whether it has come.
const ARRIVAL_INTERVAL: Duration = Duration::from_micros(200);

/// How long a state may take to go to the worker of the child.
const COPY_TIMEOUT: Duration = Duration::from_secs(900);

/// A fork that is about to be. The gate of the program's calls is closed.
struct Prepared {
    server: Exchange,
    ticket: LaneToken,
    /// Bytes of messages and of transfers that had been sent.
    sent: (u64, u64),
    started_at: Instant,
}

static PREPARED: AtomicPtr<Prepared> = AtomicPtr::new(ptr::null_mut());

fn take_prepared() -> Option<Box<Prepared>> {
    let pointer = PREPARED.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: it is null, or came from `Box::into_raw` and was taken out by this call alone.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// Has calls of other threads wait and the server hold the session, in the process that is about to fork.
///
/// # Errors
/// Why the session cannot be forked, as a sentence. It goes on.
pub fn prepare() -> Result<(), String> {
    let session = forkable()?;
    call_gate::close()?;
    let prepared = mirrored::shared::fork::must_be_inheritable().and_then(|()| hold(session));
    match prepared {
        Ok(prepared) => {
            PREPARED.store(Box::into_raw(Box::new(prepared)), Ordering::Release);
            process::set_forking(true);
            Ok(())
        }
        Err(why) => {
            call_gate::open();
            Err(why)
        }
    }
}

/// The session, if it can be forked as far as that is known here.
fn forkable() -> Result<&'static Session, String> {
    if !process::is_ready() {
        return Err("the process has no session".to_owned());
    }
    if all().count() != 1 {
        return Err("the process uses devices of several servers".to_owned());
    }
    let session = with(0).map_err(|_| "the process has no session".to_owned())?;
    if session.link.is_lost() {
        return Err("the connection to the server is lost".to_owned());
    }
    if session.link.is_one_sided() {
        return Err(
            "memory of the process is registered with network cards, which the child would lose: connect \
                    with CAUSEWAY_VIA=tcp"
                .to_owned(),
        );
    }
    if !session.can_fork {
        return Err("its server's release cannot fork sessions: update the server".to_owned());
    }
    let features = describe_process(COMMANDS, Vec::new()).abilities.features;
    if !session.link.is_resumable() && !features.contain(Features::FORKS) {
        return Err(
            "the server keeps no journal from which another worker could recreate its state: start the \
                    program with CAUSEWAY_FORK=1"
                .to_owned(),
        );
    }
    Ok(session)
}

/// Has the server hold the session at a quiet point.
fn hold(session: &Session) -> Result<Prepared, String> {
    let started_at = Instant::now();
    let context = context::current_or_none();
    if context.is_null() {
        return Err("the calling thread has no current context".to_owned());
    }
    // What comes after everything that was sent shows that it has come.
    let broken = |status| format!("the session does not respond (error {status:?})");
    session.call(context, &calls::cuMemGetInfo_v2 {}, |input| input.value::<u64>()).map_err(broken)?;
    let sent = bytes_sent(session);
    let hello = describe_process(COMMANDS, Vec::new());
    let server = connect_status(&session.target, &hello, &ConnectOptions::default());
    let mut prepared = Prepared {
        server: server.map_err(|cause| cause.to_string())?,
        ticket: LaneToken(random_bytes()),
        sent,
        started_at,
    };
    let (id, token) = session.identity;
    let hold = MoveRequest::HoldForFork { session: id, token, ticket: prepared.ticket };
    wait_until_held(&mut prepared.server, hold, HOLD_TIMEOUT, || false)?;
    // From here on the end of the exchange has the session go on.
    let flushed = session.link.flush();
    rest(session)?;
    let proceeds = if flushed.is_err() || bytes_sent(session) != sent {
        Err("the program sent something to the server meanwhile: fork again".to_owned())
    } else {
        // The state now waits for the child, which hears by a refusal if anything fails.
        match request(&mut prepared.server, MoveRequest::Proceed) {
            Ok(MoveReply::Done) => Ok(()),
            Ok(MoveReply::Refused { text }) => Err(text.to_string()),
            Ok(other) => Err(format!("the server sent another reply: {other:?}")),
            Err(why) => Err(why),
        }
    };
    match proceeds {
        Ok(()) => Ok(prepared),
        Err(why) => {
            call_gate::open_background();
            Err(why)
        }
    }
}

/// What has gone to the server so far.
fn bytes_sent(session: &Session) -> (u64, u64) {
    let counters = session.link.counters();
    (counters.message_bytes_sent, counters.transfer_bytes_sent)
}

/// Has the threads of this library rest, when they have done what the server had sent before it held the
/// session. [`call_gate::open_background`] ends that.
fn rest(session: &Session) -> Result<(), String> {
    let started_at = Instant::now();
    loop {
        call_gate::close_background()?;
        // Only now: what they would change is as it is.
        let what = if transfers::are_pending() {
            "copies of the program"
        } else if completion::is_any_awaited() {
            "reports of streams and events"
        } else if pending_images::is_any() {
            "images of code"
        } else if session.callbacks.is_any_task() {
            "functions that streams call"
        } else {
            return Ok(());
        };
        call_gate::open_background();
        if session.link.is_lost() {
            return Err("the connection to the server is lost".to_owned());
        }
        if started_at.elapsed() >= ARRIVAL_TIMEOUT {
            let seconds = ARRIVAL_TIMEOUT.as_secs();
            return Err(format!("{what} have not ended for {seconds} s: fork after cuCtxSynchronize"));
        }
        std::thread::sleep(ARRIVAL_INTERVAL);
    }
}

/// Asks until the session is held, or its state is with the other worker; or `is_over` says that no other
/// worker will come for it.
fn wait_until_held(
    server: &mut Exchange,
    mut what: MoveRequest,
    timeout: Duration,
    is_over: impl Fn() -> bool,
) -> Result<u64, String> {
    let deadline = Instant::now() + timeout;
    loop {
        match request(server, what)? {
            MoveReply::Held { bytes } => return Ok(bytes),
            MoveReply::Pending if is_over() => {
                // Where the state is on its way the other worker ends, and with it that way.
                request(server, MoveRequest::Stay)?;
                return Err("the child has ended".to_owned());
            }
            MoveReply::Pending if Instant::now() < deadline => what = MoveRequest::IsHeld,
            MoveReply::Pending => {
                return Err(format!("the server takes longer than {} s", timeout.as_secs()));
            }
            MoveReply::Refused { text } => return Err(text.to_string()),
            MoveReply::Ended => return Err("its worker has ended".to_owned()),
            other => return Err(format!("the server sent another reply: {other:?}")),
        }
    }
}

/// Waits until the session of the `child` has the state, and lets calls go on, in the process that has
/// forked; in one that has not, after all, the session goes on at once.
pub fn in_parent(child: Option<libc::pid_t>) {
    let Some(mut prepared) = take_prepared() else { return };
    process::set_forking(false);
    call_gate::open_background();
    if let Some(child) = child {
        match wait_until_held(&mut prepared.server, MoveRequest::IsHeld, COPY_TIMEOUT, || has_ended(child)) {
            Ok(bytes) => info!(
                "forked in {:.1} ms, with {bytes} bytes of state",
                prepared.started_at.elapsed().as_secs_f64() * 1e3
            ),
            // The child says so, too.
            Err(why) => info!("the child did not receive the state of the session: {why}"),
        }
    } else {
        // Otherwise the end of the connection says the same in a while.
        let _ = request(&mut prepared.server, MoveRequest::Stay);
    }
    call_gate::open();
}

/// Whether a child has ended, which the program is still to hear.
fn has_ended(child: libc::pid_t) -> bool {
    // SAFETY: `siginfo_t` is plain data, to which the call writes.
    unsafe {
        let mut info: libc::siginfo_t = core::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        match libc::waitid(libc::P_PID, child.cast_unsigned(), &raw mut info, how) {
            0 => info.si_pid() == child,
            // The program has children reaped by the system, or another thread of it does that.
            _ => std::io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD),
        }
    }
}

/// Opens a session with the state of the parent's, in a child that was forked after [`prepare`].
///
/// # Errors
/// Why there is none, as a sentence. The child then has no session.
pub fn in_child() -> Result<(), String> {
    let prepared = take_prepared().ok_or("nothing was prepared for a fork")?;
    if !process::is_forked() {
        return Err("this process was not forked from one with a session".to_owned());
    }
    let parent = with(0).map_err(|_| "the parent had no session".to_owned())?;
    let ticket = prepared.ticket;
    // The counter is as it was at the fork.
    let is_unchanged = bytes_sent(parent) == prepared.sent;
    // The parent's connection is this process's, too, until it is closed here.
    drop(prepared);
    if !is_unchanged {
        return Err("the parent sent something to the server while it forked: fork again".to_owned());
    }
    copy_threads::after_fork();
    host_writes::forget_thread();
    pending_images::forget_thread();
    mirrored::after_fork();
    parent.callbacks.after_fork();
    let session = connect::open_fork(parent, ticket)?;
    mirrored::shared::fork::hand_over_in_child(session).inspect_err(|_| session.link.close_at_once())?;
    // Its first reply comes when the state is there. Until then the program's calls have no session.
    let context = context::current_or_none();
    session.call(context, &calls::cuMemGetInfo_v2 {}, |input| input.value::<u64>()).map_err(|status| {
        session.reason().map_or_else(|| format!("it does not respond (error {status:?})"), str::to_owned)
    })?;
    process::opened();
    mirrored::resume_in_child();
    Ok(())
}

fn request(server: &mut Exchange, what: MoveRequest) -> Result<MoveReply, String> {
    let reply = server
        .request(RESPONSE_TIMEOUT, |out| StatusRequest::Move(what).encode(out))
        .map_err(|cause| format!("the server does not respond: {cause}"))?
        .ok_or("the server has ended the connection")?;
    match Decoder::new(&reply).value() {
        Ok(Reply::Move(reply)) => Ok(reply),
        Ok(Reply::Refused { text }) => Err(text.to_string()),
        Ok(_) => Err("the server sent another reply".to_owned()),
        Err(cause) => Err(format!("malformed reply from the server: {cause}")),
    }
}
