//! ELF files of 64 bits: sections, segments, what a loader loads, symbols.
//!
//! A file may be hostile, and be cut short while it is read: it is not mapped but read piece by piece, and no table is
//! larger than [`MAX_TABLE_BYTES`].

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The longest table of names, symbols or relocations that is read; that of PyTorch's largest library is a tenth.
const MAX_TABLE_BYTES: u64 = 256 << 20;

/// The longest name or list of folders that is read, and the most libraries and folders: names of a hostile file may overlap.
const MAX_NAME_BYTES: usize = 4096;
const MAX_NEEDED: usize = 1024;

/// The size of the header (System V ABI, `Elf64_Ehdr`).
pub const HEADER: usize = 64;
/// The size of a program header (`Elf64_Phdr`).
pub const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
const RELOCATION: usize = 24;
const DYNAMIC_ENTRY: usize = 16;

/// The kinds of sections that are looked for (`SHT_RELA`, `SHT_DYNAMIC`, `SHT_DYNSYM`), and the one that has nothing in
/// the file (`SHT_NOBITS`).
const RELOCATIONS: u32 = 4;
const DYNAMIC: u32 = 6;
const WITHOUT_BYTES: u32 = 8;
const DYNAMIC_SYMBOLS: u32 = 11;

/// Entries for the loader (`DT_NEEDED`, `DT_RPATH`, `DT_RUNPATH`).
const NEEDED: u64 = 1;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;

/// The kind of relocation that puts an address of the file itself: `R_X86_64_RELATIVE`, `R_AARCH64_RELATIVE`.
const RELATIVE: [u32; 2] = [8, 1027];

/// An ELF file of 64 bits, little endian.
pub struct Elf {
    file: File,
    header: [u8; HEADER],
    length: u64,
}

/// A section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its address in the process, before the file is moved anywhere.
    pub address: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// How long it is there.
    pub bytes: u64,
    kind: u32,
    link: usize,
}

/// What a file says to the loader.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// The libraries that it loads.
    pub needed: Vec<String>,
    /// The folders in which it looks for them first, as they are written.
    pub folders: Vec<String>,
}

impl Elf {
    /// Opens a file; nothing when it is another one.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut header = [0; HEADER];
        match file.read_exact_at(&mut header, 0) {
            Err(cause) if cause.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        Ok(header.starts_with(b"\x7fELF\x02\x01").then_some(Self { file, header, length }))
    }

    /// What processor it is for (`e_machine`).
    pub fn machine(&self) -> u16 {
        u16::from_le_bytes([self.header[18], self.header[19]])
    }

    /// How long the file is.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The bytes at an offset. They are in the file before memory is taken for them.
    pub fn read(&self, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let is_there = offset.checked_add(bytes).is_some_and(|end| end <= self.length);
        let length = usize::try_from(bytes).ok().filter(|_| is_there).ok_or_else(cut_short)?;
        let mut content = vec![0; length];
        self.file.read_exact_at(&mut content, offset)?;
        Ok(content)
    }

    /// The program headers one after the other, each with its kind.
    pub fn segments(&self) -> impl Iterator<Item = io::Result<(u32, Range<u64>)>> {
        let (offset, count) =
            (long(&self.header, 32), u16::from_le_bytes([self.header[56], self.header[57]]));
        (0..u64::from(count)).map(move |index| {
            let header =
                self.read(offset.saturating_add(index * PROGRAM_HEADER as u64), PROGRAM_HEADER as u64)?;
            let start = long(&header, 8);
            Ok((word(&header, 0), start..start.saturating_add(long(&header, 32))))
        })
    }

    /// All sections.
    pub fn sections(&self) -> io::Result<Vec<Section>> {
        let count = u16::from_le_bytes([self.header[60], self.header[61]]);
        let names_at = usize::from(u16::from_le_bytes([self.header[62], self.header[63]]));
        let headers = self.read(long(&self.header, 40), u64::from(count) * SECTION_HEADER as u64)?;
        let headers: Vec<_> = headers.chunks_exact(SECTION_HEADER).collect();
        let Some(names) = headers.get(names_at) else { return Ok(Vec::new()) };
        let names = self.table(long(names, 24), long(names, 32))?;
        let section = |header: &&[u8]| {
            let kind = word(header, 4);
            Section {
                name: text_at(&names, word(header, 0) as usize),
                address: long(header, 16),
                offset: long(header, 24),
                bytes: if kind == WITHOUT_BYTES { 0 } else { long(header, 32) },
                kind,
                link: word(header, 40) as usize,
            }
        };
        Ok(headers.iter().map(section).collect())
    }

