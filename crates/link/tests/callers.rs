//! Admission of callers over TCP and at Unix sockets, honest and otherwise.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_access::target::{is_socket_proof, socket_proof};
use causeway_access::{Key, Target};
use causeway_connection::channel::{Connection, handshake_frame};
use causeway_connection::noise::{Handshake, MESSAGE_SIZE};
use causeway_link::accept::{AcceptError, HandshakeTimeouts, Request, authenticate, authenticate_local};
use causeway_link::{ConnectError, ConnectOptions, connect, describe_process};
use causeway_wire::handshake::{
    FOR_A_CLIENT, JoinHello, LaneToken, Opening, PREFACE_SIZE, Preface, PrefaceResponse, Protection,
    SessionId, UpgradeHello,
};
use common::{COMMANDS, door, local_socket, target, version};

const TIMEOUT: Duration = Duration::from_secs(2);

/// Greets one caller over TCP; `clear` is whether one may ask for a link in the clear.
fn authenticate_one(key: Option<Key>, clear: bool) -> (TcpListener, impl FnOnce() -> Greeted) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listening = listener.try_clone().unwrap();
    let accepting = move || {
        std::thread::spawn(move || {
            let own = version();
            let door = causeway_link::accept::AcceptPolicy { clear, ..door(key.as_ref(), &own, TIMEOUT) };
            authenticate(listening.accept().unwrap().0, &door, &common::NoSecrets)
                .map(|caller| caller.request)
        })
    };
    (listener, accepting)
}

type Greeted = JoinHandle<Result<Request, AcceptError>>;

/// What happens to a client that asks for a session: what it is told, and what the server notes.
fn ask(protection: Protection, theirs: Option<&Key>, key: Option<Key>, clear: bool) -> (String, AcceptError) {
    let (listener, accepting) = authenticate_one(key, clear);
    let accepted = accepting();
    let server = target(listener.local_addr().unwrap(), protection, theirs);
    let told = connect(&server, describe_process(COMMANDS, Vec::new()), &ConnectOptions::default());
    (told.expect_err("it is refused").to_string(), accepted.join().unwrap().expect_err("it is turned away"))
}

#[test]
fn both_ends_must_want_the_same_protection() {
    let key = Key::generate();
    let (told, noted) = ask(Protection::Unprotected, None, Some(key.clone()), true);
    assert!(told.contains("requires a key") && matches!(noted, AcceptError::NoKey), "{told}");
    let (told, noted) = ask(Protection::Authenticated, Some(&key), Some(key.clone()), false);
    assert!(told.contains("--clear") && matches!(noted, AcceptError::Clear), "{told}");
    for protection in [Protection::Authenticated, Protection::Encrypted] {
        let (told, noted) = ask(protection, Some(&key), None, true);
        assert!(told.contains("insecure-no-key") && matches!(noted, AcceptError::NeedlessKey), "{told}");
        let (told, noted) = ask(protection, Some(&Key::generate()), Some(key.clone()), true);
        assert!(told.contains("not this server's") && matches!(noted, AcceptError::WrongKey(_)), "{told}");
    }
}

#[test]
fn without_the_key_nothing_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = target(listener.local_addr().unwrap(), Protection::Encrypted, None);
    let told = connect(&server, describe_process(COMMANDS, Vec::new()), &ConnectOptions::default());
    assert!(matches!(&told, Err(ConnectError::NoKey { .. })), "{told:?}");
    let mut said = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"");
}

/// What a client with the key says first, up to and with its request; and its proof alone.
fn words_of_client(key: &Key, stream: &mut TcpStream) -> Vec<u8> {
    let preface = Preface::by_key(Protection::Authenticated).to_bytes();
    let mut handshake = Handshake::client(key, &preface);
    let first = [preface.as_slice(), &handshake.write()].concat();
    stream.write_all(&first).unwrap();
    let mut response = [0; PREFACE_SIZE + MESSAGE_SIZE];
    stream.read_exact(&mut response).unwrap();
    assert_eq!(PrefaceResponse::parse(response.first_chunk().unwrap()), Ok(PrefaceResponse::Continue));
    handshake.read(response.last_chunk().unwrap()).unwrap();
    let keys = handshake.finish(true);
    let mut connection = Connection::new(stream.try_clone().unwrap(), Some(keys));
    let hello = describe_process(COMMANDS, Vec::new());
    connection.send_handshake(|out| Opening::encode_session(&hello, out)).unwrap();
    first
}

