//! Upgrade of a connection to shared memory.
//!
//! The server's welcome names Unix sockets. A client that reaches one of them is on the same host, whatever
//! names and namespaces say; it proves there that it owns the session, and the broker hands its connection to
//! the session's worker. The worker sends the memory, the client maps it and says so, and both go on there.
//! Whatever fails on the way, the session goes on over TCP.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_wire::codec::{Decoder, Encode as _};
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{
    JoinHello, Locality, Opening, PREFACE_SIZE, Preface, PrefaceResponse, Protection, Response, SharedMemory,
    UpgradeHello,
};

use super::error::UpgradeError;
use super::layout::Layout;
use super::segment::{Segment, SegmentError};
use super::side::{Message, MessageKind, Peer};
use super::state::Role;
use super::transfers::parts;
use causeway_access::local::{SOCKET_PREFIX, is_socket_name};
use causeway_access::target::{Endpoint, Key};
use causeway_connection::Dial;
use causeway_connection::channel::{Connection, HandshakeReadError, handshake_frame};
use causeway_connection::host_socket::{connect_named, request_proof};
use causeway_memory::SealedMemory;
use causeway_transport::Parts;
use causeway_transport::slots::SLOT;

/// How long either end waits for the other at each step: both have work besides, and the machine may be busy.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(20);

/// Memory that both processes have mapped, and the connection beside it.
#[derive(Debug)]
pub struct Joined {
    segment: Arc<Segment>,
    peer: Peer,
    role: Role,
}

impl Joined {
    /// Bytes of the staging arena, both directions together.
    pub fn staging(&self) -> usize {
        let Layout { upload_slots, download_slots } = self.segment.layout();
        (upload_slots as usize + download_slots as usize) * SLOT
    }

    /// What carries the session's link. `command` is the connection over which the session was asked for; it
    /// ends with the session.
    pub fn parts(self, command: &Connection) -> io::Result<Parts> {
        parts(self.role, self.segment, self.peer, command)
    }
}

/// Lets a client that has reached the server's socket join the session: the worker's part. Without a layout
/// the client is informed why there is none.
pub fn offer(socket: OwnedFd, layout: Result<Layout, String>) -> Result<Joined, UpgradeError> {
    let mut connection = Connection::new(TcpStream::from(socket.try_clone()?), None);
    let (segment, memory) = match layout.map_err(SegmentError::NotAllowed).and_then(Segment::create) {
        Ok(made) => made,
        Err(error) => {
            let refusal = Response::Refused { text: error.to_string().into() };
            connection.send_handshake(|out| refusal.encode(out))?;
            return Err(error.into());
        }
    };
    let Layout { upload_slots, download_slots } = segment.layout();
    let response = Response::SharedMemory(SharedMemory { upload_slots, download_slots });
    connection.send_handshake(|out| response.encode(out))?;
    let peer = Peer::new(socket);
    let handed = Message { kind: MessageKind::Memory, number: 0, bytes: memory.bytes() };
    peer.send(&handed, Some(memory.descriptor()))?;
    peer.set_timeout(Some(UPGRADE_TIMEOUT))?;
    match peer.receive() {
        Ok(Some((Message { kind: MessageKind::Joined, .. }, _))) => {}
        Ok(None) => return Err(UpgradeError::Refused("the client could not map the memory".into())),
        Ok(Some(_)) => return Err(UpgradeError::Protocol("the client said something else".to_owned())),
        Err(error) => return Err(UpgradeError::Protocol(error.to_string())),
    }
    peer.set_timeout(None)?;
    Ok(Joined { segment: Arc::new(segment), peer, role: Role::Worker })
}

/// How a client gets to the sockets of its host.
pub struct Way<'a> {
    /// Makes the connections; this process itself if nobody is named.
    pub dialer: Option<&'a dyn Dial>,
    /// A folder in which the server's sockets may be, besides where the server says.
    pub socket_folder: Option<&'a Path>,
    /// The server's key, if this process knows it: whoever listens at a socket has to prove it before anything of
    /// the session is notified there.
    pub key: Option<&'a Key>,
}

