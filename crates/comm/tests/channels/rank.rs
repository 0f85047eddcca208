//! What a rank of a job does: it says lines that the other one hears, and sends and receives what both know
//! from a seed.

use std::ffi::{CStr, c_int, c_void};
use std::io::BufRead as _;
use std::time::{Duration, Instant};

use causeway_comm::matching::Descriptor;
use causeway_comm::report::Inline;
use causeway_comm::settings::Settings;
use causeway_comm::tracer::{Operation, Traffic};
use causeway_comm::transfer::offers::OfferState;
use causeway_comm::{Channel, World};

use crate::split_mix::Random;

/// The variable that tells a process its task: nonce, rank, seed, messages, and whether the sender dies.
pub const TASK: &str = "CAUSEWAY_TEST_RANK";

/// Bytes of an allocation, in which messages lie anywhere.
const ALLOCATION: usize = (40 << 20) + 1234;

/// The longest message is so many bits long.
const MAX_EXPONENT: u64 = 25;

/// A task for one process.
pub struct Task {
    nonce: [u8; 16],
    rank: u32,
    seed: u64,
    messages: u64,
    sender_dies: bool,
}

/// What both ranks know of a message.
struct Plan {
    from: u32,
    bytes: usize,
    at: [usize; 2],
    to_gpu: bool,
    is_detached: bool,
    has_new_memory: bool,
    sends: Operation,
    fetches: Operation,
    /// Whether sender and receiver move meanwhile.
    moves: [bool; 2],
}

impl Plan {
    fn of(random: &mut Random) -> Self {
        let longest = 1 << random.below(MAX_EXPONENT + 1);
        let bytes = 1 + random.below(longest) as usize;
        let mut place = || random.below((ALLOCATION - bytes) as u64 + 1) as usize;
        let at = [place(), place()];
        Self {
            from: random.below(2) as u32,
            bytes,
            at,
            to_gpu: random.below(4) > 0,
            is_detached: random.below(4) == 0,
            has_new_memory: random.below(6) == 0,
            sends: Operation::Blocking,
            moves: [false; 2],
            fetches: if random.below(2) == 0 { Operation::Blocking } else { Operation::NonBlocking },
        }
    }
}

/// Names the calls by which rank 0 sends all messages and rank 1 receives them: `Isend Recv`.
pub const CALLS: &str = "CAUSEWAY_TEST_CALLS";

fn calls() -> Option<(Operation, Operation)> {
    let text = std::env::var(CALLS).ok()?;
    let (sends, fetches) = text.split_once(' ').unwrap();
    let operation =
        |name: &str| if name.starts_with('I') { Operation::NonBlocking } else { Operation::Blocking };
    Some((operation(sends), operation(fetches)))
}

/// Has rank 0 send messages of 1 to 64 bytes, as an MPI's program does: with the MPI where they are not offered.
pub const SHORT: &str = "CAUSEWAY_TEST_SHORT";

fn are_short() -> bool {
    std::env::var_os(SHORT).is_some()
}

/// Has the ranks move into other namespaces while messages are in flight, which they tell the library (`told`), or
/// leave it to find out (`noticed`).
pub const MOVES: &str = "CAUSEWAY_TEST_MOVES";

/// Which ends of a message move while it is in flight.
fn movers(message: u64, messages: u64) -> [bool; 2] {
    if std::env::var_os(MOVES).is_none() {
        return [false; 2];
    }
    let quarters = [1, 2, 3].map(|quarter| message == messages * quarter / 4);
    [quarters[0] || quarters[2], quarters[1] || quarters[2]]
}

