//! Forwarded calls: the request made from a call's arguments, and the response written to the program's memory.

use crate::log::{self, Level};
use crate::servers::{self, NUMBERS_OF_A_SERVER};
use crate::session;
use causeway_api::handle::MAX_SERVERS;
use causeway_api::nvml::request::{ArgumentValue, Call, Outcome, Written};
use causeway_api::nvml::status::{self, Status};
use causeway_api::nvml::types::CHAR;
use causeway_api::nvml::{DeviceNumber, FORWARDED, Function, MAX_BYTES, Mode, NO_DEVICE};
use causeway_wire::text::Printable;
use core::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The handle of the first server's device 0; programs compare handles and hand them back, and never look
/// behind them.
const FIRST_HANDLE: u64 = 0x4e56_4d4c_0000;

/// Above this number nothing is a device.
const MAX_HANDLES: u64 = NUMBERS_OF_A_SERVER * MAX_SERVERS as u64;

/// Carries out a call of the function at `index` in the list; `raw_arguments` are its arguments.
///
/// # Safety
/// The words must be arguments as `nvml.h` demands them: addresses are null or good for what the function
/// does with them.
pub unsafe fn forward(index: usize, raw_arguments: &[u64]) -> Status {
    let function = &FORWARDED[index];
    // A panic must not reach the program's frames; whatever was under way is reported as an unknown error.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller passes words as `nvml.h` has this function take them, with addresses that are
        // null or valid.
        unsafe { carry_out(function, raw_arguments) }
    }));
    let status = match outcome {
        Ok(Ok(status) | Err(status)) => status,
        Err(_) => status::UNKNOWN,
    };
    if log::is_enabled(Level::Trace) {
        log::write(Level::Trace, format_args!("{} = {status}", function.name));
    }
    status
}

unsafe fn carry_out(function: &Function, raw_arguments: &[u64]) -> Result<Status, Status> {
    if !session::is_initialised() {
        return Err(status::UNINITIALIZED);
    }
    // SAFETY: the caller passes words as `nvml.h` has this function take them, with addresses that are null
    // or valid.
    let arguments = unsafe { gather(function, raw_arguments) }?;
    let call = Call { function: function.name.to_owned(), arguments };
    let outcome = servers::carry_out(&session::Connected, function, &call)?;
    // SAFETY: the caller passes words as `nvml.h` has this function take them, with addresses that are null
    // or valid.
    unsafe { scatter(function, raw_arguments, &call.arguments, &outcome) }
}

/// Reads the arguments.
///
/// # Safety
/// As [`forward`].
unsafe fn gather(function: &Function, raw_arguments: &[u64]) -> Result<Vec<ArgumentValue>, Status> {
    let mut arguments = Vec::with_capacity(raw_arguments.len());
    for (argument, raw_value) in function.arguments.iter().zip(raw_arguments) {
        arguments.push(match argument.mode {
            Mode::Value(value) => ArgumentValue::Number(raw_value & (u64::MAX >> (64 - 8 * value.size))),
            Mode::Device => ArgumentValue::Number(number(*raw_value)),
            _ if *raw_value == 0 => ArgumentValue::Null,
            Mode::Text => {
                // SAFETY: the caller vouches for text that ends.
                let text = unsafe { CStr::from_ptr(*raw_value as *const c_char) }.to_bytes_with_nul();
                if text.len() > MAX_BYTES {
                    return Err(status::INVALID_ARGUMENT);
                }
                ArgumentValue::Bytes(text.to_vec())
            }
            Mode::OutDevice => ArgumentValue::Buffer(size_of::<DeviceNumber>() as u32),
            Mode::Out(element, count) => ArgumentValue::Buffer((element.size * count) as u32),
            // SAFETY: the caller vouches for a value of this type.
            Mode::InOut(value) => ArgumentValue::Bytes(unsafe { read(*raw_value, value.size) }),
            Mode::Versioned(newest) | Mode::VersionedIn(newest) => {
                // SAFETY: the caller vouches for a structure that begins with its version.
                let version = unsafe { (*raw_value as *const u32).read_unaligned() };
                let size = (version & 0xff_ffff) as usize;
                if !(size_of::<u32>()..=newest.size).contains(&size) {
                    return Err(status::ARGUMENT_VERSION_MISMATCH);
                }
                // SAFETY: that is the size of this version.
                ArgumentValue::Bytes(unsafe { read(*raw_value, size) })
            }
            // What these have room for is known when all counters have been read.
            Mode::Bytes(..) | Mode::Array(..) | Mode::List(..) | Mode::Devices(_) | Mode::Processes(..) => {
                ArgumentValue::Buffer(0)
            }
        });
    }
    for (index, argument) in function.arguments.iter().enumerate() {
        let Some((element, counter)) = argument.mode.counted() else { continue };
        let counter = function.position(counter);
        let count = count(&arguments[counter]);
        let max_count = MAX_BYTES / element;
        let size = count.min(max_count) * element;
        if count > max_count {
            // A list may have room for more than it will ever get; a text or an array is as long as it is
            // said to be.
            let ArgumentValue::Bytes(counted) = &mut arguments[counter] else {
                return Err(status::INVALID_ARGUMENT);
            };
            *counted = (max_count as u32).to_le_bytes().to_vec();
        }
        if arguments[index] != ArgumentValue::Null {
            arguments[index] = match argument.mode {
                // SAFETY: the caller vouches for as many elements as the counter says.
                Mode::Array(..) => ArgumentValue::Bytes(unsafe { read(raw_arguments[index], size) }),
                _ => ArgumentValue::Buffer(size as u32),
            };
        }
    }
    Ok(arguments)
}

