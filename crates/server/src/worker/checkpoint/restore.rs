//! A session made of the state that another worker has written.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use causeway_api::calls::{Opcode, Request};
use causeway_api::handle::{Context, Handle, Library};
use causeway_api::snapshot::Snapshot;
use causeway_api::sys::CUresult;
use causeway_gpu::CuResult;
use causeway_wire::codec::{Decoder, Encode as _};
use causeway_wire::relocation::LinkState;
use thiserror::Error;

use super::memory;
use super::write::code_of;
use crate::state_file::{CodeRecord, CommandRecord, Record, StateFileError, StateReader};
use crate::worker::engine::Engine;
use crate::worker::incoming::Buffer;
use crate::worker::journal::Entry;
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
    #[error("the GPUs here differ from those that the program knows: {0}")]
    Devices(String),
    /// A command fails that went well before.
    #[error("{command} fails here: {why}")]
    Command {
        /// The command.
        command: &'static str,
        /// What the back end said.
        why: String,
    },
    /// Variables lie elsewhere.
    #[error(
        "variables of loaded code would have other addresses here than those that the program knows (module or library {0:#x})"
    )]
    Variables(u64),
    /// Memory cannot be written.
    #[error("device memory at {address:#x} cannot be written: {why}")]
    Memory {
        /// The address.
        address: u64,
        /// What the back end said.
        why: String,
    },
    /// The parts do not fit each other.
    #[error("the state makes no sense: {0}")]
    Senseless(&'static str),
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
        transfers: HashMap::new(),
    };
    let mut next = next;
    while let Some(record) = next {
        making.take(record)?;
        next = input.read()?;
    }
    making.finish()
}

impl LinkPart {
    /// Its parts.
    pub fn into_parts(self) -> (LinkState, Snapshot, Option<Record>) {
        (self.link, self.snapshot, self.next)
    }
}

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
    transfers: HashMap<u64, Vec<u8>>,
}

impl Making<'_> {
    fn take(&mut self, record: Record) -> Result<(), NotRestored> {
        let session = self.engine.session();
        match record {
            Record::Image { number, bytes } => {
                match self.images.entry(number).or_insert_with(|| Image::Growing(Vec::new())) {
                    Image::Growing(image) => image.extend(bytes),
                    Image::Whole(_) => return Err(NotRestored::Senseless("an image grows after its use")),
                }
            }
            Record::Code(code) => {
                self.code.push(code);
                self.are_loaded.push(false);
            }
            Record::Command(command) => self.command(command)?,
            Record::Recorded { event, stream, flags, context } => {
                let mut arguments = Vec::new();
                (event, stream, flags).encode(&mut arguments);
                let entry = Entry::again(context, Opcode::event_record, arguments.into(), None, None);
                let recorded = self.engine.replay(&entry);
                recorded.map_err(|error| failed(Opcode::event_record, error))?;
            }
            Record::Taken(numbers) => self.engine.uploads().incoming().set_stale(numbers),
            Record::Transfer { number, bytes } => self.transfers.entry(number).or_default().extend(bytes),
            Record::Memory { context, address, bytes } => {
                memory::write(session, Handle::from_value(context), address, &bytes)
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
        {
            let addresses = code.ranges.iter().map(|(address, _)| *address).collect();
            self.engine.session().gpu().fix_next_module(addresses);
        }
        self.engine.replay(&entry).map_err(|error| failed(opcode, error))?;
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
            if *is_loaded || !code.is_library {
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

    fn finish(self) -> Result<(), NotRestored> {
        for (number, bytes) in self.transfers {
            if !self.engine.uploads().incoming().take_up(number, bytes) {
                return Err(NotRestored::Senseless("too many bytes wait for their commands"));
            }
        }
        let session = self.engine.session();
        let found = session.gpu().code_memory().map(|found| code_of(session, &found)).unwrap_or_default();
        for code in &self.code {
            if !found.contains(code) {
                return Err(NotRestored::Variables(code.owner));
            }
        }
        Ok(())
    }
}

fn failed(command: Opcode, error: CUresult) -> NotRestored {
    NotRestored::Command { command: command.name(), why: describe(error) }
}
