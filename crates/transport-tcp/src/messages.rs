//! How do the frames of a link travel over TCP?

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lanes::{DialLanes, Lanes};
use causeway_connection::channel::{Connection, Incoming, Outgoing};
use causeway_connection::socket::{LOOK_EVERY, PeerWatch, has_room, round_trip};
use causeway_sync::spin;
use causeway_sync::{EventfdWake, WakeReason};
use causeway_transport::{LinkError, Shared};
use causeway_transport::{Parts, ReceiveMessages, SendMessages};

/// A link's parts over an authenticated command connection. `dialer` opens the lanes when the link starts;
/// without one they are attached as they arrive.
pub fn parts(connection: Connection, dialer: Option<Box<dyn DialLanes>>) -> io::Result<Parts> {
    // Where threads do not look nobody is woken to, and the receiver sleeps in the call that receives: a call
    // more is 10 to 20 % of a round trip there (two cores, 2026-11-23).
    let is_called = !spin::while_waited_for().is_zero();
    let receiver_wake = if is_called { Some(Arc::new(EventfdWake::new()?)) } else { None };
    let descriptors = vec![connection.socket().as_raw_fd()];
    let memory = Lanes::new(connection.socket().clone(), dialer, receiver_wake.clone())?;
    let (outgoing, mut incoming) = connection.into_directions();
    incoming.read_ahead();
    // A wait is cut into pieces, to look now and then whether the peer's machine is still there.
    incoming.socket().set_read_timeout(Some(LOOK_EVERY))?;
    let receiver = Receiving { incoming, receiver_wake, watch: PeerWatch::default(), looked: Instant::now() };
    let sender = Sending { outgoing, is_far: false, asked: 0 };
    Ok(Parts {
        sender: Box::new(sender),
        receiver: Box::new(receiver),
        memory: Box::new(memory),
        descriptors,
    })
}

/// Peers with a longer round trip than this are far: saving packets saves more time there than compressing
/// takes, some 50 us for a full batch. Within a machine room it is 10 to 100 us.
const FAR: Duration = Duration::from_micros(150);

/// The kernel is asked anew how far the peer is after so many questions.
const ASK_EVERY: u32 = 64;

struct Sending {
    outgoing: Outgoing,
    is_far: bool,
    asked: u32,
}

impl SendMessages for Sending {
    fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.outgoing.send(bytes).map_err(LinkError::from_io)
    }

    fn has_room(&mut self) -> bool {
        has_room(self.outgoing.socket())
    }

    fn is_far(&mut self) -> bool {
        if self.asked.is_multiple_of(ASK_EVERY) {
            self.is_far = round_trip(self.outgoing.socket()).is_some_and(|time| time > FAR);
        }
        self.asked = self.asked.wrapping_add(1);
        self.is_far
    }
}

struct Receiving {
    incoming: Incoming,
    receiver_wake: Option<Arc<EventfdWake>>,
    watch: PeerWatch,
    /// When it was last looked for the peer's machine.
    looked: Instant,
}

impl Receiving {
    /// Sleeps until something has come, somebody calls, or it is time to look for the peer's machine.
    fn sleep(&self) -> WakeReason {
        match &self.receiver_wake {
            Some(receiver_wake) => receiver_wake.park(self.incoming.socket().as_fd(), LOOK_EVERY),
            // The call that receives has done so.
            None => WakeReason::Time,
        }
    }

    /// Looks for the peer's machine.
    fn look(&mut self) -> Result<(), LinkError> {
        self.looked = Instant::now();
        if self.watch.look(self.incoming.socket()) { Err(LinkError::PeerSilent) } else { Ok(()) }
    }
}

impl ReceiveMessages for Receiving {
    fn receive(&mut self, _link: &Arc<Shared>, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        loop {
            match self.incoming.receive(into, wait && self.receiver_wake.is_none()) {
                Ok(0) => return Err(LinkError::PeerGone),
                Ok(count) => {
                    self.watch.heard();
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait {
                        return Ok(0);
                    }
                    match self.sleep() {
                        WakeReason::Descriptor => {}
                        WakeReason::Woken => {
                            // Others may call so often that the time is never over.
                            if self.looked.elapsed() >= LOOK_EVERY {
                                self.look()?;
                            }
                            return Ok(0);
                        }
                        WakeReason::Time => self.look()?,
                    }
                }
                Err(error) => return Err(LinkError::from_io(error)),
            }
        }
    }
}
