//! A thread that is started when it is first needed, and what it is given to do.

use std::io;

use crate::face::{JoinHandle, Mutex};
use crate::queue::{Receiver, Sender, queue};

/// A thread that is started when it is first needed. Where the system has none to give, whoever needs it is told before
/// anything depends on it, and the next one tries again.
pub struct LazyThread<T>(Mutex<Option<Sender<T>>>);

impl<T> LazyThread<T> {
    /// The thread is not needed yet.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The thread is not needed yet.
    #[cfg(any(loom, shuttle))]
    pub fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Makes sure that the thread is there; `start` starts one that does what comes in the queue.
    ///
    /// # Errors
    /// When the system makes no more threads.
    pub fn ensure(&self, start: impl FnOnce(Receiver<T>) -> io::Result<JoinHandle<()>>) -> io::Result<()> {
        let mut sender = self.0.lock();
        if sender.is_none() {
            let (new, receiver) = queue();
            start(receiver)?;
            *sender = Some(new);
        }
        Ok(())
    }

    /// Gives the thread something to do.
    ///
    /// # Errors
    /// What it was to do, where there is no thread.
    pub fn send(&self, item: T) -> Result<(), T> {
        match &*self.0.lock() {
            Some(sender) => sender.send(item),
            None => Err(item),
        }
    }
}

impl<T> Default for LazyThread<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::threads;
    use std::sync::mpsc;

    #[test]
    fn a_thread_that_cannot_be_started_is_tried_again() {
        let thread = LazyThread::new();
        assert_eq!(thread.send(1), Err(1));
        let refusal = thread.ensure(|_| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(refusal.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(thread.send(2), Err(2), "nothing waits for a thread that is not there");
        let (done, results) = mpsc::channel();
        for _ in 0..2 {
            let done = done.clone();
            let start = |queue: Receiver<i32>| {
                threads::spawn("lazy", move || {
                    while let Some(item) = queue.receive() {
                        done.send(item).unwrap();
                    }
                })
            };
            thread.ensure(start).unwrap();
        }
        drop(done);
        assert_eq!((thread.send(3), results.recv()), (Ok(()), Ok(3)));
        drop(thread);
        assert!(results.recv().is_err(), "one thread was started, and has ended");
    }
}
