//! What is done with memory.

use super::Region;

/// Which entry point makes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyForm {
    /// `cuMemcpyHtoD`, `cuMemcpyDtoH`, `cuMemcpyDtoD`, `cuMemcpyPeer`.
    Directed,
    /// `cuMemcpy`, whose directions come from the addresses.
    Unified,
    /// `cuMemcpy2D`.
    Rows,
    /// `cuMemcpy3D`.
    Slices,
}

/// What is done with memory, by a stream or by the host.
#[derive(Clone, Debug)]
pub enum Work {
    /// A copy between two regions of the same shape.
    Copy {
        /// Written.
        to: Region,
        /// Read.
        from: Region,
        /// The entry point.
        form: CopyForm,
    },
    /// `cuMemsetD8`, `cuMemsetD32` or the two-dimensional forms.
    Fill {
        /// Written.
        to: Region,
        /// The value of each element.
        value: u32,
        /// Bytes of an element, 1 or 4.
        element: usize,
    },
    /// A kernel that stores words made from a key.
    Generate {
        /// Written.
        to: Region,
        /// Decides the words.
        key: u32,
        /// Steps of a loop before the first store.
        delay: u32,
    },
    /// A kernel that adds to words.
    Add {
        /// Read and written.
        to: Region,
        /// Added to each word.
        constant: u32,
        /// Steps of a loop before the first load.
        delay: u32,
    },
    /// A kernel that copies words and adds to them.
    Move {
        /// Written.
        to: Region,
        /// Read.
        from: Region,
        /// Added to each word.
        constant: u32,
        /// Steps of a loop before the first load.
        delay: u32,
    },
    /// The host reads and compares with the model: code of a thread, or a host function in a stream.
    HostRead {
        /// Read.
        from: Region,
    },
    /// The host stores words made from a key: code of a thread, or a host function in a stream.
    HostWrite {
        /// Written.
        to: Region,
        /// Decides the words.
        key: u32,
    },
}

impl Work {
    /// What it reads.
    pub fn source(&self) -> Option<&Region> {
        match self {
            Self::Copy { from, .. } | Self::Move { from, .. } | Self::HostRead { from } => Some(from),
            Self::Add { to, .. } => Some(to),
            Self::Fill { .. } | Self::Generate { .. } | Self::HostWrite { .. } => None,
        }
    }

    /// What it writes.
    pub fn target(&self) -> Option<&Region> {
        match self {
            Self::Copy { to, .. }
            | Self::Fill { to, .. }
            | Self::Generate { to, .. }
            | Self::Add { to, .. }
            | Self::Move { to, .. }
            | Self::HostWrite { to, .. } => Some(to),
            Self::HostRead { .. } => None,
        }
    }

    /// The work is a kernel.
    pub fn is_kernel(&self) -> bool {
        matches!(self, Self::Generate { .. } | Self::Add { .. } | Self::Move { .. })
    }

    /// The work is code of the host.
    pub fn is_host_code(&self) -> bool {
        matches!(self, Self::HostRead { .. } | Self::HostWrite { .. })
    }
}
