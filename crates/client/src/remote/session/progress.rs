//! A bar on standard error for a long upload, so that nobody takes a slow network for a hang.
//!
//! It shows only when standard error is a terminal, the upload is large, and it has taken a while already; nothing of
//! it remains on the screen.

use causeway_fabric::Link;
use causeway_sync::threads;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::Duration;

/// Smaller uploads take less than a second over any network that a GPU is worth using over.
const LARGE_BYTES: u64 = 32 << 20;
/// A bar that shows for less time than this tells nobody anything.
const PATIENCE: Duration = Duration::from_secs(1);
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
    if ended.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let style =
        ProgressStyle::with_template("causeway: sending {bytes} of {total_bytes} [{bar:30}] {bytes_per_sec}");
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
    if let Ok(style) = style {
        bar.set_style(style);
    }
    loop {
        bar.set_position(link.counters().transfer_bytes_sent.saturating_sub(start).min(bytes));
        if ended.recv_timeout(STEP) != Err(RecvTimeoutError::Timeout) {
            bar.finish_and_clear();
            return;
        }
    }
}
