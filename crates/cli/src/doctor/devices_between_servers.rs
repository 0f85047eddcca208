//! Copies between the devices of two servers: the path that they take.
//!
//! A session with each server is opened, and each worker connects to each other one, as it would for a
//! program.

use causeway_access::Target;
use causeway_api::calls::{self, COMMANDS, Call};
use causeway_api::sys::CUresult;
use causeway_api::types::PeerTransport;
use causeway_doctor::checks::path::Between;
use causeway_link::inter_server::{BetweenServers, LinkVia};
use causeway_link::{Link, Receiver, TransportChoice, connect, describe_process};
use causeway_wire::codec::{Decode as _, Decoder};
use causeway_wire::handshake::{Locality, OwnVersion};
use causeway_wire::message::{CommandHead, Messages, WorkerMessage, begin_command};

use crate::server::connect_options;

/// Tries every way between two of the servers. Those that give no session are not reported here.
pub fn examine(targets: &[Target], vias: &[TransportChoice]) -> Vec<Between> {
    let both = targets.iter().zip(vias);
    let mut sessions: Vec<_> = both.filter_map(|(target, via)| Session::open(target, *via)).collect();
    let mut ways = Vec::new();
    for to in 0..sessions.len() {
        for from in (0..sessions.len()).filter(|from| *from != to) {
            let [reader, source] =
                sessions.get_disjoint_mut([to, from]).expect("two places of the list that are not the same");
            let link = BetweenServers::Auto.link(reader.via);
            let (used, reason) = match reader.reach(source, from as u64, link) {
                Ok(PeerTransport { via, reason }) => ((!via.is_empty()).then_some(via.into()), reason.into()),
                Err(why) => (None, why),
            };
            ways.push(Between { from: source.name(), to: reader.name(), used, reason });
        }
    }
    sessions.iter().for_each(|session| session.link.close());
    ways
}

/// A session of which only calls are wanted.
struct Session<'a> {
    target: &'a Target,
    /// The message to the other server about it.
    address: String,
    via: TransportChoice,
    locality: Locality,
    link: Link,
    receiver: Receiver,
    calls: u32,
}

impl<'a> Session<'a> {
    fn open(target: &'a Target, via: TransportChoice) -> Option<Self> {
        let hello = describe_process(COMMANDS, Vec::new());
        let opened = connect(target, hello, &connect_options(via)).ok()?;
        OwnVersion::new(COMMANDS).common_with_server(&opened.welcome).ok()?;
        let (link, receiver, locality) = (opened.link, opened.receiver, opened.welcome.locality);
        let address = opened.local_address.map_or_else(|| target.address(), |at| target.at(at).address());
        Some(Self { target, address, via, locality, link, receiver, calls: 0 })
    }

    /// The server's address without its key.
    fn name(&self) -> String {
        self.target.to_string()
    }

    /// Has its worker connect to another one's.
    fn reach(&mut self, source: &mut Self, peer: u64, via: LinkVia) -> Result<PeerTransport, String> {
        let ticket = source.call(&calls::peer_ticket {})?;
        self.call(&calls::peer_connect {
            peer,
            address: &source.address,
            via: &via.to_string(),
            in_clear: via.in_clear,
            boot_id: &source.locality.boot_id,
            sockets: &source.locality.sockets.join("\n"),
            ticket,
        })
    }

    /// Makes a call and waits for its reply.
    fn call<C: Call>(&mut self, request: &C) -> Result<C::Reply, String> {
        self.calls += 1;
        let head = CommandHead { call: self.calls, thread: 1, context: 0, opcode: C::OPCODE as u16 };
        let sent = self.link.send(|out| {
            let open = begin_command(out, &head);
            request.encode(out);
            open.finish(out);
        });
        sent.map_err(|error| error.to_string())?;
        loop {
            let body = self.receiver.recv().map_err(|error| error.to_string())?;
            for message in Messages::<WorkerMessage<'_>>::new(body) {
                let WorkerMessage::Reply { call, status, payload } =
                    message.map_err(|error| error.to_string())?
                else {
                    continue;
                };
                if call != self.calls {
                    continue;
                }
                if status != CUresult::CUDA_SUCCESS.0 {
                    return Err(format!("the server returned error {status} for {}", C::OPCODE.name()));
                }
                return C::Reply::decode(&mut Decoder::new(payload)).map_err(|error| error.to_string());
            }
        }
    }
}
