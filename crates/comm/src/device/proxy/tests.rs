//! Tests of signals that go different ways to one peer: by the lane where the word is mapped, over the link where it
//! is counted up.

use super::*;
use crate::device::late_lane::LateLane;
use crate::device::layout::QueueCounters;
use crate::device::queue;
use crate::device::request::PHASE;
use crate::device::windows::{MappedWindow, Windows};

const CAPACITY: u64 = 16;
const PEER: u32 = 1;

/// A rank whose peer's word is mapped, and a link to that peer.
struct Rank {
    slots: Vec<[AtomicU64; 2]>,
    _counters: Vec<u128>,
    posted: usize,
    lane: LateLane,
    links: Arc<Links>,
    proxy: Proxy,
}

impl Rank {
    fn new() -> Self {
        let slots: Vec<[AtomicU64; 2]> = (0..CAPACITY).map(|_| Default::default()).collect();
        let (_, bytes) = queue::bytes(CAPACITY);
        let counters = vec![0_u128; bytes as usize / 16 + 8];
        let address = (counters.as_ptr() as u64).next_multiple_of(align_of::<QueueCounters>() as u64);
        // SAFETY: both are as long as the queue needs, and live as long as the proxy.
        let queue = unsafe { Consumer::new(slots.as_ptr() as u64, address, CAPACITY) };
        let windows = Arc::new(Windows::default());
        let parts = vec![4096, 8192];
        windows.set(1, Some(MappedWindow { number: 1, bytes: 64, in_host: false, parts }));
        let (lane, links) = (LateLane::default(), Arc::new(Links::new(2).unwrap()));
        let known = KnownWindows::new(windows);
        let proxy = Proxy::new(0, queue, Box::new(lane.clone()), known, Some(Arc::clone(&links)));
        Self { slots, _counters: counters, posted: 0, lane, links, proxy }
    }

    /// Posts a signal, as a kernel does.
    fn post(&mut self, value: u64, adds: bool) {
        let verb = if adds { 5_u64 } else { 4 };
        let [first, second] = &self.slots[self.posted];
        first.store(PHASE | verb << 59 | u64::from(PEER) << 53 | 1 << 47, Ordering::Relaxed);
        second.store(PHASE | value, Ordering::Release);
        self.posted += 1;
    }

    /// What the lane was asked for, and what the link was, when the proxy has done what it can.
    fn step(&mut self) -> (Vec<u64>, Vec<u64>) {
        for _ in 0..4 {
            self.proxy.step().unwrap();
        }
        let inbox = self.links.to(PEER).inbox();
        let of_link = inbox.operations.iter().filter_map(|operation| match operation {
            Operation::Signal { value, .. } => Some(*value),
            _ => None,
        });
        let of_link = of_link.collect();
        drop(inbox);
        (self.lane.0.lock().queued.iter().filter_map(|(_, from)| from.err()).collect(), of_link)
    }

    /// The lane has done all that it was asked for.
    fn pass(&self) {
        let mut late = self.lane.0.lock();
        late.passed = late.marks;
    }
}

#[test]
fn a_set_by_the_lane_comes_behind_an_add_over_the_link() {
    for is_one_batch in [true, false] {
        let mut rank = Rank::new();
        rank.post(1, true);
        if !is_one_batch {
            assert_eq!(rank.step(), (vec![], vec![1]));
        }
        rank.post(100, false);
        rank.post(200, false);
        assert_eq!(rank.step(), (vec![], vec![1]), "the set overtakes the add");
        rank.links.to(PEER).complete(1);
        assert_eq!(rank.step(), (vec![100, 200], vec![1]));
        assert!(!rank.proxy.is_idle());
        rank.pass();
        rank.step();
        assert!(rank.proxy.is_idle());
    }
}

#[test]
fn an_add_over_the_link_comes_behind_a_set_by_the_lane() {
    for is_one_batch in [true, false] {
        let mut rank = Rank::new();
        rank.post(100, false);
        if !is_one_batch {
            assert_eq!(rank.step(), (vec![100], vec![]));
        }
        rank.post(1, true);
        rank.post(2, true);
        assert_eq!(rank.step(), (vec![100], vec![]), "the add overtakes the set");
        rank.pass();
        assert_eq!(rank.step(), (vec![100], vec![1, 2]));
        rank.links.to(PEER).complete(2);
        rank.step();
        assert!(rank.proxy.is_idle());
    }
}
