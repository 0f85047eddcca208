//! The linker of the software GPU: it gathers PTX, and gives it back in a file that `module` takes for a program.
//!
//! Programs expect an ELF file, whose size can be found by looking at it. So the texts are the one section of one.

use super::image::{self, ImageError};
use super::module::code_of;
use crate::CuResult;
use crate::reports::Reports;
use causeway_api::image::{ELF_MAGIC, Form};
use causeway_api::sys::{CUjitInputType, CUresult};
use causeway_api::types::{JitOptions, JitReport};
use causeway_ptx::{CompileError, CompileOptions, Program};
use parking_lot::Mutex;
use std::collections::HashMap;

/// More source text than this is not gathered.
const MOST_BYTES: usize = 256 << 20;
/// The longest piece of a result that is given at once, in bytes.
const MOST_PIECE: usize = 8 << 20;

const HEADER_BYTES: usize = 64;
const SECTION_HEADER_BYTES: usize = 64;
/// The type of the section that holds the texts: the first one that ELF leaves to programs (`SHT_LOUSER`).
const TEXTS: u32 = 0x8000_0000;
/// NVIDIA's GPUs (`EM_CUDA`).
const MACHINE: u16 = 190;

#[derive(Default)]
struct Link {
    texts: Vec<String>,
    report: u64,
    result: Option<Vec<u8>>,
}

/// All linkers of a device.
pub(super) struct Links {
    /// The devices' compute capability times ten.
    capability: u32,
    links: Mutex<HashMap<u64, Link>>,
}

impl Links {
    /// None yet, for devices of a compute capability.
    pub(super) fn new(capability: u32) -> Self {
        Self { capability, links: Mutex::default() }
    }

    /// Makes a linker.
    pub(super) fn create(&self, options: &JitOptions) -> u64 {
        let id = super::handles::next();
        self.links.lock().insert(id, Link { report: options.report, ..Link::default() });
        id
    }

