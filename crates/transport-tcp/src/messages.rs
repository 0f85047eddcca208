//! Frames of a link over TCP.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::commands::{CommandConnection, DialLanes};
use crate::lanes::Lanes;
use causeway_connection::channel::{Connection, Incoming, Outgoing};
use causeway_connection::socket::{LOOK_EVERY, PeerWatch, has_capacity, round_trip};
use causeway_sync::spin;
use causeway_sync::{EventfdWake, WakeReason};
use causeway_transport::{LinkError, Shared};
use causeway_transport::{Parts, ReceiveMessages, SendMessages};
use causeway_wire::relocation::LinkState;

/// How a link over TCP comes into being, and how it goes on.
#[derive(Default)]
pub struct TcpOptions {
    /// Opens the lanes when the link starts; without it they are attached as they arrive.
    pub dialer: Option<Box<dyn DialLanes>>,
    /// For how long the link may be without a connection, and is resumed on another one; zero if it ends with its
    /// connection.
    pub resume: Duration,
    /// In which state another process has left the link, whose connection has failed; and for how long the peer's next
    /// one is awaited at first.
    pub taken_up: Option<(LinkState, Duration)>,
    /// Whether the receiver may have to do something else now and then
    /// ([`Awaited::Yield`](causeway_transport::Awaited::Yield)),
    /// as that of a link that is resumed always may be.
    pub is_interruptible: bool,
}

/// How the receiver of messages sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asleep {
    /// By polling the connection, so that others can wake it.
    Polling,
    /// In the call that receives.
    Call,
    /// In the call that receives for [`CALL_INTERVAL`], and then by polling.
    CallThenPolling,
}

/// For how long the receiver sleeps in the call that receives before others can wake it: messages follow each
/// other faster, and what it is woken for is rare.
const CALL_INTERVAL: Duration = Duration::from_millis(20);

/// A link's parts over an authenticated command connection.
pub fn parts(connection: Connection, options: TcpOptions) -> io::Result<Parts> {
    // Where threads do not look nobody is woken to, and the receiver sleeps in the call that receives: a call
    // more is 10 to 20 % of a round trip there (two cores, 2026-11-23).
    let is_called = !spin::while_waited_for().is_zero();
    let is_interruptible =
        options.is_interruptible || !options.resume.is_zero() || options.taken_up.is_some();
    let receiver_wake =
        if is_called || is_interruptible { Some(Arc::new(EventfdWake::new()?)) } else { None };
    let asleep = match (is_called, is_interruptible) {
        (true, _) => Asleep::Polling,
        (false, true) => Asleep::CallThenPolling,
        (false, false) => Asleep::Call,
    };
    let descriptors = vec![connection.socket().as_raw_fd()];
    let dialer: Option<Arc<dyn DialLanes>> = options.dialer.map(Into::into);
    let (outgoing, incoming) = connection.into_directions();
    let incoming = of_commands(incoming, asleep)?;
    let received = options.taken_up.as_ref().map_or(0, |(state, _)| state.received_bytes);
    let (commands, output) = if let Some((state, first_window)) = options.taken_up {
        (CommandConnection::taken_up(outgoing, options.resume, first_window, &state), Output::Resumable)
    } else if options.resume.is_zero() {
        (CommandConnection::fixed(Arc::clone(outgoing.socket())), Output::Fixed(Box::new(outgoing)))
    } else {
        (CommandConnection::resumable(outgoing, options.resume, dialer.clone()), Output::Resumable)
    };
    let commands = Arc::new(commands);
    let lanes = Lanes::new(Arc::clone(&commands), dialer, receiver_wake.clone(), is_called)?;
    let receiver = Receiving {
        incoming,
        receiver_wake,
        asleep,
        watch: PeerWatch::default(),
        looked: Instant::now(),
        received,
        commands: Arc::clone(&commands),
        lanes: lanes.clone(),
    };
    let wait_for_capacity: Option<Box<dyn Fn() + Send + Sync>> = commands.is_resumable().then(|| {
        let commands = Arc::clone(&commands);
        Box::new(move || commands.wait_for_capacity()) as _
    });
    let sender = Sending { output, commands, is_remote: false, since_query: 0 };
    Ok(Parts {
        sender: Box::new(sender),
        receiver: Box::new(receiver),
        memory: Box::new(lanes),
        descriptors,
        wait_for_capacity,
    })
}

/// The direction from the peer, of a connection for commands.
fn of_commands(mut incoming: Incoming, asleep: Asleep) -> io::Result<Incoming> {
    incoming.read_ahead();
    // A wait is cut into pieces, to look now and then whether the peer's machine is still there.
    let timeout = if asleep == Asleep::CallThenPolling { CALL_INTERVAL } else { LOOK_EVERY };
    incoming.socket().set_read_timeout(Some(timeout))?;
    Ok(incoming)
}

/// Peers with a longer round trip than this are far: saving packets saves more time there than compressing
/// takes, some 50 us for a full batch. Within a machine room it is 10 to 100 us.
const REMOTE_ROUND_TRIP: Duration = Duration::from_micros(150);

