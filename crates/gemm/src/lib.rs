//! Matrix product on the software GPU: what the stand-in for cuBLAS asks of it.
//!
//! A product is a kernel like any other, launched in the program's stream, so that order, events, capture and
//! errors are those of kernels. The kernel ([`kernel`]) calls one function that the software GPU provides,
//! [`FUNCTION`], with a [`Request`] by value; each block computes one tile of the result.

mod kernel;
mod request;

pub use kernel::{ENTRY, FUNCTION, kernel};
pub use request::{
    Accumulator, Activation, Matrix, REQUEST_BYTES, Request, Scalar, ScalarType, Source, TILE,
};
