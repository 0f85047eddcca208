//! Requests that a kernel writes, bit by bit beside those of rdma-core's mlx5 provider: every operation, sizes,
//! flags, inline data, and everywhere in the ring. `tests/softcard/golden` makes those.

use causeway_comm::device::gpu::Block;
use causeway_comm::device::verbs::layout::{
    Count, Publishing, QueuePair, ReceiveRequest, Ring, SendRequest, Slot, operation, send_flags,
};

use crate::machine::{Lanes, Params, Ranks, programs};

/// The ring of `harness.c`.
const SLOTS: u32 = 16;
const RECEIVES: u32 = 8;
const NUMBER: u32 = 0x00ab_cdef;
const MAX_INLINE: u32 = 512;

fn requests() -> String {
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/softcard/golden/requests.txt");
    let text = std::fs::read_to_string(programs().join("softcard/requests.txt"));
    text.or_else(|_| std::fs::read_to_string(tree)).expect("the requests are in the tree")
}

fn number(text: &str) -> u64 {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    parsed.unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of something without padding.
fn bytes_of<T>(value: &T) -> Vec<u8> {
    // SAFETY: the callers' types are numbers without padding, or the padding is written as it is.
    unsafe { core::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) }.to_vec()
}

/// A queue pair that no card has: rings, records and doorbell are memory that the test reads.
struct Bare {
    gpu: Ranks,
    ring: Block,
    slots: Block,
    records: Block,
    doorbell: Block,
    abort: Block,
    payload: Block,
    queue_pair: Block,
    request: Block,
    status: Block,
}

impl Bare {
    fn new() -> Self {
        let gpu = Ranks::new(Lanes::Well);
        let memory = |bytes: usize| gpu.filled(&vec![0; bytes]);
        let payload: Vec<u8> = (0..MAX_INLINE).map(|at| (at * 37 + 11) as u8).collect();
        Self {
            ring: memory(1024),
            slots: memory(SLOTS as usize * size_of::<Slot>()),
            records: memory(8),
            doorbell: memory(8),
            abort: memory(8),
            payload: gpu.filled(&payload),
            queue_pair: memory(size_of::<QueuePair>()),
            request: memory(64),
            status: memory(8),
            gpu,
        }
    }

    /// Empties the rings, whose next slot is `first`.
    fn reset(&self, first: u64, count: u32, slot_bytes: u32) {
        self.gpu.write(self.ring.address, &[0; 1024]);
        self.gpu.write(self.slots.address, &vec![0; SLOTS as usize * size_of::<Slot>()]);
        self.gpu.write(self.records.address, &[0; 8]);
        self.gpu.write(self.doorbell.address, &[0; 8]);
        let ring = Ring {
            buffer: self.ring.address,
            count,
            slot_bytes,
            doorbell_record: self.records.address,
            doorbell: self.doorbell.address,
            slots: self.slots.address,
            reserved: Count::new(first),
            publishing: Publishing::new(first),
            completed: Count::new(first),
            ..Ring::default()
        };
        let queue_pair = QueuePair {
            number: NUMBER,
            max_inline: MAX_INLINE,
            abort: self.abort.address,
            limit: 1_000_000_000,
            send: ring,
            receive: Ring { doorbell: 0, ..ring },
            ..QueuePair::default()
        };
        self.gpu.write(self.queue_pair.address, &bytes_of(&queue_pair));
    }

    fn status(&self) -> u32 {
        u32::from_le_bytes(self.gpu.bytes(self.status.address, 4).try_into().unwrap())
    }

    fn run<T>(&self, kernel: &str, request: &T, how: u32) -> u32 {
        self.gpu.write(self.request.address, &bytes_of(request));
        let params = Params::default().long(self.queue_pair.address).long(self.request.address);
        self.gpu.launch_one(kernel, 1, params.word(1).word(how).long(self.status.address));
        self.status()
    }

    fn bytes(&self, block: &Block, count: u64) -> String {
        hexadecimal(&self.gpu.bytes(block.address, count))
    }
}

fn operation_of(name: &str) -> u32 {
    match name {
        "rdma_write" => operation::RDMA_WRITE,
        "rdma_write_with_imm" => operation::RDMA_WRITE_WITH_IMM,
        "send" => operation::SEND,
        "send_with_imm" => operation::SEND_WITH_IMM,
        "rdma_read" => operation::RDMA_READ,
        "compare_and_swap" => operation::COMPARE_AND_SWAP,
        "fetch_and_add" => operation::FETCH_AND_ADD,
        _ => panic!("`{name}` is no operation"),
    }
}

/// What the ring holds when a request of so many slots is in it, and nothing else.
fn whole_ring(first: u64, slots: &str) -> String {
    let mut ring = vec!["0".repeat(128); SLOTS as usize];
    for (at, slot) in slots.as_bytes().chunks(128).enumerate() {
        ring[(first as usize + at) % SLOTS as usize] = String::from_utf8_lossy(slot).into_owned();
    }
    ring.concat()
}