    /// What it says to the loader; nothing for a file that is not loaded like that.
    pub fn dynamic(&self, sections: &[Section]) -> io::Result<Dynamic> {
        let mut dynamic = Dynamic::default();
        let Some(section) = sections.iter().find(|section| section.kind == DYNAMIC) else {
            return Ok(dynamic);
        };
        let names = self.names_of(section, sections)?;
        for entry in self.table(section.offset, section.bytes)?.chunks_exact(DYNAMIC_ENTRY) {
            let text = || text_at(&names, usize::try_from(long(entry, 8)).unwrap_or(usize::MAX));
            match long(entry, 0) {
                0 => break,
                _ if dynamic.needed.len() + dynamic.folders.len() > MAX_NEEDED => break,
                NEEDED => dynamic.needed.push(text()),
                RPATH | RUNPATH => {
                    dynamic.folders.extend(text().split(':').filter(|it| !it.is_empty()).map(str::to_owned))
                }
                _ => {}
            }
        }
        Ok(dynamic)
    }

    /// The names of functions that a loader takes from other files, among those that are `requested`.
    pub fn imports(
        &self,
        sections: &[Section],
        mut requested: impl FnMut(&str) -> bool,
    ) -> io::Result<BTreeSet<String>> {
        let mut imports = BTreeSet::new();
        for section in sections.iter().filter(|section| section.kind == DYNAMIC_SYMBOLS) {
            let names = self.names_of(section, sections)?;
            for symbol in self.table(section.offset, section.bytes)?.chunks_exact(SYMBOL) {
                let is_undefined = symbol[6..8] == [0, 0];
                if let Some(Ok(name)) =
                    is_undefined.then(|| str::from_utf8(name_at(&names, word(symbol, 0) as usize)))
                    && requested(name)
                {
                    imports.insert(name.to_owned());
                }
            }
        }
        Ok(imports)
    }

    /// What a loader writes at the addresses of a range: addresses of the file itself, before it is moved anywhere.
    pub fn relocated(&self, sections: &[Section], range: &Range<u64>) -> io::Result<HashMap<u64, u64>> {
        let mut found = HashMap::new();
        for section in sections.iter().filter(|section| section.kind == RELOCATIONS) {
            for entry in self.table(section.offset, section.bytes)?.chunks_exact(RELOCATION) {
                if range.contains(&long(entry, 0)) && RELATIVE.contains(&word(entry, 8)) {
                    found.insert(long(entry, 0), long(entry, 16));
                }
            }
        }
        Ok(found)
    }

    /// The table of names that a section refers to.
    fn names_of(&self, section: &Section, sections: &[Section]) -> io::Result<Vec<u8>> {
        let Some(names) = sections.get(section.link) else { return Ok(Vec::new()) };
        self.table(names.offset, names.bytes)
    }

    fn table(&self, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
        if bytes > MAX_TABLE_BYTES {
            return Err(io::Error::new(ErrorKind::InvalidData, "a table in it is larger than 256 MiB"));
        }
        self.read(offset, bytes)
    }
}

fn cut_short() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a header in it refers to bytes beyond its end")
}

/// The bytes at `at` up to the next zero, or as many as a name may have; none where there are none.
fn name_at(names: &[u8], at: usize) -> &[u8] {
    let rest = names.get(at..).unwrap_or_default();
    rest[..rest.len().min(MAX_NAME_BYTES)].split(|byte| *byte == 0).next().unwrap_or_default()
}

fn text_at(names: &[u8], at: usize) -> String {
    String::from_utf8_lossy(name_at(names, at)).into_owned()
}

/// The 32 bits at `at`, which is within the bytes.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

/// The 64 bits at `at`, which is within the bytes.
fn long(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_that_runs_this_is_read() {
        let elf = Elf::open(&std::env::current_exe().unwrap()).unwrap().unwrap();
        let sections = elf.sections().unwrap();
        assert!(sections.iter().any(|section| section.name == ".text"), "{sections:?}");
        let dynamic = elf.dynamic(&sections).unwrap();
        assert!(dynamic.needed.iter().any(|name| name.starts_with("libc.so")), "{dynamic:?}");
        let imports = elf.imports(&sections, |name| name == "malloc" || name == "no such function").unwrap();
        assert_eq!(imports, BTreeSet::from(["malloc".to_owned()]));
        let address = sections.iter().find(|section| section.name == ".data.rel.ro").unwrap();
        let range = address.address..address.address + address.bytes;
        let relocated = elf.relocated(&sections, &range).unwrap();
        assert!(!relocated.is_empty() && relocated.keys().all(|at| range.contains(at)));
    }

    #[test]
    fn damaged_files_are_errors_or_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let try_file = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            let Some(elf) = Elf::open(&path)? else { return Ok(()) };
            let sections = elf.sections()?;
            elf.dynamic(&sections)?;
            elf.imports(&sections, |_| true)?;
            elf.segments().try_for_each(|segment| segment.map(drop))
        };
        // The header of the sections is at the end.
        assert!(try_file(&whole[..HEADER]).is_err());
        assert!(try_file(&whole[..HEADER - 1]).is_ok(), "no ELF file");
        let mut damaged = whole[..HEADER].to_vec();
        damaged.resize(64 << 10, 0xff);
        assert!(try_file(&damaged).is_err());
        damaged[40..48].copy_from_slice(&(HEADER as u64).to_le_bytes());
        damaged[62..64].fill(0);
        assert!(try_file(&damaged).is_err(), "a table of 2^64 bytes");
    }
}