/// The kernel is asked anew how far the peer is after so many questions.
const QUERY_INTERVAL: u32 = 64;

struct Sending {
    output: Output,
    commands: Arc<CommandConnection>,
    is_remote: bool,
    since_query: u32,
}

/// Where frames go.
enum Output {
    /// To the one connection that the link has for commands.
    Fixed(Box<Outgoing>),
    /// To the one that it has at the moment.
    Resumable,
}

impl SendMessages for Sending {
    fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        match &mut self.output {
            Output::Fixed(outgoing) => outgoing.send(bytes).map_err(LinkError::from_io),
            Output::Resumable => self.commands.send(bytes),
        }
    }

    fn has_capacity(&mut self) -> bool {
        has_capacity(&*self.commands.socket())
    }

    fn is_remote(&mut self) -> bool {
        if self.since_query.is_multiple_of(QUERY_INTERVAL) {
            self.is_remote =
                round_trip(&*self.commands.socket()).is_some_and(|time| time > REMOTE_ROUND_TRIP);
        }
        self.since_query = self.since_query.wrapping_add(1);
        self.is_remote
    }
}

struct Receiving {
    incoming: Incoming,
    receiver_wake: Option<Arc<EventfdWake>>,
    asleep: Asleep,
    watch: PeerWatch,
    /// When it was last looked for the peer's machine.
    looked: Instant,
    /// Bytes of frames that have come since the session began.
    received: u64,
    commands: Arc<CommandConnection>,
    lanes: Lanes,
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

impl Receiving {
    /// The connection is lost. The link goes on with another one, if it can; nobody who polls is held up for that.
    fn replace(&mut self, link: &Arc<Shared>, cause: LinkError, wait: bool) -> Result<usize, LinkError> {
        if !self.commands.is_resumable() {
            return Err(cause);
        }
        if wait {
            let incoming = self.commands.resume(link, cause, self.received)?;
            self.incoming = of_commands(incoming, self.asleep).map_err(LinkError::from_io)?;
            self.watch = PeerWatch::default();
            self.lanes.open_missing(link);
        }
        Ok(0)
    }

    /// Receives some bytes of the connection that there is.
    fn receive_some(&mut self, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        loop {
            match self.incoming.receive(into, wait && self.asleep != Asleep::Polling) {
                Ok(0) => return Err(LinkError::PeerDisconnected),
                Ok(count) => {
                    self.watch.received();
                    self.received += count as u64;
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
                        WakeReason::Time => {
                            self.look()?;
                            // The receiver may have something else to do.
                            return Ok(0);
                        }
                    }
                }
                Err(error) => return Err(LinkError::from_io(error)),
            }
        }
    }
}

impl ReceiveMessages for Receiving {
    fn receive(&mut self, link: &Arc<Shared>, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        self.receive_some(into, wait).or_else(|cause| self.replace(link, cause, wait))
    }

    fn acknowledged(&mut self, frame: u64) {
        self.commands.acknowledged(frame);
    }

    fn received_bytes(&self) -> u64 {
        self.received
    }

    fn await_return(&mut self, link: &Arc<Shared>) -> Result<u64, LinkError> {
        self.commands.wait_for_loss(link)?;
        // What was not read is sent again, if the peer comes back.
        let incoming = self.commands.resume(link, LinkError::PeerDisconnected, self.received)?;
        self.incoming = of_commands(incoming, self.asleep).map_err(LinkError::from_io)?;
        self.watch = PeerWatch::default();
        Ok(self.commands.peer_received())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use causeway_transport::{Awaited, Memory as _};

    use super::*;

    /// The receiver of a link, which sleeps so, and the peer's end.
    fn receiving(asleep: Asleep) -> (Receiving, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        let (outgoing, incoming) = Connection::new(stream, None).into_directions();
        let commands = Arc::new(CommandConnection::fixed(Arc::clone(outgoing.socket())));
        let receiver_wake = Some(Arc::new(EventfdWake::new().unwrap()));
        let looks_for_messages = asleep == Asleep::Polling;
        let lanes = Lanes::new(Arc::clone(&commands), None, receiver_wake.clone(), looks_for_messages);
        let receiving = Receiving {
            incoming: of_commands(incoming, asleep).unwrap(),
            receiver_wake,
            asleep,
            watch: PeerWatch::default(),
            looked: Instant::now(),
            received: 0,
            commands,
            lanes: lanes.unwrap(),
        };
        (receiving, peer)
    }

    #[test]
    fn a_receiver_that_is_to_yield_does_not_miss_that_before_it_sleeps() {
        for asleep in [Asleep::Polling, Asleep::CallThenPolling] {
            let (receiving, _peer) = receiving(asleep);
            receiving.lanes.wake_receiver(Awaited::Yield);
            assert_eq!(receiving.sleep(), WakeReason::Woken, "{asleep:?}");
        }
    }
}
