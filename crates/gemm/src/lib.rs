//! What the software GPU's processor computes for the libraries that stand in for cuBLAS and cuSOLVER: matrix
//! products, and solutions and factorizations.
//!
//! Each is a kernel like any other, launched in the program's stream, so that order, events, capture and errors are
//! those of kernels. The kernel ([`kernels`]) calls one function that the software GPU provides
//! ([`Operation::function`]), with its parameter by value. Of a product each block computes one tile of the result
//! ([`Request`]); otherwise each has one matrix of a batch ([`SolveRequest`]).

mod kernel;
mod request;
mod solve;

pub use kernel::{Operation, kernels};
pub use request::{Accumulator, Activation, Matrix, Request, Scalar, ScalarType, Source, TILE};
pub use solve::{
    CONJUGATE, FROM_IDENTITY, MAX_ELEMENTS, SolveRequest, Step, TRANSPOSE, UNIT_DIAGONAL, VALUES_ALONE,
};