/// Reaches the server's socket and joins the session: the client's part. `allowed` is asked whether this
/// process may use so many bytes of memory.
pub fn upgrade(
    locality: &Locality,
    hello: &JoinHello,
    way: &Way<'_>,
    allowed: impl Fn(usize) -> Result<(), String>,
) -> Result<Joined, UpgradeError> {
    let connect = |name: &str| match way.dialer {
        Some(dialer) => dialer.dial(&Endpoint::Unix(name.to_owned()), UPGRADE_TIMEOUT),
        None => connect_named(name, UPGRADE_TIMEOUT).and_then(|socket| {
            if way.key.is_some() {
                request_proof(&socket, way.key, UPGRADE_TIMEOUT)?;
            }
            Ok(OwnedFd::from(socket))
        }),
    };
    let mut failure = None;
    for name in candidates(&locality.sockets, way.socket_folder) {
        match connect(&name) {
            Ok(socket) => return introduce(socket, hello, &allowed),
            Err(cause) => {
                failure.get_or_insert(UpgradeError::Unreachable { name: show(&name).into(), cause });
            }
        }
    }
    Err(failure.unwrap_or_else(|| UpgradeError::Refused("it offers no socket".into())))
}

/// Where the server's sockets may be: as it names them, and under the same file name in the folder that is
/// shared with it.
fn candidates(sockets: &[String], folder: Option<&Path>) -> Vec<String> {
    // The folder's name is the user's, which may lead over links; what a server names may not.
    let folder = folder.map(|folder| folder.canonicalize().unwrap_or_else(|_| folder.to_owned()));
    let mut candidates: Vec<String> = Vec::new();
    for name in sockets {
        let file = name.strip_prefix('@').or_else(|| Path::new(name).file_name()?.to_str());
        if !file.is_some_and(is_socket_name) {
            continue;
        }
        if let (false, Some(folder), Some(file)) = (name.starts_with('@'), &folder, file) {
            candidates.push(folder.join(file).to_string_lossy().into_owned());
        }
        if !candidates.contains(name) {
            candidates.push(name.clone());
        }
    }
    candidates
}

/// A socket's name without what makes it hard to guess.
fn show(name: &str) -> String {
    match name.rsplit_once(SOCKET_PREFIX) {
        Some((folder, _)) => format!("{folder}{SOCKET_PREFIX}..."),
        None => name.to_owned(),
    }
}

