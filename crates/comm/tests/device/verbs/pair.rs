//! Two cards with a queue pair each, which are joined, and kernels that post to them.

use std::sync::Arc;
use std::time::Duration;

use causeway_comm::device::gpu::{Block, Gpu};
use causeway_comm::device::verbs::layout::{ReceiveRequest, SendRequest, WorkCompletion};
use causeway_comm::device::verbs::{
    CompletionQueue, Doorbell, Nic, NicOptions, QueuePair, QueuePairOptions, Registered,
};
use causeway_ibverbs::Access;

use super::softcard::SoftCard;
use crate::machine::{Lanes, Params, Ranks};

/// How kernels post: `TRY`, `WAIT` and `ONE_AT_A_TIME` of `device_verbs.cuh`.
pub const TRY: u32 = 0;
pub const WAIT: u32 = 1;
pub const ONE_AT_A_TIME: u32 = 2;

/// `causeway::verbs::Status`.
pub const OK: u32 = 0;
pub const AGAIN: u32 = 1;
pub const FAILED: u32 = 3;
pub const ABORTED: u32 = 4;
pub const TIMED_OUT: u32 = 5;

/// Causes of failed completions, `IBV_WC_*_ERR` as the card numbers them.
pub mod cause {
    pub const LOCAL_LENGTH: u32 = 0x01;
    pub const LOCAL_PROTECTION: u32 = 0x04;
    pub const FLUSHED: u32 = 0x05;
    pub const REMOTE_INVALID_REQUEST: u32 = 0x12;
    pub const REMOTE_ACCESS: u32 = 0x13;
    pub const REMOTE_OPERATION: u32 = 0x14;
    pub const RETRY_EXCEEDED: u32 = 0x15;
    pub const RNR_RETRY_EXCEEDED: u32 = 0x16;
}

/// Bytes of memory at each end.
pub const MEMORY: usize = 1 << 16;

/// One end: a card, its queues, and memory that the peer may use.
pub struct End {
    // Dropped in this order.
    pub queue_pair: QueuePair,
    pub sends: CompletionQueue,
    pub receives: CompletionQueue,
    pub registered: Registered,
    pub memory: Block,
    pub nic: Nic,
}

pub struct Pair {
    pub ends: [End; 2],
    pub gpu: Ranks,
    pub card: &'static SoftCard,
}

impl End {
    pub fn new(gpu: &Ranks, name: &str, options: QueuePairOptions, nic: NicOptions) -> Self {
        let of_rank: Arc<dyn Gpu> = gpu.gpus(1).remove(0);
        let nic = Nic::open(Some(name), Arc::clone(&of_rank), nic).unwrap();
        let memory = of_rank.host_memory(MEMORY as u64).unwrap();
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        // SAFETY: the memory stays until the region is dropped.
        let registered = unsafe { nic.register(memory.address, MEMORY, access) }.unwrap();
        let queue = || CompletionQueue::new(&nic, 2 * (options.sends + options.receives)).unwrap();
        let (sends, receives) = (queue(), queue());
        let queue_pair = QueuePair::new(&nic, &sends, &receives, options).unwrap();
        Self { queue_pair, sends, receives, registered, memory, nic }
    }

    /// Receives of so many bytes each, at multiples of that.
    pub fn receive_requests(&self, count: u64, bytes: u32) -> Vec<ReceiveRequest> {
        let lkey = self.registered.lkey();
        let address = |at| self.memory.address + at * u64::from(bytes);
        (0..count).map(|at| ReceiveRequest { wr_id: at, address: address(at), bytes, lkey }).collect()
    }

    fn run<T>(&self, gpu: &Ranks, kernel: &str, requests: &[T], how: u32) -> Vec<u32> {
        let statuses = gpu.filled(&vec![0xff; 4 * requests.len()]);
        let list = gpu.filled(&bytes_of(requests));
        let params = Params::default().long(self.queue_pair.handle()).long(list.address);
        let params = params.word(requests.len() as u32).word(how).long(statuses.address);
        gpu.launch_one(kernel, 1, params);
        values_of(&gpu.bytes(statuses.address, 4 * requests.len() as u64))
    }

    /// A kernel of one thread posts these. What each post came to.
    pub fn post(&self, gpu: &Ranks, requests: &[SendRequest], how: u32) -> Vec<u32> {
        self.run(gpu, "verbs_post", requests, how)
    }

    pub fn post_receives(&self, gpu: &Ranks, requests: &[ReceiveRequest], how: u32) -> Vec<u32> {
        self.run(gpu, "verbs_receive", requests, how)
    }
}

