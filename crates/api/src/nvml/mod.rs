//! The monitoring API (`nvml.h`) as data: what its functions are, what their arguments mean, and how a call
//! travels.
//!
//! | module | contents |
//! | --- | --- |
//! | `list` | The list: every function of `nvml.h` 13.0, and how a call is handled |
//! | `types` | The C types that travel, with the sizes that they have on 64-bit Linux |
//! | `request` | NVML call and its outcome on the wire: numbers and buffers to the server, written bytes back |
//! | `status` | NVML status codes and their texts |
//!
//! Every argument of these functions is a number or an address, so one general form of a call serves them
//! all: numbers, and buffers that the function reads or writes.

mod list;
pub mod request;
pub mod status;
pub mod types;

use std::collections::HashMap;
use std::sync::LazyLock;

use types::*;

/// What a device is called on the wire instead of a handle: its index in a table of the server.
pub type DeviceNumber = u64;

/// The number that stands for no device.
pub const NO_DEVICE: DeviceNumber = u64::MAX;

/// Maximum size of one argument in bytes. The largest lists of the API have a few thousand entries of
/// less than a hundred bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A number.
    Value(Type),
    /// A device's handle.
    Device,
    /// Where a device's handle goes.
    OutDevice,
    /// Text that is read, up to its NUL.
    Text,
    /// Where this many values go.
    Out(Type, usize),
    /// A value that is read and replaced.
    InOut(Type),
    /// A structure that is read and replaced. It begins with a word that has its size in the lower 24 bits
    /// and its version in the others; of all its versions the type is the largest.
    Versioned(Type),
    /// Such a structure that is only read.
    VersionedIn(Type),
    /// Room for as many bytes as the argument of this name says.
    Bytes(Type, &'static str),
    /// As many values as the argument of this name says, read and replaced.
    Array(Type, &'static str),
    /// Room for as many values as the counter of this name says, an `InOut` argument that then says how many
    /// there are.
    List(Type, &'static str),
    /// Likewise, for the handles of devices.
    Devices(&'static str),
    /// Likewise, for entries that begin with the number of a process. Only the client's own processes are
    /// listed.
    Processes(Type, &'static str),
}

/// One argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub mode: Mode,
}

/// One function whose calls are carried to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its arguments, at most [`MAX_ARGUMENTS`].
    pub arguments: &'static [Argument],
}

/// The most arguments that a listed function has.
pub const MAX_ARGUMENTS: usize = 6;

impl Function {
    /// The place of the argument of this name.
    ///
    /// # Panics
    /// When there is none, which a test of the list excludes.
    pub fn position(&self, name: &str) -> usize {
        let found = self.arguments.iter().position(|argument| argument.name == name);
        found.unwrap_or_else(|| panic!("{} has no argument {name}", self.name))
    }
}

impl Mode {
    /// The size of one element of the memory that the argument points to, and the argument that counts them.
    pub fn counted(&self) -> Option<(usize, &'static str)> {
        match *self {
            Self::Bytes(_, count) => Some((1, count)),
            Self::Array(element, count) | Self::List(element, count) | Self::Processes(element, count) => {
                Some((element.size, count))
            }
            Self::Devices(count) => Some((size_of::<DeviceNumber>(), count)),
            _ => None,
        }
    }

    /// Whether the argument is a number rather than an address.
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Value(_) | Self::Device)
    }

    /// Whether the function reads the memory that the argument points to.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Text | Self::InOut(_) | Self::Versioned(_) | Self::VersionedIn(_) | Self::Array(..)
        )
    }

    /// Whether the function writes to it.
    pub fn is_written(&self) -> bool {
        !self.is_number() && !matches!(self, Self::Text | Self::VersionedIn(_))
    }
}

const DEVICE: Mode = Mode::Device;
const OUT_DEVICE: Mode = Mode::OutDevice;
const TEXT: Mode = Mode::Text;

const fn value(value: Type) -> Mode {
    Mode::Value(value)
}

const fn out(value: Type) -> Mode {
    Mode::Out(value, 1)
}

const fn out_array(element: Type, count: usize) -> Mode {
    Mode::Out(element, count)
}

const fn inout(value: Type) -> Mode {
    Mode::InOut(value)
}

const fn versioned(newest: Type) -> Mode {
    Mode::Versioned(newest)
}

const fn versioned_in(newest: Type) -> Mode {
    Mode::VersionedIn(newest)
}

const fn characters(length: &'static str) -> Mode {
    Mode::Bytes(CHAR, length)
}

const fn bytes(element: Type, length: &'static str) -> Mode {
    Mode::Bytes(element, length)
}

const fn array(element: Type, count: &'static str) -> Mode {
    Mode::Array(element, count)
}

const fn list(element: Type, count: &'static str) -> Mode {
    Mode::List(element, count)
}

const fn devices(count: &'static str) -> Mode {
    Mode::Devices(count)
}

const fn processes(entry: Type, count: &'static str) -> Mode {
    Mode::Processes(entry, count)
}

macro_rules! tables {
    (
        forwarded { $($name:ident($($argument:ident: $mode:expr),*);)* }
        local { $($local:ident,)* }
        refused { $($refused:ident,)* }
        absent { $($absent:ident,)* }
    ) => {
        /// The functions whose calls are carried to the server.
        pub static FORWARDED: &[Function] = &[$(
            Function {
                name: stringify!($name),
                arguments: &[$(Argument { name: stringify!($argument), mode: $mode }),*],
            },
        )*];
        /// Those that the client library has hand-written code for.
        pub static LOCAL: &[&str] = &[$(stringify!($local)),*];
        /// Those that would change the server's GPUs.
        pub static REFUSED: &[&str] = &[$(stringify!($refused)),*];
        /// Those that are not supported.
        pub static ABSENT: &[&str] = &[$(stringify!($absent)),*];
    };
}

crate::nvml_functions!(tables);

/// The index in [`FORWARDED`] of the function of this name.
///
/// # Panics
/// When it is not in the list.
pub const fn index_of(name: &str) -> usize {
    let mut index = 0;
    while index < FORWARDED.len() {
        if same(FORWARDED[index].name.as_bytes(), name.as_bytes()) {
            return index;
        }
        index += 1;
    }
    panic!("the list has no such function");
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// The function of this name whose calls are carried to the server.
pub fn find(name: &str) -> Option<&'static Function> {
    static BY_NAME: LazyLock<HashMap<&str, &Function>> =
        LazyLock::new(|| FORWARDED.iter().map(|function| (function.name, function)).collect());
    BY_NAME.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_an_argument_that_can_count() {
        for function in FORWARDED {
            assert!(function.arguments.len() <= MAX_ARGUMENTS, "{}", function.name);
            for argument in function.arguments {
                let Some((_, count)) = argument.mode.counted() else { continue };
                let counter = function.arguments[function.position(count)].mode;
                let fits = match argument.mode {
                    Mode::Bytes(..) | Mode::Array(..) => matches!(counter, Mode::Value(U32 | I32)),
                    _ => counter == Mode::InOut(U32),
                };
                assert!(fits, "{} of {} cannot count {}", count, function.name, argument.name);
            }
        }
    }

    #[test]
    fn every_function_is_listed_once_and_found() {
        let mut names: Vec<_> = FORWARDED.iter().map(|function| function.name).collect();
        names.extend([LOCAL, REFUSED, ABSENT].concat());
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(FORWARDED.iter().all(|function| find(function.name) == Some(function)));
        assert_eq!(FORWARDED[index_of("nvmlDeviceGetName")].name, "nvmlDeviceGetName");
    }
}
