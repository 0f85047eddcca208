//! Protocol between the parent and the measuring process.
//!
//! Lines of JSON: the process introduces itself, then answers each request with one reply. It ends when its
//! standard input does.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::case::Case;

/// What the parent asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Get memory and kernels for this case ready, in place of those of the case before.
    Prepare {
        /// The case.
        case: Case,
    },
    /// Carry copies by these plans from now on, in the language of `CAUSEWAY_PIPELINE`.
    UsePlans {
        /// The plans; none for those with which the session began.
        plans: Option<String>,
    },
    /// Carry out the case that was prepared.
    Measure {
        /// How often without noting the times.
        untimed: u32,
        /// How often with noting them.
        timed: u32,
    },
}

/// What the measuring process answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Its first line: it has a GPU.
    Ready(Introduction),
    /// The case can be measured, or the plans are in use.
    Prepared,
    /// Times of the repetitions.
    Measured(Samples),
    /// The case cannot be measured here; the next one may.
    Refused {
        /// Why, as a sentence.
        reason: String,
    },
    /// A copy has brought other bytes than it should.
    Wrong {
        /// What was found, as a sentence.
        reason: String,
    },
    /// Nothing can be measured; the process ends.
    Unable {
        /// Why, as a sentence.
        reason: String,
    },
}

/// What a target measures with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// The library whose functions are called.
    pub library: String,
    /// The first device's name.
    pub device: String,
    /// How many devices there are.
    pub devices: usize,
    /// The driver's CUDA version as `cuDriverGetVersion` gives it, such as 13000.
    pub driver_version: i32,
}

/// Times of some repetitions, in the order in which they were measured. All vectors have the same length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Microseconds until a call returns; the mean of the calls where many are made in a row.
    pub returned_us: Vec<f64>,
    /// Microseconds until the work of the call is done; their share of the whole where many are made in a
    /// row.
    pub done_us: Vec<f64>,
    /// Processor seconds that the measuring process used during the repetition, all its threads together.
    pub processor_s: Vec<f64>,
}

impl Samples {
    /// Appends others.
    pub fn append(&mut self, others: Self) {
        self.returned_us.extend(others.returned_us);
        self.done_us.extend(others.done_us);
        self.processor_s.extend(others.processor_s);
    }

    /// Whether the numbers make sense: as many of each, and none that no clock gives.
    fn is_sound(&self) -> bool {
        let all = [&self.returned_us, &self.done_us, &self.processor_s];
        all.iter().all(|times| {
            times.len() == self.done_us.len() && times.iter().all(|time| time.is_finite() && *time >= 0.0)
        })
    }
}

/// Why a message could not be read or written.
#[derive(Debug, Error)]
pub enum MessageError {
    /// The pipe is broken.
    #[error("the pipe to the other process is broken: {0}")]
    Pipe(#[from] io::Error),
    /// A line makes no sense.
    #[error("malformed message from the other process ({cause}): {line:?}")]
    Damaged {
        /// The line's beginning.
        line: String,
        /// What is wrong with it.
        cause: String,
    },
}

/// Writes one message.
pub fn write(out: &mut impl Write, message: &impl Serialize) -> Result<(), MessageError> {
    let mut line = serde_json::to_string(message).map_err(io::Error::other)?;
    line.push('\n');
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

/// Reads one message; none when the other process has closed the pipe.
pub fn read<M: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<M>, MessageError> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    parse(&line).map(Some)
}

/// Reads a reply; one whose numbers make no sense is damaged.
pub fn read_reply(from: &mut impl BufRead) -> Result<Option<Reply>, MessageError> {
    match read(from)? {
        Some(Reply::Measured(samples)) if !samples.is_sound() => Err(MessageError::Damaged {
            line: "measured".to_owned(),
            cause: "the times are no times".to_owned(),
        }),
        reply => Ok(reply),
    }
}

fn parse<M: DeserializeOwned>(line: &str) -> Result<M, MessageError> {
    serde_json::from_str(line).map_err(|error| MessageError::Damaged {
        line: line.chars().take(200).collect(),
        cause: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Path, Wait};

    #[test]
    fn messages_survive_a_round_trip() {
        let cases = [
            Case::Copy { path: Path::AsyncFromDevice, bytes: 1 << 40 },
            Case::Wait { wait: Wait::RecordAndSynchronize },
            Case::Launches { arguments: 4096 },
        ];
        let mut pipe = Vec::new();
        let mut requests = cases.map(|case| Request::Prepare { case }).to_vec();
        requests.extend([None, Some("8x4M".into())].map(|plans| Request::UsePlans { plans }));
        for request in &requests {
            write(&mut pipe, request).unwrap();
        }
        let mut from = pipe.as_slice();
        for request in requests {
            assert_eq!(read(&mut from).unwrap(), Some(request));
        }
        assert_eq!(read::<Request>(&mut from).unwrap(), None);
    }

    #[test]
    fn damaged_replies_are_told() {
        let uneven = r#"{"measured":{"returned_us":[1.0],"done_us":[],"processor_s":[]}}"#;
        let negative = r#"{"measured":{"returned_us":[1.0],"done_us":[-1.0],"processor_s":[0]}}"#;
        for line in ["nonsense\n", "{}\n", uneven, negative] {
            let error = read_reply(&mut line.as_bytes()).unwrap_err();
            assert!(matches!(error, MessageError::Damaged { .. }), "{line}: {error}");
        }
    }
}
