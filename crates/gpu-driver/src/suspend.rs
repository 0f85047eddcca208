//! Checkpoints of this process by the driver: all of its device memory, contexts included, goes to the host's memory and
//! comes back at the same addresses.
//!
//! `cuCheckpointProcess*`, since CUDA 12.8, which a process may call for itself. From the lock to the unlock every other
//! call of the driver blocks, on any thread. (H200, driver 580, 2026-11-29: 10 GiB go in 5.0 s and come
//! back in 2.0 s; NVML then counts 0 bytes for the process.)

use crate::context;
use crate::driver::Driver;
use causeway_api::handle::{Native, Stream};
use causeway_api::sys::{
    CUcheckpointCheckpointArgs, CUcheckpointLockArgs, CUcheckpointRestoreArgs, CUcheckpointUnlockArgs,
    CUprocessState, CUresult,
};
use causeway_config::read::PROCESS;
use causeway_config::table::{CUDA_MPS_PIPE_DIRECTORY, MPS_PIPE_DIRECTORY_DEFAULT};
use causeway_gpu::CuResult;
use causeway_gpu::device_memory::{Failure, ResumeError, SuspendError, SuspendedTo};

/// How long the driver may take to stop its calls; nothing is under way then.
const LOCK_TIMEOUT_MS: u32 = 10_000;

const LOCK: &str = "cuCheckpointProcessLock";
const CHECKPOINT: &str = "cuCheckpointProcessCheckpoint";
const RESTORE: &str = "cuCheckpointProcessRestore";
const UNLOCK: &str = "cuCheckpointProcessUnlock";

fn this_process() -> i32 {
    std::process::id().cast_signed()
}

/// Whether programs of this machine share their GPUs by MPS, whose server has their memory.
fn has_mps() -> bool {
    let folder = PROCESS.path(&CUDA_MPS_PIPE_DIRECTORY).unwrap_or_else(|| MPS_PIPE_DIRECTORY_DEFAULT.into());
    folder.join("control").exists()
}

impl Driver {
    fn process_state(&self) -> CuResult<CUprocessState> {
        let mut state = CUprocessState::CU_PROCESS_STATE_RUNNING;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCheckpointProcessGetState(this_process(), &mut state) }?;
        Ok(state)
    }

    fn lock_process(&self) -> CuResult<()> {
        let mut arguments =
            CUcheckpointLockArgs { timeoutMs: LOCK_TIMEOUT_MS, ..CUcheckpointLockArgs::default() };
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCheckpointProcessLock(this_process(), &raw mut arguments) }
    }

    fn checkpoint_process(&self) -> CuResult<()> {
        let mut arguments = CUcheckpointCheckpointArgs::default();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCheckpointProcessCheckpoint(this_process(), &raw mut arguments) }
    }

    fn restore_process(&self) -> CuResult<()> {
        let mut arguments = CUcheckpointRestoreArgs::default();
        // SAFETY: the pointer is to a local, which names no pairs of GPUs.
        unsafe { self.functions.cuCheckpointProcessRestore(this_process(), &raw mut arguments) }
    }

    fn unlock_process(&self) -> CuResult<()> {
        let mut arguments = CUcheckpointUnlockArgs::default();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCheckpointProcessUnlock(this_process(), &raw mut arguments) }
    }

    pub(crate) fn check_suspension(&self) -> Result<SuspendedTo, SuspendError> {
        match self.process_state() {
            Err(CUresult::CUDA_ERROR_NOT_FOUND) => Err(SuspendError::Unsupported(
                "the driver cannot suspend device memory: drivers of CUDA 12.8 (570) and later can",
            )),
            Err(status) => {
                Err(SuspendError::Refused(Failure { step: "cuCheckpointProcessGetState", status }))
            }
            Ok(_) if has_mps() => Err(SuspendError::Unsupported(
                "the GPU is shared by MPS, with which the driver cannot suspend device memory",
            )),
            Ok(_) => Ok(SuspendedTo::HostMemory),
        }
    }

    pub(crate) fn all_is_done(&self) -> bool {
        self.waits.is_idle() && self.streams_are_idle().is_ok()
    }

    /// Asks the driver about every stream; an error is "not ready", or of a stream that has failed.
    fn streams_are_idle(&self) -> CuResult<()> {
        let query = |stream: Native<Stream>| {
            // SAFETY: the handle is the driver's own.
            unsafe { self.functions.cuStreamQuery(stream.as_raw()) }
        };
        for context in self.contexts.all() {
            context::within(self.functions, context, || query(Native::NULL))?;
        }
        for (stream, context) in self.streams.all() {
            context::within(self.functions, context, || query(stream))?;
        }
        Ok(())
    }

    pub(crate) fn suspend_process(&self) -> Result<(), SuspendError> {
        self.lock_process().map_err(|status| SuspendError::Refused(Failure { step: LOCK, status }))?;
        let Err(status) = self.checkpoint_process() else { return Ok(()) };
        let refused = Failure { step: CHECKPOINT, status };
        // Half way or not at all: the driver says what there is to undo.
        if self.process_state() == Ok(CUprocessState::CU_PROCESS_STATE_CHECKPOINTED)
            && let Err(status) = self.restore_process()
        {
            return Err(SuspendError::Lost(Failure { step: RESTORE, status }));
        }
        match (self.process_state(), self.unlock_process()) {
            (Ok(CUprocessState::CU_PROCESS_STATE_FAILED), _) => Err(SuspendError::Lost(refused)),
            (_, Ok(())) => Err(SuspendError::Refused(refused)),
            (_, Err(status)) => Err(SuspendError::Lost(Failure { step: UNLOCK, status })),
        }
    }

    pub(crate) fn resume_process(&self) -> Result<(), ResumeError> {
        // A restore that has gone well may be followed by an unlock that has not.
        if self.process_state() != Ok(CUprocessState::CU_PROCESS_STATE_LOCKED)
            && let Err(status) = self.restore_process()
        {
            let failure = Failure { step: RESTORE, status };
            return Err(match self.process_state() {
                Ok(CUprocessState::CU_PROCESS_STATE_CHECKPOINTED) => ResumeError::OutOfMemory(failure),
                _ => ResumeError::Lost(failure),
            });
        }
        self.unlock_process().map_err(|status| ResumeError::Lost(Failure { step: UNLOCK, status }))
    }
}
