//! File behind an image: the mapping, its file and the offset there.
//!
//! The images of libraries are parts of their files, and large: where one comes from is found without
//! touching it.
//!
//! The hash of an image's content, without reading a large one twice on a machine.
//!
//! The hash of an image that lies in a file is kept on disk under what changes when the file does, so that
//! naming an image of 700 MB costs a look into a small file. One such file is for one image file and holds a
//! line for each image of it that was ever loaded. Processes append whole lines; a line that makes no sense
//! is skipped.

use core::ffi::{c_int, c_void};
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::LazyLock;

use blake3::Hash;
use causeway_sync::threads;

use crate::files;
use crate::locks::{Mutex, rank};

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
    // SAFETY: `dl_iterate_phdr` passes the description of a loaded object and the `Search` that it was given.
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

/// Smaller images are hashed as fast as their hash is found.
const MIN_CACHED_BYTES: usize = 64 << 10;
/// A file of hashes that is larger is begun anew: no library has so many images.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Files of hashes that are kept; the oldest go when there are more.
const MAX_FILES: usize = 512;

/// Hashes by offset and length in a file.
type Known = HashMap<(u64, u64), Hash>;

/// What has been read from disk, by the name of the file of hashes.
static READ: LazyLock<Mutex<rank::FileHashes, HashMap<String, Known>>> = LazyLock::new(Mutex::default);

/// The hash of an image.
pub fn hash_of(image: &[u8]) -> Hash {
    if image.len() < MIN_CACHED_BYTES {
        return blake3::hash(image);
    }
    let Some((folder, origin)) = files::folder("image-hashes").zip(of(image.as_ptr(), image.len())) else {
        return blake3::hash(image);
    };
    cached_or(&folder, origin, image.len() as u64, || blake3::hash(image))
}

/// The hash that is kept for a part of a file; else the one that `compute` gives, which is kept from now on.
fn cached_or(folder: &Path, origin: Origin, length: u64, compute: impl FnOnce() -> Hash) -> Hash {
    let name = name_of(&origin.file);
    let key = (origin.offset, length);
    let mut read = READ.lock();
    let known = read.entry(name.clone()).or_insert_with(|| load(&folder.join(&name)));
    if let Some(hash) = known.get(&key) {
        return *hash;
    }
    drop(read);
    let hash = compute();
    READ.lock().entry(name.clone()).or_default().insert(key, hash);
    // On a disk that takes nothing more the hash is computed again next time.
    let _ = append(folder, &name, key, hash);
    hash
}

/// The name of the file with the hashes of a file's images.
fn name_of(file: &FileState) -> String {
    let FileState { inode, bytes, modified, changed } = file;
    blake3::hash(format!("{inode:?} {bytes} {modified:?} {changed:?}").as_bytes()).to_hex()[..32].to_owned()
}

fn load(path: &Path) -> Known {
    match fs::metadata(path) {
        Ok(found) if found.len() <= MAX_FILE_BYTES => {}
        Ok(_) => {
            // Appending begins a new one; should it stay, it is not read next time either.
            let _ = fs::remove_file(path);
            return Known::default();
        }
        Err(_) => return Known::default(),
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// A line is `offset length hash`.
fn parse(line: &str) -> Option<((u64, u64), Hash)> {
    let mut fields = line.split(' ');
    let key = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let hash = Hash::from_hex(fields.next()?).ok()?;
    fields.next().is_none().then_some((key, hash))
}

fn append(folder: &Path, name: &str, (offset, length): (u64, u64), hash: Hash) -> io::Result<()> {
    files::make(folder)?;
    let path = folder.join(name);
    if !path.exists() {
        files::evict(folder, MAX_FILES, u64::MAX);
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    // In one write, so that lines of other processes stay whole.
    let line = format!("{offset} {length} {}\n", hash.to_hex());
    threads::without_sigxfsz(|| file.write_all(line.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

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

    fn origin(inode: u64, offset: u64) -> Origin {
        let file = FileState { inode: (1, inode), bytes: 9, modified: (5, 6), changed: (7, 8) };
        Origin { file, offset }
    }

    fn forget() {
        READ.lock().clear();
    }

    #[test]
    fn a_hash_is_computed_once_for_a_state_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("deep").join("hashes");
        let first = blake3::hash(b"first");
        let never = || -> Hash { panic!("the hash is kept") };
        assert_eq!(cached_or(&folder, origin(1, 0), 100, || first), first);
        assert_eq!(cached_or(&folder, origin(1, 0), 100, never), first);
        forget();
        assert_eq!(cached_or(&folder, origin(1, 0), 100, never), first, "from disk");
        let other = blake3::hash(b"other");
        assert_eq!(cached_or(&folder, origin(1, 50), 100, || other), other);
        assert_eq!(cached_or(&folder, origin(1, 0), 101, || other), other);
        let mut changed = origin(1, 0);
        changed.file.changed.1 += 1;
        assert_eq!(cached_or(&folder, changed, 100, || other), other);
    }

    #[test]
    fn damaged_lines_and_unwritable_folders_are_tolerated() {
        let folder = tempfile::tempdir().unwrap();
        let hash = blake3::hash(b"x");
        let name = name_of(&origin(2, 0).file);
        let text = format!("nonsense\n0 100\n7 8 {}\n0 100 abc\n", hash.to_hex());
        fs::write(folder.path().join(&name), text).unwrap();
        assert_eq!(cached_or(folder.path(), origin(2, 7), 8, || panic!("the hash is kept")), hash);
        let other = blake3::hash(b"other");
        assert_eq!(cached_or(folder.path(), origin(2, 0), 100, || other), other);
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        assert_eq!(cached_or(&file, origin(3, 0), 100, || other), other);
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let hash = blake3::hash(b"x");
        for number in 0..MAX_FILES as u64 + 10 {
            append(folder.path(), &number.to_string(), (0, number), hash).unwrap();
        }
        assert!(fs::read_dir(folder.path()).unwrap().count() <= MAX_FILES);
    }
}
