//! What the steps share: a session's objects, commands through `dispatch`, and waiting.

use causeway_api::calls::{self, Call, Opcode, Request};
use causeway_api::handle::{Context, Function, Handle, Kind, Library, Module, Native, Stream};
use causeway_api::image::Form;
use causeway_api::sys::CUresult;
use causeway_api::types::{FunctionInfo, JitOptions, LaunchAttribute, LaunchShape, Payload, Region};
use causeway_gpu::objects::Objects;
use causeway_gpu::{Completion, CuResult, Gpu, Staging, dispatch};
use causeway_gpu_driver::Driver;
use causeway_wire::codec::Decoder;
use std::cell::Cell;
use std::fmt;
use std::sync::mpsc;
use std::time::Duration;

/// Longer than anything here takes.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a step failed.
#[derive(Debug)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<CUresult> for Failure {
    fn from(status: CUresult) -> Self {
        let name = causeway_api::errors::name(status).map_or("unknown".into(), |name| name.to_string_lossy());
        Self(format!("{name} ({})", status.0))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// What a step tells, or why it failed.
pub type Outcome = Result<String, Failure>;

/// Fails with `text` unless `condition` holds.
pub fn check(condition: bool, text: impl FnOnce() -> String) -> Result<(), Failure> {
    if condition { Ok(()) } else { Err(Failure(text())) }
}

pub struct Session {
    pub driver: Driver,
    pub objects: Objects,
    /// The primary context of device 0.
    pub context: Native<Context>,
    next: Cell<u32>,
}

impl Session {
    /// Retains the primary context of device 0 and makes it current.
    pub fn open(driver: Driver) -> Result<Self, Failure> {
        let (objects, context) = (Objects::default(), Native::NULL);
        let mut session = Self { driver, objects, context, next: Cell::new(0) };
        let context = session.handle();
        session.call(calls::primary_context_retain { context, device: 0, flags: 0 })?;
        session.context = session.objects.native(context)?;
        session.driver.make_current(session.context)?;
        Ok(session)
    }

    /// A new handle, as a client makes it.
    pub fn handle<K: Kind>(&self) -> Handle<K> {
        let index = self.next.get();
        self.next.set(index + 1);
        Handle::new(index, 1)
    }

    pub fn call<C: Call>(&self, command: C) -> Result<C::Reply, Failure> {
        self.call_with(command, &[])
    }

    /// Encodes a command, carries it out as the worker does, and decodes its reply.
    pub fn call_with<C: Call>(&self, command: C, payload: &[u8]) -> Result<C::Reply, Failure> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let name = Opcode::name(C::OPCODE);
        let request = Request::decode(C::OPCODE, &bytes).map_err(|error| format!("{name}: {error}"))?;
        let mut reply = Vec::new();
        dispatch(&self.driver, &self.objects, &request, payload, &mut reply)
            .map_err(|status| format!("{name}: {}", Failure::from(status)))?;
        Decoder::new(&reply).value().map_err(|error| Failure(format!("{name}: reply: {error}")))
    }

    /// Asks for a completion by `ask` and waits for it.
    pub fn wait(&self, ask: impl FnOnce(Completion) -> CuResult<()>) -> Result<(), Failure> {
        let (sender, result) = mpsc::channel();
        ask(Box::new(move |status| {
            let _ = sender.send(status);
        }))?;
        match result.recv_timeout(STEP_TIMEOUT) {
            Ok(status) => Ok(status?),
            Err(_) => Err(Failure("a completion was not called".into())),
        }
    }

    pub fn finish(&self, stream: Handle<Stream>) -> Result<(), Failure> {
        let stream = self.objects.native(stream)?;
        self.wait(|done| self.driver.after(stream, done))
    }

    pub fn finish_all(&self) -> Result<(), Failure> {
        self.wait(|done| self.driver.after_context(done))
    }

    pub fn stream(&self, flags: u32) -> Result<Handle<Stream>, Failure> {
        let stream = self.handle();
        self.call(calls::stream_create { stream, flags, priority: 0 })?;
        Ok(stream)
    }

    pub fn module(&self, form: Form, image: &[u8]) -> Result<Handle<Module>, Failure> {
        let module = self.handle();
        let form = form.number();
        self.call_with(
            calls::module_load { module, form, options: JitOptions::default(), image: Payload::Inline(&[]) },
            image,
        )?;
        Ok(module)
    }

    pub fn library(&self, image: &[u8]) -> Result<Handle<Library>, Failure> {
        let library = self.handle();
        let form = Form::Single.number();
        self.call_with(
            calls::library_load {
                library,
                form,
                options: JitOptions::default(),
                image: Payload::Inline(&[]),
            },
            image,
        )?;
        Ok(library)
    }

    pub fn function(
        &self,
        module: Handle<Module>,
        name: &str,
    ) -> Result<(Handle<Function>, FunctionInfo), Failure> {
        let function = self.handle();
        let info = self.call(calls::module_function { function, module, name })?;
        Ok((function, info))
    }

    pub fn launch(
        &self,
        function: Handle<Function>,
        [grid, block]: [u32; 2],
        stream: Handle<Stream>,
        params: &[u8],
    ) -> Result<(), Failure> {
        self.launch_with(function, [grid, block], stream, Vec::new(), params)
    }

    pub fn launch_with(
        &self,
        function: Handle<Function>,
        [grid, block]: [u32; 2],
        stream: Handle<Stream>,
        attributes: Vec<LaunchAttribute>,
        params: &[u8],
    ) -> Result<(), Failure> {
        let shape = LaunchShape { grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes: 0 };
        self.call(calls::launch { function, shape, stream, attributes, params })
    }

    pub fn allocate(&self, size: usize) -> Result<u64, Failure> {
        self.call(calls::memory_allocate { size })
    }

    pub fn free(&self, address: u64) -> Result<(), Failure> {
        self.finish_all()?;
        Ok(self.driver.memory_free(address)?)
    }

    /// Copies bytes to the device and waits.
    pub fn write(&self, region: &Region, bytes: &[u8]) -> Result<(), Failure> {
        let mut staging: Staging = self.driver.staging(bytes.len())?;
        staging.as_mut_slice().copy_from_slice(bytes);
        let stream = self.objects.native(Handle::NULL)?;
        // SAFETY: `staging` has the region's bytes and lives until the stream is done.
        unsafe { self.driver.start_copy_to_device(&(*region).into(), staging.as_ptr(), stream)? };
        self.finish(Handle::NULL)
    }

    /// Copies bytes from the device and waits.
    pub fn read(&self, region: &Region) -> Result<Vec<u8>, Failure> {
        let bytes = region.bytes().unwrap_or_default() as usize;
        let staging = self.driver.staging(bytes)?;
        let stream = self.objects.native(Handle::NULL)?;
        // SAFETY: `staging` has the region's bytes and lives until the stream is done.
        unsafe { self.driver.start_copy_from_device(&(*region).into(), staging.as_ptr(), stream)? };
        self.finish(Handle::NULL)?;
        Ok(staging.as_slice().to_vec())
    }

    pub fn read_u32(&self, address: u64) -> Result<u32, Failure> {
        let bytes = self.read(&Region::linear(address, 4))?;
        Ok(u32::from_le_bytes(*bytes.first_chunk().ok_or_else(|| "nothing was read".to_owned())?))
    }

    pub fn write_u32(&self, address: u64, value: u32) -> Result<(), Failure> {
        self.write(&Region::linear(address, 4), &value.to_le_bytes())
    }
}
