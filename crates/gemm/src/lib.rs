//! What the software GPU's processor computes for the libraries that stand in for cuBLAS, cuSOLVER,
//! cuRAND and cuSPARSE: matrix products, operations on elements, solutions and factorizations, random numbers, and
//! operations with sparse matrices.
//!
//! Each is a kernel like any other, launched in the program's stream, so that order, events, capture and errors are
//! those of kernels. The kernel ([`kernels`]) calls one function that the software GPU provides
//! ([`Operation::function`]), with its parameter by value. Of a product each block computes one tile of the result
//! ([`Request`]), and so of operations on elements ([`ElementsRequest`]) unless they have one result; of a solution each
//! has one matrix of a batch ([`SolveRequest`]); random numbers come from one block ([`RandomRequest`]), and so does
//! what is computed with sparse matrices ([`SparseRequest`]).

mod elements;
mod kernel;
mod random;
mod request;
mod solve;
mod sparse;

pub use elements::{ElementsRequest, ElementsStep};
pub use kernel::{Operation, kernels};
pub use random::{Distribution, Generator, MAX_POISSON_MEAN, RandomRequest, RandomStep};
pub use request::{Accumulator, Activation, Matrix, Request, Scalar, ScalarType, Source, Structure, TILE};
pub use solve::{
    CONJUGATE, FROM_IDENTITY, MAX_ELEMENTS, SolveRequest, Step, TRANSPOSE, UNIT_DIAGONAL, VALUES_ALONE,
};
pub use sparse::{
    Dense, MAX_SPARSE, SPARSE_COUNTS, SPARSE_THRESHOLD, SPARSE_UNIT_DIAGONAL, SPARSE_UPPER, SparseFormat,
    SparseMatrix, SparseRequest, SparseStep,
};
