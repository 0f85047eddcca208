//! What answers a monitoring session: a back end, which tells of its devices as NVIDIA's management library
//! does.
//!
//! | Module | Question it answers |
//! |---|---|
//! | [`Monitor`], [`answer`] | How does a question of a client become a checked call? |
//! | [`frame`] | What does a call work on? |
//! | [`visible_devices`] | Which devices does a session have? |

pub mod frame;
pub mod visible_devices;

use causeway_api::nvml::request::{Call, Outcome, Written};
use causeway_api::nvml::status::{self, Status};
use causeway_api::nvml::{self, Function};
use frame::Frame;

/// A process of the asking client that uses the server's GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnProcess {
    /// The number of its worker, on the server.
    pub worker: u32,
    /// Its own number, on the client's machine.
    pub client: u32,
}

/// Where a record of a device's memory has its total, free and used bytes.
fn memory_fields(function: &str) -> Option<[usize; 3]> {
    match function {
        "nvmlDeviceGetMemoryInfo" => Some([0, 8, 16]),
        "nvmlDeviceGetMemoryInfo_v2" => Some([8, 24, 32]),
        _ => None,
    }
}

/// Shows a client that may have no more than `limit` bytes of device memory, and has `used`, a device of that size.
pub fn limit_memory(outcome: &mut Outcome, call: &Call, limit: u64, used: u64) {
    let Some(fields) = memory_fields(&call.function) else { return };
    let Some(Written { bytes, .. }) = outcome.written.first_mut() else { return };
    let number = |bytes: &[u8], at: usize| {
        bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
    };
    let [total, free, _] = fields.map(|at| number(bytes, at));
    let total = total.min(limit);
    let used = used.min(total);
    for (at, value) in fields.into_iter().zip([total, free.min(total - used), used]) {
        if let Some(word) = bytes.get_mut(at..at + size_of::<u64>()) {
            word.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// What knows about devices.
pub trait Monitor: Send + Sync {
    /// Carries `function` out on the arguments in `frame`, which have been checked. Lists of processes have
    /// those in `own` only.
    fn carry_out(&self, function: &'static Function, frame: &mut Frame, own: &[OwnProcess]) -> Status;
}

/// Checks a client's call, lets `monitor` carry it out, and gathers what was written.
pub fn answer(monitor: &dyn Monitor, call: &Call, own: &[OwnProcess]) -> Outcome {
    let Some(function) = nvml::find(&call.function) else {
        return Outcome::failed(status::FUNCTION_NOT_FOUND);
    };
    if !call.check(function) {
        return Outcome::failed(status::INVALID_ARGUMENT);
    }
    let mut frame = Frame::new(function, &call.arguments);
    let status = monitor.carry_out(function, &mut frame, own);
    let places = 0..function.arguments.len();
    let written = places.filter_map(|place| {
        let mode = function.arguments[place].mode;
        // What a function that fails leaves alone must stay as it is in the program's memory.
        let is_sent = mode.is_written() && (status == status::SUCCESS || mode.is_read());
        let bytes = frame.memory(place).filter(|_| is_sent)?[..frame.filled(place)].to_vec();
        Some(Written { argument: place as u32, bytes })
    });
    Outcome { status, written: written.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_sees_a_device_of_the_size_that_it_may_have() {
        let memory = |function: &str, fields: &[u64], limit, used| {
            let bytes = fields.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut outcome =
                Outcome { status: status::SUCCESS, written: vec![Written { argument: 1, bytes }] };
            limit_memory(&mut outcome, &Call { function: function.into(), arguments: vec![] }, limit, used);
            let fields = outcome.written[0].bytes.as_chunks().0.iter();
            fields.map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>()
        };
        assert_eq!(memory("nvmlDeviceGetMemoryInfo", &[100, 70, 30], 50, 20), [50, 30, 20]);
        assert_eq!(memory("nvmlDeviceGetMemoryInfo", &[100, 10, 90], 50, 20), [50, 10, 20]);
        assert_eq!(memory("nvmlDeviceGetMemoryInfo", &[100, 70, 30], 500, 600), [100, 0, 100]);
        assert_eq!(memory("nvmlDeviceGetMemoryInfo_v2", &[2, 100, 5, 70, 30], 50, 20), [2, 50, 5, 30, 20]);
        assert_eq!(memory("nvmlDeviceGetName", &[100, 70, 30], 50, 20), [100, 70, 30]);
        assert_eq!(memory("nvmlDeviceGetMemoryInfo", &[100], 50, 20), [50]);
    }
}