    /// Adds what is to be linked: PTX, or a fat binary with PTX.
    pub(super) fn add(&self, id: u64, kind: CUjitInputType, data: &[u8], reports: &Reports) -> CuResult<()> {
        self.with(id, |link| {
            let is_known = matches!(
                kind,
                CUjitInputType::CU_JIT_INPUT_PTX
                    | CUjitInputType::CU_JIT_INPUT_FATBINARY
                    | CUjitInputType::CU_JIT_INPUT_CUBIN
            );
            if !is_known {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            let texts = image::ptx_of(Form::Single.number(), data, self.capability).map_err(|error| {
                let errors = error.to_string();
                reports.put(link.report, JitReport { errors, ..JitReport::default() });
                error.code()
            })?;
            // Each text by itself, so that the call which brings a bad one is the one that fails.
            check_alone(&texts).map_err(|(code, errors)| {
                reports.put(link.report, JitReport { errors, ..JitReport::default() });
                code
            })?;
            let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
            if bytes(&link.texts) + bytes(&texts) > MOST_BYTES {
                return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            }
            link.texts.extend(texts);
            Ok(())
        })
    }

    /// Links everything and gives the size of the result.
    pub(super) fn complete(&self, id: u64, reports: &Reports) -> CuResult<usize> {
        self.with(id, |link| {
            let sources: Vec<&str> = link.texts.iter().map(String::as_str).collect();
            Program::compile(&sources, &CompileOptions::default()).map_err(|error| {
                let errors = error.to_string();
                reports.put(link.report, JitReport { errors, ..JitReport::default() });
                code_of(&error)
            })?;
            let result = link.result.insert(container(&link.texts));
            Ok(result.len())
        })
    }

    /// A piece of the result.
    pub(super) fn piece(&self, id: u64, start: usize, length: usize) -> CuResult<Vec<u8>> {
        self.with(id, |link| {
            let end = start.checked_add(length).filter(|_| length <= MOST_PIECE);
            let piece = link.result.as_ref().zip(end).and_then(|(result, end)| result.get(start..end));
            piece.map(<[u8]>::to_vec).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
        })
    }

    /// Destroys a linker.
    pub(super) fn destroy(&self, id: u64) -> CuResult<()> {
        self.links.lock().remove(&id).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    fn with<T>(&self, id: u64, work: impl FnOnce(&mut Link) -> CuResult<T>) -> CuResult<T> {
        work(self.links.lock().get_mut(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?)
    }
}

/// Compiles each text by itself; what it needs of other texts may be missing still.
fn check_alone(texts: &[String]) -> Result<(), (CUresult, String)> {
    texts.iter().try_for_each(|text| match Program::compile(&[text], &CompileOptions::default()) {
        Ok(_) | Err(CompileError::Unresolved(_)) => Ok(()),
        Err(error) => Err((code_of(&error), error.to_string())),
    })
}

/// An ELF file whose first section after the null one holds the texts, each behind its length.
fn container(texts: &[String]) -> Vec<u8> {
    let mut body = Vec::new();
    for text in texts {
        body.extend((text.len() as u64).to_le_bytes());
        body.extend(text.as_bytes());
    }
    let sections_at = (HEADER_BYTES + body.len()).next_multiple_of(8);
    let mut file = vec![0; HEADER_BYTES];
    file[..4].copy_from_slice(&ELF_MAGIC);
    // 64 bits, little endian, version 1; version 1 again further on.
    (file[4], file[5], file[6], file[20]) = (2, 1, 1, 1);
    file[18..20].copy_from_slice(&MACHINE.to_le_bytes());
    file[40..48].copy_from_slice(&(sections_at as u64).to_le_bytes());
    file[52..54].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
    file[58..60].copy_from_slice(&(SECTION_HEADER_BYTES as u16).to_le_bytes());
    file[60..62].copy_from_slice(&2_u16.to_le_bytes());
    file.extend(&body);
    file.resize(sections_at + 2 * SECTION_HEADER_BYTES, 0);
    let section = &mut file[sections_at + SECTION_HEADER_BYTES..];
    section[4..8].copy_from_slice(&TEXTS.to_le_bytes());
    section[24..32].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
    section[32..40].copy_from_slice(&(body.len() as u64).to_le_bytes());
    file
}

/// The texts in a file that a linker here has made; nothing when another made it.
pub(super) fn texts_of(file: &[u8]) -> Option<Result<Vec<String>, ImageError>> {
    let long_at = |at: usize| Some(u64::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let section = usize::try_from(long_at(40)?).ok()?.checked_add(SECTION_HEADER_BYTES)?;
    let kind = u32::from_le_bytes(*file.get(section.checked_add(4)?..)?.first_chunk()?);
    if kind != TEXTS {
        return None;
    }
    let start = usize::try_from(long_at(section.checked_add(24)?)?).ok()?;
    let bytes = usize::try_from(long_at(section.checked_add(32)?)?).ok()?;
    let mut rest = file.get(start..start.checked_add(bytes)?)?;
    let mut texts = Vec::new();
    while !rest.is_empty() {
        let next = rest.split_first_chunk().and_then(|(length, after)| {
            after.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
        });
        let Some((text, after)) = next else {
            return Some(Err(ImageError::Damaged("a text reaches beyond its end")));
        };
        match core::str::from_utf8(text) {
            Ok(text) => texts.push(text.to_owned()),
            Err(_) => return Some(Err(ImageError::Damaged("its PTX is not valid UTF-8"))),
        }
        rest = after;
    }
    Some(Ok(texts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_the_file() {
        for texts in
            [vec![], vec!["one".to_owned()], vec!["one".to_owned(), String::new(), "three".to_owned()]]
        {
            let file = container(&texts);
            assert_eq!(texts_of(&file), Some(Ok(texts)));
            for length in 0..file.len() {
                // Whatever comes out, nothing outside is read.
                let _ = texts_of(&file[..length]);
            }
        }
        assert_eq!(texts_of(b"\x7fELF"), None);
    }
}