/// This thread enters namespaces of its own.
fn move_away(world: &World) {
    // SAFETY: this thread gets new namespaces, and shares nothing else that is its process's.
    let status = unsafe { libc::unshare(libc::CLONE_NEWUTS | libc::CLONE_NEWIPC) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    if std::env::var(MOVES).as_deref() == Ok("told") {
        world.move_here().unwrap();
    } else {
        std::thread::sleep(Duration::from_millis(150));
    }
    println!("# moved 1");
}

type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;
type ToDevice = unsafe extern "C" fn(u64, *const c_void, usize) -> c_int;
type ToHost = unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int;

/// The GPU's driver, as a program uses it.
struct Gpu {
    allocate: Allocate,
    free: Free,
    to_device: ToDevice,
    to_host: ToHost,
}

impl Gpu {
    fn start() -> Self {
        // SAFETY: a library of the driver's name, whose functions have the driver's types.
        unsafe {
            let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null(), "there is a libcuda.so.1");
            let find = |name: &CStr| {
                let found = libc::dlsym(library, name.as_ptr());
                assert!(!found.is_null(), "it has {name:?}");
                found
            };
            let start: unsafe extern "C" fn(u32) -> c_int = core::mem::transmute(find(c"cuInit"));
            assert_eq!(start(0), 0);
            Self {
                allocate: core::mem::transmute::<*mut c_void, Allocate>(find(c"cuMemAlloc_v2")),
                free: core::mem::transmute::<*mut c_void, Free>(find(c"cuMemFree_v2")),
                to_device: core::mem::transmute::<*mut c_void, ToDevice>(find(c"cuMemcpyHtoD_v2")),
                to_host: core::mem::transmute::<*mut c_void, ToHost>(find(c"cuMemcpyDtoH_v2")),
            }
        }
    }

    fn allocate(&self) -> u64 {
        let mut address = 0;
        // SAFETY: there is room for the address.
        assert_eq!(unsafe { (self.allocate)(&raw mut address, ALLOCATION) }, 0);
        address
    }

    fn free(&self, address: u64) {
        // SAFETY: nothing of the allocation is under way.
        assert_eq!(unsafe { (self.free)(address) }, 0);
    }

    fn write(&self, to: u64, bytes: &[u8]) {
        // SAFETY: so many bytes of an allocation.
        assert_eq!(unsafe { (self.to_device)(to, bytes.as_ptr().cast(), bytes.len()) }, 0);
    }

    fn read(&self, from: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; count];
        // SAFETY: so many bytes of an allocation.
        assert_eq!(unsafe { (self.to_host)(bytes.as_mut_ptr().cast(), from, count) }, 0);
        bytes
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(digit).collect()
}

fn say(line: &str) {
    println!("> {line}");
}

fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Both are there when this returns.
fn meet(word: &str) {
    say(word);
    assert_eq!(hear(), word);
}

impl Task {
    pub fn new(nonce: [u8; 16], rank: u32, seed: u64, messages: u64, sender_dies: bool) -> Self {
        Self { nonce, rank, seed, messages, sender_dies }
    }

    /// As it stands in the environment.
    pub fn text(&self) -> String {
        let Self { nonce, rank, seed, messages, sender_dies } = self;
        format!("{:032x} {rank} {seed} {messages} {sender_dies}", u128::from_le_bytes(*nonce))
    }

    pub fn from_environment() -> Option<Self> {
        let text = std::env::var(TASK).ok()?;
        let words: Vec<&str> = text.split(' ').collect();
        let [nonce, rank, seed, messages, dies] = words[..] else { panic!("a task of five words") };
        let nonce = u128::from_str_radix(nonce, 16).unwrap().to_le_bytes();
        Some(Self::new(
            nonce,
            rank.parse().unwrap(),
            seed.parse().unwrap(),
            messages.parse().unwrap(),
            dies.parse().unwrap(),
        ))
    }

    pub fn carry_out(&self) {
        // Where there is one processor, the name of the test stands in front of what it says first.
        println!();
        let gpu = Gpu::start();
        let world = World::join(self.nonce, self.rank, 2, Settings::from_environment().unwrap()).unwrap();
        meet("joined");
        let until = Instant::now() + Duration::from_secs(30);
        while !world.is_reachable(1 - self.rank) {
            assert!(Instant::now() < until, "the other rank is reached");
            std::thread::sleep(Duration::from_millis(5));
        }
        meet("reached");
        let mut random = Random(self.seed);
        let mut memory = gpu.allocate();
        for message in 0..self.messages {
            let mut plan = Plan::of(&mut random);
            if let Some((sends, fetches)) = calls() {
                plan = Plan { from: 0, bytes: plan.bytes.min(9999), sends, fetches, ..plan };
            }
            if are_short() {
                let bytes = 1 + plan.bytes % 64;
                let (is_detached, has_new_memory) = (false, false);
                plan =
                    Plan { from: 0, bytes, at: [64, 128], to_gpu: true, is_detached, has_new_memory, ..plan };
            }
            plan.moves = movers(message, self.messages);
            if self.sender_dies {
                // Long enough to be under way then.
                plan = Plan { bytes: 1 << MAX_EXPONENT, at: [0, 0], is_detached: false, ..plan };
            }
            let content = Random(self.seed ^ message << 20).bytes(plan.bytes);
            if plan.has_new_memory {
                gpu.free(memory);
                memory = gpu.allocate();
            }
            let goes_on = if plan.from == self.rank {
                self.send(&world, &gpu, memory + plan.at[0] as u64, &content, &plan)
            } else {
                self.receive(&world, &gpu, memory + plan.at[1] as u64, &content, &plan)
            };
            if !goes_on {
                return;
            }
        }
        println!("# {:?}", world.traffic(1 - self.rank));
        for line in world.report().unwrap_or_default() {
            println!("# {line}");
        }
        for channel in Channel::ALL {
            println!("# {channel} {}", world.messages(Some(channel)));
        }
        meet("end");
    }

