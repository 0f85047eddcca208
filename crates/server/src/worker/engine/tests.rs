//! What becomes of commands that are refused.

use super::Engine;
use crate::worker::incoming::Buffer;
use crate::worker_process::Exchange;
use causeway_api::calls::{Opcode, copy_to_device};
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::types::{Payload, Region};
use causeway_connection::channel::Connection;
use causeway_gpu::calls::*;
use causeway_gpu::{CuResult, Gpu};
use causeway_gpu_software::{Options, SoftwareGpu};
use causeway_link::{Link, Receiver};
use causeway_wire::codec::Encode;
use causeway_wire::message::Command;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

const BYTES: u64 = 100;

/// An engine with one context, and the client's end of its connection.
struct Session {
    engine: Arc<Engine>,
    context: Handle<Context>,
    /// Device memory of [`BYTES`].
    address: u64,
    _ends: (Receiver, TcpStream),
}

fn session() -> CuResult<Session> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (link, receiver) = Link::accepted(Connection::new(listener.accept().unwrap().0, None)).unwrap();
    let options = Options { memory: 1 << 20, ..Options::default() };
    let gpu = Arc::new(SoftwareGpu::with_options(&options).unwrap());
    let native = gpu.primary_context_retain(0, 0)?;
    gpu.make_current(native)?;
    let address = gpu.memory_allocate(BYTES as usize)?;
    let engine = Engine::new(gpu, link, None, Exchange::alone());
    let context = Handle::new(1, 1);
    engine.session().objects().insert(context, native)?;
    Ok(Session { engine, context, address, _ends: (receiver, client) })
}

impl Session {
    /// Has bytes come as transfer `number`, and a copy of them posted.
    fn copy(&self, number: u64, context: Handle<Context>, stream: Handle<Stream>, place: Region) {
        assert!(self.engine.uploads().incoming().seek(number));
        self.engine.uploads().incoming().brought(number, Ok(Buffer::Plain(vec![7; BYTES as usize])));
        let data = Payload::Transfer { number, length: BYTES };
        let copy = copy_to_device { destination: place.into(), stream, publish: false, data };
        let mut payload = Vec::new();
        copy.encode(&mut payload);
        let opcode = Opcode::copy_to_device as u16;
        let command = Command { call: 0, thread: 0, opcode, context: context.value(), payload: &payload };
        self.engine.command(&command).unwrap();
    }
}

#[test]
fn the_bytes_of_a_refused_command_wait_no_longer() {
    let session = session().unwrap();
    let (context, legacy) = (session.context, Handle::<Stream>::NULL);
    let place = Region::linear(session.address, BYTES);
    let cases = [
        ("carried out", context, legacy, place),
        ("no such context", Handle::new(9, 9), legacy, place),
        ("no such stream", context, Handle::new(9, 9), place),
        ("no such memory", context, legacy, Region::linear(1, BYTES)),
        ("another size", context, legacy, Region::linear(session.address, BYTES - 1)),
    ];
    for (number, (case, context, stream, place)) in (1..).zip(cases) {
        session.copy(number, context, stream, place);
        assert!(!session.engine.uploads().incoming().knows(number), "{case}");
    }
}
