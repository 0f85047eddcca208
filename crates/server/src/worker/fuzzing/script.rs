//! Messages of a client, chosen by the bytes of an input.

use arbitrary::{Arbitrary, Unstructured};
use causeway_api::calls::{Opcode, Request};
use causeway_api::handle::{
    Allocation, Array, Context, Event, Function, Graph, GraphExec, GreenContext, Handle, Kernel, Kind,
    Library, LinkState, MemoryPool, MipmappedArray, Module, ResourceDescription, Stream,
};
use causeway_api::sys::CUstreamBatchMemOpType;
use causeway_api::types::{LaunchShape, ValueOperation};
use causeway_wire::codec::{DecodeError, Encode};
use causeway_wire::message::{ClientMessage, Command, Messages};

/// An input with more steps than this is cut off, so that each takes little time.
const MAX_STEPS: usize = 64;
/// The longest arguments of a command, in bytes.
const MAX_BYTES: usize = 1024;
/// Threads in all blocks of a launch: one may run for as long as it likes, which is the client's own time.
const MAX_THREADS: u64 = 4096;
/// Memory that is compared byte by byte, in bytes; the same goes for this.
const MAX_MIRRORED_BYTES: usize = 1 << 20;

/// Objects of each kind that commands name.
const OBJECTS: u32 = 3;

/// A number among the arguments of a command.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Word {
    /// A handle, of any kind: some of the objects exist.
    Handle { kind: u8, index: u8 },
    /// An address that the session, another one or nobody may use, and so many bytes more.
    Address { which: u8, offset: i8 },
    /// A small number.
    Small(u8),
    /// A power of two.
    Power(u8),
    /// A number near the highest one.
    Top(u8),
    /// Any number.
    Any(u64),
}

/// Some bytes of a command's arguments.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Item {
    Long(Word),
    Short(Word),
    Byte(u8),
    /// A list's or a text's length, in 4 or 8 bytes.
    Count {
        is_long: bool,
        count: u8,
    },
}

/// One step of an input.
#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// A command whose arguments are made such that they can be decoded.
    Command {
        opcode: u16,
        call: u8,
        context: u8,
        arguments: Vec<Item>,
    },
    /// Like this, but its arguments are what they are.
    Damaged {
        opcode: u16,
        call: u8,
        context: Word,
        arguments: Vec<Item>,
    },
    HostDone(u8),
    Image {
        transfer: u8,
        bytes: &'a [u8],
    },
    /// Any bytes in place of messages.
    Bytes(&'a [u8]),
    /// The bytes of a transfer come.
    Transfer {
        number: u8,
        length: u16,
    },
}

/// What happens to a worker.
#[derive(Debug)]
pub enum ClientEvent {
    /// The body of a frame comes.
    Frame(Vec<u8>),
    /// The bytes of a transfer come.
    Transfer { number: u64, bytes: Vec<u8> },
}

/// Reads what happens from an input. `addresses` are what commands get for the addresses that they name.
pub fn script(input: &[u8], addresses: &[u64]) -> Vec<ClientEvent> {
    let mut input = Unstructured::new(input);
    let mut events = Vec::new();
    while !input.is_empty() && events.len() < MAX_STEPS {
        let Ok(step) = input.arbitrary::<Step<'_>>() else { break };
        events.extend(step.event(addresses));
    }
    events
}

impl Step<'_> {
    /// What it amounts to; nothing where a command would rightly wait, or work, without end.
    fn event(self, addresses: &[u64]) -> Option<ClientEvent> {
        let mut body = Vec::new();
        match self {
            Self::Command { opcode, call, context, arguments } => {
                let opcode = Opcode::ALL[usize::from(opcode) % Opcode::ALL.len()];
                let payload = repaired(opcode, encode(&arguments, addresses))?;
                let context = handle(0, context % 4);
                command(opcode as u16, call, context, &payload).encode(&mut body);
            }
            Self::Damaged { opcode, call, context, arguments } => {
                let payload = encode(&arguments, addresses);
                command(opcode, call, context.value(addresses), &payload).encode(&mut body);
            }
            Self::HostDone(token) => ClientMessage::HostDone { token: token.into() }.encode(&mut body),
            Self::Image { transfer, bytes } => {
                ClientMessage::Image { transfer: transfer.into(), bytes }.encode(&mut body);
            }
            Self::Bytes(bytes) => body.extend_from_slice(bytes),
            Self::Transfer { number, length } => {
                return Some(ClientEvent::Transfer { number: number.into(), bytes: vec![7; length.into()] });
            }
        }
        is_bounded(&body).then_some(ClientEvent::Frame(body))
    }
}