/// The value of a counter; 0 where the program gave none.
fn count(counter: &ArgumentValue) -> usize {
    match counter {
        ArgumentValue::Number(number) => usize::try_from(*number).unwrap_or(usize::MAX),
        ArgumentValue::Bytes(bytes) => {
            bytes.as_slice().try_into().map_or(0, |bytes| u32::from_le_bytes(bytes) as usize)
        }
        ArgumentValue::Null | ArgumentValue::Buffer(_) => 0,
    }
}

/// Copies `size` bytes of the program's memory.
///
/// # Safety
/// They must be readable.
unsafe fn read(address: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    // SAFETY: the caller has `size` bytes readable at the address; the vector has the size.
    unsafe { core::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), size) };
    bytes
}

/// Writes what the function has written to where the program wants it.
///
/// # Safety
/// As [`forward`]; `values` are the arguments that were made of the words.
unsafe fn scatter(
    function: &Function,
    raw_arguments: &[u64],
    values: &[ArgumentValue],
    outcome: &Outcome,
) -> Result<Status, Status> {
    for Written { argument, bytes } in &outcome.written {
        let index = *argument as usize;
        let capacity = match values.get(index) {
            Some(ArgumentValue::Buffer(size)) => *size as usize,
            Some(ArgumentValue::Bytes(bytes)) => bytes.len(),
            Some(ArgumentValue::Number(_) | ArgumentValue::Null) | None => return Err(status::UNKNOWN),
        };
        let mode = function.arguments[index].mode;
        if bytes.len() > capacity || !mode.is_written() {
            return Err(status::UNKNOWN);
        }
        let translated;
        let bytes = match mode {
            Mode::OutDevice | Mode::Devices(_) => {
                translated = handles(bytes);
                &translated
            }
            Mode::Bytes(CHAR, _) | Mode::Out(CHAR, _) => {
                translated = sanitized(bytes, capacity);
                &translated
            }
            _ => bytes,
        };
        // SAFETY: the caller has room there for what `nvml.h` says, and no more is written.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), raw_arguments[index] as *mut u8, bytes.len())
        };
    }
    Ok(outcome.status)
}

/// A text of the server that programs print, up to its NUL, which has room for so many bytes.
fn sanitized(bytes: &[u8], capacity: usize) -> Vec<u8> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let printable = Printable::from_bytes(text);
    if printable.as_bytes() == text {
        return bytes.to_vec();
    }
    let end = printable.floor_char_boundary(capacity.saturating_sub(1));
    [&printable.as_bytes()[..end], &[0]].concat()
}

/// The number of the device behind a handle.
fn number(handle: u64) -> DeviceNumber {
    handle.checked_sub(FIRST_HANDLE).filter(|number| *number < MAX_HANDLES).unwrap_or(NO_DEVICE)
}

