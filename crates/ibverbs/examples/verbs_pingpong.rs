//! Two processes play ping-pong over a reliable connection, then one writes to the other's memory and reads
//! it back.
//!
//! ```text
//! verbs_pingpong serve 10.77.0.2:7000                          # on the one host
//! verbs_pingpong join  10.77.0.2:7000 [rounds [bytes]]         # on the other
//! ```
//!
//! `serve-cm` and `join-cm` connect by rdma_cm, which iWARP needs; the others exchange their queue pairs'
//! numbers over TCP.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use causeway_ibverbs::{
    Access, Buffer, Capacity, Completion, CompletionQueue, Connection, Device, Gid, Libraries, Listener,
    Operation, Outcome, ProtectionDomain, QueuePair, Receive, RemoteEnd, RemoteMemory, Route, SendBatch,
    SendRequest, Settings, Transport, choose,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes for sends at the start of the buffer, and as many for receives behind them; the peer writes to the
/// rest.
const HALF: usize = 64 << 10;
const BUFFER: usize = 4 << 20;
const CAPACITY: Capacity = Capacity { sends: 64, receives: 64, inline: 64 };

/// One end, connected.
struct End {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    buffer: Buffer,
    /// The peer's buffer.
    peer: RemoteMemory,
    is_iwarp: bool,
    _connection: Option<Connection>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (role, address) = match &arguments[..] {
        [role, address, ..] => (role.as_str(), address.parse::<SocketAddr>()?),
        _ => {
            return Err("usage: verbs_pingpong serve|join|serve-cm|join-cm HOST:PORT [rounds [bytes]]".into());
        }
    };
    let number =
        |position: usize, default: usize| arguments.get(position).map_or(Ok(default), |text| text.parse());
    let (rounds, bytes) = (number(2, 1000)?, number(3, 64)?.clamp(1, HALF));
    let libraries = Libraries::load()?;
    match role {
        "serve" | "serve-cm" => {
            let listener = TcpListener::bind(address)?;
            let (stream, _) = listener.accept()?;
            let end = connect(libraries, stream, false, role == "serve-cm")?;
            answer(&end)
        }
        _ => {
            let end = connect(libraries, TcpStream::connect(address)?, true, role == "join-cm")?;
            play(&end, rounds, bytes)
        }
    }
}

/// Sends a line to the peer and receives one.
fn exchange(stream: &TcpStream, line: &str) -> Result<Vec<String>> {
    let mut stream = stream;
    writeln!(stream, "{line}")?;
    let mut answer = Vec::new();
    // By the byte, so that nothing of the next line is taken.
    while answer.last() != Some(&b'\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.extend(byte);
    }
    Ok(String::from_utf8(answer)?.split_whitespace().map(str::to_owned).collect())
}

fn connect(libraries: Libraries, stream: TcpStream, is_client: bool, by_rdma_cm: bool) -> Result<End> {
    let local = stream.local_addr()?.ip();
    let deadline = Instant::now() + Duration::from_secs(5);
    if !by_rdma_cm {
        return connect_by_numbers(libraries, &stream, local);
    }
    if is_client {
        let port: u16 = exchange(&stream, "port?")?.concat().parse()?;
        let route =
            Route::resolve(libraries, None, SocketAddr::new(stream.peer_addr()?.ip(), port), deadline)?;
        let (domain, completions, buffer) = resources(route.device())?;
        let queue_pair = route.queue_pair(&domain, &completions, CAPACITY)?;
        let settings = Settings::new(route.device().port(1)?.mtu);
        receive(&queue_pair, &buffer)?;
        let connection = route.connect(b"ping-pong", &settings, deadline)?;
        finish(&stream, queue_pair, completions, buffer, Some(connection))
    } else {
        let mut listener = Listener::bind(libraries, local)?;
        exchange(&stream, &listener.port().to_string())?;
        let request = listener.next(deadline)?;
        let (domain, completions, buffer) = resources(listener.device())?;
        let queue_pair = request.queue_pair(&domain, &completions, CAPACITY)?;
        let settings = Settings::new(listener.device().port(1)?.mtu);
        receive(&queue_pair, &buffer)?;
        let connection = listener.accept(request, b"ping-pong", &settings, deadline)?;
        finish(&stream, queue_pair, completions, buffer, Some(connection))
    }
}