/// Whether none of the commands in the body of a frame may take for ever.
fn is_bounded(body: &[u8]) -> bool {
    Messages::<ClientMessage<'_>>::new(body).map_while(Result::ok).all(|message| {
        let ClientMessage::Command(command) = message else { return true };
        let Some(opcode) = Opcode::from_number(command.opcode) else { return true };
        Request::decode(opcode, command.payload).map_or(true, |request| !may_take_for_ever(opcode, &request))
    })
}

fn command(opcode: u16, call: u8, context: u64, payload: &[u8]) -> ClientMessage<'_> {
    ClientMessage::Command(Command { call: call.into(), thread: 0, context, opcode, payload })
}

impl Word {
    fn value(self, addresses: &[u64]) -> u64 {
        match self {
            Self::Handle { kind, index } => handle(kind, index),
            Self::Address { which, offset } => {
                addresses[usize::from(which) % addresses.len()].wrapping_add_signed(offset.into())
            }
            Self::Small(value) => value.into(),
            Self::Power(shift) => 1 << (shift % 64),
            Self::Top(below) => u64::MAX - u64::from(below),
            Self::Any(value) => value,
        }
    }
}

/// The handle of an object, of the kind with this number.
fn handle(kind: u8, index: u8) -> u64 {
    fn of<K: Kind>(index: u32) -> u64 {
        Handle::<K>::new(index, 0).value()
    }
    const KINDS: [fn(u32) -> u64; 17] = [
        of::<Context>,
        of::<Stream>,
        of::<Event>,
        of::<Module>,
        of::<Function>,
        of::<Library>,
        of::<Kernel>,
        of::<Graph>,
        of::<GraphExec>,
        of::<MemoryPool>,
        of::<Array>,
        of::<MipmappedArray>,
        of::<LinkState>,
        of::<GreenContext>,
        of::<ResourceDescription>,
        of::<Allocation>,
        |_| 0,
    ];
    KINDS[usize::from(kind) % KINDS.len()](u32::from(index) % (OBJECTS + 1))
}

fn encode(items: &[Item], addresses: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in items {
        match *item {
            Item::Long(word) => word.value(addresses).encode(&mut bytes),
            Item::Short(word) => (word.value(addresses) as u32).encode(&mut bytes),
            Item::Byte(byte) => byte.encode(&mut bytes),
            Item::Count { is_long: true, count } => u64::from(count).encode(&mut bytes),
            Item::Count { is_long: false, count } => u32::from(count).encode(&mut bytes),
        }
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

/// Arguments of a command that can be decoded: what is missing is zero, and what is too much goes. Nothing
/// where that does not help.
fn repaired(opcode: Opcode, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    // Each attempt makes one value whole.
    for _ in 0..64 {
        match Request::decode(opcode, &bytes) {
            Ok(_) => return Some(bytes),
            Err(DecodeError::Truncated { requested, left }) => {
                let missing = usize::try_from(requested).ok()?.checked_sub(left)?;
                if missing == 0 || missing > MAX_BYTES.saturating_sub(bytes.len()) {
                    return None;
                }
                bytes.resize(bytes.len() + missing, 0);
            }
            Err(DecodeError::TrailingBytes(count)) => bytes.truncate(bytes.len() - count),
            Err(_) => return None,
        }
    }
    None
}

/// Whether a command may rightly wait, or work, longer than a target has time: for a value in memory, for
/// another server, for kernels without number, or for a comparison of much memory.
fn may_take_for_ever(opcode: Opcode, request: &Request<'_>) -> bool {
    let is_large = |shape: &LaunchShape| {
        let threads = shape.grid.into_iter().chain(shape.block).map(u64::from);
        threads.fold(1, u64::saturating_mul) > MAX_THREADS
    };
    let waits = |operations: &[ValueOperation]| {
        let waiting = [
            CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32,
            CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_64,
        ];
        operations.iter().any(|operation| waiting.iter().any(|kind| kind.0 == operation.kind))
    };
    match request {
        Request::launch(launch) => is_large(&launch.shape),
        Request::graph_add_kernel(node) => is_large(&node.shape),
        Request::graph_exec_kernel(node) => is_large(&node.shape),
        Request::graph_add_values(node) => waits(&node.operations),
        Request::graph_exec_values(node) => waits(&node.operations),
        Request::mirror_create(mirror) => mirror.size > MAX_MIRRORED_BYTES,
        Request::mirror_of_allocation(mirror) => mirror.size > MAX_MIRRORED_BYTES,
        _ => ["cuStreamWaitValue", "peer_"].iter().any(|prefix| opcode.name().starts_with(prefix)),
    }
}