/// Proves that this process owns the session, and gets its memory.
fn introduce(
    socket: OwnedFd,
    hello: &JoinHello,
    allowed: impl Fn(usize) -> Result<(), String>,
) -> Result<Joined, UpgradeError> {
    let deadline = Instant::now() + UPGRADE_TIMEOUT;
    let stream = TcpStream::from(socket.try_clone()?);
    let mut first = Preface::by_key(Protection::Unprotected).to_bytes().to_vec();
    first.extend(handshake_frame(|out| Opening::encode_upgrade(&UpgradeHello::Join(*hello), out)));
    (&stream).write_all(&first)?;
    let mut connection = Connection::new(stream, None);
    let mut preface = [0; PREFACE_SIZE];
    connection.incoming.receive_exact(&mut preface, deadline)?;
    if !matches!(PrefaceResponse::parse(&preface), Ok(PrefaceResponse::Continue)) {
        return Err(UpgradeError::Protocol("it is no socket of a Causeway server".to_owned()));
    }
    let body = connection.receive_handshake(MAX_OPENING, deadline).map_err(|error| match error {
        HandshakeReadError::Io(error) => UpgradeError::Io(error),
        other => UpgradeError::Protocol(other.to_string()),
    })?;
    let mut input = Decoder::new(&body);
    let response = input.value::<Response>().and_then(|response| input.finish().map(|()| response));
    let SharedMemory { upload_slots, download_slots } = match response {
        Ok(Response::SharedMemory(memory)) => memory,
        Ok(Response::Refused { text }) => return Err(UpgradeError::Refused(text)),
        Ok(_) => return Err(UpgradeError::Protocol("it granted something else".to_owned())),
        Err(error) => return Err(UpgradeError::Protocol(error.to_string())),
    };
    let layout = Layout::checked(upload_slots, download_slots).map_err(SegmentError::Layout)?;
    let peer = Peer::new(socket);
    peer.set_timeout(Some(UPGRADE_TIMEOUT))?;
    let memory = match peer.receive() {
        Ok(Some((Message { kind: MessageKind::Memory, .. }, Some(descriptor)))) => {
            SealedMemory::check(descriptor, layout.bytes() as u64).map_err(SegmentError::Memory)?
        }
        Ok(Some((Message { kind: MessageKind::Memory, .. }, None))) => {
            return Err(UpgradeError::Protocol("no descriptor came with the memory".to_owned()));
        }
        Ok(_) => return Err(UpgradeError::Protocol("it sent no memory".to_owned())),
        Err(error) => return Err(UpgradeError::Protocol(error.to_string())),
    };
    allowed(layout.bytes()).map_err(SegmentError::NotAllowed)?;
    let segment = Arc::new(Segment::map(&memory, layout)?);
    peer.send(&Message { kind: MessageKind::Joined, number: 0, bytes: 0 }, None)?;
    peer.set_timeout(None)?;
    Ok(Joined { segment, peer, role: Role::Client })
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::target::socket_proof;
    use causeway_wire::handshake::{LaneToken, PROOF_SIZE, SessionId};
    use std::io::Read as _;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_sockets_of_servers_are_tried_and_the_shared_folder_comes_first() {
        let sockets =
            ["@causeway-1", "/run/a/causeway-1.sock", "@dbus", "/run/docker.sock", "/", "/causeway-/x"];
        let sockets: Vec<String> = sockets.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(candidates(&sockets, None), ["@causeway-1", "/run/a/causeway-1.sock"]);
        assert_eq!(
            candidates(&sockets, Some(Path::new("/vol"))),
            ["@causeway-1", "/vol/causeway-1.sock", "/run/a/causeway-1.sock"]
        );
        assert_eq!(candidates(&sockets[1..2], Some(Path::new("/run/a"))), ["/run/a/causeway-1.sock"]);
        assert_eq!(show("/run/a/causeway-1.sock"), "/run/a/causeway-...");
    }

    #[test]
    fn who_listens_with_another_key_is_told_nothing_of_the_session() {
        let folder = std::env::temp_dir().canonicalize().unwrap();
        let folder = folder.join(format!("causeway-upgrade-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("causeway-1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let heard = std::thread::spawn(move || {
            let (mut caller, _) = listener.accept().unwrap();
            let mut asked = [0; PREFACE_SIZE + PROOF_SIZE];
            caller.read_exact(&mut asked).unwrap();
            let proof = socket_proof(Some(&Key::generate()), asked.last_chunk().unwrap());
            caller.write_all(&[PrefaceResponse::Continue.to_bytes().as_slice(), &proof].concat()).unwrap();
            let mut rest = Vec::new();
            caller.read_to_end(&mut rest).map(|_| rest)
        });
        let name = path.to_str().unwrap().to_owned();
        let server = Locality { boot_id: String::new(), sockets: vec![name] };
        let hello = JoinHello { session: SessionId([1; 16]), token: LaneToken([2; 32]) };
        let key = Key::generate();
        let way = Way { dialer: None, socket_folder: None, key: Some(&key) };
        let error = upgrade(&server, &hello, &way, |_| Ok(())).unwrap_err();
        assert!(matches!(error, UpgradeError::Unreachable { .. }), "{error}");
        assert!(heard.join().unwrap().unwrap_or_default().is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