fn connect_by_numbers(libraries: Libraries, stream: &TcpStream, local: IpAddr) -> Result<End> {
    let devices = Device::list(libraries)?;
    let chosen = choose(&devices, None, Some(local)).ok_or("no RDMA device has an active port")?;
    println!(
        "{} port {} GID {} ({})",
        chosen.device.name, chosen.port.number, chosen.gid.gid, chosen.gid.kind
    );
    let device = Device::open(libraries, &chosen.device.name)?;
    let (domain, completions, buffer) = resources(&device)?;
    let queue_pair = QueuePair::new(&domain, &completions, CAPACITY)?;
    queue_pair.initialise(chosen.port.number)?;
    receive(&queue_pair, &buffer)?;
    let packet = 0x1234;
    let gid: String = chosen.gid.gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = format!("{} {packet} {} {gid}", queue_pair.number(), chosen.port.lid);
    let answer = exchange(stream, &line)?;
    let [number, packet_of_peer, lid, gid_of_peer] = &answer[..] else {
        return Err("a strange answer".into());
    };
    let peer = RemoteEnd {
        queue_pair: number.parse()?,
        packet: packet_of_peer.parse()?,
        lid: lid.parse()?,
        gid: Gid(u128::from_str_radix(gid_of_peer, 16)?.to_be_bytes()),
    };
    let settings = Settings::new(chosen.port.mtu);
    queue_pair.receive_from(chosen.port, chosen.gid.index, &peer, &settings)?;
    queue_pair.send_from(packet, &settings)?;
    finish(stream, queue_pair, completions, buffer, None)
}

fn resources(device: &Device) -> Result<(ProtectionDomain, CompletionQueue, Buffer)> {
    let domain = ProtectionDomain::new(device)?;
    let completions = CompletionQueue::new(device, CAPACITY.sends + CAPACITY.receives)?;
    let buffer = Buffer::new(&domain, BUFFER, Access::REMOTE_WRITE | Access::REMOTE_READ)?;
    Ok((domain, completions, buffer))
}

/// Tells the peer where this end's buffer is. Both have a receive posted and can send when this returns.
fn finish(
    stream: &TcpStream,
    queue_pair: QueuePair,
    completions: CompletionQueue,
    buffer: Buffer,
    connection: Option<Connection>,
) -> Result<End> {
    let here = buffer.region().remote(0);
    let answer = exchange(stream, &format!("{} {}", here.address, here.key))?;
    let [address, key] = &answer[..] else { return Err("a strange answer".into()) };
    let peer = RemoteMemory { address: address.parse()?, key: key.parse()? };
    let is_iwarp = queue_pair.device().transport() == Transport::Iwarp;
    Ok(End { queue_pair, completions, buffer, peer, is_iwarp, _connection: connection })
}

fn receive(queue_pair: &QueuePair, buffer: &Buffer) -> Result<()> {
    let receive = Receive { id: 1, segment: buffer.region().segment(HALF, HALF) };
    // SAFETY: the buffer outlives the queue pair's use, and its second part is looked at after the completion
    // only.
    Ok(unsafe { queue_pair.post_receives(&[receive]) }?)
}

impl End {
    fn post(&self, operation: Operation, offset: usize, length: usize) -> Result<()> {
        let mut batch = SendBatch::default();
        batch.push(&SendRequest::new(2, operation, self.buffer.region().segment(offset, length)));
        // SAFETY: the segment lies in the buffer, and this program waits for the completion before it goes
        // on.
        Ok(unsafe { self.queue_pair.post(&mut batch) }?)
    }

