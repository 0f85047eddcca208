//! Responder of link measurements.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use causeway_connection::channel::Connection;
use causeway_link::{Lease, Link, LinkError, LinkEvents, Receiver, Sending};
use causeway_transport_verbs::upgrade::offer_with;
use causeway_wire::handshake::{LaneToken, SessionId, VerbsHello};
use causeway_wire::message::{ClientMessage, Command, Messages};

use super::{JOINING, LinkFailure, Source, request, send, settings};
use crate::case::{MAX_MESSAGE_BYTES, Setting};
use crate::content::digest;

/// The responder: lets an initiator join ([`Intention`](super::Intention)) over the connections which come
/// next. What it sends back comes from memory that is registered with the card.
pub fn respond(
    listener: &TcpListener,
    setting: Setting,
    device: Option<&str>,
    by_rdma_cm: bool,
) -> Result<Link, LinkFailure> {
    let accept = || accept_by(listener, Instant::now() + JOINING);
    let (command, setup) = (Connection::new(accept()?, None), Connection::new(accept()?, None));
    let hello = VerbsHello {
        session: SessionId([0; 16]),
        token: LaneToken([0; 32]),
        by_rdma_cm,
        queue_pairs: setting.queue_pairs,
        depth: setting.capacity,
    };
    let joined = offer_with(setup, &hello, || settings(setting, device))?;
    let (link, receiver) = Link::new(joined.parts(&command)?)?;
    let mut memory = vec![0x5a; MAX_MESSAGE_BYTES as usize];
    // SAFETY: it is forgotten before it goes.
    unsafe { link.register(memory.as_mut_ptr(), memory.len()) }?;
    let responder =
        Arc::new(Responder { link: Mutex::new(Some(link.clone())), memory, ..Responder::default() });
    link.start(Arc::<Responder>::clone(&responder));
    std::thread::spawn(move || responder.serve(receiver));
    Ok(link)
}

fn accept_by(listener: &TcpListener, deadline: Instant) -> std::io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((connection, _)) => {
                connection.set_nonblocking(false)?;
                connection.set_nodelay(true)?;
                return Ok(connection);
            }
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock || Instant::now() > deadline => {
                return Err(error);
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// What the responder was told.
#[derive(Default)]
struct Responder {
    link: Mutex<Option<Link>>,
    /// Transfers that are still to come.
    left: AtomicU32,
    /// Whether they are to be sent back.
    returns: AtomicBool,
    /// Whether the digest of the last one is wanted.
    digests: AtomicBool,
    /// What is sent back.
    memory: Vec<u8>,
    /// Of the transfers that are sent back, those whose ends have not been waited for.
    in_flight: Mutex<Vec<Sending>>,
}

impl Responder {
    fn link(&self) -> Option<Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn serve(&self, mut receiver: Receiver) {
        while let Ok(body) = receiver.recv() {
            let done = Messages::<ClientMessage>::new(body).try_for_each(|message| match message {
                Ok(ClientMessage::Command(command)) => self.carry_out(&command),
                _ => Err(LinkFailure::Senseless),
            });
            if done.is_err() {
                break;
            }
        }
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(link) = link {
            link.close();
            self.wait_for_the_ends();
            link.forget(self.memory.as_ptr().cast_mut());
        }
    }

    fn in_flight(&self) -> MutexGuard<'_, Vec<Sending>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything that was sent back is with the other end.
    fn wait_for_the_ends(&self) {
        let in_flight = core::mem::take(&mut *self.in_flight());
        drop(in_flight);
    }

    fn carry_out(&self, command: &Command<'_>) -> Result<(), LinkFailure> {
        let Some(link) = self.link() else { return Ok(()) };
        let Command { context: number, opcode, payload, .. } = *command;
        match opcode {
            request::NOTHING => {}
            request::REPLY => send(&link, request::NOTHING, 0, &[])?,
            request::DIGEST => {
                send(&link, request::NOTHING, digest(payload.as_ptr(), payload.len() as u64), &[])?;
            }
            request::RETURN => send(&link, request::NOTHING, 0, payload)?,
            request::TRANSFERS | request::TRANSFER_DIGEST | request::TRANSFERS_BACK => {
                self.wait_for_the_ends();
                self.returns.store(opcode == request::TRANSFERS_BACK, Ordering::Relaxed);
                self.digests.store(opcode == request::TRANSFER_DIGEST, Ordering::Relaxed);
                let count = u32::try_from(number).map_err(|_| LinkFailure::Senseless)?;
                self.left.store(count, Ordering::Release);
                send(&link, request::NOTHING, 0, &[])?;
            }
            _ => return Err(LinkFailure::Senseless),
        }
        Ok(())
    }

    fn on_received(&self, link: &Link, number: u64, lease: Lease) -> Result<(), LinkFailure> {
        let is_last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        if self.returns.load(Ordering::Relaxed) {
            let bytes = self.memory.get(..lease.len()).ok_or(LinkFailure::Senseless)?;
            drop(lease);
            let sent = Source::of(bytes).send(link, number)?;
            self.in_flight().push(sent);
            return Ok(());
        }
        if is_last {
            let digests = self.digests.load(Ordering::Relaxed);
            let digest = if digests { digest(lease.as_ptr(), lease.len() as u64) } else { 0 };
            drop(lease);
            send(link, request::NOTHING, digest, &[])?;
        }
        Ok(())
    }
}

impl LinkEvents for Responder {
    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        if let Some(link) = self.link()
            && self.on_received(&link, transfer, lease).is_err()
        {
            link.close();
        }
        Ok(())
    }

    fn lost(&self, _cause: &LinkError) {}
}
