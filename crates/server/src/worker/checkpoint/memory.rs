//! Device memory of a session at rest: read and written piece by piece.

use std::time::Duration;

use causeway_api::handle::{Context, Handle, Native};
use causeway_api::sys::CUresult;
use causeway_api::types::Region;
use causeway_gpu::in_flight::InFlight;
use causeway_gpu::{CuResult, NativeLocation, idle_poller};
use crossbeam_channel::{Receiver, bounded};

use crate::worker::session::Session;

/// How long a device may take for one piece.
const COPY_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads memory into `into`, by the default stream of a context.
///
/// # Errors
/// When the device refuses or does not answer.
pub fn read(session: &Session, context: Handle<Context>, address: u64, into: &mut [u8]) -> CuResult<()> {
    session.enter_context(context)?;
    let gpu = session.gpu();
    let location = NativeLocation::from(Region::linear(address, into.len() as u64));
    let staging = gpu.staging(into.len())?;
    let (sender, done) = bounded(1);
    let copy = InFlight::copy_from_device(gpu, &location, staging, Native::NULL)?;
    // The receiver may have timed out.
    copy.after(gpu, move |read| drop(sender.send(read)))?;
    let read = wait_for(&done)?;
    into.copy_from_slice(read.as_slice());
    Ok(())
}

/// Writes `bytes` to memory, by the default stream of a context.
///
/// # Errors
/// When the device refuses or does not answer.
pub fn write(session: &Session, context: Handle<Context>, address: u64, bytes: &[u8]) -> CuResult<()> {
    session.enter_context(context)?;
    let gpu = session.gpu();
    let location = NativeLocation::from(Region::linear(address, bytes.len() as u64));
    let mut staging = gpu.staging(bytes.len())?;
    staging.as_mut_slice().copy_from_slice(bytes);
    let (sender, done) = bounded(1);
    let copy = InFlight::copy_to_device(gpu, &location, staging, Native::NULL)?;
    // The receiver may have timed out.
    copy.after(gpu, move |written| {
        let _ = sender.send(written.map(drop));
    })?;
    wait_for(&done)
}

/// Waits for the end of a copy that the calling thread has asked for.
fn wait_for<T>(done: &Receiver<CuResult<T>>) -> CuResult<T> {
    debug_assert!(!idle_poller::is_awake(), "nobody else tells of the end of what this thread asks for");
    done.recv_timeout(COPY_TIMEOUT).map_err(|_| CUresult::CUDA_ERROR_LAUNCH_TIMEOUT)?
}
