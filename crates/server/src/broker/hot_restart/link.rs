//! Control connection between two brokers: messages, and questions that are answered.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use parking_lot::Mutex;
use rustix::net::{Shutdown, shutdown};

use crate::protocol::control::Control;
use crate::protocol::messages::{self, ControlError, RestartAnswer, RestartMessage, RestartQuestion};

/// How long a broker waits for the other one's answer, which is there at once unless the machine stands still.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// An answer, and what came with it.
type Answered = (RestartAnswer, Option<OwnedFd>);

/// One end of the connection.
pub struct BrokerLink {
    control: Control,
    next: AtomicU32,
    pending: Mutex<HashMap<u32, Sender<Answered>>>,
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
    pub fn ask(&self, question: RestartQuestion) -> Option<Answered> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = bounded(1);
        self.pending.lock().insert(number, answered);
        let sent = self.send(&RestartMessage::Question { number, question }, None);
        let answer = sent.ok().and_then(|()| answer.recv_timeout(ANSWER_TIMEOUT).ok());
        self.pending.lock().remove(&number);
        answer
    }

    /// Hands an answer to whoever waits for it.
    pub fn deliver(&self, number: u32, answer: RestartAnswer, descriptor: Option<OwnedFd>) {
        if let Some(waiting) = self.pending.lock().remove(&number) {
            // It may have given up meanwhile.
            let _ = waiting.send((answer, descriptor));
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
                thread::spawn(move || one.ask(RestartQuestion::Sessions { skipped: 3 }))
            })
            .collect();
        let mut numbers: Vec<_> = (0..2)
            .map(|_| match other.receive().unwrap().0 {
                RestartMessage::Question { number, .. } => number,
                message => panic!("{message:?}"),
            })
            .collect();
        numbers.reverse();
        for number in numbers {
            one.deliver(number, RestartAnswer::Sessions(Vec::new()), None);
        }
        for thread in asking {
            assert_eq!(thread.join().unwrap().unwrap().0, RestartAnswer::Sessions(Vec::new()));
        }
        one.deliver(77, RestartAnswer::Ticket(None), None);
        drop(other);
        assert!(one.ask(RestartQuestion::Sessions { skipped: 0 }).is_none());
    }
}
