//! PTX in the form of machine code: what a device that runs PTX only gets where others get what a compiler
//! has made.

use super::ELF_MAGIC;

const HEADER_BYTES: usize = 64;
const SECTION_HEADER_BYTES: usize = 64;
/// The type of the section that holds the texts: the first one that ELF leaves to programs (`SHT_LOUSER`).
const TEXTS: u32 = 0x8000_0000;
/// NVIDIA's GPUs (`EM_CUDA`).
const MACHINE: u16 = 190;

/// An ELF file whose first section after the null one holds the texts, each behind its length.
pub fn container(texts: &[String]) -> Vec<u8> {
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

/// The texts in such a file; nothing when it is another.
///
/// # Errors
/// What is wrong with a file that is damaged.
pub fn texts_of(file: &[u8]) -> Option<Result<Vec<String>, &'static str>> {
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
            return Some(Err("a text reaches beyond its end"));
        };
        match core::str::from_utf8(text) {
            Ok(text) => texts.push(text.to_owned()),
            Err(_) => return Some(Err("its PTX is not valid UTF-8")),
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