/// The handles of devices with these numbers.
fn handles(numbers: &[u8]) -> Vec<u8> {
    let (numbers, _) = numbers.as_chunks::<8>();
    numbers.iter().flat_map(|number| (FIRST_HANDLE + u64::from_le_bytes(*number)).to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::nvml::find;

    fn gathered(name: &str, raw_arguments: &[u64]) -> Result<Vec<ArgumentValue>, Status> {
        // SAFETY: the tests pass addresses of their own locals.
        unsafe { gather(find(name).unwrap(), raw_arguments) }
    }

    #[test]
    fn handles_are_numbers_and_back_and_others_are_no_device() {
        let handle = u64::from_ne_bytes(handles(&3_u64.to_le_bytes()).try_into().unwrap());
        assert_eq!(number(handle), 3);
        assert_eq!([number(0), number(7), number(FIRST_HANDLE + MAX_HANDLES)], [NO_DEVICE; 3]);
    }

    #[test]
    fn what_a_terminal_acts_on_is_no_part_of_a_name() {
        assert_eq!(sanitized(b"NVIDIA H200\0rest", 16), b"NVIDIA H200\0rest");
        assert_eq!(sanitized(b"a\x1b[2J\0", 96), b"a\\u001b[2J\0");
        assert_eq!(sanitized(b"a\x1b[2J\0", 5), b"a\\u0\0");
    }

    #[test]
    fn bits_above_a_narrow_number_are_not_part_of_it() {
        let mut device = 0_u64;
        let raw_arguments = [0xdead_0000_0002, &raw mut device as u64];
        let values = gathered("nvmlDeviceGetHandleByIndex_v2", &raw_arguments).unwrap();
        assert_eq!(values, [ArgumentValue::Number(2), ArgumentValue::Buffer(8)]);
    }

    #[test]
    fn structure_size_follows_its_version() {
        let mut memory = [0_u32; 10];
        let mut read = |version: u32| {
            memory[0] = version;
            gathered("nvmlDeviceGetMemoryInfo_v2", &[FIRST_HANDLE, &raw const memory as u64])
        };
        assert!(matches!(&read(2 << 24 | 40).unwrap()[1], ArgumentValue::Bytes(bytes) if bytes.len() == 40));
        assert_eq!(read(2 << 24 | 41), Err(status::ARGUMENT_VERSION_MISMATCH));
        assert_eq!(read(0), Err(status::ARGUMENT_VERSION_MISMATCH));
    }

    #[test]
    fn list_capacity_follows_its_counter_up_to_a_limit() {
        let (mut few, mut many) = (2_u32, u32::MAX);
        let list = |count: *mut u32, list: u64| {
            gathered("nvmlDeviceGetComputeRunningProcesses_v3", &[FIRST_HANDLE, count as u64, list]).unwrap()
        };
        assert_eq!(list(&raw mut few, 8)[2], ArgumentValue::Buffer(48));
        assert_eq!(list(&raw mut few, 0)[2], ArgumentValue::Null);
        let clamped = list(&raw mut many, 8);
        let max_count = (MAX_BYTES / 24) as u32;
        assert_eq!(
            clamped[1..],
            [ArgumentValue::Bytes(max_count.to_le_bytes().to_vec()), ArgumentValue::Buffer(max_count * 24)]
        );
        assert_eq!(list(core::ptr::null_mut(), 8)[1..], [ArgumentValue::Null, ArgumentValue::Buffer(0)]);
    }

    #[test]
    fn an_answer_never_goes_beyond_the_room() {
        let mut name = [7_u8; 8];
        let raw_arguments = [FIRST_HANDLE, &raw mut name as u64, 4];
        let function = find("nvmlDeviceGetName").unwrap();
        let values = gathered(function.name, &raw_arguments).unwrap();
        let outcome = |bytes: &[u8]| Outcome {
            status: 0,
            written: vec![Written { argument: 1, bytes: bytes.to_vec() }],
        };
        // SAFETY: the words name the array above.
        unsafe {
            assert_eq!(scatter(function, &raw_arguments, &values, &outcome(b"abcd\0")), Err(status::UNKNOWN));
            assert_eq!(scatter(function, &raw_arguments, &values, &outcome(b"abc\0")), Ok(status::SUCCESS));
        }
        assert_eq!(&name, b"abc\0\x07\x07\x07\x07");
    }
}
