//! Diagnosis processes: they report the facts of this machine to `causeway doctor`.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use causeway_connection::channel::Connection;
use causeway_connection::record::ConnectionKeys;
use causeway_doctor::live::DRIVER_TIMEOUT;
use causeway_sandbox::Purpose;
use causeway_wire::handshake::ClientHello;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::refusal::refuse;
use super::shared::Shared;
use super::spawn::{Spawner, describe};
use crate::admission::{HandshakeSlot, Origin, Source};
use crate::broker::spawn::Started;
use crate::protocol::messages::{self, ControlError, ToWorker};

/// How long the process of a diagnosis may take, in which a driver may hang.
const DIAGNOSIS_PROCESS_TIMEOUT: Duration = DRIVER_TIMEOUT.saturating_add(Duration::from_secs(50));

/// Gives a client a process that answers it, and waits for the end of that.
pub fn answer(
    shared: &Shared,
    peer: Origin,
    hello: &ClientHello,
    mut connection: Connection,
    slot: HandshakeSlot,
) {
    let client = format!("{} (process {} on {})", hello.program, hello.pid, hello.host);
    let diagnosis_slot = match shared.admission.take_diagnosis(Source::of(peer)) {
        Ok(diagnosis_slot) => diagnosis_slot,
        Err(error) => {
            tracing::warn!(%peer, "{client} was refused: {error}");
            return refuse(&mut connection, &error.to_string());
        }
    };
    if !slot.finish() {
        return;
    }
    drop(slot);
    let (socket, keys) = match messages::take_apart(connection) {
        Ok(parts) => parts,
        Err(error) => return tracing::warn!(%peer, "{client} was refused: {error}"),
    };
    tracing::info!(%peer, "{client} requests a diagnosis of this machine");
    match start(&shared.spawner, &socket, &keys) {
        Ok(Started { child, jail, .. }) => {
            drop(socket);
            watch(child);
            drop(jail);
        }
        Err(error) => {
            tracing::error!(%peer, "no diagnosis for {client}: {error}");
            let mut connection = Connection::new(TcpStream::from(socket), keys);
            refuse(&mut connection, &format!("the server cannot start a process: {error}"));
        }
    }
    drop(diagnosis_slot);
}

fn start(
    spawner: &Spawner,
    socket: &OwnedFd,
    keys: &Option<ConnectionKeys>,
) -> Result<Started, ControlError> {
    let started = spawner.spawn(Purpose::Diagnosis, Vec::new())?;
    if let Err(error) =
        messages::send(&started.control, &ToWorker::Diagnose { keys: keys.clone() }, Some(socket))
    {
        started.discard();
        return Err(error);
    }
    Ok(started)
}

/// Waits for the end of the process, and ends it when it takes too long.
fn watch(mut child: Child) {
    let is_late = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        Ok(process) => !ends_within(&process, DIAGNOSIS_PROCESS_TIMEOUT),
        Err(error) => {
            tracing::warn!("cannot monitor a diagnosis, which is ended: {}", io::Error::from(error));
            true
        }
    };
    if is_late {
        // It may have ended this very moment, which is as good.
        let _ = child.kill();
    }
    let status = child.wait();
    if !status.as_ref().is_ok_and(|status| status.success()) {
        tracing::warn!("a diagnosis {}", describe(&status));
    }
}

fn ends_within(process: &OwnedFd, grace: Duration) -> bool {
    let deadline = Instant::now() + grace;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let mut waiting_for = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        // An interrupted wait is only a reason to look again.
        let _ = poll(&mut waiting_for, timeout.as_ref());
        if !waiting_for[0].revents().is_empty() {
            return true;
        }
        if left.is_zero() {
            return false;
        }
    }
}
