//! A board in a System V segment, for containers that share their IPC namespace and no folder.
//!
//! A rank's sign of life is a segment of its own that has no key and is marked for removal as soon as it is
//! attached: it is there as long as the process is, and only its number is needed to ask the kernel for it.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use rustix::process::geteuid;

use super::medium::{Medium, MediumError, MediumKind, write_or_check_head};
use super::slot::{HEAD_BYTES, Layout};
use crate::job::Job;

/// How many keys are tried: 31 bits of a key are few, and another job may have the same.
const ATTEMPTS: u8 = 8;

/// Bytes of a rank's own segment: as many as the kernel gives at least.
const PROOF_BYTES: usize = 4096;

/// A segment that this process has attached.
#[derive(Debug)]
struct Attached {
    number: libc::c_int,
    bytes: &'static [AtomicU8],
}

impl Attached {
    fn new(number: libc::c_int, length: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address.
        let address = unsafe { libc::shmat(number, core::ptr::null(), 0) };
        if address as isize == -1 {
            return Err(io::Error::last_os_error());
        }
        // A child made by `fork` would keep a segment alive that says that its parent lives.
        // SAFETY: the range has just been mapped; what changes is what `fork` does with it.
        unsafe { libc::madvise(address, length, libc::MADV_DONTFORK) };
        // SAFETY: the segment has at least `length` bytes, stays attached until this value is dropped, cannot
        // be shortened by anybody, and atomic bytes may be written by other processes at any time.
        let bytes = unsafe { core::slice::from_raw_parts(address.cast::<AtomicU8>(), length) };
        Ok(Self { number, bytes })
    }

