//! Control loop of a worker: messages of the broker while a session runs.

use std::net::TcpStream;

use causeway_connection::channel::{Connection, Socket};
use causeway_link::{Awaited, Link, Upgrade};
use causeway_wire::codec::Encode as _;
use causeway_wire::message::WorkerMessage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd as _;

use super::callers::{Arrival, IncomingPeer};
use super::exchange::{Decision, Exchange};
use super::slots::Slots;
use crate::heartbeat::Progress;
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ControlError, ToBroker, ToWorker};

/// How often it is looked whether a link that is resumable has ended.
const RESUMABLE_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Takes in lanes from the broker, answers it, and tells the broker when the client has gone, so that it sees
/// to it that this process ends even when it hangs. The client of a link that is resumable has gone when the link has
/// ended.
pub fn serve(control: &Control, client: &Socket, link: &Link, exchange: &Exchange) {
    let mut client_there = true;
    let is_resumable = link.is_resumable();
    let interval = is_resumable.then_some(RESUMABLE_CHECK);
    loop {
        let mut waiting_for = [
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(
                client.as_fd(),
                if client_there { PollFlags::RDHUP } else { PollFlags::empty() },
            ),
        ];
        let watched = if client_there && !is_resumable { 2 } else { 1 };
        // An interrupted wait is only a reason to look again.
        let _ = poll(&mut waiting_for[..watched], interval.as_ref().filter(|_| client_there));
        let is_disconnected =
            if is_resumable { link.is_lost() } else { !waiting_for[1].revents().is_empty() };
        if client_there && is_disconnected {
            client_there = false;
            exchange.client_disconnected();
            // Without a broker there is nobody to tell.
            let _ = messages::send(control, &ToBroker::ClientDisconnected, None);
        }
        if waiting_for[0].revents().is_empty() {
            continue;
        }
        match messages::receive(control) {
            Ok((ToWorker::Lane { keys }, Some(socket))) => {
                link.attach_lane(Connection::new(TcpStream::from(socket), keys));
            }
            Ok((ToWorker::Peer { ticket, connection, keys }, Some(socket))) => {
                let socket = Connection::new(TcpStream::from(socket), keys);
                let arrival = if connection == 0 { Arrival::First(socket) } else { Arrival::Lane(socket) };
                exchange.peer_connected(IncomingPeer { ticket, arrival });
            }
            Ok((ToWorker::Upgrade { hello, is_peer: true, keys }, Some(socket))) => {
                let socket = Connection::new(TcpStream::from(socket), keys);
                let arrival = Arrival::Upgrade(Upgrade::new(hello, socket));
                exchange.peer_connected(IncomingPeer { ticket: hello.token(), arrival });
            }
            Ok((ToWorker::Ping { number }, _)) => {
                let Progress(progress) = exchange.progress().now();
                // Without a broker there is nobody to tell.
                let _ = messages::send(control, &ToBroker::Pong { number, progress }, None);
            }
            Ok((ToWorker::Release { number }, _)) => exchange.release_requested(number),
            Ok((ToWorker::GpuDirect { is_on }, _)) => exchange.allow_gpudirect(is_on),
            Ok((ToWorker::Checkpoint(start), Some(file))) => {
                exchange.checkpoint_requested((*start, file));
                // The thread that receives may sleep.
                link.wake_receiver(Awaited::Yield);
            }
            Ok((ToWorker::Proceed { number }, _)) => exchange.decided(Some(number), Decision::Proceed),
            Ok((ToWorker::Stay { number }, _)) => exchange.decided(Some(number), Decision::Stay),
            Ok((ToWorker::Leave { why }, _)) => {
                tracing::info!("{why}");
                // SAFETY: the process ends; nothing of it is relied on afterwards.
                unsafe { libc::_exit(0) }
            }
            Ok((ToWorker::End { text }, _)) => {
                tracing::info!("the session ends: {text}");
                // A client that is gone is not told.
                let _ = link.send(|out| WorkerMessage::Fatal { text: text.into() }.encode(out));
            }
            Ok((ToWorker::Slot { device, lease }, _)) => {
                with_slots(exchange, |slots| slots.granted(device, lease));
            }
            Ok((ToWorker::SlotContended { device, lease }, _)) => {
                with_slots(exchange, |slots| slots.contended(device, lease));
            }
            Ok((ToWorker::SlotRecalled { device, lease }, _)) => {
                with_slots(exchange, |slots| slots.recalled(device, lease));
            }
            Ok((ToWorker::Response { number, bytes }, descriptor)) => {
                exchange.answered(number, bytes, descriptor);
            }
            Ok(_) => tracing::warn!("unexpected message from the broker to a worker that serves a session"),
            Err(ControlError::Damaged(error)) => {
                tracing::warn!("malformed message from the broker: {error}")
            }
            Err(_) => {
                exchange.decided(None, Decision::Stay);
                return;
            }
        }
    }
}

/// Notifies the session's slots, if it has any: another session has requested none.
fn with_slots(exchange: &Exchange, notify: impl FnOnce(&Slots)) {
    if let Some(slots) = exchange.slots() {
        notify(slots);
    }
}
