//! A session made of the state that another worker has written.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use causeway_api::calls::{Opcode, Request};
use causeway_api::handle::{Context, Handle, Library};
use causeway_api::snapshot::Snapshot;
use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, Gpu};
use causeway_wire::codec::{Decoder, Encode as _};
use causeway_wire::relocation::LinkState;
use thiserror::Error;

use super::code::{self, NotFound, Relocation};
use super::memory;
use super::stages::Stages;
use crate::state_file::{CodeRecord, CommandRecord, RawRecord, Record, StateFileError, StateReader};
use crate::worker::engine::Engine;
use crate::worker::incoming::Buffer;
use crate::worker::journal::Entry;
use crate::worker::memory::mirrors::carry::MirrorPart;
use crate::worker::session::describe;

/// The most bytes of frames that a client may not have: a worker keeps no more.
const MAX_FRAME_BYTES: usize = 272 << 20;

/// Why a session cannot be made here; sentences for people.
#[derive(Debug, Error)]
pub enum NotRestored {
    /// The state is none.
    #[error(transparent)]
    File(#[from] StateFileError),
    /// The devices differ.
    #[error(
        "the GPUs here differ from those that the program has seen: {0}; choose a server with GPUs of the \
         same kind"
    )]
    Devices(String),
    /// A command fails that went well before.
    #[error("{command} fails here: {}", describe(*.status))]
    Command {
        /// The command.
        command: &'static str,
        /// What the back end said.
        status: CUresult,
    },
    /// Variables lie elsewhere.
    #[error(
        "loaded code has different variables here, or different addresses from those that the program knows \
         (module or library {0:#x}); choose a server with the same driver"
    )]
    Variables(u64),
    /// The driver has loaded something else.
    #[error(
        "the code that the program has loaded cannot be examined here: {0}; choose a server with the same driver"
    )]
    Code(String),
    /// The program knows where a variable lies.
    #[error(
        "its program knows the address of the variable `{name}` of loaded code, {known:#x}, and here its \
         address is {found:#x}"
    )]
    KnownAddress {
        /// The variable.
        name: String,
        /// Its address.
        known: u64,
        /// Its address here.
        found: u64,
    },
    /// Memory may hold the address of a variable.
    #[error(
        "device memory at {address:#x} holds a value that may be the address of a variable of loaded code \
         ({value:#x}), which has a different address here"
    )]
    Suspect {
        /// Where.
        address: u64,
        /// What is there.
        value: u64,
    },
    /// A variable holds the address of a function.
    #[error(
        "the variable `{0}` of loaded code holds the address of a device function, which has a different \
         address here"
    )]
    Function(String),
    /// Memory cannot be written.
    #[error("cannot write device memory at {address:#x}: {why}")]
    Memory {
        /// The address.
        address: u64,
        /// What the back end said.
        why: String,
    },
    /// The parts do not fit each other.
    #[error("the state is inconsistent: {0}")]
    Senseless(&'static str),
}

impl NotRestored {
    /// Whether it could be made once the device has more free memory.
    pub fn lacks_memory(&self) -> bool {
        matches!(self, Self::Command { status: CUresult::CUDA_ERROR_OUT_OF_MEMORY, .. })
    }
}

/// The link of a session, and what its client knows of the devices.
pub struct LinkPart {
    /// The link.
    pub link: LinkState,
    /// The devices.
    pub snapshot: Snapshot,
    /// What was read behind it.
    next: Option<Record>,
}

/// Reads what is needed before there is an engine.
///
/// # Errors
/// When the state is none.
pub fn read_link<R: Read>(input: &mut StateReader<R>) -> Result<LinkPart, NotRestored> {
    let (Some(Record::Snapshot(snapshot)), Some(Record::Link(link))) = (input.read()?, input.read()?) else {
        return Err(NotRestored::Senseless("it does not begin with devices and link"));
    };
    let snapshot = Decoder::new(&snapshot).value().map_err(StateFileError::from)?;
    let mut link: LinkState = Decoder::new(&link).value().map_err(StateFileError::from)?;
    let mut bytes = 0;
    let next = loop {
        match input.read()? {
            Some(Record::Frame(frame)) => {
                bytes += frame.len();
                if bytes > MAX_FRAME_BYTES {
                    return Err(NotRestored::Senseless("it has too many frames"));
                }
                link.frames.push(frame);
            }
            other => break other,
        }
    };
    if !link.is_consistent() {
        return Err(NotRestored::Senseless("the numbers of its link do not fit each other"));
    }
    Ok(LinkPart { link, snapshot, next })
}

