//! Wire form of a module image, and recognition of fat binaries.

/// Marks the wrapper that the runtime passes: `{u32 magic, u32 version, address, address}`.
pub const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// Marks a fat binary.
pub const FATBIN_MAGIC: u32 = 0xba55_ed50;
/// Marks an ELF file, in which form a cubin comes.
pub const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// Bytes of a fat binary's header: magic, u16 version, u16 header size, u64 size of what follows.
pub const FATBIN_HEADER_BYTES: usize = 16;

/// What the image of a `module_load` or `library_load` command is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One image: a fat binary, a cubin, or PTX text without its NUL.
    Single,
    /// Several fat binaries one after the other: the device-linked one, then those it was linked from
    /// (`nvcc -rdc=true`).
    Linked,
}

impl Form {
    /// The form's number on the wire.
    pub fn number(self) -> u32 {
        match self {
            Self::Single => 0,
            Self::Linked => 1,
        }
    }

    /// The form of this number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Single, Self::Linked].into_iter().find(|form| form.number() == number)
    }
}

/// All bytes of a fat binary whose header is given, header included.
pub fn fatbin_bytes(header: &[u8; FATBIN_HEADER_BYTES]) -> Option<u64> {
    let magic = u32::from_le_bytes(header[0..4].try_into().ok()?);
    let head = u64::from(u16::from_le_bytes(header[6..8].try_into().ok()?));
    let body = u64::from_le_bytes(header[8..16].try_into().ok()?);
    (magic == FATBIN_MAGIC).then(|| head.checked_add(body)).flatten()
}

/// Splits an image of form [`Form::Linked`] into its fat binaries; a malformed one gives nothing.
pub fn split_linked(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let length =
            usize::try_from(fatbin_bytes(bytes.first_chunk()?)?).ok().filter(|length| *length > 0)?;
        let (part, rest) = bytes.split_at_checked(length)?;
        parts.push(part);
        bytes = rest;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::sample::fatbin_around;

    #[test]
    fn linked_images_split_at_their_headers() {
        let (first, second) = (fatbin_around(b"abc"), fatbin_around(b""));
        let both = [first.clone(), second.clone()].concat();
        assert_eq!(split_linked(&both), Some(vec![&first[..], &second[..]]));
        assert_eq!(split_linked(&both[..both.len() - 1]), None);
        assert_eq!(split_linked(b"no header at all"), None);
        // A length of nothing would be split off for ever.
        let empty = [&0xba55_ed50_u32.to_le_bytes()[..], &[0; 12]].concat();
        assert_eq!(split_linked(&empty), None);
    }
}
