//! A man in the middle, who has all secrets but the client's own and all of its bytes: each end notices him.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_access::Key;
use causeway_access::keys::clients::NotAccepted;
use causeway_access::target::key_id;
use causeway_connection::noise::MESSAGE_SIZE;
use causeway_link::accept::{AcceptError, Request, Secrets, authenticate};
use causeway_link::{ConnectError, ConnectOptions, connect, describe_process};
use causeway_wire::handshake::{KeyId, LaneToken, PREFACE_SIZE, Protection, TicketId};
use common::{COMMANDS, door, target, version};

const TIMEOUT: Duration = Duration::from_secs(2);

/// The key of clients, as one says who serves them.
enum Claims {
    /// Whichever client comes, this is its key.
    OfAny(Key),
    /// This is the key of the client to which it belongs.
    OfOne(Key),
}

impl Secrets for Claims {
    fn ticket(&self, _id: TicketId) -> Option<LaneToken> {
        None
    }

    fn client_key(&self, id: KeyId) -> Result<Key, NotAccepted> {
        match self {
            Self::OfAny(key) => Ok(key.clone()),
            Self::OfOne(key) if key_id(key) == id => Ok(key.clone()),
            Self::OfOne(_) => Err(NotAccepted::Unknown),
        }
    }

    fn invitation(&self, _id: KeyId) -> Result<Key, NotAccepted> {
        Err(NotAccepted::InvitationUnknown)
    }
}

/// Serves one caller that proves `server_key`, or the key that `claims` has of clients.
fn serve(server_key: Key, claims: Claims) -> (SocketAddr, JoinHandle<Result<Request, AcceptError>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = std::thread::spawn(move || {
        let own = version();
        let door = door(Some(&server_key), &own, TIMEOUT);
        authenticate(listener.accept().unwrap().0, &door, &claims).map(|caller| caller.request)
    });
    (address, accepted)
}

/// What a client that holds this key is told at an address.
fn told(address: SocketAddr, key: &Key) -> ConnectError {
    let server = target(address, Protection::Encrypted, Some(key));
    let told = connect(&server, describe_process(COMMANDS, Vec::new()), &ConnectOptions::default());
    told.expect_err("there is no session")
}

#[test]
fn connect_strings_of_others_play_no_server_to_a_client_with_its_own_key() {
    let named = |name: &str, secret: &Key| -> Key {
        format!("{name}:{}", secret.to_text().rsplit(':').next().unwrap()).parse().unwrap()
    };
    let (ada, server_key, bob) = (
        Key::generate_for("ada".parse().unwrap()),
        Key::generate(),
        Key::generate_for("bob".parse().unwrap()),
    );
    // The server's own connect string, that of another client, and one that he has made.
    for secret in [server_key.clone(), bob, Key::generate()] {
        let (address, accepted) = serve(server_key.clone(), Claims::OfAny(named("ada", &secret)));
        let told = told(address, &ada).to_string();
        assert!(told.contains("not this server's"), "{told}");
        let noted = accepted.join().unwrap();
        assert!(matches!(noted, Err(AcceptError::WrongKey(_))), "{noted:?}");
    }
    let (address, accepted) = serve(server_key, Claims::OfOne(ada.clone()));
    // It has the right key; what comes of the session is not asked.
    let _ = told(address, &ada);
    assert!(matches!(accepted.join().unwrap(), Ok(Request::Session { .. })));
}

/// Passes on what both ends say, but for one bit of a byte of what the client says, or the server.
fn change(server: SocketAddr, of_client: bool, at: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let client = listener.accept().unwrap().0;
        let server = TcpStream::connect(server).unwrap();
        let copy = move |mut from: TcpStream, mut to: TcpStream, changes: bool| {
            let (mut bytes, mut passed) = ([0; 4096], 0);
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if changes && (passed..passed + count).contains(&at) {
                    bytes[at - passed] ^= 1;
                }
                passed += count;
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        };
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || copy(from, to, of_client));
        copy(server, client, !of_client);
    });
    address
}

#[test]
fn a_bit_that_is_changed_on_the_way_is_noticed_at_both_ends() {
    let ada = Key::generate_for("ada".parse().unwrap());
    // The preface, of the client with the number of its key, the message that proves the key, and a byte of what is
    // encrypted after that.
    let handshake = PREFACE_SIZE + MESSAGE_SIZE;
    let of_client = (0..handshake + 8 + 40).step_by(3).map(|at| (true, at));
    let of_server = (0..handshake).step_by(3).map(|at| (false, at));
    for (of_client, at) in of_client.chain(of_server) {
        let (server, accepted) = serve(Key::generate(), Claims::OfOne(ada.clone()));
        let told = told(change(server, of_client, at), &ada);
        let noted = accepted.join().unwrap();
        let whose = if of_client { "client" } else { "server" };
        assert!(noted.is_err(), "byte {at} of the {whose}: {told}, {noted:?}");
    }
}