    fn remove_name(&self) -> io::Result<()> {
        // SAFETY: removal takes no structure.
        let status = unsafe { libc::shmctl(self.number, libc::IPC_RMID, core::ptr::null_mut()) };
        let error = io::Error::last_os_error();
        match (status, error.raw_os_error()) {
            (0, _) | (_, Some(libc::EIDRM | libc::EINVAL)) => Ok(()),
            _ => Err(error),
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: `bytes` was made of this address and goes with this value.
        unsafe { libc::shmdt(self.bytes.as_ptr().cast()) };
    }
}

/// What the kernel says of a segment.
fn status(number: libc::c_int) -> io::Result<libc::shmid_ds> {
    // SAFETY: plain data, all zeros are a value of it.
    let mut status: libc::shmid_ds = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes the structure.
    if unsafe { libc::shmctl(number, libc::IPC_STAT, &raw mut status) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(status)
}

fn is_own(status: &libc::shmid_ds) -> bool {
    let user = geteuid().as_raw();
    status.shm_perm.uid == user && status.shm_perm.cuid == user && status.shm_perm.mode & 0o077 == 0
}

/// `SHM_STAT` and `SHM_INFO`: the status of the segment at a place of the kernel's table, and that table's
/// last place.
const SHM_STAT: libc::c_int = 13;
const SHM_INFO: libc::c_int = 14;

/// The most places that are looked at.
const MAX_SEGMENT_INDEX: libc::c_int = 1 << 16;

/// A board that is younger than this may belong to ranks that have not attached it yet, in seconds.
const MIN_STALE_AGE: libc::time_t = 60;

/// Removes boards of this user that no process has attached: their ranks were all ended before they could do
/// so. What cannot be removed stays.
fn sweep() {
    // SAFETY: plain data, all zeros are a value of it; the kernel writes less than this.
    let mut info: libc::shmid_ds = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes the structure.
    let last = unsafe { libc::shmctl(0, SHM_INFO, &raw mut info) };
    for location in 0..=last.min(MAX_SEGMENT_INDEX) {
        // SAFETY: plain data, all zeros are a value of it.
        let mut found: libc::shmid_ds = unsafe { core::mem::zeroed() };
        // SAFETY: the kernel writes the structure.
        let number = unsafe { libc::shmctl(location, SHM_STAT, &raw mut found) };
        if number >= 0 && is_left_behind(&found) && is_board(number, found.shm_segsz) {
            // SAFETY: removal takes no structure.
            unsafe { libc::shmctl(number, libc::IPC_RMID, core::ptr::null_mut()) };
        }
    }
}

/// Whether a segment is this user's, old, and attached by nobody.
fn is_left_behind(found: &libc::shmid_ds) -> bool {
    // SAFETY: no memory is passed.
    let now = unsafe { libc::time(core::ptr::null_mut()) };
    let changed = found.shm_ctime.max(found.shm_atime).max(found.shm_dtime);
    is_own(found) && found.shm_nattch == 0 && now.saturating_sub(changed) > MIN_STALE_AGE
}

/// Whether a segment of so many bytes begins as a board does that is so long.
fn is_board(number: libc::c_int, bytes: usize) -> bool {
    let mut head = [0; HEAD_BYTES];
    let Some(segment) = (bytes >= HEAD_BYTES).then(|| Attached::new(number, bytes).ok()).flatten() else {
        return false;
    };
    for (byte, shared) in head.iter_mut().zip(segment.bytes) {
        *byte = shared.load(Ordering::Relaxed);
    }
    Layout::of_head(&head).is_some_and(|layout| layout.bytes() == bytes as u64)
}

/// A board in a segment.
#[derive(Debug)]
pub(crate) struct SystemVMedium {
    board: Attached,
    proof: Option<Attached>,
}

impl SystemVMedium {
    /// The job's board in this IPC namespace, which is made if it is not there.
    pub(crate) fn open(job: &Job, epoch: u32) -> Result<Self, MediumError> {
        let location = || MediumKind::SystemV.to_string();
        let failed = |what| move |cause| MediumError::System { location: location(), what, cause };
        let layout = Layout { ranks: job.ranks() };
        let length = usize::try_from(layout.bytes()).map_err(io::Error::other).map_err(failed("counting"))?;
        let mut refusal = MediumError::OtherContent { location: location() };
        for attempt in 0..ATTEMPTS {
            let key = job.system_v_key(attempt).wrapping_add(epoch as i32) & i32::MAX;
            // SAFETY: no memory is passed.
            let number = unsafe { libc::shmget(key.max(1), length, libc::IPC_CREAT | 0o600) };
            if number < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EACCES) => refusal = MediumError::Foreign { location: location() },
                    // There is one that is shorter, or one that is about to go.
                    Some(libc::EINVAL | libc::EIDRM) => {}
                    _ => return Err(failed("shmget")(error)),
                }
                continue;
            }
            let found = status(number).map_err(failed("shmctl"))?;
            if !is_own(&found) || found.shm_segsz != length {
                refusal = MediumError::Foreign { location: location() };
                continue;
            }
            let board = Attached::new(number, length).map_err(failed("shmat"))?;
            let medium = Self { board, proof: None };
            match write_or_check_head(&medium, layout, job.tag(), epoch) {
                Ok(()) => {
                    sweep();
                    return Ok(medium);
                }
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    fn range(&self, offset: u64, length: usize) -> io::Result<&[AtomicU8]> {
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(length));
        let range = start.zip(end).and_then(|(start, end)| self.board.bytes.get(start..end));
        range.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Medium for SystemVMedium {
    fn kind(&self) -> MediumKind {
        MediumKind::SystemV
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let range = self.range(offset, bytes.len())?;
        for (byte, shared) in bytes.iter_mut().zip(range) {
            *byte = shared.load(Ordering::Relaxed);
        }
        // What is read from here on was written before what has been seen.
        fence(Ordering::Acquire);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = self.range(offset, bytes.len())?;
        fence(Ordering::Release);
        for (byte, shared) in bytes.iter().zip(range) {
            shared.store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    fn prove(&mut self, _: u32) -> io::Result<Option<u32>> {
        let proof = match self.proof.take() {
            Some(proof) => proof,
            None => {
                // SAFETY: no memory is passed.
                let number = unsafe { libc::shmget(libc::IPC_PRIVATE, PROOF_BYTES, libc::IPC_CREAT | 0o600) };
                if number < 0 {
                    return Err(io::Error::last_os_error());
                }
                let attached = Attached::new(number, PROOF_BYTES);
                // SAFETY: no memory is passed, and the segment is this process's own, which goes when the
                // last one detaches, also where it could not be attached.
                unsafe { libc::shmctl(number, libc::IPC_RMID, core::ptr::null_mut()) };
                attached?
            }
        };
        let number = u32::try_from(proof.number).map_err(io::Error::other)?;
        self.proof = Some(proof);
        Ok(Some(number))
    }

    fn lives(&self, _: u32, segment: Option<u32>) -> io::Result<bool> {
        let Some(number) = segment.and_then(|number| libc::c_int::try_from(number).ok()) else {
            return Ok(false);
        };
        match status(number) {
            Ok(found) => Ok(is_own(&found) && found.shm_nattch > 0 && found.shm_segsz == PROOF_BYTES),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIDRM | libc::EACCES)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn forget_name(&self) -> io::Result<()> {
        self.board.remove_name()
    }
}