#[test]
fn kernels_write_requests_as_the_cards_own_driver_does() {
    let bare = Bare::new();
    let text = requests();
    let mut seen = std::collections::BTreeMap::new();
    for (index, line) in text.lines().filter(|line| !line.starts_with('#')).enumerate() {
        let (asked, expected) = line.split_once(" = ").unwrap();
        let asked: Vec<&str> = asked.split(' ').collect();
        let expected: Vec<&str> = expected.split(' ').collect();
        let numbers: Vec<u64> = asked[1..].iter().map(|text| number(text)).collect();
        *seen.entry(asked[0]).or_insert(0) += 1;
        if asked[0] == "receive" {
            let &[first, segments, bytes, address, lkey] = numbers.as_slice() else { panic!("{line}") };
            bare.reset(first, RECEIVES, 16 * segments as u32);
            let request = ReceiveRequest { wr_id: 7, address, bytes: bytes as u32, lkey: lkey as u32 };
            assert_eq!(bare.run("verbs_receive", &request, 0), 0, "{line}");
            let at = (first % u64::from(RECEIVES)) * 16 * segments;
            let slot = hexadecimal(&bare.gpu.bytes(bare.ring.address + at, 16 * segments));
            assert_eq!(slot, expected[0], "{line}");
            assert_eq!(bare.bytes(&bare.records, 8), format!("{}00000000", expected[1]), "{line}");
            assert_eq!(bare.bytes(&bare.doorbell, 8), "0".repeat(16), "a receive rings no doorbell");
            continue;
        }
        let &[first, flags, immediate, bytes, address, lkey, remote_address, rkey, compare_add, swap] =
            numbers.as_slice()
        else {
            panic!("{line}")
        };
        let is_inline = flags as u32 & send_flags::INLINE != 0;
        let request = SendRequest {
            wr_id: 7,
            operation: operation_of(asked[0]),
            flags: flags as u32,
            address: if is_inline { bare.payload.address } else { address },
            bytes: bytes as u32,
            lkey: lkey as u32,
            remote_address,
            rkey: rkey as u32,
            immediate: immediate as u32,
            compare_add,
            swap,
        };
        bare.reset(first, SLOTS, 64);
        // By turns: at once, waiting, and under the mutex.
        assert_eq!(bare.run("verbs_post", &request, index as u32 % 3), 0, "{line}");
        assert_eq!(bare.bytes(&bare.ring, 1024), whole_ring(first, expected[0]), "{line}");
        assert_eq!(bare.bytes(&bare.records, 8), format!("00000000{}", expected[1]), "{line}");
        assert_eq!(bare.bytes(&bare.doorbell, 8), expected[2], "{line}");
    }
    assert_eq!(seen.len(), 8, "every operation and receives: {seen:?}");
}

#[test]
fn requests_that_cannot_be_written_are_refused_and_touch_nothing() {
    let bare = Bare::new();
    bare.reset(3, SLOTS, 64);
    let write = SendRequest { operation: operation::RDMA_WRITE, bytes: 8, ..SendRequest::default() };
    let inline = SendRequest { flags: send_flags::INLINE, address: bare.payload.address, ..write };
    let atomic = SendRequest { operation: operation::FETCH_AND_ADD, ..write };
    let refused = [
        ("no operation", SendRequest { operation: 0x0c, ..write }),
        ("too many bytes", SendRequest { bytes: (1 << 30) + 1, ..write }),
        ("more than fits inline", SendRequest { bytes: MAX_INLINE + 1, ..inline }),
        ("an inline read", SendRequest { operation: operation::RDMA_READ, ..inline }),
        ("an atomic operation on 4 bytes", SendRequest { bytes: 4, ..atomic }),
        ("one at no multiple of 8", SendRequest { remote_address: 12, ..atomic }),
    ];
    for (what, request) in refused {
        // 2 is `invalid`.
        assert_eq!(bare.run("verbs_post", &request, 0), 2, "{what}");
        assert_eq!(bare.bytes(&bare.ring, 1024), "0".repeat(2048), "{what}");
        assert_eq!(bare.bytes(&bare.doorbell, 8), "0".repeat(16), "{what}");
    }
}

#[test]
fn a_full_ring_is_never_written_over() {
    let bare = Bare::new();
    bare.reset(65533, SLOTS, 64);
    let write = SendRequest { operation: operation::RDMA_WRITE, bytes: 8, ..SendRequest::default() };
    for at in 0..SLOTS {
        let request = SendRequest { remote_address: u64::from(at), ..write };
        assert_eq!(bare.run("verbs_post", &request, 0), 0, "request {at}");
    }
    let before = bare.bytes(&bare.ring, 1024);
    // 1 is `again`; who waits gives up after the queue pair's limit (5), or when the host says so (4).
    assert_eq!(bare.run("verbs_post", &write, 0), 1);
    assert_eq!(bare.run("verbs_post", &write, 1), 5);
    bare.gpu.write(bare.abort.address, &[1]);
    assert_eq!(bare.run("verbs_post", &write, 1), 4);
    assert_eq!(bare.bytes(&bare.ring, 1024), before);
}
