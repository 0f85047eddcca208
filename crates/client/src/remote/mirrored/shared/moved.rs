//! Private memory of this process made shareable with a worker, and private again.
//!
//! Its pages are replaced by those of a sealed file in memory, at the same addresses and with the same bytes,
//! while other threads go on using them ([`WriteBarrier`]); and back when the program unregisters it. What
//! the program had asked of the memory (locked, left out of children, huge pages) is asked of the new pages.
//!
//! Not everything follows. What a device or the kernel has pinned would keep the old pages: then nothing is
//! moved, and nothing put back. And such pages are not copied on write in a forked child, which would see
//! what its parent writes: before a fork they are copied, and the child has the copies.

use core::cell::Cell;
use core::fmt;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Once;

use causeway_api::sys::CUresult;
use causeway_memory::mappings::{self, Mapping};
use causeway_memory::pages::{self, Access};
use causeway_memory::replace::{Kind, WriteBarrier, replace_mapping};
use causeway_memory::{SealedMemory, SharedFileError};

use crate::locks::{Mutex, rank};
use crate::log::info;

/// Memory that was moved.
#[derive(Clone)]
struct Moved {
    pages: Range<usize>,
    /// Device and number of the file that it was moved into.
    file: ((u32, u32), u64),
    properties: PageProperties,
}

/// By the address that the program registered.
static MOVED: Mutex<rank::MovedMemory, BTreeMap<usize, Moved>> = Mutex::new(BTreeMap::new());

/// What the program has asked of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PageProperties {
    is_locked: bool,
    is_huge: bool,
    is_never_huge: bool,
    is_left_out_of_children: bool,
    is_left_out_of_dumps: bool,
}

impl PageProperties {
    /// Reads them from what the kernel notes of memory; an error where one of these could not be kept.
    fn of(flags: &BTreeSet<[u8; 2]>) -> Result<Self, [u8; 2]> {
        /// Rights, accounting, merging of equal pages, and advice about reading ahead.
        const HARMLESS: [&[u8; 2]; 12] =
            [b"rd", b"wr", b"mr", b"mw", b"me", b"ac", b"nr", b"sd", b"mg", b"sr", b"rr", b"ms"];
        let mut properties = Self::default();
        for flag in flags {
            match flag {
                b"lo" => properties.is_locked = true,
                b"hg" => properties.is_huge = true,
                b"nh" => properties.is_never_huge = true,
                b"dc" => properties.is_left_out_of_children = true,
                b"dd" => properties.is_left_out_of_dumps = true,
                other if HARMLESS.contains(&other) => {}
                other => return Err(*other),
            }
        }
        Ok(properties)
    }