    /// Says whether there is more to do.
    fn send(&self, world: &World, gpu: &Gpu, from: u64, content: &[u8], plan: &Plan) -> bool {
        gpu.write(from, content);
        if are_short()
            && let Err(why) = world.offers(1 - self.rank, Some(from), content.len() as u64)
        {
            println!("# {} 1", if why == Inline::Eager { "eager" } else { "inline" });
            let mut copy = vec![0_u8; content.len()];
            // SAFETY: there is room for so many bytes, which lie in the GPU's memory.
            unsafe { world.copy(copy.as_mut_ptr() as u64, from, content.len()) }.unwrap();
            say(&format!("inline {}", hex(&copy)));
            return hear() == "got";
        }
        world.count_operation(1 - self.rank, plan.sends);
        let Some((operation, descriptor)) = world.offer(1 - self.rank, from, content.len() as u64) else {
            println!("# error nothing is offered");
            say("none");
            return false;
        };
        let bytes = hex(&descriptor.encode(world.job()));
        if plan.moves[0] {
            move_away(world);
        }
        if plan.is_detached {
            world.detach(operation);
        }
        say(&bytes);
        if self.sender_dies {
            assert_eq!(hear(), "about to fetch");
            std::thread::sleep(Duration::from_millis(40));
            std::process::abort();
        }
        loop {
            match world.offer_state(operation) {
                OfferState::Done => break,
                OfferState::Failed => return false,
                OfferState::InFlight => std::thread::sleep(Duration::from_micros(200)),
            }
        }
        // The memory is this rank's again.
        gpu.write(from, &vec![0xee; content.len()]);
        hear() == "got"
    }

    /// The same for one that is received.
    fn receive(&self, world: &World, gpu: &Gpu, to: u64, content: &[u8], plan: &Plan) -> bool {
        let text = hear();
        if text == "none" {
            return false;
        }
        if let Some(digits) = text.strip_prefix("inline ") {
            let bytes = bytes_of(digits);
            gpu.write(to, &vec![0x11; bytes.len()]);
            // SAFETY: so many bytes are this function's until the call returns.
            unsafe { world.deliver(Some(1 - self.rank), to, bytes.as_ptr() as u64, bytes.len()) }.unwrap();
            assert_eq!(gpu.read(to, content.len()), content);
            say("got");
            return true;
        }
        let descriptor = Descriptor::decode(&bytes_of(&text), world.job()).unwrap();
        let traffic = if descriptor.traffic == Traffic::Latency { "latency" } else { "bandwidth" };
        println!("# {traffic} 1");
        let length = content.len();
        let mut host = vec![0x11_u8; length];
        gpu.write(to, &host);
        if self.sender_dies {
            say("about to fetch");
        }
        if plan.moves[1] {
            move_away(world);
        }
        let place = if plan.to_gpu { to } else { host.as_mut_ptr() as u64 };
        // SAFETY: so many bytes are this function's until the call returns.
        let came = unsafe { world.fetch(&descriptor, place, plan.to_gpu, length as u64, plan.fetches) };
        if let Err(error) = came {
            println!("# error {error}");
            return false;
        }
        let got = if plan.to_gpu { gpu.read(to, length) } else { host };
        let first = got.iter().zip(content).position(|(is, should)| is != should);
        assert_eq!(first, None, "the first wrong byte of {length}");
        say("got");
        true
    }
}