/// Whether a client that knows `before` can go on with `here`.
///
/// # Errors
/// What differs, for people.
pub fn compare(before: &Snapshot, here: &Snapshot) -> Result<(), NotRestored> {
    let differ = |what: String| Err(NotRestored::Devices(what));
    if before.devices.len() != here.devices.len() {
        return differ(format!("{} instead of {}", here.devices.len(), before.devices.len()));
    }
    if before.machine_code != here.machine_code {
        return differ(format!("{} instead of {}", here.backend, before.backend));
    }
    if before.driver_version != here.driver_version {
        return differ(format!(
            "driver version {} instead of {}",
            here.driver_version, before.driver_version
        ));
    }
    for (known, device) in before.devices.iter().zip(&here.devices) {
        if known.name != device.name || known.attributes != device.attributes {
            return differ(format!("{} instead of {}, or with other attributes", device.name, known.name));
        }
        if known.total_memory > device.total_memory {
            return differ(format!(
                "{} bytes of memory instead of {}",
                device.total_memory, known.total_memory
            ));
        }
    }
    let windows =
        |snapshot: &Snapshot| (snapshot.host_window, snapshot.managed_window, snapshot.device_window);
    if windows(before) != windows(here) {
        return differ("memory gets other addresses here, as the server was started differently".to_owned());
    }
    Ok(())
}

/// Makes the session's objects and memory. `part` is what was read before.
///
/// # Errors
/// Why that is not possible here.
pub fn restore<R: Read>(
    engine: &Arc<Engine>,
    input: &mut StateReader<R>,
    next: Option<Record>,
) -> Result<(), NotRestored> {
    let mut making = Making {
        engine,
        images: HashMap::new(),
        code: Vec::new(),
        are_loaded: Vec::new(),
        relocation: None,
        transfers: HashMap::new(),
        accumulated: 0,
    };
    let mut stages = Stages::begin("taken up");
    let Some(first) = next else { return making.finish() };
    making.take(first)?;
    let mut raw = input.next()?;
    while !raw.is_end() {
        if raw.is_memory() {
            stages.end("commands");
            let relocation = making.relocation()?;
            stages.end("variables");
            let take = |raw: &RawRecord| write_record(engine, relocation, raw);
            let (checksum, next) = memory::write_all(raw, || Ok(input.next()?), take)?;
            input.add(&checksum);
            stages.end("device memory");
            raw = next;
        } else {
            input.add(&raw.checksum());
            making.take(raw.decode()?)?;
            raw = input.next()?;
        }
    }
    input.verify(&raw)?;
    making.finish()
}

impl LinkPart {
    /// Its parts.
    pub fn into_parts(self) -> (LinkState, Snapshot, Option<Record>) {
        (self.link, self.snapshot, self.next)
    }
}

/// The most bytes of images, code records and transfers under way that a state may bring: what a client of its own may
/// have sent and not used. Compressed records are some hundred times smaller.
const MAX_ACCUMULATED: u64 = 4 << 30;

/// Code that commands load.
enum Image {
    /// Pieces that have come.
    Growing(Vec<u8>),
    /// What commands share that load it.
    Whole(Arc<Buffer>),
}

struct Making<'a> {
    engine: &'a Arc<Engine>,
    images: HashMap<u32, Image>,
    code: Vec<CodeRecord>,
    are_loaded: Vec<bool>,
    /// Once all code is loaded: where its variables lie.
    relocation: Option<Relocation>,
    transfers: HashMap<u64, Vec<u8>>,
    /// Bytes that are kept until the state has ended.
    accumulated: u64,
}