    /// Asks the same of new memory. What the system does not grant costs speed at most, but for locking.
    fn apply(self, memory: *mut libc::c_void, bytes: usize) -> io::Result<()> {
        let advice = [
            (self.is_huge, libc::MADV_HUGEPAGE),
            (self.is_never_huge, libc::MADV_NOHUGEPAGE),
            (self.is_left_out_of_children, libc::MADV_DONTFORK),
            (self.is_left_out_of_dumps, libc::MADV_DONTDUMP),
        ];
        for (_, advice) in advice.into_iter().filter(|(is_set, _)| *is_set) {
            // SAFETY: new memory that nobody uses yet.
            unsafe { libc::madvise(memory, bytes, advice) };
        }
        // SAFETY: new memory that nobody uses yet.
        if self.is_locked && unsafe { libc::mlock(memory, bytes) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// New pages without an owner yet; unmapped if they stay so.
struct NewPages {
    address: *mut libc::c_void,
    bytes: usize,
}

impl NewPages {
    /// Those of a file, or private ones.
    fn map(bytes: usize, file: Option<&SealedMemory>, properties: PageProperties) -> io::Result<Self> {
        let (kind, descriptor) = match file {
            Some(file) => (libc::MAP_SHARED, file.descriptor().as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let address = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, kind, descriptor, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let new = Self { address, bytes };
        properties.apply(address, bytes)?;
        pages::populate(address as usize, bytes, Access::Write);
        Ok(new)
    }

    /// Puts them in the place of what is at `start`, with its bytes.
    fn replace(self, barrier: &WriteBarrier, start: usize, kind: Kind) -> io::Result<()> {
        // SAFETY: the new pages are nobody else's. What they replace is mapped, as the caller has seen, and is
        // not this thread's stack; a file's pages are not pinned, as far as the kernel tells.
        let replaced = unsafe { barrier.replace(start as *mut u8, self.address.cast(), self.bytes, kind) };
        let replaced_bytes =
            replaced.as_ref().err().map_or(self.bytes, |(replaced_bytes, _)| *replaced_bytes);
        if replaced_bytes < self.bytes {
            // SAFETY: what is left of the new pages, which nobody has got.
            unsafe { libc::munmap(self.address.byte_add(replaced_bytes), self.bytes - replaced_bytes) };
        }
        core::mem::forget(self);
        replaced.map_err(|(_, cause)| cause)
    }
}

impl Drop for NewPages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody has got them.
        unsafe { libc::munmap(self.address, self.bytes) };
    }
}

/// A move that has been prepared: the worker can have the file before the program's memory is in it.
pub struct Move {
    base: usize,
    pages: Range<usize>,
    file: SealedMemory,
    new: NewPages,
    barrier: WriteBarrier,
    properties: PageProperties,
}

impl Move {
    /// Prepares a move of the `pages` in which the memory at `base` lies, all of one private mapping.
    pub fn prepare(base: usize, mapping: &Mapping) -> Result<Self, NotShared> {
        let pages = mapping.range.clone();
        let flags = mappings::flags_within(&pages).map_err(NotShared::Unknown)?;
        let here = 0_u8;
        let properties = may_move(mapping, &flags, &raw const here as usize)?;
        let barrier = WriteBarrier::new().map_err(NotShared::NoBarrier)?;
        let file = SealedMemory::new("causeway-registered", pages.len() as u64)
            .map_err(|cause| NotShared::NoBarrier(io::Error::other(cause)))?;
        let new = NewPages::map(pages.len(), Some(&file), properties).map_err(NotShared::NoBarrier)?;
        // What a forked child has in common with this process is copied now.
        pages::populate(pages.start, pages.len(), Access::Write);
        Ok(Self { base, pages, file, new, barrier, properties })
    }

    /// The file that the memory is going to be.
    pub fn file(&self) -> &SealedMemory {
        &self.file
    }

    /// Moves the memory. Where that fails, it stays as it is or is put back.
    pub fn carry_out(self) -> Result<(), NotShared> {
        static WATCH: Once = Once::new();
        let Self { base, pages, file, new, barrier, properties } = self;
        let size = pages.len();
        let mapping = mappings::within(new.address as usize..new.address as usize + size);
        let mapping = mapping.map_err(NotShared::Unknown)?.into_iter().next().ok_or(NotShared::NotOne)?;
        drop(file);
        // SAFETY: the functions stay mapped, because the library is linked with `-z nodelete`.
        WATCH.call_once(|| unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child));
        });
        let start = pages.start;
        MOVED.lock().insert(base, Moved { pages, file: (mapping.device, mapping.inode), properties });
        new.replace(&barrier, start, Kind::Private).map_err(|cause| {
            put_back(base);
            match cause.raw_os_error() {
                Some(libc::EBUSY) => NotShared::Pinned,
                _ => NotShared::NoBarrier(cause),
            }
        })
    }
}

/// Whether private memory can be moved, and what is to be asked of its new pages. `stack` is an address of the
/// calling thread's stack.
fn may_move(mapping: &Mapping, flags: &BTreeSet<[u8; 2]>, stack: usize) -> Result<PageProperties, NotShared> {
    /// This thread's stack goes on below the address that it names.
    const STACK: usize = 256 << 10;
    if mapping.inode != 0 {
        return Err(NotShared::PrivateFile);
    }
    if mapping.access[2] {
        return Err(NotShared::Property(*b"ex"));
    }
    if mapping.range.start < stack + STACK && stack.saturating_sub(STACK) < mapping.range.end {
        return Err(NotShared::Stack);
    }
    PageProperties::of(flags).map_err(NotShared::Property)
}

