//! Removal of stale files of jobs that were killed.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::{Duration, SystemTime};

use causeway_sync::descriptors::above_stdio;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use super::medium::{BOARD_SUFFIX, FILE_PREFIX};

/// A board that is younger than this may belong to ranks that have not locked it yet.
const YOUNG: Duration = Duration::from_secs(60);

/// Removes boards of this user that no process has locked, and sockets at which nobody listens. What cannot
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
    SystemTime::now().duration_since(changed).is_ok_and(|age| age > YOUNG)
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
