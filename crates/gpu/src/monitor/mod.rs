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
