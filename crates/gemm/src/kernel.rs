//! The kernels, as PTX, and the functions of the software GPU that they call.

use std::fmt::Write as _;

use crate::elements::ELEMENTS_REQUEST_BYTES;
use crate::random::RANDOM_REQUEST_BYTES;
use crate::request::REQUEST_BYTES;
use crate::solve::SOLVE_REQUEST_BYTES;
use crate::sparse::SPARSE_REQUEST_BYTES;

/// What the software GPU computes itself, for a block of one thread: each has a kernel and a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// One tile of a matrix product: that of the calling block. Takes a [`Request`](crate::Request).
    Multiply,
    /// A solution or factorization: that of the block's number in the batch. Takes a
    /// [`SolveRequest`](crate::SolveRequest).
    Solve,
    /// An operation on elements: one tile of it, or all of it. Takes an
    /// [`ElementsRequest`](crate::ElementsRequest).
    Elements,
    /// A step of a generator of random numbers. Takes a [`RandomRequest`](crate::RandomRequest).
    Random,
    /// An operation with sparse matrices. Takes a [`SparseRequest`](crate::SparseRequest).
    Sparse,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Multiply, Self::Solve, Self::Elements, Self::Random, Self::Sparse];

    /// The kernel's name.
    pub fn entry(self) -> &'static str {
        match self {
            Self::Multiply => "causeway_gemm",
            Self::Solve => "causeway_solve",
            Self::Elements => "causeway_elements",
            Self::Random => "causeway_random",
            Self::Sparse => "causeway_sparse",
        }
    }

    /// The function's name.
    pub fn function(self) -> &'static str {
        match self {
            Self::Multiply => "__causeway_multiply_tile",
            Self::Solve => "__causeway_solve",
            Self::Elements => "__causeway_elements",
            Self::Random => "__causeway_random",
            Self::Sparse => "__causeway_sparse",
        }
    }

    /// The operation whose function has this name.
    pub fn of_function(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.function() == name)
    }

    /// Bytes of the parameter of both.
    pub fn parameter_bytes(self) -> usize {
        match self {
            Self::Multiply => REQUEST_BYTES,
            Self::Solve => SOLVE_REQUEST_BYTES,
            Self::Elements => ELEMENTS_REQUEST_BYTES,
            Self::Random => RANDOM_REQUEST_BYTES,
            Self::Sparse => SPARSE_REQUEST_BYTES,
        }
    }
}

/// PTX with the kernels of all operations: each passes its parameter to its function. They are launched with blocks
/// of one thread.
pub fn kernels() -> String {
    let mut text = String::from(".version 7.0\n.target sm_50\n.address_size 64\n");
    for operation in Operation::ALL {
        let (entry, function, bytes) = (operation.entry(), operation.function(), operation.parameter_bytes());
        let mut copies = String::new();
        for offset in (0..bytes).step_by(8) {
            // Writing to a string cannot fail.
            let _ = writeln!(copies, "    ld.param.b64 %value, [request+{offset}];");
            let _ = writeln!(copies, "    st.param.b64 [passed+{offset}], %value;");
        }
        let _ = write!(
            text,
            "\n.extern .func {function}(.param .align 8 .b8 request[{bytes}]);\n\n\
             .visible .entry {entry}(.param .align 8 .b8 request[{bytes}])\n{{\n    \
             .reg .b64 %value;\n    .param .align 8 .b8 passed[{bytes}];\n\
             {copies}    call.uni {function}, (passed);\n    ret;\n}}\n"
        );
    }
    text
}