/// Makes memory private again that was moved, if the program has it still: no worker has it any more.
pub fn put_back(base: usize) {
    let Some(moved) = MOVED.lock().get(&base).cloned() else { return };
    if moved.is_in_place()
        && let Err(cause) = moved.put_back()
    {
        // It holds what it held, and forks go on copying it.
        info!("registered memory at {base:#x} stays a file in memory: {cause}");
        return;
    }
    MOVED.lock().remove(&base);
}

/// Whether a forked child has none of the memory that was moved at `base`, as the program wants it.
pub fn is_left_out_of_children(base: usize) -> bool {
    MOVED.lock().get(&base).is_some_and(|moved| moved.properties.is_left_out_of_children)
}

impl Moved {
    fn put_back(&self) -> io::Result<()> {
        // Of which pages of a file are pinned the kernel says nothing.
        let pinned = mappings::pinned_bytes()?;
        if pinned != 0 {
            return Err(io::Error::other(format!("{pinned} bytes of the process are pinned, perhaps these")));
        }
        let new = NewPages::map(self.pages.len(), None, self.properties)?;
        new.replace(&WriteBarrier::new()?, self.pages.start, Kind::File)
    }

    /// Whether the program still has the memory where it was moved, or a first part of it.
    fn is_in_place(&self) -> bool {
        let found = mappings::within(self.pages.clone()).unwrap_or_default();
        let is_file = |mapping: &Mapping| mapping.is_shared && (mapping.device, mapping.inode) == self.file;
        let covered: usize = found.iter().map(|mapping| mapping.range.len()).sum();
        covered == self.pages.len()
            && found.first().is_some_and(is_file)
            && found.iter().all(|mapping| is_file(mapping) || !mapping.is_shared && mapping.inode == 0)
    }
}

/// Copies for a child that is about to be forked, with where they go.
type Copies = Vec<(usize, NewPages)>;

thread_local! {
    /// Those of the thread that forks, which the child has, too.
    static COPIES: Cell<Copies> = const { Cell::new(Vec::new()) };
}

extern "C" fn before_fork() {
    let moved: Vec<Moved> = MOVED.lock().values().cloned().collect();
    let mut copies = Copies::new();
    for moved in moved.iter().filter(|moved| !moved.properties.is_left_out_of_children && moved.is_in_place())
    {
        let properties = PageProperties { is_locked: false, ..moved.properties };
        match NewPages::map(moved.pages.len(), None, properties) {
            Ok(new) => {
                // SAFETY: the program has the memory still, as was seen just now; what it writes to it meanwhile
                // is its own race with the fork.
                unsafe {
                    new.address
                        .cast::<u8>()
                        .copy_from_nonoverlapping(moved.pages.start as *const u8, new.bytes)
                };
                copies.push((moved.pages.start, new));
            }
            Err(cause) => info!("a child shares {} bytes of registered memory: {cause}", moved.pages.len()),
        }
    }
    // A thread that ends has no place for them any more; its child shares the memory then.
    let _ = COPIES.try_with(|cell| cell.set(copies));
}

extern "C" fn after_fork_in_parent() {
    let _ = COPIES.try_with(|cell| drop(cell.take()));
}

extern "C" fn after_fork_in_child() {
    let _ = COPIES.try_with(|cell| {
        for (start, copy) in cell.take() {
            // SAFETY: the child's own copy takes the place of what it would share with its parent; the child has
            // no other thread.
            let moved = unsafe { replace_mapping(copy.address.cast(), start as *mut u8, copy.bytes) };
            if moved.is_ok() {
                core::mem::forget(copy);
            }
        }
    });
}

