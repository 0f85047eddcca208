//! Copies between the client and the GPU: host memory is lent to the GPU until the stream has passed the copy.
//!
//! | Module        | Question it answers                                       |
//! |---------------|-----------------------------------------------------------|
//! | `to_device`   | How do the client's bytes get into device memory?         |
//! | `from_device` | How do bytes of device memory get to the client?          |
//! | `lending`     | When does memory of copies to the device come back?       |

mod from_device;
mod lending;
mod to_device;

pub(super) use from_device::Landing;
pub use lending::Lending;
