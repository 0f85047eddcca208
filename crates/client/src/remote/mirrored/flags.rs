//! Flags: single words that the program writes while kernels run, such as one that is to end them.
//!
//! What the program writes goes to a mirror before the next command. A kernel that waits for a word meanwhile, and
//! the program for the kernel, would wait for ever: NCCL's flag for aborting its kernels is such a word. So a thread
//! looks now and then, while work is under way, whether one word is all that has changed.
//!
//! Only a word that is alone is sent. A kernel may take it for the news that other memory has been written, and
//! memory is not looked through at one moment: what was written before the word could be found after it. Of a word
//! that two passes find alone, one after the other, this cannot be: what was written before the word was there when
//! the second pass began. Managed memory is left out, whose mirrors kernels write to in whole blocks.

use super::exchange;
use super::table::{self, PendingRange};
use crate::log::info;
use crate::process;
use crate::remote::session;
use causeway_api::calls;
use causeway_api::handle::{Handle, MAX_SERVERS};
use causeway_api::sys::CUresult;
use causeway_memory::mirror::Changes;
use causeway_sync::fork::in_background;
use causeway_sync::threads;
use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long a kernel may wait for a word at most, and little enough work: two passes take some microseconds.
const INTERVAL: Duration = Duration::from_millis(10);

/// Sends flags from now on, as far as there is a thread for it.
pub fn watch() {
    // Relaxed: who comes second needs nothing of what the first one has done.
    if !IS_WATCHED.swap(true, Ordering::Relaxed)
        && let Err(cause) = threads::spawn("flags", serve)
    {
        info!(
            "kernels do not see data that is written while they run, since starting a thread failed: \
            {cause}"
        );
    }
}

/// Whether there is, or could be no, thread for it.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Forgets the thread in a forked child.
pub fn forget_thread() {
    IS_WATCHED.store(false, Ordering::Relaxed);
}

fn serve() {
    let mut look = Look::default();
    while process::is_ready() {
        std::thread::sleep(INTERVAL);
        let _work = in_background();
        if table::is_any() {
            // A lost link has been reported by the thread that lost it.
            (0..MAX_SERVERS).filter(|server| is_at_work(*server)).for_each(|server| {
                let _ = look.send_flag(server);
            });
        }
    }
}

/// Whether a server may have work under way that reads a mirror.
fn is_at_work(server: usize) -> bool {
    // In this order: a program that is idle, which most are for most of the time, has its table left alone.
    !exchange::is_idle(server) && table::with(|table| table.is_any_of(server))
}

/// What a look needs, kept for the next.
#[derive(Default)]
struct Look {
    pending: Vec<PendingRange>,
    changes: Changes,
}

impl Look {
    /// Sends the word that alone has changed, if there is one.
    fn send_flag(&mut self, server: usize) -> Result<(), CUresult> {
        let Self { pending, changes } = self;
        changes.clear();
        exchange::without_sends(server, || {
            table::with(|table| {
                let lone = table.lone_change(server, pending)?;
                (table.lone_change(server, pending)? == lone).then(|| table.agree(&lone, changes))
            });
            if changes.is_empty() {
                return Ok(());
            }
            let request = calls::mirror_write { changes: changes.as_bytes() };
            session::post_in(Handle::null_of(server), &request)
        })?;
        if changes.is_empty() { Ok(()) } else { session::with(server)?.flush() }
    }
}
