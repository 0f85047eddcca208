//! Board in a folder, and removal of stale ones. It is a file that is read and written and never mapped, so
//! that whoever shortens it causes an error and no signal.
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
use std::time::{Duration, SystemTime};

use causeway_sync::descriptors::above_stdio;
use causeway_sync::fork::CloseOnFork;
use causeway_sync::threads;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fstat, fstatfs, ftruncate, open, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use super::medium::{
    BOARD_SUFFIX, FILE_PREFIX, Medium, MediumError, MediumKind, board_name, write_or_check_head,
};
use super::slot::Layout;
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
    let failed = |cause: Errno| MediumError::Folder { folder: folder.to_owned(), cause: cause.into() };
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
            move |cause: Errno| MediumError::System { location: location(), what, cause: cause.into() }
        };
        let opened = open_folder(folder)?;
        let name = board_name(job, epoch);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match openat(&opened, &name, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::ACCESS | Errno::LOOP) => {
                return Err(MediumError::Foreign { location: location() });
            }
            opened => opened.map_err(failed("opening"))?,
        };
        let found = fstat(&file).map_err(failed("examining the file"))?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_file || found.st_uid != geteuid().as_raw() || found.st_mode & 0o077 != 0 || found.st_nlink > 1
        {
            return Err(MediumError::Foreign { location: location() });
        }
        let layout = Layout { ranks: job.ranks() };
        match u64::try_from(found.st_size) {
            Ok(size) if size == layout.bytes() => {}
            // Several ranks may find it empty; they all make it as long as it has to be.
            Ok(0) => threads::without_sigxfsz(|| Ok(ftruncate(&file, layout.bytes())?))
                .map_err(|cause| MediumError::System { location: location(), what: "extending it", cause })?,
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
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Err(
                io::Error::new(io::ErrorKind::AddrInUse, format!("another process claims to be rank {rank}")),
            ),
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
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A board that is younger than this may belong to ranks that have not locked it yet.
const MIN_STALE_AGE: Duration = Duration::from_secs(60);

/// Removes boards of this user that no process has locked, and sockets at which no process listens. What cannot
/// be removed stays.
pub(super) fn sweep(folder: &OwnedFd, own: &str) {
    let names = names(folder).unwrap_or_default();
    let boards = names.iter().filter(|name| name.ends_with(BOARD_SUFFIX) && *name != own);
    for board in boards.filter(|name| is_left_behind(folder, name).unwrap_or(false)) {
        let stem = board.strip_suffix(BOARD_SUFFIX).unwrap_or(board);
        let is_of_board = |name: &&String| stem_of_socket(name) == Some(stem);
        for name in names.iter().filter(is_of_board).chain([board]) {
            remove(folder, name);
        }
    }
    // The first rank of a job that leaves takes the board away, and the others may be ended after that.
    let has_board = |stem: &str| names.iter().any(|name| name.strip_suffix(BOARD_SUFFIX) == Some(stem));
    for name in names.iter().filter(|name| stem_of_socket(name).is_some_and(|stem| !has_board(stem))) {
        if is_dead_socket(folder, name).unwrap_or(false) {
            remove(folder, name);
        }
    }
}

/// What the name of a job's socket has in common with that of its board.
fn stem_of_socket(name: &str) -> Option<&str> {
    let (stem, rank) = name.rsplit_once('.')?;
    rank.parse::<u32>().is_ok().then_some(stem)
}

/// Removes a file of this user's.
fn remove(folder: &OwnedFd, name: &str) {
    let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    if found.is_ok_and(|found| found.st_uid == geteuid().as_raw()) {
        // Another rank may have done it.
        let _ = unlinkat(folder, name, AtFlags::empty());
    }
}

/// Whether a name is that of an old socket at which nobody listens.
fn is_dead_socket(folder: &OwnedFd, name: &str) -> io::Result<bool> {
    let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket || !is_old(found.st_mtime) {
        return Ok(false);
    }
    let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    // A queue that is full is somebody's, too.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = above_stdio(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)?;
    Ok(connect(&socket, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED))
}

/// The files of jobs in a folder.
fn names(folder: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(FILE_PREFIX) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Whether a board is this user's, old, and nobody's.
fn is_left_behind(folder: &OwnedFd, name: &str) -> io::Result<bool> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(folder, name, flags, Mode::empty())?;
    let found = fstat(&file)?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    Ok(is_file && found.st_uid == geteuid().as_raw() && is_old(found.st_mtime) && !is_locked(&file)?)
}

/// Whether something was last changed longer ago than what ranks are about to use.
fn is_old(changed: i64) -> bool {
    let changed = u64::try_from(changed)
        .map_or(SystemTime::UNIX_EPOCH, |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    SystemTime::now().duration_since(changed).is_ok_and(|age| age > MIN_STALE_AGE)
}

/// Whether any process holds a lock on a part of the file.
fn is_locked(file: &impl AsFd) -> io::Result<bool> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        // To the end, wherever that is.
        l_len: 0,
        l_pid: 0,
    };
    let number = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the command reads and writes the structure and nothing else.
    let status = unsafe { libc::fcntl(number, libc::F_OFD_GETLK, &raw mut lock) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(lock.l_type != libc::F_UNLCK as i16) }
}