impl Making<'_> {
    /// Counts bytes that are kept.
    fn keep(&mut self, bytes: usize) -> Result<(), NotRestored> {
        self.accumulated = self.accumulated.saturating_add(bytes as u64);
        if self.accumulated > MAX_ACCUMULATED {
            return Err(NotRestored::Senseless("it has more code and transfers than a session may have"));
        }
        Ok(())
    }

    fn gpu(&self) -> &dyn Gpu {
        self.engine.session().gpu()
    }

    fn take(&mut self, record: Record) -> Result<(), NotRestored> {
        match record {
            Record::Image { number, bytes } => {
                self.keep(bytes.len())?;
                match self.images.entry(number).or_insert_with(|| Image::Growing(Vec::new())) {
                    Image::Growing(image) => image.extend(bytes),
                    Image::Whole(_) => return Err(NotRestored::Senseless("an image grows after its use")),
                }
            }
            Record::Code(code) => {
                self.keep(size_of_val(&*code.ranges) + size_of_val(&*code.variables) + size_of_val(&code))?;
                match self.code.last_mut() {
                    Some(last) if last.is_of_the_same(&code) => {
                        last.ranges.extend(code.ranges);
                        last.variables.extend(code.variables);
                    }
                    _ => {
                        self.code.push(code);
                        self.are_loaded.push(false);
                    }
                }
            }
            Record::Command(command) => self.command(command)?,
            Record::Recorded { event, stream, flags, context } => {
                let mut arguments = Vec::new();
                (event, stream, flags).encode(&mut arguments);
                let entry = Entry::again(context, Opcode::event_record, arguments.into(), None, None);
                let recorded = self.engine.replay(&entry);
                recorded.map_err(|error| failed(Opcode::event_record, error))?;
            }
            Record::Taken(numbers) => {
                self.keep(size_of_val(&*numbers))?;
                self.engine.uploads().incoming().set_stale(numbers);
            }
            Record::Transfer { number, bytes } => {
                self.keep(bytes.len())?;
                self.transfers.entry(number).or_default().extend(bytes);
            }
            Record::Memory { context, address, bytes } => {
                let engine = self.engine;
                write_piece(engine, self.relocation()?, context, address, &bytes)?;
            }
            Record::Mirror { address, at, bytes, agreed } => {
                if let Some((address, value)) = self.relocation()?.suspect(address.wrapping_add(at), &bytes) {
                    return Err(NotRestored::Suspect { address, value });
                }
                let part = MirrorPart { address, at, bytes: &bytes, agreed: &agreed };
                self.engine
                    .mirrors()
                    .set_part(&part)
                    .map_err(|error| NotRestored::Memory { address, why: describe(error) })?;
            }
            Record::Snapshot(_) | Record::Link(_) | Record::Frame(_) => {
                return Err(NotRestored::Senseless("its link comes twice"));
            }
        }
        Ok(())
    }

    fn command(&mut self, record: CommandRecord) -> Result<(), NotRestored> {
        let opcode = Opcode::from_number(record.opcode)
            .ok_or(NotRestored::Senseless("it names a command that this release does not know"))?;
        let image = match record.image {
            Some(number) => {
                let image =
                    self.images.get_mut(&number).ok_or(NotRestored::Senseless("an image is missing"))?;
                if let Image::Growing(bytes) = image {
                    *image = Image::Whole(Arc::new(Buffer::Plain(core::mem::take(bytes))));
                }
                let Image::Whole(image) = image else { unreachable!("it was made whole") };
                Some(Arc::clone(image))
            }
            None => None,
        };
        let entry = Entry::again(
            record.context,
            opcode,
            record.arguments.into(),
            image,
            record.reply.map(Into::into),
        );
        let request = Request::decode(opcode, &entry.arguments).map_err(StateFileError::from)?;
        if let Request::module_load(load) = &request
            && let Some(code) = self.code.iter().find(|code| code.owner == load.module.value())
            && code.variables.is_empty()
        {
            let addresses = code.ranges.iter().map(|(address, _)| *address).collect();
            self.engine.session().gpu().fix_next_module(addresses);
        }
        self.engine.client_memory().await_arrival(&request);
        self.engine.replay(&entry).map_err(|error| match &request {
            // It has answered something else.
            Request::module_global(global) if error == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS => {
                let module = self.engine.session().objects().native(global.module);
                let found = module.and_then(|module| self.gpu().module_global(module, global.name));
                other_address(global.name, &entry, found)
            }
            Request::library_global(global) if error == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS => {
                let library = self.engine.session().objects().native(global.library);
                let found = library.and_then(|library| self.gpu().library_global(library, global.name));
                other_address(global.name, &entry, found)
            }
            _ => failed(opcode, error),
        })?;
        // Modules of libraries lie where they did before anything else may load them.
        match request {
            Request::library_load(_) | Request::primary_context_retain(_) | Request::context_create(_) => {
                self.load_libraries()
            }
            _ => Ok(()),
        }
    }

    /// Loads the libraries into the contexts in which they were, as far as both are there.
    fn load_libraries(&mut self) -> Result<(), NotRestored> {
        let session = self.engine.session();
        for (code, is_loaded) in self.code.iter().zip(&mut self.are_loaded) {
            let library = session.objects().native(Handle::<Library>::from_value(code.owner));
            let context = Handle::<Context>::from_value(code.context);
            let (Ok(library), Ok(_)) = (library, session.objects().native(context)) else { continue };
            if *is_loaded || !code.is_library || !code.variables.is_empty() {
                continue;
            }
            *is_loaded = true;
            let addresses: Vec<u64> = code.ranges.iter().map(|(address, _)| *address).collect();
            let load = || -> CuResult<()> {
                session.enter_context(context)?;
                session.gpu().load_library_at(library, &addresses)
            };
            load().map_err(|_| NotRestored::Variables(code.owner))?;
        }
        Ok(())
    }

    /// Where the variables of code lie, which is all loaded now.
    fn relocation(&mut self) -> Result<&Relocation, NotRestored> {
        if self.relocation.is_none() {
            let session = self.engine.session();
            let now = code::find(self.engine).map_err(NotRestored::Code)?;
            let read = |context: u64, address: u64| {
                let mut word = [0; 8];
                memory::read(session, Handle::from_value(context), address, &mut word).ok()?;
                Some(u64::from_le_bytes(word))
            };
            let found = Relocation::new(&self.code, &now, read).map_err(|why| match why {
                NotFound::Variables(owner) => NotRestored::Variables(owner),
                NotFound::Function(name) => NotRestored::Function(name),
            })?;
            let moved = found.first_moved();
            tracing::info!(variables = found.count(), ?moved, "variables of loaded code");
            self.relocation = Some(found);
        }
        Ok(self.relocation.get_or_insert_default())
    }

    fn finish(mut self) -> Result<(), NotRestored> {
        let engine = self.engine;
        for (context, address, value) in self.relocation()?.pointers() {
            write_memory(engine, *context, *address, &value.to_le_bytes())?;
        }
        for (number, bytes) in self.transfers {
            if !self.engine.uploads().incoming().take_up(number, bytes) {
                return Err(NotRestored::Senseless("too many bytes wait for their commands"));
            }
        }
        Ok(())
    }
}

