//! A bar on standard error for a long upload, so that a slow network does not look like a hang.
//!
//! It shows only when standard error is a terminal, the upload is large, and it has taken a while already;
//! nothing of it remains on the screen.

use causeway_link::Link;
use causeway_sync::threads;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Smaller uploads take less than a second over any network that a GPU is worth using over.
const LARGE_BYTES: u64 = 32 << 20;
/// A bar that shows for less time than this helps no user.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(100);

/// The bar of one upload; dropping it takes it away.
pub struct Upload {
    _end: Sender<()>,
}

impl Upload {
    /// Watches the next `bytes` that leave over the bulk lanes.
    pub fn watch(link: &Link, bytes: u64) -> Option<Self> {
        if bytes < LARGE_BYTES || !stderr().is_terminal() {
            return None;
        }
        let (end, ended) = bounded(0);
        let link = link.clone();
        let start = link.counters().transfer_bytes_sent;
        // Without the thread there is no bar; the upload does not depend on it.
        threads::spawn("progress", move || show(&link, start, bytes, &ended)).ok()?;
        Some(Self { _end: end })
    }
}

fn show(link: &Link, start: u64, bytes: u64, ended: &Receiver<()>) {
    let started = Instant::now();
    if ended.recv_timeout(PROGRESS_TIMEOUT) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    loop {
        let sent = link.counters().transfer_bytes_sent.saturating_sub(start).min(bytes);
        // A terminal that is gone shows nothing, and the upload goes on.
        let _ = write!(stderr(), "\r{}\x1b[K", line(sent, bytes, started.elapsed()));
        if ended.recv_timeout(STEP) != Err(RecvTimeoutError::Timeout) {
            let _ = write!(stderr(), "\r\x1b[K");
            return;
        }
    }
}

/// The bar after so many bytes and so much time.
fn line(sent: u64, bytes: u64, time: Duration) -> String {
    const WIDTH: u64 = 30;
    let mebibytes = |bytes: f64| bytes / f64::from(1 << 20);
    let done = (sent * WIDTH / bytes.max(1)) as usize;
    let rate = mebibytes(sent as f64) / time.as_secs_f64().max(1e-3);
    format!(
        "causeway: sending {:.0} of {:.0} MiB [{:30}] {rate:.0} MiB/s",
        mebibytes(sent as f64),
        mebibytes(bytes as f64),
        "=".repeat(done),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows_with_what_was_sent() {
        let bar = |sent: u64| line(sent << 20, 64 << 20, Duration::from_secs(2));
        let empty = " ".repeat(30);
        assert_eq!(bar(0), format!("causeway: sending 0 of 64 MiB [{empty}] 0 MiB/s"));
        let half = "=".repeat(15) + &" ".repeat(15);
        assert_eq!(bar(32), format!("causeway: sending 32 of 64 MiB [{half}] 16 MiB/s"));
        assert!(bar(64).contains(&"=".repeat(30)));
    }
}
