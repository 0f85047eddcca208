//! Device memory: suspension to the host, import from other processes, and address ranges that windows avoid.
//!
//! A window is a range that client and worker both keep free. Programs reserve ranges before they use a GPU:
//! a JVM with ZGC takes terabytes from 4, 8 and 16 TiB on. The client tells its worker what is taken before
//! the GPU is started.

use core::ops::Range;
use std::io;

use causeway_api::errors;
use causeway_api::sys::CUresult;
use causeway_config::read::PROCESS;
use causeway_config::table::ADDRESSES_TAKEN;
use thiserror::Error;

/// Where a back end keeps what it has taken from the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendedTo {
    /// In memory of this process.
    HostMemory,
    /// In a file, which it is given.
    File,
}

/// Why device memory cannot be suspended, or was not. The memory is where it was, but after [`SuspendError::Lost`].
#[derive(Debug, Error)]
pub enum SuspendError {
    /// The back end cannot do it at all.
    #[error("{0}")]
    Unsupported(&'static str),
    /// It was handed no file, or the file takes no more.
    #[error("cannot write device memory to the server's disk: {0}")]
    Store(io::Error),
    /// The driver refuses, and everything is as it was.
    #[error("the driver refused it: {} returned {}", .0.step, .0.describe())]
    Refused(Failure),
    /// The driver has failed half way, and what the device held is lost.
    #[error("device memory is lost, since the driver failed half way: {} returned {}", .0.step, .0.describe())]
    Lost(Failure),
}

/// Why device memory has not come back.
#[derive(Debug, Error)]
pub enum ResumeError {
    /// The device, or the host, has too little free memory now; it can be tried again.
    #[error("there is too little free memory: {} returned {}", .0.step, .0.describe())]
    OutOfMemory(Failure),
    /// The driver has failed, and what the device held is lost.
    #[error("device memory is lost, since the driver failed to restore it: {} returned {}", .0.step, .0.describe())]
    Lost(Failure),
    /// The file cannot be read, and what the device held is lost.
    #[error("device memory is lost, since it cannot be read from the server's disk: {0}")]
    Store(io::Error),
}

/// What a driver has answered to which of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The call.
    pub step: &'static str,
    /// Its answer.
    pub status: CUresult,
}

impl Failure {
    /// The answer for people, with what may be behind it.
    pub fn describe(&self) -> String {
        let name = errors::name(self.status).map(|name| name.to_string_lossy());
        let name = name.unwrap_or_else(|| "an unknown status".into());
        let advice = match self.status {
            CUresult::CUDA_ERROR_OPERATING_SYSTEM
            | CUresult::CUDA_ERROR_NOT_PERMITTED
            | CUresult::CUDA_ERROR_SYSTEM_NOT_READY => {
                ". The system refused the driver something: the worker's sandbox is one that may (`causeway serve --sandbox off`, for \
                 a try)"
            }
            CUresult::CUDA_ERROR_NOT_SUPPORTED => {
                ". The driver cannot do it for something that the program has made: managed memory, memory shared between processes"
            }
            _ => "",
        };
        format!("{name} ({}){advice}", self.status.0)
    }
}

/// A whole allocation of another process's device.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportedMemory {
    /// Its address here.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// Why memory of another process's device cannot be mapped; a part of a sentence, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ImportError {
    /// The descriptor stands for nothing that this device can use.
    #[error("the driver cannot import the other device's memory ({})", named(*.0))]
    Import(CUresult),
    /// There are no addresses for it.
    #[error("the driver cannot reserve addresses for the other device's memory ({})", named(*.0))]
    Addresses(CUresult),
    /// It cannot be mapped.
    #[error("the driver cannot map the other device's memory ({})", named(*.0))]
    Map(CUresult),
    /// The devices do not reach each other's memory.
    #[error("the device cannot access the other one's memory ({})", named(*.0))]
    Access(CUresult),
    /// The size of the memory could still change under this process.
    #[error("the memory is not sealed, or does not have the announced size")]
    NotSealed,
}

fn named(status: CUresult) -> String {
    match errors::name(status) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => format!("error {}", status.0),
    }
}

/// More are not read.
const MAX_TAKEN: usize = 64;

/// What the client says of its program.
pub fn ranges_taken_by_client() -> Vec<Range<u64>> {
    PROCESS.text(&ADDRESSES_TAKEN).map_or_else(Vec::new, |text| parse_ranges(&text))
}

/// Ranges of hexadecimal addresses, as in `/proc/PID/maps`, with commas between them. What makes no sense
/// says nothing.
pub fn parse_ranges(text: &str) -> Vec<Range<u64>> {
    let range = |text: &str| {
        let (start, end) = text.split_once('-')?;
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16));
        Some(start.ok()?..end.ok()?)
    };
    text.split(',').take(MAX_TAKEN).filter_map(range).collect()
}

/// The first of these places, each of which is some ranges, that has nothing of what is taken; the first of all where
/// none is free.
pub fn first_free_address<P: Copy, R: IntoIterator<Item = Range<u64>>>(
    bases: impl IntoIterator<Item = P>,
    ranges: impl Fn(P) -> R,
    taken: &[Range<u64>],
) -> Option<P> {
    let mut bases = bases.into_iter().peekable();
    let first = bases.peek().copied();
    let overlaps = |range: Range<u64>| taken.iter().any(|one| one.start < range.end && range.start < one.end);
    bases.find(|base| !ranges(*base).into_iter().any(overlaps)).or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_call_its_answer_and_what_to_look_at() {
        let failure = |status| Failure { step: "cuCheckpointProcessLock", status };
        let refused = SuspendError::Refused(failure(CUresult::CUDA_ERROR_OPERATING_SYSTEM)).to_string();
        for part in ["cuCheckpointProcessLock", "CUDA_ERROR_OPERATING_SYSTEM (304)", "--sandbox off"] {
            assert!(refused.contains(part), "{refused}");
        }
        let lost = ResumeError::Lost(failure(CUresult(12345))).to_string();
        assert!(lost.contains("an unknown status (12345)"), "{lost}");
    }

    #[test]
    fn places_that_the_program_uses_are_passed_over() {
        let taken = parse_ranges("1000-2000,zz-1,3000,2fff-3001,5-");
        assert_eq!(taken, [0x1000..0x2000, 0x2fff..0x3001]);
        let first = |taken: &[Range<u64>]| {
            first_free_address([0x1800, 0x2000, 0x3000, 0x4000], |start| Some(start..start + 0x1000), taken)
        };
        assert_eq!(first(&[]), Some(0x1800));
        assert_eq!(first(&taken), Some(0x4000));
        assert_eq!(first(&[0..u64::MAX]), Some(0x1800), "none is free");
    }
}
