//! Encoding of a confinement.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use causeway_sandbox::Confinement;
use causeway_wire::codec::{DecodeError, Decoder, Encode as _};

/// Writes a confinement, or that there is none.
pub fn encode(confinement: Option<&Confinement>, out: &mut Vec<u8>) {
    confinement.is_some().encode(out);
    let Some(confinement) = confinement else { return };
    let Confinement { broker, user, groups, files, writable, calls, uses_rdma, hidden } = confinement;
    broker.encode(out);
    user.encode(out);
    groups.encode(out);
    files.encode(out);
    writable.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect::<Vec<_>>().encode(out);
    calls.encode(out);
    uses_rdma.encode(out);
    hidden.encode(out);
}

/// Reads what [`encode`] has written.
pub fn decode(input: &mut Decoder<'_>) -> Result<Option<Confinement>, DecodeError> {
    if !input.value::<bool>()? {
        return Ok(None);
    }
    Ok(Some(Confinement {
        broker: input.value()?,
        user: input.value()?,
        groups: input.value()?,
        files: input.value()?,
        writable: {
            let paths = input.value::<Vec<Vec<u8>>>()?;
            paths.into_iter().map(|path| PathBuf::from(OsString::from_vec(path))).collect()
        },
        calls: input.value()?,
        uses_rdma: input.value()?,
        hidden: input.value()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confinement_is_read_as_it_was_written() {
        let confinement = Confinement {
            broker: 1,
            user: Some(2),
            groups: vec![3, 4],
            files: true,
            writable: vec!["/a".into(), "/b".into()],
            calls: false,
            uses_rdma: true,
            hidden: false,
        };
        for confinement in [None, Some(confinement)] {
            let mut bytes = Vec::new();
            encode(confinement.as_ref(), &mut bytes);
            let mut input = Decoder::new(&bytes);
            assert_eq!(decode(&mut input).unwrap(), confinement);
            input.finish().unwrap();
        }
    }
}
