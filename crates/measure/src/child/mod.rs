//! Measuring process: runs one case and checks its content. It calls the CUDA driver as a program does, and
//! takes requests from its standard input.

use std::io;
use std::path::Path;

mod calls;
mod clock;
mod copies;
mod driver;
mod error;
mod memory;
mod plans;
pub mod tuner;

use crate::case::Case;
use crate::protocol::{self, Introduction, MessageError, Reply, Request, Samples};
use calls::{Kernel, Waiting};
use clock::Measured;
use copies::Copies;
use driver::{DriverError, Gpu};
use error::CaseError;
use plans::{Plans, PlansError};

/// A case with its buffers.
#[derive(Debug)]
enum Prepared {
    Copies(Copies),
    Waiting(Waiting),
    Launches(Kernel),
}

impl Prepared {
    fn new(gpu: &'static Gpu, case: Case) -> Result<Self, CaseError> {
        let too_large = |_| CaseError::Refused("the size does not fit this machine's addresses".to_owned());
        let mut prepared = match case {
            Case::Copy { path, bytes } => {
                Self::Copies(Copies::new(gpu, path, usize::try_from(bytes).map_err(too_large)?)?)
            }
            Case::Wait { wait } => Self::Waiting(Waiting::new(gpu, wait)?),
            Case::Launches { arguments } => Self::Launches(Kernel::new(gpu, arguments)?),
        };
        match &mut prepared {
            Self::Copies(copies) => copies.verify(),
            Self::Waiting(waiting) => waiting.verify(),
            Self::Launches(kernel) => kernel.verify(),
        }?;
        Ok(prepared)
    }

    fn measure(&mut self) -> Result<Measured, DriverError> {
        match self {
            Self::Copies(copies) => copies.measure(),
            Self::Waiting(waiting) => waiting.measure(),
            Self::Launches(kernel) => kernel.measure_row(),
        }
    }

    fn samples(&mut self, untimed: u32, timed: u32) -> Result<Samples, DriverError> {
        for _ in 0..untimed {
            self.measure()?;
        }
        let mut samples = Samples::default();
        for _ in 0..timed {
            let Measured { returned_us, done_us, processor_s } = self.measure()?;
            samples.returned_us.push(returned_us);
            samples.done_us.push(done_us);
            samples.processor_s.push(processor_s);
        }
        Ok(samples)
    }
}

fn introduce(gpu: &Gpu) -> Result<Introduction, DriverError> {
    Ok(Introduction {
        library: gpu.library.display().to_string(),
        device: gpu.device_name()?,
        devices: gpu.devices()?,
        driver_version: gpu.version()?,
    })
}

/// Carries copies by these plans from now on. `known` keeps what is looked up in the library.
fn use_plans(known: &mut Option<Plans>, library: &Path, plans: Option<&str>) -> Result<(), PlansError> {
    let known = match known {
        Some(known) => known,
        None => known.insert(Plans::of_library(library)?),
    };
    known.choose(plans)
}

/// Measures what standard input asks for, with this library, until standard input ends. `native` says that
/// the library must be NVIDIA's own.
///
/// # Errors
/// When the parent cannot be understood, or does not listen.
pub fn serve(library: &Path, native: bool) -> Result<(), MessageError> {
    let mut requests = io::stdin().lock();
    let mut replies = io::stdout().lock();
    let opened = Gpu::open(library, native).and_then(|gpu| Ok((introduce(&gpu)?, gpu)));
    let (introduction, gpu) = match opened {
        Ok(opened) => opened,
        Err(error) => return protocol::write(&mut replies, &Reply::Unable { reason: error.to_string() }),
    };
    // The driver lives as long as the process.
    let gpu: &'static Gpu = Box::leak(Box::new(gpu));
    protocol::write(&mut replies, &Reply::Ready(introduction))?;
    let (mut prepared, mut known_plans) = (None, None);
    while let Some(request) = protocol::read(&mut requests)? {
        let reply = match request {
            Request::Prepare { case } => {
                // The buffers of the case before go first.
                drop(prepared.take());
                match Prepared::new(gpu, case) {
                    Ok(ready) => {
                        prepared = Some(ready);
                        Reply::Prepared
                    }
                    Err(error) => error.reply(gpu),
                }
            }
            Request::UsePlans { plans } => match use_plans(&mut known_plans, library, plans.as_deref()) {
                Ok(()) => Reply::Prepared,
                Err(error) => Reply::Unable { reason: error.to_string() },
            },
            Request::Measure { untimed, timed } => match &mut prepared {
                Some(prepared) => match prepared.samples(untimed, timed) {
                    Ok(samples) => Reply::Measured(samples),
                    Err(error) => CaseError::from(error).reply(gpu),
                },
                None => Reply::Refused { reason: "nothing was prepared".to_owned() },
            },
        };
        protocol::write(&mut replies, &reply)?;
    }
    Ok(())
}
