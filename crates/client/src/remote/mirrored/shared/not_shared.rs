//! Reasons why registered memory has a mirror on the server's own host, too.

use causeway_api::sys::CUresult;
use causeway_memory::SharedFileError;
use core::fmt;
use std::io;

/// Why the worker cannot have memory that the program has registered.
#[derive(Debug)]
pub enum NotShared {
    /// The transport carries no descriptors: the server is on another host, or told to use another one.
    Transport,
    /// The server is of an earlier release.
    OldServer,
    /// The system does not say what is mapped.
    Unknown(io::Error),
    /// There is a gap in it, or it is made of several.
    NotOne,
    /// It is a copy of a file's contents.
    PrivateFile,
    /// The kernel notes this of it, which a file in memory cannot have or which is not known here.
    Property([u8; 2]),
    /// Some of it is pinned where it is, or a forked child has it, too.
    Pinned,
    /// It is the stack of the thread that shares it.
    Stack,
    /// It cannot be moved while others use it.
    NoBarrier(io::Error),
    /// The program may not write to it.
    ReadOnly,
    /// Its file cannot be had.
    File(SharedFileError),
    /// The host window is full, or there is none.
    NoAddresses,
    /// The server's back end does not take it.
    Refused(CUresult),
}

impl fmt::Display for NotShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport => f.write_str("the transport hands no memory to the server"),
            Self::OldServer => f.write_str("the server is of a release that takes no files"),
            Self::Unknown(cause) => write!(f, "the system does not say what is mapped: {cause}"),
            Self::NotOne => f.write_str("it is not one mapping"),
            Self::PrivateFile => f.write_str("it is a private mapping of a file"),
            Self::Property([first, second]) => {
                let (first, second) = (char::from(*first), char::from(*second));
                write!(f, "it is private memory of a kind that cannot be shared (`{first}{second}` in smaps)")
            }
            Self::Pinned => f.write_str("it is private, and pinned for a device or for system calls to come"),
            Self::Stack => f.write_str("it is the stack of the thread that asks"),
            Self::NoBarrier(cause) => {
                write!(f, "it is private, and cannot be moved while others use it (userfaultfd): {cause}")
            }
            Self::ReadOnly => f.write_str("it may only be read"),
            Self::File(cause) => cause.fmt(f),
            Self::NoAddresses => f.write_str("there are no addresses left that both have"),
            Self::Refused(status) => write!(f, "the server does not take it ({status:?})"),
        }
    }
}
