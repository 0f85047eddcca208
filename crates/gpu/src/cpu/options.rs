//! Settings of the software GPU.

use std::env;
use thiserror::Error;

/// Names the size of the device's memory.
const MEMORY_VARIABLE: &str = "CAUSEWAY_SOFTWARE_GPU_MEMORY";
/// Memory of the device when nobody sets it: this, or half of the machine's if that is less.
const DEFAULT_MEMORY: u64 = 8 << 30;

/// How a software GPU is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of device memory.
    pub memory: u64,
}

/// The environment gives a size of memory that is none.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{MEMORY_VARIABLE} is `{0}`, which is no size of memory; give a number of bytes, or of KiB, MiB or GiB with the \
     suffix K, M or G (for example 4G)"
)]
pub struct InvalidMemorySize(String);

impl Default for Options {
    fn default() -> Self {
        Self { memory: DEFAULT_MEMORY.min(machine_memory() / 2) }
    }
}

impl Options {
    /// What the environment says: `CAUSEWAY_SOFTWARE_GPU_MEMORY` is the size of the device's memory in bytes, or
    /// in KiB, MiB or GiB with the suffix `K`, `M` or `G`.
    ///
    /// # Errors
    /// When that variable holds something else.
    pub fn from_environment() -> Result<Self, InvalidMemorySize> {
        match env::var_os(MEMORY_VARIABLE) {
            None => Ok(Self::default()),
            Some(text) => {
                let text = text.to_string_lossy();
                parse_size(&text)
                    .map(|memory| Self { memory })
                    .ok_or_else(|| InvalidMemorySize(text.into_owned()))
            }
        }
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, shift) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (1 << 20..=1 << 43).contains(&bytes).then_some(bytes)
}

fn machine_memory() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    match (u64::try_from(pages), u64::try_from(page)) {
        (Ok(pages), Ok(page)) => pages.saturating_mul(page),
        _ => DEFAULT_MEMORY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_size("2097152"), Some(2 << 20));
        assert_eq!(parse_size("64M"), Some(64 << 20));
        assert_eq!(parse_size(" 3g "), Some(3 << 30));
        for wrong in ["", "G", "-1", "1.5G", "12", "99999999999G", "4T", "é"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
