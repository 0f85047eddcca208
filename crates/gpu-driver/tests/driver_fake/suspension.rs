//! The driver's checkpoints of this process: their order, and what is undone when one fails.

use super::{BUSY, Failing, Fake};
use causeway_api::sys::CUresult;
use causeway_gpu::Gpu;
use causeway_gpu::calls::*;
use causeway_gpu::device_memory::{ResumeError, SuspendError, SuspendedTo};

const REFUSED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;
const SHORT: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;

/// The states of a process as the driver numbers them.
const RUNNING: i32 = 0;
const CHECKPOINTED: i32 = 2;
const FAILED: i32 = 3;

#[test]
fn memory_goes_and_comes_back_in_four_steps() {
    let fake = Fake::new();
    assert_eq!(fake.driver.suspends_to().unwrap(), SuspendedTo::HostMemory);
    for _ in 0..2 {
        fake.driver.suspend(None).unwrap();
        assert_eq!(fake.log(), "lock\ncheckpoint\n");
        fake.driver.resume().unwrap();
        assert_eq!(fake.log(), "restore\nunlock\n");
    }
}

#[test]
fn only_a_session_without_work_and_waits_is_quiet() {
    let fake = Fake::new();
    let stream = fake.driver.stream_create(1, 0).unwrap();
    assert!(fake.driver.is_quiet());
    fake.set_busy(BUSY);
    assert!(!fake.driver.is_quiet());
    fake.driver.after_a_while(stream, Box::new(|_| ())).unwrap();
    assert!(!fake.driver.is_quiet(), "somebody waits");
    fake.set_busy(0);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !fake.driver.is_quiet() {
        assert!(std::time::Instant::now() < end, "the wait is over");
        std::thread::yield_now();
    }
    fake.set_busy(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS.0 as i32);
    assert!(!fake.driver.is_quiet(), "a stream has failed");
}

#[test]
fn what_is_refused_leaves_the_process_as_it_was() {
    let fake = Fake::new();
    fake.fail(Failing::LockProcess, Some(REFUSED));
    let error = fake.driver.suspend(None).unwrap_err();
    assert!(
        matches!(error, SuspendError::Refused(_)) && error.to_string().contains("ProcessLock"),
        "{error}"
    );
    assert_eq!(fake.log(), "lock\n");
    fake.fail(Failing::LockProcess, None);
    fake.fail(Failing::CheckpointProcess, Some(REFUSED));
    assert!(matches!(fake.driver.suspend(None), Err(SuspendError::Refused(_))));
    assert_eq!(fake.log(), "lock\ncheckpoint\nunlock\n");
    // It has gone after all, which is undone.
    fake.set_process_state(RUNNING, CHECKPOINTED);
    assert!(matches!(fake.driver.suspend(None), Err(SuspendError::Refused(_))));
    assert_eq!(fake.log(), "lock\ncheckpoint\nrestore\nunlock\n");
    fake.set_process_state(RUNNING, -1);
    fake.fail(Failing::CheckpointProcess, None);
    fake.driver.suspend(None).unwrap();
    fake.driver.resume().unwrap();
}

#[test]
fn what_has_failed_half_way_is_lost() {
    let fake = Fake::new();
    fake.fail(Failing::CheckpointProcess, Some(REFUSED));
    fake.set_process_state(RUNNING, FAILED);
    assert!(matches!(fake.driver.suspend(None), Err(SuspendError::Lost(_))));
    fake.set_process_state(CHECKPOINTED, FAILED);
    fake.fail(Failing::RestoreProcess, Some(SHORT));
    assert!(matches!(fake.driver.resume(), Err(ResumeError::Lost(_))));
}

#[test]
fn memory_that_the_device_lacks_now_can_come_back_later() {
    let fake = Fake::new();
    fake.driver.suspend(None).unwrap();
    fake.fail(Failing::RestoreProcess, Some(SHORT));
    for _ in 0..2 {
        assert!(matches!(fake.driver.resume(), Err(ResumeError::OutOfMemory(_))));
    }
    fake.fail(Failing::RestoreProcess, None);
    fake.driver.resume().unwrap();
    fake.log();
    // An unlock that fails is no end of the process's memory, and is all that is left to do.
    fake.driver.suspend(None).unwrap();
    fake.fail(Failing::UnlockProcess, Some(REFUSED));
    assert!(matches!(fake.driver.resume(), Err(ResumeError::Lost(_))));
}
