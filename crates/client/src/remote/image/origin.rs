//! File behind an image: the mapping, its file and the offset there.
//!
//! The images of libraries are parts of their files, and large: where one comes from is found without
//! touching it.

use crate::locks::{Mutex, rank};
use core::ffi::{c_int, c_void};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;

/// What changes when a file is replaced or written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileState {
    /// Its device and inode.
    pub inode: (u64, u64),
    /// Its size in bytes.
    pub bytes: u64,
    /// When its content was last changed: seconds and nanoseconds.
    pub modified: (i64, i64),
    /// When it was last changed in any way: seconds and nanoseconds.
    pub changed: (i64, i64),
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The file.
    pub file: FileState,
    /// Where the part begins, in bytes.
    pub offset: u64,
}

/// A loaded program or library that has been looked up.
struct Object {
    /// What the loader adds to the addresses in the file.
    base: usize,
    file: Option<FileState>,
}

/// Objects that have been looked up, and how often the loader had unloaded one by then.
static OBJECTS: Mutex<rank::LoadedObjects, (u64, Vec<Object>)> = Mutex::new((0, Vec::new()));

/// A read-only segment of a loaded object.
struct Segment {
    base: usize,
    offset: u64,
    unloads: u64,
}

/// Where `length` bytes at `address` come from; nothing when they are not a part of a loaded program or
/// library that cannot have been changed in memory.
pub fn of(address: *const u8, length: usize) -> Option<Origin> {
    let Segment { base, offset, unloads } = segment(address as usize, length)?;
    let mut objects = OBJECTS.lock();
    if objects.0 != unloads {
        // Another object may lie where one that was looked up has been.
        *objects = (unloads, Vec::new());
    }
    let file = match objects.1.iter().find(|object| object.base == base) {
        Some(object) => object.file,
        None => {
            let file = mapped_file(address as usize);
            objects.1.push(Object { base, file });
            file
        }
    };
    file.map(|file| Origin { file, offset })
}

/// What `dl_iterate_phdr` looks for, and what it has found.
struct Search {
    start: usize,
    end: usize,
    found: Option<Segment>,
}

/// The segment of a loaded object that holds the bytes.
fn segment(start: usize, length: usize) -> Option<Segment> {
    let mut search = Search { start, end: start.checked_add(length)?, found: None };
    // SAFETY: the function is called during this call only and gets the address of `search`.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// # Safety
/// `data` is the address of a [`Search`]; `info` describes a loaded object.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: as this function demands.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader's table of that many program headers.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let holding = headers.iter().find(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        header.p_type == libc::PT_LOAD
            && header.p_flags & libc::PF_W == 0
            && start <= search.start
            && search.end <= start.saturating_add(header.p_filesz as usize)
    });
    let Some(header) = holding else { return 0 };
    let into = search.start - base.wrapping_add(header.p_vaddr as usize);
    search.found = Some(Segment { base, offset: header.p_offset + into as u64, unloads: info.dlpi_subs });
    1
}

/// The state of the file that is mapped at an address, if it still is the file of its name.
fn mapped_file(address: usize) -> Option<FileState> {
    let maps = BufReader::new(fs::File::open("/proc/self/maps").ok()?);
    let line = maps.lines().map_while(Result::ok).find(|line| holds(line, address))?;
    let (inode, path) = file_of(&line)?;
    let found = fs::metadata(path).ok()?;
    // The device is not compared: file systems made of layers show another one here than there.
    (found.ino() == inode).then(|| FileState {
        inode: (found.dev(), found.ino()),
        bytes: found.len(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

/// Whether a line of `/proc/self/maps` is about the mapping that holds an address.
fn holds(line: &str, address: usize) -> bool {
    let hexadecimal = |text| usize::from_str_radix(text, 16);
    let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
    range.is_some_and(|(start, end)| {
        hexadecimal(start).is_ok_and(|start| start <= address)
            && hexadecimal(end).is_ok_and(|end| address < end)
    })
}

/// Inode and path of a line: `start-end permissions offset device inode path`.
fn file_of(line: &str) -> Option<(u64, &str)> {
    let path = &line[line.find('/')?..];
    let inode = line.split_ascii_whitespace().nth(4)?.parse().ok()?;
    (inode != 0 && !path.ends_with(" (deleted)")).then_some((inode, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn constants_of_a_program_come_from_its_file() {
        static TEXT: &[u8; 64] = b"sixty-four bytes of text that lie in the program's own file, yes";
        let found = of(TEXT.as_ptr(), TEXT.len()).unwrap();
        let program = fs::File::open("/proc/self/exe").unwrap();
        let mut bytes = [0; 64];
        program.read_exact_at(&mut bytes, found.offset).unwrap();
        assert_eq!(&bytes, TEXT);
        assert_eq!(found.file.bytes, program.metadata().unwrap().len());
        assert_eq!(of(TEXT.as_ptr(), TEXT.len()), Some(found), "the second time from what is kept");
    }

    #[test]
    fn memory_that_can_change_comes_from_no_file() {
        static mut VARIABLE: [u8; 8] = [1; 8];
        assert_eq!(of((&raw const VARIABLE).cast(), 8), None);
        assert_eq!(of(vec![0_u8; 8].as_ptr(), 8), None);
        assert_eq!(of(core::ptr::without_provenance(usize::MAX), 8), None);
    }

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let line = "7f00-7f80 r--p 00001000 08:02 135522 /usr/lib/a b.so";
        assert!(holds(line, 0x7f00) && holds(line, 0x7f7f) && !holds(line, 0x7f80) && !holds("", 0));
        assert_eq!(file_of(line), Some((135_522, "/usr/lib/a b.so")));
        assert_eq!(file_of("7f00-7f80 r--p 00001000 08:02 135522 /usr/lib/a.so (deleted)"), None);
        assert_eq!(file_of("7f00-7f80 rw-p 00000000 00:00 0 [heap]"), None);
    }
}
