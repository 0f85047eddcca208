//! Task of a started process: session, monitor or diagnosis.

use std::net::TcpStream;
use std::sync::Arc;

use causeway_api::snapshot::Snapshot;
use causeway_connection::channel::Connection;
use causeway_gpu::Gpu;

use super::confined::Confined;
use super::error::WorkerError;
use super::start::WorkerStart;
use crate::back_end::{self, GpuChoice};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ControlError, ToBroker, ToWorker};

/// A GPU that has been started and what is known of it, or why there is none, as a sentence for the client's
/// user.
pub type Prepared = Result<(Arc<dyn Gpu>, Snapshot), String>;

/// What a process that the broker has started is for.
pub enum Task {
    /// To serve one client, with the GPU that has been started for it already, if that is so.
    Session { start: Box<WorkerStart>, prepared: Option<Prepared> },
    /// To answer all monitoring sessions.
    Monitor { gpu: GpuChoice, control: Control },
    /// To say what this machine is like.
    Diagnosis(Box<Connection>),
}

impl Task {
    /// Gets the task that the broker left at standard input, which is closed from then on.
    /// `prepare` starts the GPU where that is wanted before there is a client.
    ///
    /// # Errors
    /// When the broker is gone or says something else, or this process cannot be confined.
    pub fn receive(prepare: impl Fn(GpuChoice) -> Prepared) -> Result<Self, WorkerError> {
        let control = Control::from_descriptor(Control::from_stdin()?);
        let mut confined = Confined::receive(&control)?;
        let mut prepared = None;
        let (message, socket) = loop {
            match messages::receive(&control)? {
                (ToWorker::Prepare { gpu, is_first }, _) => {
                    if !is_first {
                        back_end::is_reported();
                    }
                    let ready = prepare(gpu);
                    // Each client is told; the log has it once.
                    match &ready {
                        Err(why) if is_first => tracing::warn!("new clients are refused: {why}"),
                        Err(why) => tracing::debug!("new clients are refused: {why}"),
                        Ok(_) => {}
                    }
                    let failure = ready.as_ref().err().cloned();
                    prepared = Some(ready);
                    confined.close()?;
                    messages::send(&control, &ToBroker::Prepared { failure }, None)?;
                }
                other => break other,
            }
        };
        let (start, is_restored) = match message {
            ToWorker::Restore(start) => {
                back_end::is_reported();
                (*start, true)
            }
            ToWorker::Start(start) => {
                // Those that are kept ready say what the machine lacks, before anybody comes.
                back_end::is_reported();
                (*start, false)
            }
            ToWorker::Monitor { gpu } => {
                confined.close()?;
                return Ok(Self::Monitor { gpu, control });
            }
            ToWorker::Diagnose { keys } => {
                confined.close()?;
                let socket = socket.ok_or(ControlError::NoDescriptor)?;
                return Ok(Self::Diagnosis(Box::new(Connection::new(TcpStream::from(socket), keys))));
            }
            ToWorker::Confine(_)
            | ToWorker::Prepare { .. }
            | ToWorker::Lane { .. }
            | ToWorker::Upgrade { .. }
            | ToWorker::Peer { .. }
            | ToWorker::Ping { .. }
            | ToWorker::Release { .. }
            | ToWorker::GpuDirect { .. }
            | ToWorker::Checkpoint(_)
            | ToWorker::State
            | ToWorker::Slot { .. }
            | ToWorker::SlotContended { .. }
            | ToWorker::SlotRecalled { .. }
            | ToWorker::Proceed { .. }
            | ToWorker::Stay { .. }
            | ToWorker::Leave { .. }
            | ToWorker::End { .. }
            | ToWorker::Response { .. } => {
                return Err(WorkerError::NoStart);
            }
        };
        let socket = socket.ok_or(ControlError::NoDescriptor)?;
        let state = if is_restored {
            match messages::receive(&control)? {
                (ToWorker::State, Some(state)) => Some(state),
                _ => return Err(WorkerError::NoStart),
            }
        } else {
            None
        };
        let start = WorkerStart::new(start, control, socket, state, confined);
        Ok(Self::Session { start: Box::new(start), prepared })
    }
}

impl WorkerStart {
    /// Gets the client that this process is to serve. `prepare` starts the GPU where that is wanted before
    /// there is a client.
    ///
    /// # Errors
    /// When the broker is gone or says something else, this process cannot be confined, or it is to do
    /// something else.
    pub fn receive(prepare: impl Fn(GpuChoice) -> Prepared) -> Result<Self, WorkerError> {
        match Task::receive(prepare)? {
            Task::Session { start, .. } => Ok(*start),
            Task::Monitor { .. } | Task::Diagnosis(_) => Err(WorkerError::NoStart),
        }
    }
}
