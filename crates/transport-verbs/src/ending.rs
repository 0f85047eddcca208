//! Shutdown of a link: goodbye, and flushing of its queue pairs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_transport::LinkError;

use crate::endpoint::ReceiveLayout;
use crate::state::State;

/// How long the end of a link waits for what has been posted.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long queue pairs that have ended may take to give their requests back before they are destroyed all
/// the same.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// How much later than the end of the connection beside them the end of queue pairs may be noticed, to be its
/// cause.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(20);

impl State {
    /// Waits until what has been posted is known to be with the peer, for a while.
    pub fn send_goodbye(&self) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let Some(path) = self.paths.first().filter(|_| !self.is_over()) else { return };
        let mut marker = None;
        while !self.is_over() && Instant::now() < deadline {
            match marker {
                None => match path.post_marker(self.peer_arena) {
                    Ok(posted) => marker = posted,
                    Err(_) => return,
                },
                Some(id) if path.completed() >= id => return,
                Some(_) => {}
            }
            if !self.poll() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Ends the link because the connection beside it has ended, unless a completion says within a moment
    /// why: what a device refuses it may tell later than TCP tells that the other end is gone.
    pub fn end_behind_completions(&self, error: LinkError) {
        let deadline = Instant::now() + CLOSE_POLL_INTERVAL;
        while !self.is_over() && Instant::now() < deadline {
            if !self.poll() {
                std::thread::sleep(CLOSE_POLL_INTERVAL / 20);
            }
        }
        self.fail(error);
    }
}

impl Drop for State {
    /// Queue pairs are destroyed when they are idle: a device that is still at work for one that is going
    /// away has more to get wrong (Soft-RoCE of Linux 6.1 waits for itself then, on a machine with one
    /// processor).
    fn drop(&mut self) {
        for path in &self.paths {
            // One that has failed has ended already.
            let _ = path.pair().end();
        }
        self.over.store(true, Ordering::SeqCst);
        let posted = self.paths.len() * ReceiveLayout::new(self.depth).count();
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        while Instant::now() < deadline {
            let held = self.incoming.lock().iter().filter(|filled| filled.is_in_receive()).count();
            let back = self.flushed.load(Ordering::Relaxed) as usize + held;
            if back >= posted {
                break;
            }
            if !self.poll() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}
