//! How fast bytes get to the device and back.

use crate::driver::{Context, DriverError};
use crate::report::CopyRate;
use std::time::{Duration, Instant};

/// The smallest copy in bytes; each following one is four times as large.
const SMALLEST: usize = 4 << 10;

/// How long one size in one direction is measured at least.
const LEAST_TIME: Duration = Duration::from_millis(200);

/// How often one size in one direction is measured at least.
const LEAST_COPIES: usize = 3;

/// Measures both directions, from and to pageable and pinned memory, up to copies of `largest` bytes.
pub fn measure(context: &Context, largest: usize) -> Result<Vec<CopyRate>, DriverError> {
    let largest = largest.max(SMALLEST);
    let device = context.allocate(largest)?;
    let mut pageable = vec![1; largest];
    let mut pinned = context.allocate_pinned(largest)?;
    let mut rates = Vec::new();
    for (memory, host) in [("pageable", pageable.as_mut_slice()), ("pinned", pinned.as_mut_slice())] {
        for bytes in
            core::iter::successors(Some(SMALLEST), |bytes| Some(bytes * 4)).take_while(|it| *it <= largest)
        {
            let host = &mut host[..bytes];
            let to_device = median(|| {
                device.copy_from(host)?;
                // A copy from pageable memory may return before the device has the bytes.
                context.synchronize()
            })?;
            let from_device = median(|| device.copy_to(host))?;
            rates.push(CopyRate { memory, bytes, to_device, from_device });
        }
    }
    Ok(rates)
}

/// The median time of a copy.
fn median(mut copy: impl FnMut() -> Result<(), DriverError>) -> Result<Duration, DriverError> {
    copy()?;
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < LEAST_COPIES || start.elapsed() < LEAST_TIME {
        let start = Instant::now();
        copy()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}
