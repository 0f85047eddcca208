//! Confinement of a process that the broker has started.

use causeway_sandbox::{Confinement, ConfinementError};

use super::error::WorkerError;
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ToWorker};

/// The confinement of this process.
#[derive(Debug)]
pub struct Confined {
    /// What is still to be given up.
    left: Option<Confinement>,
}

impl Confined {
    /// Receives the confinement, which comes before anything else, and enters it. The calling thread must be
    /// the only one.
    pub fn receive(control: &Control) -> Result<Self, WorkerError> {
        let (ToWorker::Confine(left), _) = messages::receive(control)? else {
            return Err(WorkerError::NoStart);
        };
        if let Some(confinement) = &left {
            confinement.enter()?;
        }
        Ok(Self { left })
    }

    /// Gives up what only the start of a driver needs, if that has not been done.
    pub fn close(&mut self) -> Result<(), ConfinementError> {
        self.left.take().map_or(Ok(()), |confinement| confinement.close())
    }
}