/// Writes a record of device memory.
fn write_record(engine: &Engine, relocation: &Relocation, raw: &RawRecord) -> Result<(), NotRestored> {
    let Record::Memory { context, address, bytes } = raw.decode()? else {
        return Err(NotRestored::Senseless("memory is something else"));
    };
    write_piece(engine, relocation, context, address, &bytes)
}

/// Writes a piece of device memory, to where its variables are now if it is of code.
fn write_piece(
    engine: &Engine,
    relocation: &Relocation,
    context: u64,
    address: u64,
    bytes: &[u8],
) -> Result<(), NotRestored> {
    if let Some((address, value)) = relocation.suspect(address, bytes) {
        return Err(NotRestored::Suspect { address, value });
    }
    let parts = if relocation.is_of_code(address) {
        relocation.parts(address, bytes.len() as u64)
    } else {
        vec![(address, bytes.len(), address)]
    };
    for (before, length, now) in parts {
        let part = bytes.get((before - address) as usize..).and_then(|rest| rest.get(..length));
        let part = part.ok_or(NotRestored::Senseless("a variable is longer than what there is of it"))?;
        write_memory(engine, context, now, part)?;
    }
    Ok(())
}

fn write_memory(engine: &Engine, context: u64, address: u64, bytes: &[u8]) -> Result<(), NotRestored> {
    memory::write(engine.session(), Handle::from_value(context), address, bytes)
        .map_err(|error| NotRestored::Memory { address, why: describe(error) })
}

/// The refusal of a variable that the program has asked for, and that is `found` somewhere else.
fn other_address(name: &str, entry: &Entry, found: CuResult<(u64, usize)>) -> NotRestored {
    let known = entry.reply.as_ref().and_then(|reply| Decoder::new(reply).value::<u64>().ok());
    NotRestored::KnownAddress {
        name: name.to_owned(),
        known: known.unwrap_or_default(),
        found: found.map(|(address, _)| address).unwrap_or_default(),
    }
}

fn failed(command: Opcode, error: CUresult) -> NotRestored {
    NotRestored::Command { command: command.name(), status: error }
}
