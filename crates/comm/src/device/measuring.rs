//! Measurement of a lane's copies. Tried when a team is made, while no kernel of it runs, unless an earlier job
//! has kept it in the profile of channels.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::gpu::{GpuError, Lane};
use crate::device::choice::Copies;
use crate::locks::{Mutex, rank};
use crate::profile::{CopyCosts, Profile};

/// How long copies are waited for. Whoever is as slow keeps the estimate.
const MEASUREMENT_TIMEOUT: Duration = Duration::from_millis(200);

/// What is known of GPUs, by their numbers.
static KNOWN: Mutex<rank::Leaf, BTreeMap<u64, Option<Copies>>> = Mutex::new(BTreeMap::new());

/// Where what is found out of a kind of GPU is kept for later jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCalibration {
    /// The profile's file.
    pub path: PathBuf,
    /// The GPU's model, and how it is reached.
    pub kind: String,
}

impl StoredCalibration {
    /// What earlier jobs have found. A profile that cannot be read is of no use, and is written anew.
    fn found(&self) -> Option<Copies> {
        let CopyCosts { latency, post, bandwidth } = Profile::load(&self.path).ok()?.copies(&self.kind)?;
        Some(Copies { latency, post, bandwidth })
    }

    fn keep(&self, Copies { latency, post, bandwidth }: Copies) {
        let mut profile = Profile::default();
        profile.learn_copies(&self.kind, CopyCosts { latency, post, bandwidth });
        // Who cannot keep it measures again next time.
        let _ = profile.save(&self.path);
    }
}

/// What is known of a GPU, by this process or by earlier ones, and else is found out.
///
/// # Errors
/// What `measure` says; it is asked again then.
pub fn once(
    gpu: u64,
    stored: Option<&StoredCalibration>,
    measure: impl FnOnce() -> Result<Option<Copies>, GpuError>,
) -> Result<Option<Copies>, GpuError> {
    // Held meanwhile: two that measure at the same time would find each other.
    let mut known = KNOWN.lock();
    if let Some(found) = known.get(&gpu) {
        return Ok(*found);
    }
    let found = match stored.and_then(StoredCalibration::found) {
        Some(found) => Some(found),
        None => {
            let found = measure()?;
            if let (Some(stored), Some(found)) = (stored, found) {
                stored.keep(found);
            }
            found
        }
    };
    known.insert(gpu, found);
    Ok(found)
}

/// What copies of a GPU have turned out to cost, for the next team of this process and for later jobs.
pub fn correct(gpu: u64, stored: Option<&StoredCalibration>, copies: Copies) {
    KNOWN.lock().insert(gpu, Some(copies));
    stored.iter().for_each(|stored| stored.keep(copies));
}

/// Measures copies between two ranges of [`LONG`](crate::device::choice::LONG) bytes of a GPU, the last of which
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

/// How long so many copies take, in nanoseconds; none after [`MEASUREMENT_TIMEOUT`].
fn time(lane: &mut dyn Lane, to: u64, from: u64, count: u32, bytes: u64) -> Result<Option<f64>, GpuError> {
    let start = Instant::now();
    for _ in 0..count {
        lane.copy(to, from, bytes)?;
    }
    let mark = lane.mark()?;
    while lane.done() < mark {
        if start.elapsed() > MEASUREMENT_TIMEOUT {
            return Ok(None);
        }
        std::thread::yield_now();
    }
    Ok(Some(start.elapsed().as_nanos() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_job_has_measured_the_next_one_knows() {
        let folder = tempfile::tempdir().unwrap();
        let stored =
            |kind: &str| StoredCalibration { path: folder.path().join("profile"), kind: kind.to_owned() };
        let drawn = f64::from(std::process::id());
        let found = Copies { latency: drawn + 0.5, post: 12.25, bandwidth: 1e3 };
        // Other numbers stand for other processes, which have not heard of each other.
        let first = once(u64::MAX, Some(&stored("H100")), || Ok(Some(found)));
        let second = once(u64::MAX - 1, Some(&stored("H100")), || panic!("it is known"));
        assert_eq!((first, second), (Ok(Some(found)), Ok(Some(found))));
        let other = Copies { post: 1.0, ..found };
        assert_eq!(once(u64::MAX - 2, Some(&stored("H200")), || Ok(Some(other))), Ok(Some(other)));
        assert_eq!(once(u64::MAX - 3, None, || Ok(None)), Ok(None));
        // What a team has found out since counts from then on.
        correct(u64::MAX, Some(&stored("H100")), other);
        assert_eq!(once(u64::MAX, None, || panic!("it is known")), Ok(Some(other)));
        assert_eq!(stored("H100").found(), Some(other));
        // Who finds nothing out keeps nothing.
        assert_eq!(once(u64::MAX - 4, Some(&stored("K80")), || Ok(None)), Ok(None));
        assert_eq!(stored("K80").found(), None);
    }
}
