//! Module images of a file: fat binaries in the sections into which nvcc puts them, cubins and PTX.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

use causeway_api::image::{FATBIN_HEADER_BYTES, FATBIN_MAGIC, Form, WRAPPER_MAGIC, fatbin_bytes};

use crate::elf::{Elf, Section};

/// The fat binaries of modules, and those of objects that the device linker has joined (`nvcc -rdc=true`).
const MODULES: &str = ".nv_fatbin";
const OBJECTS: &str = "__nv_relfatbin";
/// What the program gives the runtime: `{u32 magic, u32 version, address of a fat binary, address}` each.
const WRAPPERS: &str = ".nvFatBinSegment";
const WRAPPER_BYTES: u64 = 24;
/// The version of the wrapper of a fat binary that the device linker has made.
const LINKED: u32 = 2;

/// NVIDIA's GPUs (`EM_CUDA`).
const GPU: u16 = 190;

/// The largest image that is looked at; those of NVIDIA's libraries have a tenth of that.
const MAX_IMAGE_BYTES: u64 = 512 << 20;
/// The most images of a file: PyTorch's largest library has some thousands.
const MAX_IMAGES: usize = 1 << 16;
/// Bytes of a section that are searched for the next fat binary at a time.
const WINDOW: u64 = 64 << 10;

/// A fat binary in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fatbin {
    address: u64,
    offset: u64,
    bytes: u64,
}

/// Hands over each image of a file, in the form in which a program loads it. One image at a time is in memory.
///
/// # Errors
/// The file cannot be read, or contradicts itself.
pub fn for_each(elf: &Elf, sections: &[Section], mut check: impl FnMut(Form, &[u8])) -> io::Result<()> {
    if elf.machine() == GPU {
        check(Form::Single, &read(elf, 0, elf.length())?);
        return Ok(());
    }
    let [modules, objects] = [MODULES, OBJECTS].map(|name| fatbins(elf, sections, name));
    let (modules, objects) = (modules?, objects?);
    let linked = if objects.is_empty() { BTreeSet::new() } else { linked(elf, sections)? };
    let mut parts = Vec::new();
    for module in &modules {
        let bytes = read(elf, module.offset, module.bytes)?;
        if linked.contains(&module.address) {
            parts.extend(bytes);
        } else {
            check(Form::Single, &bytes);
        }
    }
    if objects.is_empty() {
        return Ok(());
    }
    if parts.is_empty() {
        // No wrapper says which one the linker made. It can have no PTX that the objects do not have.
        parts.extend(FATBIN_MAGIC.to_le_bytes().into_iter().chain([1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    }
    for object in &objects {
        if parts.len() as u64 + object.bytes > MAX_IMAGE_BYTES {
            return Err(too_large(parts.len() as u64 + object.bytes));
        }
        parts.extend(read(elf, object.offset, object.bytes)?);
    }
    check(Form::Linked, &parts);
    Ok(())
}

/// The fat binaries of a section, one after the other with padding between them.
fn fatbins(elf: &Elf, sections: &[Section], name: &str) -> io::Result<Vec<Fatbin>> {
    let mut found = Vec::new();
    for section in sections.iter().filter(|section| section.name == name) {
        let mut at = 0;
        while let Some(start) = next(elf, section, at)? {
            let offset = section.offset + start;
            let header = elf.read(offset, FATBIN_HEADER_BYTES as u64)?;
            let bytes = header.first_chunk().and_then(fatbin_bytes).filter(|bytes| *bytes > 0);
            let is_there = |bytes: &u64| {
                let ends = [start.checked_add(*bytes), offset.checked_add(*bytes)];
                matches!(ends, [Some(end), Some(file)] if end <= section.bytes && file <= elf.length())
            };
            let bytes = bytes.filter(is_there).ok_or_else(|| {
                io::Error::new(ErrorKind::InvalidData, "a fat binary in it exceeds its section")
            })?;
            if found.len() == MAX_IMAGES {
                return Err(io::Error::new(ErrorKind::InvalidData, "it has more than 65536 fat binaries"));
            }
            found.push(Fatbin { address: section.address.wrapping_add(start), offset, bytes });
            at = start + bytes;
        }
    }
    Ok(found)
}

/// Where in a section the next fat binary begins, which is at a multiple of eight bytes behind padding.
fn next(elf: &Elf, section: &Section, from: u64) -> io::Result<Option<u64>> {
    let mut at = from.next_multiple_of(8);
    while at < section.bytes {
        let length = WINDOW.min(section.bytes - at);
        let offset = section.offset.checked_add(at).ok_or(ErrorKind::InvalidData)?;
        for (index, eight) in elf.read(offset, length)?.chunks(8).enumerate() {
            if eight.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
                return Ok(Some(at + 8 * index as u64));
            }
            if eight.iter().any(|byte| *byte != 0) {
                return Err(io::Error::new(ErrorKind::InvalidData, "its GPU code is no fat binary"));
            }
        }
        at += length;
    }
    Ok(None)
}

/// The addresses of fat binaries that the device linker has made.
fn linked(elf: &Elf, sections: &[Section]) -> io::Result<BTreeSet<u64>> {
    let mut linked = BTreeSet::new();
    for section in sections.iter().filter(|section| section.name == WRAPPERS) {
        let range = section.address..section.address.saturating_add(section.bytes);
        if section.bytes > MAX_IMAGES as u64 * WRAPPER_BYTES {
            return Err(io::Error::new(ErrorKind::InvalidData, "it has more than 65536 fat binaries"));
        }
        let content = elf.read(section.offset, section.bytes)?;
        let relocated = elf.relocated(sections, &range)?;
        for (index, wrapper) in content.chunks_exact(WRAPPER_BYTES as usize).enumerate() {
            let (head, data) = (wrapper[..8].first_chunk(), wrapper[8..16].first_chunk());
            let (Some(head), Some(data)) = (head, data) else { continue };
            let head = u64::from_le_bytes(*head);
            if head == (u64::from(LINKED) << 32 | u64::from(WRAPPER_MAGIC)) {
                let at = section.address.wrapping_add(index as u64 * WRAPPER_BYTES + 8);
                linked.insert(relocated.get(&at).copied().unwrap_or(u64::from_le_bytes(*data)));
            }
        }
    }
    Ok(linked)
}

/// The bytes of an image, if they are not too many.
fn read(elf: &Elf, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
    if bytes > MAX_IMAGE_BYTES { Err(too_large(bytes)) } else { elf.read(offset, bytes) }
}

fn too_large(bytes: u64) -> io::Error {
    let text = format!(
        "GPU code of {bytes} bytes in one piece exceeds the maximum that is examined, \
        {MAX_IMAGE_BYTES}"
    );
    io::Error::new(ErrorKind::InvalidData, text)
}
