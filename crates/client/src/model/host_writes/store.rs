//! Store thread for bounce buffers. Few bytes are stored by the thread that finds them unblocked, more by a thread of
//! its own: those that receive must be back for what comes next.

use crate::log::error;
use causeway_sync::queue::Receiver;
use causeway_sync::{LazyThread, delays, threads};
use std::collections::VecDeque;
use std::io;
use std::thread::JoinHandle;

/// So many bytes are stored in about the time that it takes to wake a thread that may have to wait for a core.
/// While one that receives does, others go on with what comes, and the sooner a copy is in place the fewer
/// bytes of the next one come too early.
const AT_ONCE: usize = 1 << 20;

/// Puts the bytes of a transfer in place, and says that it has finished.
pub struct Store {
    /// How many bytes.
    pub bytes: usize,
    /// Does it, and gives those whose turn has come by that.
    pub run: Box<dyn FnOnce() -> Vec<Store> + Send>,
}

static STORES: LazyThread<Store> = LazyThread::new();

fn start(queue: Receiver<Store>) -> io::Result<JoinHandle<()>> {
    threads::spawn("store", move || {
        while let Some(store) = queue.receive() {
            delays::inject();
            carry_out((store.run)());
        }
    })
}

/// Stores these, and those whose turn comes by that, at once or soon. Where no thread could be started, the
/// calling one does it.
pub fn carry_out(stores: impl IntoIterator<Item = Store>) {
    let mut stores: VecDeque<_> = stores.into_iter().collect();
    while let Some(store) = stores.pop_front() {
        let refused = if store.bytes <= AT_ONCE {
            Some(store)
        } else {
            if let Err(cause) = STORES.ensure(start) {
                error!(
                    "no thread for copies that arrive early could be started, so others store them: {cause}"
                );
            }
            STORES.send(store).err()
        };
        if let Some(store) = refused {
            delays::inject();
            stores.extend((store.run)());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Sender, bounded};

    #[test]
    fn long_chain_of_stores_runs_in_order_without_recursion() {
        fn row(left: usize, done: Sender<()>) -> Store {
            let run = Box::new(move || {
                if left == 0 {
                    done.send(()).unwrap();
                    return Vec::new();
                }
                vec![row(left - 1, done)]
            });
            Store { bytes: if left % 10_000 == 1 { AT_ONCE + 1 } else { 4 }, run }
        }
        let (done, ended) = bounded(1);
        carry_out([row(100_000, done)]);
        ended.recv().unwrap();
    }
}
