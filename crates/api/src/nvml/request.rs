//! NVML call and its outcome on the wire: numbers and buffers to the server, written bytes back.
//!
//! A request names its function, so that ends with different lists still understand each other. The server
//! believes nothing: [`Call::check`] compares every argument with the function's line in the list.

use super::{Function, MAX_BYTES, Mode};
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::record;

/// One argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentValue {
    /// A number, or a [`DeviceNumber`](super::DeviceNumber).
    Number(u64),
    /// A null pointer.
    Null,
    /// Room for this many bytes, whose content does not matter.
    Buffer(u32),
    /// Bytes that the function reads.
    Bytes(Vec<u8>),
}

const NUMBER: u8 = 0;
const NULL: u8 = 1;
const BUFFER: u8 = 2;
const BYTES: u8 = 3;

impl Encode for ArgumentValue {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number) => {
                NUMBER.encode(out);
                number.encode(out);
            }
            Self::Null => NULL.encode(out),
            Self::Buffer(size) => {
                BUFFER.encode(out);
                size.encode(out);
            }
            Self::Bytes(bytes) => {
                BYTES.encode(out);
                bytes.as_slice().encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for ArgumentValue {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            NUMBER => Ok(Self::Number(input.value()?)),
            NULL => Ok(Self::Null),
            BUFFER => Ok(Self::Buffer(input.value()?)),
            BYTES => Ok(Self::Bytes(input.value::<&[u8]>()?.to_vec())),
            other => Err(DecodeError::UnknownTag { what: "argument", value: u64::from(other) }),
        }
    }
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The function's name.
    pub function: String,
    /// Its arguments.
    pub arguments: Vec<ArgumentValue>,
}

record!(Call { function, arguments });

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The `nvmlReturn_t`.
    pub status: u32,
    /// What the function wrote, with the places of the arguments.
    pub written: Vec<Written>,
}

record!(Outcome { status, written });

/// What a function wrote to where one argument points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The argument's place.
    pub argument: u32,
    /// The bytes, no more than there is room for.
    pub bytes: Vec<u8>,
}

impl Encode for Written {
    fn encode(&self, out: &mut Vec<u8>) {
        self.argument.encode(out);
        self.bytes.as_slice().encode(out);
    }
}

impl<'a> Decode<'a> for Written {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self { argument: input.value()?, bytes: input.value::<&[u8]>()?.to_vec() })
    }
}

impl Outcome {
    /// A call that was not carried out.
    pub fn failed(status: u32) -> Self {
        Self { status, written: Vec::new() }
    }
}

impl Call {
    /// Whether the arguments are what `function` takes, and no larger than may be.
    pub fn check(&self, function: &Function) -> bool {
        self.arguments.len() == function.arguments.len()
            && (0..self.arguments.len()).all(|index| self.fits(function, index))
    }

    fn fits(&self, function: &Function, index: usize) -> bool {
        let mode = function.arguments[index].mode;
        let size = match &self.arguments[index] {
            ArgumentValue::Number(_) => return mode.is_number(),
            ArgumentValue::Null => return !mode.is_number(),
            ArgumentValue::Buffer(size) if mode.is_written() && !mode.is_read() => *size as usize,
            ArgumentValue::Bytes(bytes) if mode.is_read() => bytes.len(),
            _ => return false,
        };
        size <= MAX_BYTES
            && match mode {
                Mode::Value(_) | Mode::Device => false,
                Mode::Text => {
                    matches!(&self.arguments[index], ArgumentValue::Bytes(text) if text.ends_with(&[0]))
                }
                Mode::OutDevice => size == size_of::<super::DeviceNumber>(),
                Mode::Out(element, count) => size == element.size * count,
                Mode::InOut(value) => size == value.size,
                Mode::Versioned(newest) | Mode::VersionedIn(newest) => {
                    size >= size_of::<u32>() && size <= newest.size
                }
                Mode::Bytes(..)
                | Mode::Array(..)
                | Mode::List(..)
                | Mode::Devices(_)
                | Mode::Processes(..) => self.capacity(function, index) == Some(size),
            }
    }

    /// How many bytes a counted argument must have room for.
    fn capacity(&self, function: &Function, index: usize) -> Option<usize> {
        let (element, counter) = function.arguments[index].mode.counted()?;
        let count = match &self.arguments[function.position(counter)] {
            ArgumentValue::Number(number) => usize::try_from(*number).ok()?,
            ArgumentValue::Bytes(bytes) => u32::from_le_bytes(bytes.as_slice().try_into().ok()?) as usize,
            ArgumentValue::Null | ArgumentValue::Buffer(_) => 0,
        };
        count.checked_mul(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvml::find;

    fn processes(count: u32, capacity: u32) -> Call {
        Call {
            function: "nvmlDeviceGetComputeRunningProcesses_v3".into(),
            arguments: vec![
                ArgumentValue::Number(0),
                ArgumentValue::Bytes(count.to_le_bytes().to_vec()),
                ArgumentValue::Buffer(capacity),
            ],
        }
    }

    #[test]
    fn room_must_be_what_the_counter_says_and_not_too_large() {
        let function = find("nvmlDeviceGetComputeRunningProcesses_v3").unwrap();
        assert!(processes(3, 72).check(function));
        assert!(!processes(2, 72).check(function));
        assert!(!processes(1 << 20, 24 << 20).check(function));
        let mut null = processes(5, 0);
        null.arguments[2] = ArgumentValue::Null;
        assert!(null.check(function));
        null.arguments.pop();
        assert!(!null.check(function));
    }

    #[test]
    fn numbers_are_no_addresses_and_text_ends() {
        let function = find("nvmlDeviceGetHandleByUUID").unwrap();
        let call = |text: &[u8]| Call {
            function: function.name.into(),
            arguments: vec![ArgumentValue::Bytes(text.to_vec()), ArgumentValue::Buffer(8)],
        };
        assert!(call(b"GPU-1\0").check(function));
        assert!(!call(b"GPU-1").check(function));
        let mut number = call(b"\0");
        number.arguments[0] = ArgumentValue::Number(5);
        assert!(!number.check(function));
    }

    #[test]
    fn a_call_and_its_outcome_survive_the_wire() {
        let call = processes(3, 72);
        let outcome = Outcome { status: 7, written: vec![Written { argument: 1, bytes: vec![1, 0, 0, 0] }] };
        let mut bytes = Vec::new();
        call.encode(&mut bytes);
        outcome.encode(&mut bytes);
        let mut input = Decoder::new(&bytes);
        assert_eq!(input.value::<Call>().unwrap(), call);
        assert_eq!(input.value::<Outcome>().unwrap(), outcome);
        input.finish().unwrap();
    }
}
