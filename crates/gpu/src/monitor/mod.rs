//! Monitor of devices: what a back end answers to a monitoring session, as NVIDIA's management library does;
//! checks of a client's calls, and the arguments of a call while it is carried out.
//!
//! Visible devices of a session are a file of their own.

pub mod visible_devices;

use core::ffi::c_void;

use causeway_api::nvml::request::{ArgumentValue, Call, Outcome, Written};
use causeway_api::nvml::status::{self, Status};
use causeway_api::nvml::{self, Function, Mode};

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
    let indices = 0..function.arguments.len();
    let written = indices.filter_map(|index| {
        let mode = function.arguments[index].mode;
        // What a function that fails leaves alone must stay as it is in the program's memory.
        let is_sent = mode.is_written() && (status == status::SUCCESS || mode.is_read());
        let bytes = frame.memory(index).filter(|_| is_sent)?[..frame.filled(index)].to_vec();
        Some(Written { argument: index as u32, bytes })
    });
    Outcome { status, written: written.collect() }
}

/// One argument.
enum Slot {
    Number(u64),
    Null,
    Memory(Memory),
}

/// Memory that a function may read and write, aligned for every type of the API.
struct Memory {
    words: Vec<u64>,
    size: usize,
}

impl Memory {
    /// `size` bytes that begin with `bytes`, and room behind them for `spare` more, all zero.
    fn new(bytes: &[u8], size: usize, spare: usize) -> Self {
        let mut memory = Self { words: vec![0; (size + spare).div_ceil(8).max(1)], size };
        memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        memory
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the words hold at least `size` bytes, every one of them initialised.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().cast(), self.size) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the words hold at least `size` bytes, every one of them initialised, and are borrowed
        // exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.size) }
    }
}

/// The arguments of a call.
pub struct Frame {
    function: &'static Function,
    slots: Vec<Slot>,
}

impl Frame {
    /// Of a call that has been checked against its function.
    pub fn new(function: &'static Function, arguments: &[ArgumentValue]) -> Self {
        let slots = arguments.iter().zip(function.arguments).map(|(given, argument)| match given {
            ArgumentValue::Number(number) => Slot::Number(*number),
            ArgumentValue::Null => Slot::Null,
            ArgumentValue::Buffer(size) => Slot::Memory(Memory::new(&[], *size as usize, 0)),
            ArgumentValue::Bytes(bytes) => {
                // A library that misreads the version of a structure must not write beyond its end.
                let spare = match argument.mode {
                    Mode::Versioned(newest) | Mode::VersionedIn(newest) => {
                        newest.size.saturating_sub(bytes.len())
                    }
                    _ => 0,
                };
                Slot::Memory(Memory::new(bytes, bytes.len(), spare))
            }
        });
        Self { function, slots: slots.collect() }
    }

    /// A number, or 0 where the argument is none.
    pub fn number(&self, argument_index: usize) -> u64 {
        match self.slots[argument_index] {
            Slot::Number(number) => number,
            Slot::Null | Slot::Memory(_) => 0,
        }
    }

    /// Gives an argument that is a number another one.
    pub fn set_number(&mut self, argument_index: usize, number: u64) {
        if let Slot::Number(slot) = &mut self.slots[argument_index] {
            *slot = number;
        }
    }

    /// The memory of an argument, unless it is a number or null.
    pub fn memory(&self, argument_index: usize) -> Option<&[u8]> {
        match &self.slots[argument_index] {
            Slot::Memory(memory) => Some(memory.bytes()),
            Slot::Number(_) | Slot::Null => None,
        }
    }

    /// As [`memory`](Self::memory), for writing.
    pub fn memory_mut(&mut self, argument_index: usize) -> Option<&mut [u8]> {
        match &mut self.slots[argument_index] {
            Slot::Memory(memory) => Some(memory.bytes_mut()),
            Slot::Number(_) | Slot::Null => None,
        }
    }

    /// The address of an argument's memory, for a function of C.
    pub fn address(&mut self, argument_index: usize) -> *mut c_void {
        match &mut self.slots[argument_index] {
            Slot::Memory(memory) => memory.words.as_mut_ptr().cast(),
            Slot::Number(_) | Slot::Null => core::ptr::null_mut(),
        }
    }

    /// The value of a counter; 0 where the program gave none.
    pub fn count(&self, argument_index: usize) -> u32 {
        let bytes = self.memory(argument_index).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// How many bytes of an argument's memory mean something after the call.
    pub fn filled(&self, argument_index: usize) -> usize {
        let size = self.memory(argument_index).map_or(0, <[u8]>::len);
        match self.function.arguments[argument_index].mode {
            mode @ (Mode::List(..) | Mode::Devices(_) | Mode::Processes(..)) => {
                let Some((element, counter)) = mode.counted() else { return size };
                let count = self.count(self.function.position(counter)) as usize;
                size.min(count.saturating_mul(element))
            }
            _ => size,
        }
    }

    /// Writes a value to where the argument of this name points.
    pub fn put(&mut self, name: &str, bytes: &[u8]) -> Status {
        self.put_at(name, 0, bytes)
    }

    /// Likewise, `offset` bytes behind.
    pub fn put_at(&mut self, name: &str, offset: usize, bytes: &[u8]) -> Status {
        let argument_index = self.function.position(name);
        let target = self
            .memory_mut(argument_index)
            .and_then(|memory| memory.get_mut(offset..)?.get_mut(..bytes.len()));
        match target {
            Some(target) => {
                target.copy_from_slice(bytes);
                status::SUCCESS
            }
            None => status::INVALID_ARGUMENT,
        }
    }

    /// Writes text and its NUL, if there is room for both.
    pub fn put_text(&mut self, name: &str, text: &str) -> Status {
        let argument_index = self.function.position(name);
        match self.memory(argument_index) {
            None => status::INVALID_ARGUMENT,
            Some(memory) if memory.len() <= text.len() => status::INSUFFICIENT_SIZE,
            Some(_) => self.put(name, &[text.as_bytes(), &[0]].concat()),
        }
    }

    /// Writes a list and its length as NVML does: where the program's memory is too small, it learns the
    /// length.
    pub fn put_list(&mut self, list: usize, entries: &[u8]) -> Status {
        let Some((element, counter)) = self.function.arguments[list].mode.counted() else {
            return status::INVALID_ARGUMENT;
        };
        let counter = self.function.position(counter);
        let (target, count) = (self.count(counter) as usize, entries.len() / element);
        let Some(written) = self.memory_mut(counter).and_then(|memory| memory.first_chunk_mut()) else {
            return status::INVALID_ARGUMENT;
        };
        *written = (count as u32).to_le_bytes();
        match self.memory_mut(list) {
            _ if count > target => status::INSUFFICIENT_SIZE,
            Some(memory) => {
                memory[..entries.len()].copy_from_slice(entries);
                status::SUCCESS
            }
            None if count == 0 => status::SUCCESS,
            None => status::INVALID_ARGUMENT,
        }
    }
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
