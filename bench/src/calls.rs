//! What single calls cost.

use crate::driver::{Context, DriverError};
use crate::report::CallCost;
use std::time::{Duration, Instant};

/// How many calls that wait for an answer are timed one by one.
const WAITING_CALLS: usize = 3000;

/// Measures posted calls, `count` of each in a row, and called functions.
pub fn measure(context: &Context, count: u32) -> Result<Vec<CallCost>, DriverError> {
    let memory = context.allocate(4096)?;
    let kernel = context.empty_kernel()?;
    let event = context.event()?;
    Ok(vec![
        posted(context, "cuMemsetD8Async of 64 bytes", count, || memory.fill(1, 64))?,
        posted(context, "cuLaunchKernel of an empty kernel", count, || context.launch(kernel))?,
        posted(context, "cuEventRecord", count, || context.record(event))?,
        called("cuMemGetInfo", || context.free_memory().map(drop))?,
        called("cuLaunchKernel and cuCtxSynchronize", || {
            context.launch(kernel)?;
            context.synchronize()
        })?,
    ])
}

/// The time of a call until it returns, and until the device has done it, as means over calls in a row.
fn posted(
    context: &Context,
    name: &'static str,
    count: u32,
    call: impl Fn() -> Result<(), DriverError>,
) -> Result<CallCost, DriverError> {
    // Modules are loaded and code is made at the first call.
    call()?;
    context.synchronize()?;
    let start = Instant::now();
    for _ in 0..count {
        call()?;
    }
    let returned = start.elapsed();
    context.synchronize()?;
    let done = start.elapsed();
    let each = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(count);
    Ok(CallCost { name, kind: "posted", returned_ns: each(returned), done_ns: each(done) })
}

/// The median time of a call that waits for an answer.
fn called(name: &'static str, call: impl Fn() -> Result<(), DriverError>) -> Result<CallCost, DriverError> {
    let mut times = Vec::with_capacity(WAITING_CALLS);
    for _ in 0..WAITING_CALLS {
        let start = Instant::now();
        call()?;
        times.push(start.elapsed());
    }
    times.sort();
    let median = times[times.len() / 2].as_secs_f64() * 1e9;
    Ok(CallCost { name, kind: "called", returned_ns: median, done_ns: median })
}