/// A kernel waits for so many completions, with what each wait came to.
pub fn wait(gpu: &Ranks, queue: &CompletionQueue, count: usize) -> Vec<(u32, WorkCompletion)> {
    let completions = gpu.filled(&vec![0; count * size_of::<WorkCompletion>()]);
    let statuses = gpu.filled(&vec![0xff; 4 * count]);
    let params = Params::default().long(queue.handle()).long(completions.address).word(count as u32);
    gpu.launch_one("verbs_wait", 1, params.long(statuses.address));
    let statuses: Vec<u32> = values_of(&gpu.bytes(statuses.address, 4 * count as u64));
    let bytes = gpu.bytes(completions.address, (count * size_of::<WorkCompletion>()) as u64);
    statuses.into_iter().zip(values_of(&bytes)).collect()
}

/// The bytes of layouts that have no padding.
fn bytes_of<T>(values: &[T]) -> Vec<u8> {
    // SAFETY: the callers' types are numbers without padding.
    unsafe { core::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }.to_vec()
}

fn values_of<T: Copy + Default>(bytes: &[u8]) -> Vec<T> {
    let mut values = vec![T::default(); bytes.len() / size_of::<T>()];
    // SAFETY: the callers' types are numbers, and there is room for the bytes.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), values.as_mut_ptr().cast::<u8>(), bytes.len());
    }
    values
}

impl Pair {
    pub fn new(options: QueuePairOptions, doorbell: Doorbell) -> Self {
        Self::with_limit(options, doorbell, Duration::from_secs(100))
    }

    pub fn with_limit(options: QueuePairOptions, doorbell: Doorbell, limit: Duration) -> Self {
        let card = SoftCard::get();
        let gpu = Ranks::new(Lanes::Well);
        let nic = NicOptions { limit, doorbell };
        let end = |name| End::new(&gpu, name, options, nic);
        let pair = Self { ends: [end("mlx5_0"), end("mlx5_1")], gpu, card };
        pair.connect();
        pair
    }

    pub fn connect(&self) {
        let [one, other] = &self.ends;
        one.queue_pair.connect(&other.queue_pair.address()).unwrap();
        other.queue_pair.connect(&one.queue_pair.address()).unwrap();
    }

    /// A request of an end with its keys, whose own bytes are at one offset and those of the peer at another.
    pub fn request(&self, end: usize, operation: u32, from: u64, to: u64, bytes: u32) -> SendRequest {
        let (this, peer) = (&self.ends[end], &self.ends[1 - end]);
        SendRequest {
            operation,
            flags: causeway_comm::device::verbs::layout::send_flags::SIGNALED,
            address: this.memory.address + from,
            bytes,
            lkey: this.registered.lkey(),
            remote_address: peer.memory.address + to,
            rkey: peer.registered.rkey(),
            ..SendRequest::default()
        }
    }

    /// A kernel of one thread posts these. What each post came to.
    pub fn post(&self, end: usize, requests: &[SendRequest], how: u32) -> Vec<u32> {
        self.ends[end].post(&self.gpu, requests, how)
    }

    pub fn post_receives(&self, end: usize, requests: &[ReceiveRequest], how: u32) -> Vec<u32> {
        self.ends[end].post_receives(&self.gpu, requests, how)
    }

    /// Receives of an end, of so many bytes each, at multiples of that.
    pub fn receives(&self, end: usize, count: u64, bytes: u32) -> Vec<ReceiveRequest> {
        self.ends[end].receive_requests(count, bytes)
    }

    /// A kernel waits for so many completions, with what each wait came to.
    pub fn wait(&self, queue: &CompletionQueue, count: usize) -> Vec<(u32, WorkCompletion)> {
        wait(&self.gpu, queue, count)
    }

    /// The completions alone, all of which have come.
    pub fn completions(&self, queue: &CompletionQueue, count: usize) -> Vec<WorkCompletion> {
        let waited = self.wait(queue, count);
        assert!(waited.iter().all(|(status, _)| *status == OK), "{waited:?}: {}", self.card.complaint());
        waited.into_iter().map(|(_, completion)| completion).collect()
    }

    pub fn bytes(&self, end: usize, offset: u64, count: u64) -> Vec<u8> {
        self.gpu.bytes(self.ends[end].memory.address + offset, count)
    }

    pub fn write(&self, end: usize, offset: u64, bytes: &[u8]) {
        self.gpu.write(self.ends[end].memory.address + offset, bytes);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.card.complaint(), "", "what the card complains of");
        }
    }
}
