//! Control connection between two brokers: messages, and questions that are answered.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use rustix::net::{Shutdown, shutdown};

use crate::locks::{Mutex, rank};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ControlError, RestartMessage, RestartQuery, RestartReply};

/// How long a broker waits for the other one's answer, which is there at once unless the machine stands still.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// A reply, and what came with it.
type Received = (RestartReply, Option<OwnedFd>);

/// One end of the connection.
pub struct BrokerLink {
    control: Control,
    next: AtomicU32,
    pending: Mutex<rank::Leaf, HashMap<u32, Sender<Received>>>,
}

impl BrokerLink {
    /// The end whose descriptor this is.
    pub fn new(control: OwnedFd) -> io::Result<Self> {
        Ok(Self { control: Control::of_broker(control)?, next: AtomicU32::new(0), pending: Mutex::default() })
    }

    /// Tells the other one something.
    pub fn send(&self, message: &RestartMessage, descriptor: Option<&OwnedFd>) -> Result<(), ControlError> {
        messages::send(&self.control, message, descriptor)
    }

    /// What the other one says next; waits for it.
    pub fn receive(&self) -> Result<(RestartMessage, Option<OwnedFd>), ControlError> {
        messages::receive(&self.control)
    }

    /// Asks the other one; nothing where it has gone or does not answer.
    pub fn ask(&self, query: RestartQuery) -> Option<Received> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = bounded(1);
        self.pending.lock().insert(number, sender);
        let sent = self.send(&RestartMessage::Query { number, query }, None);
        let reply = sent.ok().and_then(|()| reply.recv_timeout(REPLY_TIMEOUT).ok());
        self.pending.lock().remove(&number);
        reply
    }

    /// Hands a reply to whoever waits for it.
    pub fn deliver(&self, number: u32, reply: RestartReply, descriptor: Option<OwnedFd>) {
        if let Some(waiting) = self.pending.lock().remove(&number) {
            // It may have given up meanwhile.
            let _ = waiting.send((reply, descriptor));
        }
    }

    /// Nobody answers any more.
    pub fn end(&self) {
        self.pending.lock().clear();
    }

    /// Ends the connection, which the other one notices.
    pub fn shut_down(&self) {
        // It may have ended already.
        let _ = shutdown(&self.control, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn questions_are_answered_in_any_order_and_not_after_the_end() {
        let (one, other) = Control::pair().unwrap();
        let [one, other] = [one, other].map(|end| Arc::new(BrokerLink::new(end.into()).unwrap()));
        let asking: Vec<_> = (0..2)
            .map(|_| {
                let one = Arc::clone(&one);
                thread::spawn(move || one.ask(RestartQuery::Sessions { skipped: 3 }))
            })
            .collect();
        let mut numbers: Vec<_> = (0..2)
            .map(|_| match other.receive().unwrap().0 {
                RestartMessage::Query { number, .. } => number,
                message => panic!("{message:?}"),
            })
            .collect();
        numbers.reverse();
        for number in numbers {
            one.deliver(number, RestartReply::Sessions(Vec::new()), None);
        }
        for thread in asking {
            assert_eq!(thread.join().unwrap().unwrap().0, RestartReply::Sessions(Vec::new()));
        }
        one.deliver(77, RestartReply::Ticket(None), None);
        drop(other);
        assert!(one.ask(RestartQuery::Sessions { skipped: 0 }).is_none());
    }
}
