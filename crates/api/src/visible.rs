//! Device selection by `CUDA_VISIBLE_DEVICES`, as NVIDIA's driver reads it (580, on an H100).

use core::error::Error;
use core::fmt;

/// Digits and dashes of a UUID.
const UUID_LENGTH: usize = 36;
const PREFIX: &str = "GPU-";

/// A list names a device twice, for which `cuInit` gives `CUDA_ERROR_INVALID_DEVICE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateDevice;

impl fmt::Display for DuplicateDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CUDA_VISIBLE_DEVICES names a device twice; name each once")
    }
}

impl Error for DuplicateDevice {}

/// The places, in this order, of the devices that a list means, among those with these UUIDs as `nvidia-smi
/// -L` prints them ("GPU-8932f937-..."). All of a list are numbers or all are UUIDs, as the first is; it ends
/// at its first entry that names no device.
///
/// # Errors
/// A device is named twice.
pub fn choose(list: &str, uuids: &[String]) -> Result<Vec<usize>, DuplicateDevice> {
    let by_number = number(list).is_some();
    let mut chosen = Vec::new();
    for entry in list.split(',') {
        let found = if by_number {
            number(entry).and_then(|number| usize::try_from(number).ok()).filter(|it| *it < uuids.len())
        } else {
            by_uuid(entry, uuids)
        };
        match found {
            None => break,
            Some(index) if chosen.contains(&index) => return Err(DuplicateDevice),
            Some(index) => chosen.push(index),
        }
    }
    Ok(chosen)
}

/// The number that a text begins with, whatever follows: blanks, a sign, digits. It is cut to 32 bits.
fn number(text: &str) -> Option<i32> {
    let text = text.trim_start();
    let digits_from = usize::from(text.starts_with(['+', '-']));
    let digits = text[digits_from..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let beyond = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    Some(text[..digits_from + digits].parse().unwrap_or(beyond) as i32)
}

/// The one device whose UUID begins with `text`, "GPU-8932f9". What is longer than a UUID is cut.
fn by_uuid(text: &str, uuids: &[String]) -> Option<usize> {
    let digits = text.strip_prefix(PREFIX).filter(|digits| !digits.is_empty())?.as_bytes();
    let digits = &digits[..digits.len().min(UUID_LENGTH)];
    let begins = |uuid: &String| {
        let uuid = uuid.strip_prefix(PREFIX).unwrap_or(uuid).as_bytes();
        uuid.get(..digits.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(digits))
    };
    let mut found = uuids.iter().enumerate().filter(|(_, uuid)| begins(uuid));
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
    const OTHERS: [&str; 2] =
        ["GPU-8932aaaa-d72c-4106-c12f-20bd9faed9f6", "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"];

    fn chosen(list: &str) -> Result<Vec<usize>, DuplicateDevice> {
        choose(list, &[FIRST, OTHERS[0], OTHERS[1]].map(str::to_owned))
    }

    #[test]
    fn first_invalid_number_ends_the_list() {
        for (list, wanted) in [
            ("2,0", &[2, 0][..]),
            ("1,5,0", &[1]),
            ("0,-1,1", &[0]),
            (" 1 , 0 ", &[1, 0]),
            ("0,,1", &[0]),
            ("1 2", &[1]),
            ("1abc,0x2", &[1, 0]),
            ("+1,02", &[1, 2]),
            ("4294967297", &[1]),
            ("0,abc,1", &[0]),
            ("0,3,0,0", &[0]),
        ] {
            assert_eq!(chosen(list).as_deref(), Ok(wanted), "{list:?}");
        }
        for list in ["", ",0", "-1,0", "3,0", "NoDevFiles", "abc,0", "18446744073709551616", "- 1", "é0"] {
            assert_eq!(chosen(list).as_deref(), Ok(&[][..]), "{list:?}");
        }
    }

    #[test]
    fn a_beginning_of_a_uuid_must_mean_one_device() {
        let more = format!("{FIRST}0");
        let capitals = format!("GPU-{}", FIRST[4..].to_ascii_uppercase());
        for (list, wanted) in [
            ("GPU-8932f9,GPU-01020304-0506", &[0, 2][..]),
            (FIRST, &[0]),
            (&more, &[0]),
            (&capitals, &[0]),
            ("GPU-0", &[2]),
            ("GPU-0,0", &[2]),
            ("0,GPU-01", &[0]),
        ] {
            assert_eq!(chosen(list).as_deref(), Ok(wanted), "{list:?}");
        }
        for list in ["GPU-8932", "GPU-,GPU-0", "MIG-8932f937", "gpu-0", " GPU-0", &FIRST[4..8], "GPU-é"] {
            assert_eq!(chosen(list).as_deref(), Ok(&[][..]), "{list:?}");
        }
    }

    #[test]
    fn no_device_is_named_twice() {
        for list in ["0,0", " 0 , 0 ", "1,0,1", "GPU-0,GPU-01"] {
            assert_eq!(chosen(list), Err(DuplicateDevice), "{list:?}");
        }
    }
}
