//! Suspension of device memory: what a device holds for a session goes to the host, and comes back later.

use std::io;

use causeway_api::errors;
use causeway_api::sys::CUresult;
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
    #[error("device memory cannot be written to the server's disk: {0}")]
    Store(io::Error),
    /// The driver refuses, and everything is as it was.
    #[error("the driver refuses it: {} answered {}", .0.step, .0.describe())]
    Refused(Failure),
    /// The driver has failed half way, and what the device held is lost.
    #[error("device memory is lost, as the driver failed half way: {} answered {}", .0.step, .0.describe())]
    Lost(Failure),
}

/// Why device memory has not come back.
#[derive(Debug, Error)]
pub enum ResumeError {
    /// The device, or the host, has too little free memory now; it can be tried again.
    #[error("there is too little free memory: {} answered {}", .0.step, .0.describe())]
    OutOfMemory(Failure),
    /// The driver has failed, and what the device held is lost.
    #[error("device memory is lost, as the driver failed to restore it: {} answered {}", .0.step, .0.describe())]
    Lost(Failure),
    /// The file cannot be read, and what the device held is lost.
    #[error("device memory is lost, as it cannot be read from the server's disk: {0}")]
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
}
