//! The state of a session that is held, as it goes to a file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_api::calls::Opcode;
use causeway_api::snapshot::Snapshot;
use causeway_api::sys::CUresult;
use causeway_wire::codec::Encode as _;
use causeway_wire::relocation::LinkState;
use thiserror::Error;

use super::memory::{MemoryRange, Unreadable};
use super::stages::Stages;
use super::{code, memory};
use crate::state_file::{CodeRecord, CommandRecord, MAX_PIECE, Record, StateHeader, StateWriter};
use crate::worker::engine::Engine;
use crate::worker::session::describe;

/// Why the state was not written; sentences for people.
#[derive(Debug, Error)]
pub enum NotWritten {
    /// The file takes no more.
    #[error("cannot write its state: {0}")]
    File(#[from] io::Error),
    /// The memory cannot be read.
    #[error("cannot read device memory at {address:#x}: {why}")]
    Memory {
        /// The address.
        address: u64,
        /// What the back end said.
        why: String,
    },
    /// Memory of the program that kernels reach cannot be read.
    #[error("cannot read memory of the program that kernels can access: {}", describe(*.0))]
    Mirror(CUresult),
    /// There is memory of a device of which the session has no context.
    #[error("it has device memory but no context to read it with")]
    NoContext,
    /// The devices cannot be described.
    #[error("cannot describe the server's GPUs: {0}")]
    Snapshot(String),
}

impl From<Unreadable> for NotWritten {
    fn from(Unreadable { address, why }: Unreadable) -> Self {
        Self::Memory { address, why }
    }
}

impl From<CUresult> for NotWritten {
    fn from(status: CUresult) -> Self {
        Self::Mirror(status)
    }
}

/// Writes the state of a session at rest, and says how many bytes that are.
///
/// # Errors
/// Why it is not written.
pub fn write(
    engine: &Arc<Engine>,
    header: &StateHeader,
    link: LinkState,
    mut code: Vec<CodeRecord>,
    file: OwnedFd,
) -> Result<u64, NotWritten> {
    let (session, journal) = (engine.session(), engine.journal());
    let mut stages = Stages::begin("written");
    code::read_pointers(session, &mut code).map_err(|(address, why)| NotWritten::Memory { address, why })?;
    let mut out = StateWriter::begin(BufWriter::with_capacity(64 << 10, File::from(file)), header)?;
    let snapshot = session.gpu().snapshot().map_err(|error| NotWritten::Snapshot(describe(error)))?;
    out.write(&Record::Snapshot(encoded(&snapshot)))?;
    let frames = link.frames;
    let link = LinkState { frames: Vec::new(), ..link };
    let mut bytes = Vec::new();
    link.encode(&mut bytes);
    out.write(&Record::Link(bytes))?;
    frames.into_iter().try_for_each(|frame| out.write(&Record::Frame(frame)))?;

    let entries = journal.entries();
    let mut images = HashMap::new();
    for image in entries.iter().filter_map(|entry| entry.image.as_ref()) {
        let next = images.len() as u32;
        if *images.entry(Arc::as_ptr(image)).or_insert(next) != next {
            continue;
        }
        for piece in image.contents().chunks(MAX_PIECE) {
            out.write(&Record::Image { number: next, bytes: piece.to_vec() })?;
        }
    }
    stages.end("devices, link and images");
    code.iter().flat_map(pieces).try_for_each(|piece| out.write(&Record::Code(piece)))?;
    for entry in &entries {
        let image = entry.image.as_ref().and_then(|image| images.get(&Arc::as_ptr(image)).copied());
        out.write(&Record::Command(CommandRecord {
            context: entry.context,
            opcode: entry.opcode as u16,
            arguments: entry.arguments.to_vec(),
            image,
            reply: entry.reply.as_ref().map(|reply| reply.to_vec()),
        }))?;
    }
    for recorded in journal.recorded() {
        let (event, stream) = (recorded.event, recorded.stream);
        out.write(&Record::Recorded { event, stream, flags: recorded.flags, context: recorded.context })?;
    }
    let incoming = engine.uploads().incoming();
    out.write(&Record::Taken(incoming.taken()))?;
    incoming.each_arrived(|number, buffer| {
        let contents = buffer.contents();
        let pieces = contents.chunks(MAX_PIECE).map(<[u8]>::to_vec);
        // An empty one is a transfer, too.
        let pieces = pieces.chain(contents.is_empty().then(Vec::new));
        pieces.into_iter().try_for_each(|bytes| out.write(&Record::Transfer { number, bytes }))
    })?;

    // By the device of each context its memory is read there.
    let contexts: Vec<(i32, u64)> = entries
        .iter()
        .filter(|entry| matches!(entry.opcode, Opcode::primary_context_retain | Opcode::context_create))
        .filter_map(|entry| {
            let mut input = causeway_wire::codec::Decoder::new(&entry.arguments);
            let (context, device) = input.value::<(u64, i32)>().ok()?;
            Some((device, context))
        })
        .collect();
    let context_of = |device: i32| {
        let own = contexts.iter().find(|(of, _)| *of == device).or_else(|| contexts.first());
        own.map(|(_, context)| *context).ok_or(NotWritten::NoContext)
    };
    let of_code = code.iter().flat_map(|code| code.ranges.iter().map(|range| (code.context, *range)));
    // New memory is zero; variables have their first values where code is loaded.
    let mut ranges: Vec<MemoryRange> = of_code
        .map(|(context, (address, bytes))| MemoryRange { context, address, bytes, is_zero_before: false })
        .collect();
    for range in journal.memory() {
        let (context, address, bytes) = (context_of(range.device)?, range.address, range.bytes);
        ranges.push(MemoryRange { context, address, bytes, is_zero_before: true });
    }
    // Whoever takes the session up loads its code meanwhile.
    out.flush()?;
    stages.end("commands");
    memory::read_all(session, &ranges, |record| Ok::<(), NotWritten>(out.append(record)?))?;
    stages.end("device memory");
    engine.mirrors().each_part(MAX_PIECE, |part| -> Result<(), NotWritten> {
        let (bytes, agreed) = (part.bytes.to_vec(), part.agreed.to_vec());
        Ok(out.write(&Record::Mirror { address: part.address, at: part.at, bytes, agreed })?)
    })?;
    Ok(out.finish()?)
}

/// A record in pieces that are not too long; those that follow each other and name the same code belong together.
fn pieces(code: &CodeRecord) -> Vec<CodeRecord> {
    let first = CodeRecord { variables: Vec::new(), ..code.clone() };
    let mut pieces = vec![first.clone()];
    let mut bytes = 0;
    for variable in &code.variables {
        bytes += variable.name.len() + 32 + variable.pointers.len() * 16;
        if bytes > MAX_PIECE {
            pieces.push(CodeRecord { ranges: Vec::new(), ..first.clone() });
            bytes = 0;
        }
        if let Some(last) = pieces.last_mut() {
            last.variables.push(variable.clone());
        }
    }
    pieces
}

fn encoded(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.encode(&mut bytes);
    bytes
}
