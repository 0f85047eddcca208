//! Who stores what lies in bounce buffers? A thread of its own: those that receive must be back for what
//! comes next.

use crate::log::error;
use causeway_sync::{delays, threads};
use crossbeam_channel::{Sender, unbounded};
use std::sync::LazyLock;

/// Puts the bytes of a transfer in place, and says that it has finished.
pub type Store = Box<dyn FnOnce() + Send>;

static STORES: LazyLock<Sender<Store>> = LazyLock::new(|| {
    let (sender, receiver) = unbounded::<Store>();
    let started = threads::spawn("store", move || {
        for store in receiver {
            delays::inject();
            store();
        }
    });
    if let Err(cause) = started {
        error!("no thread for copies to overlapping memory could be started, so others store them: {cause}");
    }
    sender
});

/// Stores soon. Where no thread could be started, the calling one does it.
pub fn later(store: Store) {
    if let Err(refused) = STORES.send(store) {
        (refused.into_inner())();
    }
}
