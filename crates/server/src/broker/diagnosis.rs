//! Who says what this machine is like, how many at once, and for how long?

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_fabric::tcp::channel::Connection;
use causeway_fabric::tcp::record::ConnectionKeys;
use causeway_wire::handshake::ClientHello;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::control::Control;
use super::listen::refuse;
use super::messages::{self, ControlError, ToWorker};
use super::origin::Origin;
use super::process::{Spawner, describe};

/// Diagnoses at the same time; more are refused.
const MOST: usize = 4;

/// How long one may take. A driver that hangs is given up after 40 s.
const PATIENCE: Duration = Duration::from_secs(90);

/// How many diagnoses are under way.
#[derive(Default)]
pub struct Diagnoses(AtomicUsize);

/// The place of one of them; given up when dropped.
struct Seat<'a>(&'a AtomicUsize);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Diagnoses {
    /// Gives a client a process that answers it, and waits for the end of that.
    pub fn answer(&self, spawner: &Spawner, peer: Origin, hello: &ClientHello, mut connection: Connection) {
        let client = format!("{} (process {} on {})", hello.program, hello.pid, hello.host);
        let (before, seat) = (self.0.fetch_add(1, Ordering::Relaxed), Seat(&self.0));
        if before >= MOST {
            tracing::warn!(%peer, "{client} was turned away: {MOST} diagnoses are under way");
            return refuse(&mut connection, "it is being examined by others already; try again in a minute");
        }
        let (socket, keys) = match messages::take_apart(connection) {
            Ok(parts) => parts,
            Err(error) => return tracing::warn!(%peer, "{client} was turned away: {error}"),
        };
        tracing::info!(%peer, "{client} asks what this machine is like");
        match start(spawner, &socket, &keys) {
            Ok(child) => {
                drop(socket);
                watch(child);
            }
            Err(error) => {
                tracing::error!(%peer, "no diagnosis for {client}: {error}");
                let mut connection = Connection::new(TcpStream::from(socket), keys);
                refuse(&mut connection, &format!("the server could not start a process: {error}"));
            }
        }
        drop(seat);
    }
}

fn start(spawner: &Spawner, socket: &OwnedFd, keys: &Option<ConnectionKeys>) -> Result<Child, ControlError> {
    let (control, theirs) = Control::pair()?;
    let mut child = spawner.spawn(theirs, Vec::new())?;
    if let Err(error) = messages::send(&control, &ToWorker::Diagnose { keys: keys.clone() }, Some(socket)) {
        child.kill()?;
        child.wait()?;
        return Err(error);
    }
    Ok(child)
}

/// Waits for the end of the process, and ends it when it takes too long.
fn watch(mut child: Child) {
    let is_late = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        Ok(process) => !ends_within(&process, PATIENCE),
        Err(error) => {
            tracing::warn!("a diagnosis cannot be watched and is ended: {}", io::Error::from(error));
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

fn ends_within(process: &OwnedFd, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
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
