//! The table of transfers in orders of threads that shuttle takes by chance (`make check-concurrency`): who
//! waits there and is forgotten is a thread that sleeps for ever, which shuttle reports as a deadlock.
#![cfg(shuttle)]

use causeway_sync::face::{AtomicBool, AtomicU32, Mutex};
use causeway_transport::{ChunkDestination, Destination, LinkError, LinkEvents, TransferError, Transfers};
use causeway_wire::chunk::ChunkHeader;
use shuttle::rand::{Rng as _, thread_rng};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// How many orders are tried.
const ORDERS: usize = 2000;

/// Bytes of a chunk, and of a transfer.
const CHUNK: u32 = 8;
const TOTAL: u64 = 16;

/// The owner of a link, who is asked where a transfer goes that it does not expect.
#[derive(Default)]
struct Owner {
    takes_all: bool,
    asked: AtomicU32,
    /// How the transfer has ended, each time that this was told.
    ended: Arc<Mutex<Vec<Result<Vec<u8>, TransferError>>>>,
    /// Nobody may write to the transfer's memory any more.
    has_given_up: AtomicBool,
}

impl Owner {
    fn destination(&self, total: u64) -> Destination {
        let ended = Arc::clone(&self.ended);
        Destination::buffer(vec![0; total as usize], move |outcome| ended.lock().push(outcome))
    }
}

impl LinkEvents for Owner {
    fn open_transfer(&self, _: u64, total: u64) -> Option<Destination> {
        self.asked.fetch_add(1, SeqCst);
        self.takes_all.then(|| self.destination(total))
    }

    fn lost(&self, _: &LinkError) {}
}

/// A lane receives a chunk of bytes `byte`: whether its transfer is complete with it.
fn receive(transfers: &Transfers, owner: &Owner, part: u32, byte: u8) -> bool {
    let chunk = ChunkHeader { transfer: 7, total: TOTAL, offset: u64::from(part * CHUNK), length: CHUNK };
    if let ChunkDestination::Memory { to, .. } = transfers.claim(&chunk, Some(owner)).unwrap() {
        // SAFETY: the table gives the memory of one chunk to one lane, until that says that it has landed.
        unsafe { core::slice::from_raw_parts_mut(to.get(), CHUNK as usize).fill(byte) };
        assert!(!owner.has_given_up.load(SeqCst));
    }
    transfers.landed(&chunk, None)
}

#[test]
fn of_two_lanes_with_a_new_transfer_one_asks_where_it_goes_and_the_end_is_told_once() {
    let order = || {
        let owner = Owner { takes_all: true, ..Owner::default() };
        let transfers = Transfers::default();
        let bytes: [u8; 2] = thread_rng().r#gen();
        let complete = shuttle::thread::scope(|scope| {
            let lanes = [0, 1].map(|part| {
                let (transfers, owner) = (&transfers, &owner);
                scope.spawn(move || receive(transfers, owner, part, bytes[part as usize]))
            });
            lanes.map(|lane| lane.join().unwrap())
        });
        assert!(complete[0] != complete[1]);
        assert_eq!(owner.asked.load(SeqCst), 1);
        let ended = owner.ended.lock();
        let [Ok(received)] = ended.as_slice() else { panic!("told {ended:?}") };
        assert_eq!(*received, [[bytes[0]; CHUNK as usize], [bytes[1]; CHUNK as usize]].concat());
        assert!(!transfers.knows(7));
    };
    shuttle::check_random(order, ORDERS);
}

#[test]
fn nobody_writes_to_a_transfer_that_was_given_up_and_its_end_is_told_once() {
    let order = || {
        let (transfers, owner) = (Transfers::default(), Owner::default());
        transfers.expect(7, owner.destination(TOTAL)).unwrap();
        shuttle::thread::scope(|scope| {
            for part in [0, 1] {
                let (transfers, owner) = (&transfers, &owner);
                scope.spawn(move || receive(transfers, owner, part, 1));
            }
            transfers.cancel(7);
            owner.has_given_up.store(true, SeqCst);
        });
        let ended = owner.ended.lock();
        assert!(matches!(ended.as_slice(), [Ok(_) | Err(TransferError::Cancelled)]), "told {ended:?}");
    };
    shuttle::check_random(order, ORDERS);
}
