//! Medium of a board: what every one does, and the errors of one that cannot be used.

use core::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::slot::Layout;
use crate::job::Job;

/// A kind of thing that containers can share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MediumKind {
    /// A folder, such as `/dev/shm` or one that is mounted into containers for their sockets.
    Folder(PathBuf),
    /// System V objects: one IPC namespace.
    SystemV,
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::SystemV => f.write_str("System V memory"),
        }
    }
}

/// Why there can be no board somewhere.
#[derive(Debug, Error)]
pub enum MediumError {
    /// The folder cannot be entered.
    #[error("the folder {} cannot be used: {cause}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Files there may be those of another host.
    #[error(
        "the folder {} is on a file system that hosts share ({what}), so a file in it does not show which \
         ranks are on this host: name a folder on a local file system", folder.display()
    )]
    OfSeveralHosts {
        /// The folder.
        folder: PathBuf,
        /// The file system's name.
        what: &'static str,
    },
    /// Another user's, or one that others may write to.
    #[error("the board in {location} belongs to another user or is accessible to others, and is not used")]
    Foreign {
        /// The folder, or System V.
        location: String,
    },
    /// Not one of this job.
    #[error("the object in {location} with this job's name is not a board of this job")]
    OtherContent {
        /// The folder, or System V.
        location: String,
    },
    /// A system call failed.
    #[error("{location} cannot hold a board: {what} failed: {cause}")]
    System {
        /// The folder, or System V.
        location: String,
        /// The call.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
}

/// Bytes that the processes of a host share, and a sign of life of each rank.
pub(crate) trait Medium: fmt::Debug + Send + Sync {
    fn kind(&self) -> MediumKind;

    /// Reads bytes at an offset. They may be anything.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes bytes at an offset. Whoever sees a later write of this process sees these, too.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Shows that the process of `rank` lives, for as long as it does. The number goes into the slot.
    fn prove(&mut self, rank: u32) -> io::Result<Option<u32>>;

    /// Whether the process of another rank lives; `segment` is the number in its slot.
    fn lives(&self, rank: u32, segment: Option<u32>) -> io::Result<bool>;

    /// Takes the board's name away when everybody has found it. Nothing is left behind then, however
    /// processes end.
    fn forget_name(&self) -> io::Result<()>;
}

/// The file name of a job's board.
pub(super) fn board_name(job: &Job, epoch: u32) -> String {
    format!("{FILE_PREFIX}{}-{epoch}{BOARD_SUFFIX}", job.name())
}

/// What the names of boards end with.
pub(super) const BOARD_SUFFIX: &str = ".board";

/// What the names of all files and sockets of jobs begin with.
pub(crate) const FILE_PREFIX: &str = "causeway-comm-";

/// Writes the head of a board that has none, and checks it otherwise. All ranks write the same, so that they
/// need no lock.
pub(super) fn write_or_check_head(
    medium: &dyn Medium,
    layout: Layout,
    tag: u64,
    epoch: u32,
) -> Result<(), MediumError> {
    let location = || medium.kind().to_string();
    let failed = |what| move |cause| MediumError::System { location: location(), what, cause };
    let expected = layout.head(tag, epoch);
    let mut found = expected;
    medium.read(0, &mut found).map_err(failed("reading"))?;
    if found.iter().all(|byte| *byte == 0) {
        medium.write(0, &expected).map_err(failed("writing"))?;
    } else if found.iter().zip(expected).any(|(found, expected)| *found != 0 && *found != expected) {
        // Another rank may be writing the same at this moment, so that bytes may still be zero.
        return Err(MediumError::OtherContent { location: location() });
    }
    Ok(())
}