/// Why the worker cannot have memory that the program has registered.
#[derive(Debug)]
pub enum NotShared {
    /// The transport carries no descriptors: the server is on another host, or told to use another one.
    Transport,
    /// The server is of an earlier release.
    OldServer,
    /// A forked child has no pages for it.
    NotCopied(io::Error),
    /// The system does not say what is mapped.
    Unknown(io::Error),
    /// There is a gap in it, or it is made of several.
    NotOne,
    /// It is a copy of a file's contents.
    PrivateFile,
    /// The kernel notes this of it, which a file in memory cannot have or which is not known here.
    Property([u8; 2]),
    /// Some of it is pinned where it is, or a forked child has it, too.
    Pinned,
    /// It is the stack of the thread that shares it.
    Stack,
    /// It cannot be moved while others use it.
    NoBarrier(io::Error),
    /// The program may not write to it.
    ReadOnly,
    /// Its file cannot be had.
    File(SharedFileError),
    /// The host window is full, or there is none.
    NoAddresses,
    /// The server's back end does not take it.
    Refused(CUresult),
}

impl fmt::Display for NotShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport => f.write_str("the transport cannot pass memory to the server"),
            Self::OldServer => f.write_str("the server's release does not accept files"),
            Self::NotCopied(cause) => write!(f, "a child cannot have a copy: {cause}"),
            Self::Unknown(cause) => write!(f, "cannot read the list of mappings: {cause}"),
            Self::NotOne => f.write_str("it is not one mapping"),
            Self::PrivateFile => f.write_str("it is a private mapping of a file"),
            Self::Property([first, second]) => {
                let (first, second) = (char::from(*first), char::from(*second));
                write!(f, "it is private memory of a kind that cannot be shared (`{first}{second}` in smaps)")
            }
            Self::Pinned => f.write_str("it is private, and pinned for a device or for system calls to come"),
            Self::Stack => f.write_str("it is the stack of the calling thread"),
            Self::NoBarrier(cause) => {
                write!(f, "it is private, and cannot be moved while others use it (userfaultfd): {cause}")
            }
            Self::ReadOnly => f.write_str("it is read-only"),
            Self::File(cause) => cause.fmt(f),
            Self::NoAddresses => f.write_str("there are no addresses left that both can use"),
            Self::Refused(status) => write!(f, "the server does not accept it ({status:?})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(range: Range<usize>) -> Mapping {
        let access = [true, true, false];
        Mapping { range, access, is_shared: false, offset: 0, device: (0, 0), inode: 0, path: Vec::new() }
    }

    #[test]
    fn only_what_a_file_in_memory_can_stand_for_is_moved() {
        let flags =
            |more: &[[u8; 2]]| [*b"rd", *b"wr", *b"ac"].into_iter().chain(more.iter().copied()).collect();
        let memory = mapping(0x1000_0000..0x1010_0000);
        let far = 0x7000_0000;
        let kept = may_move(&memory, &flags(&[*b"lo", *b"dc", *b"nh"]), far).unwrap();
        let properties = PageProperties {
            is_locked: true,
            is_left_out_of_children: true,
            is_never_huge: true,
            ..PageProperties::default()
        };
        assert_eq!(kept, properties);
        let refused =
            |memory: &Mapping, flags: &BTreeSet<_>, stack| may_move(memory, flags, stack).unwrap_err();
        assert!(matches!(refused(&memory, &flags(&[*b"gd"]), far), NotShared::Property([b'g', b'd'])));
        assert!(matches!(refused(&memory, &flags(&[*b"wf"]), far), NotShared::Property(_)));
        for stack in [0x1000_0000, 0x1010_0000 - 1, 0x1000_0000 - (200 << 10), 0x1010_0000 + (200 << 10)] {
            assert!(matches!(refused(&memory, &flags(&[]), stack), NotShared::Stack), "{stack:#x}");
        }
        let of_file = Mapping { inode: 5, ..memory };
        assert!(matches!(refused(&of_file, &flags(&[]), far), NotShared::PrivateFile));
    }
}
