//! How do the frames of a link travel over TCP?

use std::io;

use super::channel::{Connection, Incoming, Outgoing};
use super::lanes::Lanes;
use super::socket::{LOOK_EVERY, PeerWatch};
use crate::connect::LaneDialer;
use crate::link::LinkError;
use crate::module::{Parts, ReceiveMessages, SendMessages};

/// A link's parts over an authenticated command connection. `dialer` opens the lanes when the link starts; without
/// one they are attached as they arrive.
pub(crate) fn parts(connection: Connection, dialer: Option<LaneDialer>) -> io::Result<Parts> {
    let memory = Lanes::new(connection.socket().clone(), dialer);
    let Connection { outgoing, mut incoming } = connection;
    incoming.read_ahead();
    // A wait is cut into pieces, to look now and then whether the peer's machine is still there.
    incoming.socket().set_read_timeout(Some(LOOK_EVERY))?;
    let receiver = Receiving { incoming, watch: PeerWatch::default() };
    Ok(Parts { sender: Box::new(outgoing), receiver: Box::new(receiver), memory: Box::new(memory) })
}

impl SendMessages for Outgoing {
    fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        Self::send(self, bytes).map_err(LinkError::from_io)
    }
}

struct Receiving {
    incoming: Incoming,
    watch: PeerWatch,
}

impl ReceiveMessages for Receiving {
    fn receive(&mut self, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        loop {
            match self.incoming.receive(into, wait) {
                Ok(0) => return Err(LinkError::PeerGone),
                Ok(count) => {
                    self.watch.heard();
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait {
                        return Ok(0);
                    }
                    if self.watch.look(self.incoming.socket()) {
                        return Err(LinkError::PeerSilent);
                    }
                }
                Err(error) => return Err(LinkError::from_io(error)),
            }
        }
    }
}