    /// Waits for the completion of a kind; others that come first are of no interest.
    fn wait(&self, outcome: Outcome) -> Result<Completion> {
        let mut completion = [Completion::default()];
        let mut polls = 0;
        loop {
            if self.completions.poll(&mut completion)? == 1 {
                let [completion] = completion;
                if !completion.status().is_success() {
                    return Err(completion.status().to_string().into());
                }
                if completion.outcome() == outcome {
                    return Ok(completion);
                }
            } else {
                polls += 1;
                if polls == 1000 {
                    self.completions.request_event()?;
                } else if polls > 1000 {
                    self.sleep()?;
                    polls = 0;
                }
            }
        }
    }

    fn sleep(&self) -> Result<()> {
        use std::os::fd::AsRawFd;
        let mut waited =
            libc::pollfd { fd: self.completions.descriptor().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, as said.
        if unsafe { libc::poll(&mut waited, 1, 5000) } == 0 {
            return Err("the peer was silent for 5 s".into());
        }
        while self.completions.take_event()? {}
        Ok(())
    }

    fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        // SAFETY: the part lies in the buffer, and the program looks at it when no request uses it.
        unsafe { core::slice::from_raw_parts(self.buffer.as_ptr().add(offset), length) }
    }

    fn fill(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: the part lies in the buffer, and nothing else refers to it now, since no request uses it.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.buffer.as_ptr().add(offset), bytes.len())
        };
    }
}

/// Sends every message back, until one is empty; then the peer has written to this buffer.
fn answer(end: &End) -> Result<()> {
    loop {
        let arrived = end.wait(Outcome::Received)?;
        let length = arrived.length() as usize;
        end.fill(0, end.bytes(HALF, length));
        receive(&end.queue_pair, &end.buffer)?;
        end.post(Operation::Send { immediate: None }, 0, length)?;
        if length == 0 {
            break;
        }
    }
    if end.is_iwarp {
        // iWARP has no immediate numbers: a message says that the write before it has arrived.
        end.wait(Outcome::Received)?;
        println!("the peer has written");
    } else {
        let written = end.wait(Outcome::ReceivedWrite)?;
        println!("the peer has written, and says {:?}", written.immediate());
    }
    receive(&end.queue_pair, &end.buffer)?;
    end.wait(Outcome::Received)?;
    Ok(())
}

fn play(end: &End, rounds: usize, bytes: usize) -> Result<()> {
    let send = Operation::Send { immediate: None };
    let begun = Instant::now();
    for round in 0..rounds {
        let message = vec![round as u8; bytes];
        end.fill(0, &message);
        end.post(send, 0, bytes)?;
        let arrived = end.wait(Outcome::Received)?;
        if arrived.length() as usize != bytes || end.bytes(HALF, bytes) != message {
            return Err("the answer is not what was sent".into());
        }
        receive(&end.queue_pair, &end.buffer)?;
    }
    let each = begun.elapsed() / rounds.max(1) as u32;
    println!("{rounds} messages of {bytes} bytes, {:.1} us a round trip", each.as_secs_f64() * 1e6);
    end.post(send, 0, 0)?;
    end.wait(Outcome::Received)?;
    let length = BUFFER - 2 * HALF;
    let pattern: Vec<u8> = (0..length).map(|position| (position % 251) as u8).collect();
    end.fill(2 * HALF, &pattern);
    let there = RemoteMemory { address: end.peer.address + 2 * HALF as u64, key: end.peer.key };
    receive(&end.queue_pair, &end.buffer)?;
    let immediate = (!end.is_iwarp).then_some(0x00c0_ffee);
    end.post(Operation::Write { to: there, immediate }, 2 * HALF, length)?;
    end.wait(Outcome::Written)?;
    if end.is_iwarp {
        end.post(send, 0, 1)?;
    }
    end.fill(2 * HALF, &vec![0; length]);
    end.post(Operation::Read { from: there }, 2 * HALF, length)?;
    end.wait(Outcome::Read)?;
    if end.bytes(2 * HALF, length) != pattern {
        return Err("what was read is not what was written".into());
    }
    end.post(send, 0, 1)?;
    end.wait(Outcome::Sent)?;
    println!("{length} bytes written and read back");
    Ok(())
}
