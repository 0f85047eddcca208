//! A board in a folder: a file that is read and written and never mapped, so that whoever shortens it causes
//! an error and no signal.
//!
//! A rank's sign of life is a lock on the first byte of its slot. The lock belongs to the open file
//! (`F_OFD_SETLK`), so that it is seen in every container, needs no process id, and goes when the process
//! ends. A child made by `fork` does not keep the open file ([`CloseOnFork`]).

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use causeway_sync::descriptors::above_stdio;
use causeway_sync::fork::CloseOnFork;
use causeway_sync::threads;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, fstatfs, ftruncate, open, openat, unlinkat};
use rustix::process::geteuid;

use super::layout::Layout;
use super::medium::{Medium, MediumError, MediumKind, board_name, write_or_check_head};
use super::sweep::sweep;
use crate::job::Job;

/// File systems whose files several hosts may have, by their numbers in `statfs`.
const OF_SEVERAL_HOSTS: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x1983_0326, "BeeGFS"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x5346_414f, "AFS"),
];

/// A board in a folder.
#[derive(Debug)]
pub(crate) struct FileMedium {
    path: PathBuf,
    folder: OwnedFd,
    name: String,
    /// In front of the file, so that it goes first.
    _own: CloseOnFork,
    file: File,
    layout: Layout,
}

/// Opens a folder in which a job may have files.
pub(crate) fn open_folder(folder: &Path) -> Result<OwnedFd, MediumError> {
    let failed =
        |cause: rustix::io::Errno| MediumError::Folder { folder: folder.to_owned(), cause: cause.into() };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = open(folder, flags, Mode::empty()).map_err(failed)?;
    let system = fstatfs(&opened).map_err(failed)?;
    // The numbers have 32 bits.
    let number = system.f_type as u32;
    match OF_SEVERAL_HOSTS.iter().find(|(of_several, _)| *of_several == number) {
        Some((_, what)) => Err(MediumError::OfSeveralHosts { folder: folder.to_owned(), what }),
        None => above_stdio(opened).map_err(|cause| MediumError::Folder { folder: folder.to_owned(), cause }),
    }
}

impl FileMedium {
    /// The job's board in a folder, which is made if it is not there.
    pub(crate) fn open(folder: &Path, job: &Job, epoch: u32) -> Result<Self, MediumError> {
        let location = || folder.display().to_string();
        let failed = |what| {
            move |cause: rustix::io::Errno| MediumError::System {
                location: location(),
                what,
                cause: cause.into(),
            }
        };
        let opened = open_folder(folder)?;
        let name = board_name(job, epoch);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match openat(&opened, &name, flags, Mode::RUSR | Mode::WUSR) {
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::LOOP) => {
                return Err(MediumError::Foreign { location: location() });
            }
            opened => opened.map_err(failed("opening"))?,
        };
        let found = fstat(&file).map_err(failed("looking at the file"))?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_file || found.st_uid != geteuid().as_raw() || found.st_mode & 0o077 != 0 || found.st_nlink > 1
        {
            return Err(MediumError::Foreign { location: location() });
        }
        let layout = Layout { ranks: job.ranks() };
        match u64::try_from(found.st_size) {
            Ok(size) if size == layout.bytes() => {}
            // Several ranks may find it empty; they all make it as long as it has to be.
            Ok(0) => threads::without_sigxfsz(|| Ok(ftruncate(&file, layout.bytes())?)).map_err(|cause| {
                MediumError::System { location: location(), what: "making it long enough", cause }
            })?,
            _ => return Err(MediumError::OtherContent { location: location() }),
        }
        let file = above_stdio(file).map_err(|cause| MediumError::System {
            location: location(),
            what: "opening",
            cause,
        })?;
        let own = CloseOnFork::new(&file);
        let file = file.into();
        let medium = Self { path: folder.to_owned(), folder: opened, name, _own: own, file, layout };
        write_or_check_head(&medium, layout, job.tag(), epoch)?;
        sweep(&medium.folder, &medium.name);
        Ok(medium)
    }

    /// The lock of a rank.
    fn lock(&self, rank: u32) -> io::Result<libc::flock> {
        let start = i64::try_from(self.layout.slot(rank)).map_err(io::Error::other)?;
        Ok(libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: start,
            l_len: 1,
            l_pid: 0,
        })
    }

    fn control(&self, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
        // SAFETY: the descriptor is open, and these commands read and write the structure and nothing else.
        let status =
            unsafe { libc::fcntl(self.file.as_fd().as_raw_fd(), command, core::ptr::from_mut(lock)) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Medium for FileMedium {
    fn kind(&self) -> MediumKind {
        MediumKind::Folder(self.path.clone())
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn prove(&mut self, rank: u32) -> io::Result<Option<u32>> {
        let mut lock = self.lock(rank)?;
        match self.control(libc::F_OFD_SETLK, &mut lock) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    format!("another process says that it is rank {rank}"),
                ))
            }
            outcome => outcome.map(|()| None),
        }
    }

    fn lives(&self, rank: u32, _: Option<u32>) -> io::Result<bool> {
        let mut lock = self.lock(rank)?;
        self.control(libc::F_OFD_GETLK, &mut lock)?;
        Ok(lock.l_type != libc::F_UNLCK as i16)
    }

    fn forget_name(&self) -> io::Result<()> {
        let name = CString::new(self.name.as_str())?;
        match unlinkat(&self.folder, &name, AtFlags::empty()) {
            // Every rank may do it.
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
