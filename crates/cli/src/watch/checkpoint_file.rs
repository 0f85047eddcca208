//! Checkpoint file: the state of a session, behind the address at which its program looks for it.
//!
//! The state is a server's own format. What stands before it is of `causeway checkpoint`, and says at which address of a
//! network the server was when the session was saved, and on which machine: the program connects there again, wherever the
//! session is restored.

use std::io::{self, Read, Write};

use causeway_access::Target;
use causeway_access::target::Endpoint;
use causeway_wire::text::Printable;

/// The first bytes of a file that has an address and the name of a machine; and of one that has an address alone.
const MAGIC: [u8; 8] = *b"CSWYFIL2";
const MAGIC_OF_ADDRESS: [u8; 8] = *b"CSWYFIL1";

/// The longest address: a host name of the domain name system, and a port.
const MAX_ADDRESS: usize = 300;

/// Where a session was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedAt {
    /// The server's address.
    pub server: Endpoint,
    /// The name of its machine; empty where the file does not say.
    pub machine: String,
}

/// The name of this machine.
pub fn this_machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Writes what stands before the state. A server at a socket of its host has no address of a network.
pub fn write_saved_at(file: &mut impl Write, SavedAt { server, machine }: &SavedAt) -> io::Result<()> {
    let address = match server {
        Endpoint::Tcp { .. } => server.to_string(),
        Endpoint::Unix(_) | Endpoint::Vsock(_) => return Ok(()),
    };
    if address.len() > MAX_ADDRESS || machine.len() > MAX_ADDRESS {
        return Ok(());
    }
    file.write_all(&MAGIC)?;
    for text in [&address, machine] {
        file.write_all(&(text.len() as u16).to_le_bytes())?;
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Reads what stands before the state: where the session was saved, if the file says that, and the bytes of the state that
/// were read with it.
pub fn read_saved_at(file: &mut impl Read) -> io::Result<(Option<SavedAt>, Vec<u8>)> {
    let mut start = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut start)?;
    if start != MAGIC && start != MAGIC_OF_ADDRESS {
        return Ok((None, start));
    }
    let target: Target = read_text(file)?.parse().map_err(|_| damaged())?;
    let machine = if start == MAGIC { read_text(file)? } else { String::new() };
    Ok((Some(SavedAt { server: target.endpoint, machine }), Vec::new()))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is damaged or truncated")
}

fn read_text(file: &mut impl Read) -> io::Result<String> {
    let mut length = [0; 2];
    file.read_exact(&mut length).map_err(|_| damaged())?;
    let length = usize::from(u16::from_le_bytes(length));
    if length > MAX_ADDRESS {
        return Err(damaged());
    }
    let mut text = vec![0; length];
    file.read_exact(&mut text).map_err(|_| damaged())?;
    String::from_utf8(text).map_err(|_| damaged())
}

/// What to say where a session is restored on another machine than that on which it was saved. It may have the address of
/// that one now.
pub fn other_machine(saved_at: &SavedAt, here: &str) -> Option<String> {
    let SavedAt { server, machine } = saved_at;
    (!machine.is_empty() && machine != here).then(|| {
        let machine = Printable::from(machine.as_str());
        format!(
            "the session was saved on the machine {machine}, and this one is {here}: the program finds its \
             session here only if this machine now has the address {server}, or the one that the program \
             uses for that server"
        )
    })
}

/// Whether a program that looks for its session at one address may find it at a server that is named by the other: one
/// server has several names, and one port. Nothing is known of sockets.
pub fn may_be_same(saved: &Endpoint, server: &Endpoint) -> bool {
    match (saved, server) {
        (Endpoint::Tcp { port: saved, .. }, Endpoint::Tcp { port, .. }) => saved == port,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.to_owned(), port }
    }

    fn saved_at(server: Endpoint) -> SavedAt {
        SavedAt { server, machine: "gpu1".to_owned() }
    }

    #[test]
    fn the_address_comes_back_and_the_state_is_unchanged() {
        for server in [tcp("::1", 7690), tcp("gpu-box", 1), Endpoint::Unix("/run/a".into())] {
            let mut file = Vec::new();
            write_saved_at(&mut file, &saved_at(server.clone())).unwrap();
            file.extend(b"CSWYSES3 and more");
            let mut rest = file.as_slice();
            let (found, mut state) = read_saved_at(&mut rest).unwrap();
            state.extend(rest);
            assert_eq!(state, b"CSWYSES3 and more");
            let has_address = matches!(server, Endpoint::Tcp { .. });
            assert_eq!(found, Some(saved_at(server)).filter(|_| has_address));
        }
        assert_eq!(read_saved_at(&mut b"abc".as_slice()).unwrap(), (None, b"abc".to_vec()));
    }

    #[test]
    fn a_file_of_an_earlier_release_has_an_address_alone() {
        let mut file = b"CSWYFIL1\x0c\0gpu-box:7690CSWYSES3".as_slice();
        let (found, state) = read_saved_at(&mut file).unwrap();
        assert_eq!(found, Some(SavedAt { server: tcp("gpu-box", 7690), machine: String::new() }));
        assert_eq!((state.as_slice(), file), (&b""[..], &b"CSWYSES3"[..]));
    }

    #[test]
    fn a_damaged_address_is_refused() {
        let mut file = Vec::new();
        write_saved_at(&mut file, &saved_at(tcp("gpu-box", 7690))).unwrap();
        for end in MAGIC.len()..file.len() - 1 {
            assert!(read_saved_at(&mut &file[..end]).is_err(), "{end}");
        }
        let mut long = file.clone();
        long[9] = 0xff;
        assert!(read_saved_at(&mut long.as_slice()).is_err());
        file[12] = 0xff;
        assert!(read_saved_at(&mut file.as_slice()).is_err());
    }

    #[test]
    fn another_machine_is_named_and_none_is_not() {
        let saved = saved_at(tcp("10.0.0.1", 7690));
        let text = other_machine(&saved, "gpu2").unwrap();
        assert!(["gpu1", "gpu2", "10.0.0.1:7690"].iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(other_machine(&saved, "gpu1"), None);
        assert_eq!(other_machine(&SavedAt { machine: String::new(), ..saved }, "gpu2"), None);
    }

    #[test]
    fn only_another_port_is_another_server_for_sure() {
        assert!(may_be_same(&tcp("127.0.0.1", 7690), &tcp("gpu-box", 7690)));
        assert!(!may_be_same(&tcp("127.0.0.1", 7690), &tcp("127.0.0.1", 7790)));
        assert!(may_be_same(&tcp("127.0.0.1", 7690), &Endpoint::Unix("/run/a".into())));
    }
}
