//! How long do copies of a lane take? Tried when a team is made, while no kernel of it runs.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::calibration::Copies;
use super::gpu::{GpuError, Lane};

/// How long copies are waited for. Whoever is as slow keeps the estimate.
const PATIENCE: Duration = Duration::from_millis(200);

/// What is known of GPUs, by their numbers.
static KNOWN: Mutex<BTreeMap<u64, Option<Copies>>> = Mutex::new(BTreeMap::new());

/// What is known of a GPU, which is found out the first time.
///
/// # Errors
/// What `measure` says; it is asked again then.
pub fn once(
    gpu: u64,
    measure: impl FnOnce() -> Result<Option<Copies>, GpuError>,
) -> Result<Option<Copies>, GpuError> {
    // Held meanwhile: two that measure at the same time would find each other.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(&gpu) {
        return Ok(*found);
    }
    let found = measure()?;
    known.insert(gpu, found);
    Ok(found)
}

/// Measures copies between two ranges of [`LONG`](super::calibration::LONG) bytes of a GPU, the last of which
/// may still be under way. None where they are not done in time.
///
/// # Errors
/// What the driver says.
pub fn measure(lane: &mut dyn Lane, to: u64, from: u64) -> Result<Option<Copies>, GpuError> {
    let mut failed = Ok(());
    let found = Copies::of(|count, bytes| {
        time(lane, to, from, count, bytes).unwrap_or_else(|error| {
            failed = Err(error);
            None
        })
    });
    failed.map(|()| found)
}

/// How long so many copies take, in nanoseconds; none after [`PATIENCE`].
fn time(lane: &mut dyn Lane, to: u64, from: u64, count: u32, bytes: u64) -> Result<Option<f64>, GpuError> {
    let start = Instant::now();
    for _ in 0..count {
        lane.copy(to, from, bytes)?;
    }
    let mark = lane.mark()?;
    while lane.done() < mark {
        if start.elapsed() > PATIENCE {
            return Ok(None);
        }
        std::thread::yield_now();
    }
    Ok(Some(start.elapsed().as_nanos() as f64))
}