/// A proof that was overheard proves nothing, though what follows the handshake is in the clear.
#[test]
fn a_proof_cannot_be_used_again() {
    let key = Key::generate();
    let (listener, accepting) = authenticate_one(Some(key.clone()), true);
    let accepted = accepting();
    let mut honest = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let overheard = words_of_client(&key, &mut honest);
    assert!(matches!(accepted.join().unwrap(), Ok(Request::Session { .. })));

    let (listener, accepting) = authenticate_one(Some(key), true);
    let accepted = accepting();
    let mut thief = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let hello = describe_process(COMMANDS, Vec::new());
    let request = handshake_frame(|out| Opening::encode_session(&hello, out));
    thief.write_all(&[overheard, request].concat()).unwrap();
    let turned_away = accepted.join().unwrap();
    assert!(turned_away.is_err(), "{turned_away:?}");
}

/// What is said at a Unix socket by somebody whom the kernel's word makes trusted or not, with these words in front
/// of all else, to a server that holds this key.
fn ask_at_socket(
    trusted: bool,
    first: Option<[u8; 32]>,
    key: &Key,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<Request, AcceptError> {
    let (listener, name) = local_socket();
    let own = key.clone();
    let accepted = std::thread::spawn(move || {
        let timeouts = HandshakeTimeouts { proof: TIMEOUT, request: TIMEOUT };
        let proof = |nonce: &[u8; 32], _| Some(socket_proof(Some(&own), nonce));
        let accepted = authenticate_local(listener.accept().unwrap().0, trusted, proof, &version(), timeouts);
        accepted.map(|caller| caller.request)
    });
    let server = Target::unix(format!("@{name}"));
    let mut stream = causeway_connection::dial_here(&server.endpoint, TIMEOUT).unwrap();
    if let Some(nonce) = first {
        stream.write_all(&[FOR_A_CLIENT.as_slice(), &nonce].concat()).unwrap();
        let (mut response, mut proof) = ([0; PREFACE_SIZE], [0; 32]);
        stream.read_exact(&mut response).unwrap();
        stream.read_exact(&mut proof).unwrap();
        assert_eq!(PrefaceResponse::parse(&response), Ok(PrefaceResponse::Continue));
        assert!(is_socket_proof(Some(key), &nonce, &proof) && !is_socket_proof(None, &nonce, &proof));
    }
    let preface = Preface::by_key(Protection::Unprotected).to_bytes();
    stream.write_all(&[preface.to_vec(), handshake_frame(encode)].concat()).unwrap();
    let outcome = accepted.join().unwrap();
    drop(OwnedFd::from(stream));
    outcome
}

#[test]
fn at_a_socket_of_the_host_strangers_get_what_they_can_prove() {
    let (hello, key) = (describe_process(COMMANDS, Vec::new()), Key::generate());
    // Whoever comes by another server has that one's user, which counts for nothing.
    for (own_user, first) in [(true, None), (false, None), (true, Some([7; 32]))] {
        let trusted = own_user && first.is_none();
        let session = ask_at_socket(own_user, first, &key, |out| Opening::encode_session(&hello, out));
        assert_eq!(matches!(session, Ok(Request::Session { .. })), trusted, "{session:?}");
        assert_eq!(matches!(session, Err(AcceptError::NotAllowed)), !trusted);
        let join = UpgradeHello::Join(JoinHello { session: SessionId([1; 16]), token: LaneToken([2; 32]) });
        let joins = ask_at_socket(own_user, first, &key, |out| Opening::encode_upgrade(&join, out));
        assert!(matches!(joins, Ok(Request::Upgrade(hello)) if hello == join), "{trusted}");
    }
}
