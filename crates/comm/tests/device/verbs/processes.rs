//! Cards of two processes, joined over TCP: each owns its card, its queue pair and its memory, and its kernels
//! post. What goes wrong reaches both with queue pair, operation and cause, and the queue pairs work again.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use causeway_comm::device::verbs::layout::{SendRequest, WorkCompletion, operation, send_flags};
use causeway_comm::device::verbs::{Doorbell, NicOptions, QueuePairOptions};

use super::pair::cause::{
    FLUSHED, LOCAL_LENGTH, REMOTE_ACCESS, REMOTE_INVALID_REQUEST, REMOTE_OPERATION, RETRY_EXCEEDED,
    RNR_RETRY_EXCEEDED,
};
use super::pair::{End, FAILED, OK, TRY, WAIT, wait};
use super::softcard::SoftCard;
use crate::machine::{Lanes, Ranks, is_cuda};

/// Where the other process finds this one; without it `the_other_process` does nothing.
const SOCKET: &str = "CAUSEWAY_TEST_CARD_SOCKET";

fn end(gpu: &Ranks) -> End {
    let options = QueuePairOptions { sends: 16, receives: 8, inline: 28 };
    let nic = NicOptions { limit: Duration::from_secs(100), doorbell: Doorbell::Auto };
    End::new(gpu, "mlx5_0", options, nic)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    (0..text.len() / 2).map(digits).collect()
}

/// Completions, of which all have come: number of the request, cause, operation, whether the queue pair is this
/// one, bytes.
fn completions(gpu: &Ranks, end: &End, of_sends: bool, count: usize) -> Vec<(u64, u32, u32, bool, u32)> {
    let queue = if of_sends { &end.sends } else { &end.receives };
    let of = |done: &WorkCompletion| done.queue_pair == end.queue_pair.number();
    let waited = wait(gpu, queue, count);
    assert!(waited.iter().all(|(status, _)| *status == OK), "{waited:?}");
    waited.iter().map(|(_, done)| (done.wr_id, done.syndrome, done.operation, of(done), done.bytes)).collect()
}

/// What the other process does for a line of the first one.
fn obey(gpu: &Ranks, end: &End, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    match words[0] {
        "connect" => format!("{:?}", end.queue_pair.connect(&unhex(words[1]).try_into().unwrap())),
        "receive" => {
            format!("{:?}", end.post_receives(gpu, &end.receive_requests(number(1), number(2) as u32), TRY))
        }
        "write" => {
            let request = SendRequest {
                operation: operation::RDMA_WRITE,
                flags: send_flags::SIGNALED,
                address: end.memory.address + number(1),
                bytes: number(2) as u32,
                lkey: end.registered.lkey(),
                remote_address: number(3),
                rkey: number(4) as u32,
                ..SendRequest::default()
            };
            format!("{:?}", end.post(gpu, &[request], WAIT))
        }
        "completions" => format!("{:?}", completions(gpu, end, words[1] == "sends", number(2) as usize)),
        "fill" => {
            gpu.write(end.memory.address + number(1), &unhex(words[2]));
            String::new()
        }
        "bytes" => hex(&gpu.bytes(end.memory.address + number(1), number(2))),
        "flush" => format!("{:?}", end.queue_pair.flush()),
        "reset" => format!("{:?}", end.queue_pair.reset()),
        "complaint" => SoftCard::get().complaint(),
        // At once, as a process does that is killed.
        "end" => std::process::abort(),
        other => panic!("{other}"),
    }
}

#[test]
fn the_other_process() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let mut stream = UnixStream::connect(path).unwrap();
    let gpu = Ranks::new(Lanes::Well);
    SoftCard::get();
    let end = end(&gpu);
    let address = hex(&end.queue_pair.address());
    writeln!(stream, "{address} {} {}", end.memory.address, end.registered.rkey()).unwrap();
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let said = obey(&gpu, &end, &line.unwrap());
        writeln!(stream, "{said}").unwrap();
    }
}

/// The other process, as the first one knows it.
struct Other {
    child: Child,
    lines: BufReader<UnixStream>,
    address: String,
    memory: u64,
    rkey: u32,
}

impl Other {
    fn start(folder: &Path) -> Self {
        let path = folder.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "verbs::processes::the_other_process"]).env(SOCKET, &path);
        let child = command.spawn().unwrap();
        let mut other = Self {
            child,
            lines: BufReader::new(listener.accept().unwrap().0),
            address: String::new(),
            memory: 0,
            rkey: 0,
        };
        let line = other.line();
        let words: Vec<&str> = line.split(' ').collect();
        other.address = words[0].to_owned();
        (other.memory, other.rkey) = (words[1].parse().unwrap(), words[2].parse().unwrap());
        other
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the other process lives");
        line.trim_end().to_owned()
    }

    fn say(&mut self, words: &str) -> String {
        writeln!(self.lines.get_mut(), "{words}").unwrap();
        self.line()
    }

    fn connect(&mut self, end: &End) {
        assert_eq!(self.say(&format!("connect {}", hex(&end.queue_pair.address()))), "Ok(())");
        end.queue_pair.connect(&unhex(&self.address).try_into().unwrap()).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // One that has ended already is not there to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This process's end, and the other process.
struct Joined {
    gpu: Ranks,
    end: End,
    other: Other,
}

impl Joined {
    fn request(&self, operation: u32, from: u64, to: u64, bytes: u32) -> SendRequest {
        SendRequest {
            operation,
            flags: send_flags::SIGNALED,
            address: self.end.memory.address + from,
            bytes,
            lkey: self.end.registered.lkey(),
            remote_address: self.other.memory + to,
            rkey: self.other.rkey,
            ..SendRequest::default()
        }
    }

    fn post(&self, requests: &[SendRequest]) {
        assert_eq!(self.end.post(&self.gpu, requests, WAIT), vec![OK; requests.len()]);
    }

    fn completions(&self, count: usize) -> Vec<(u64, u32, u32, bool, u32)> {
        completions(&self.gpu, &self.end, true, count)
    }

    /// Bytes arrive there by writes and come here by reads, sends and additions; the other one writes, too.
    fn works(&mut self) {
        self.gpu.write(self.end.memory.address, b"over the wire");
        let write = self.request(operation::RDMA_WRITE, 0, 64, 13);
        let read = self.request(operation::RDMA_READ, 128, 64, 13);
        let add = SendRequest { compare_add: 5, ..self.request(operation::FETCH_AND_ADD, 256, 512, 8) };
        self.other.say(&format!("fill 512 {}", hex(&7_u64.to_le_bytes())));
        self.post(&[write, read, add, add]);
        assert!(self.completions(4).iter().all(|done| done.1 == 0 && done.3));
        assert_eq!(self.other.say("bytes 64 13"), hex(b"over the wire"));
        assert_eq!(self.gpu.bytes(self.end.memory.address + 128, 13), b"over the wire");
        assert_eq!(self.gpu.bytes(self.end.memory.address + 256, 8), 12_u64.to_le_bytes());
        assert_eq!(self.other.say("bytes 512 8"), hex(&17_u64.to_le_bytes()));
        let (to, rkey) = (self.end.memory.address + 1024, self.end.registered.rkey());
        self.other.say(&format!("fill 0 {}", hex(b"and back")));
        assert_eq!(self.other.say(&format!("write 0 8 {to} {rkey}")), format!("[{OK}]"));
        assert_eq!(
            self.other.say("completions sends 1"),
            format!("[(0, 0, {}, true, 8)]", operation::RDMA_WRITE)
        );
        assert_eq!(self.gpu.bytes(to, 8), b"and back");
    }

    /// A request fails for this reason, the one before it is done, and the one behind it is flushed.
    fn fails(&self, request: SendRequest, cause: u32) {
        let good = self.request(operation::RDMA_WRITE, 0, 0, 8);
        let all = [SendRequest { wr_id: 1, ..good }, SendRequest { wr_id: 2, ..request }, good];
        assert_eq!(self.end.post(&self.gpu, &all, TRY), [OK; 3]);
        let found: Vec<_> = self.completions(3).iter().map(|done| (done.1, done.2, done.3)).collect();
        let (write, failed) = (operation::RDMA_WRITE, request.operation);
        assert_eq!(found, [(0, write, true), (cause, failed, true), (FLUSHED, write, true)]);
        assert_eq!(self.end.post(&self.gpu, &[good], TRY), [FAILED]);
    }

    /// Drains, resets and joins both ends; what the other one had posted to receive comes back as flushed.
    fn renew(&mut self, unread: usize) {
        self.end.queue_pair.flush().unwrap();
        assert_eq!(self.other.say("flush"), "Ok(())");
        if unread != 0 {
            assert!(self.other.say("reset").contains("NotDrained"));
            let flushed = self.other.say(&format!("completions receives {unread}"));
            assert_eq!(flushed.matches(&format!(", {FLUSHED}, ")).count(), unread, "{flushed}");
        }
        self.end.queue_pair.reset().unwrap();
        assert_eq!(self.other.say("reset"), "Ok(())");
        let Self { end, other, .. } = self;
        other.connect(end);
        self.works();
    }
}

#[test]
fn cards_of_two_processes_carry_requests_and_errors() {
    // The soft card of another process reaches no memory of a GPU.
    if is_cuda() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let card = SoftCard::get();
    let other = Other::start(folder.path());
    let gpu = Ranks::new(Lanes::Well);
    let end = end(&gpu);
    let mut joined = Joined { gpu, end, other };
    joined.other.connect(&joined.end);
    joined.works();

    // A message waits for its receive, and is sent again until there is one.
    let before = card.refusals();
    let send = joined.request(operation::SEND, 0, 0, 13);
    joined.post(&[send]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while card.refusals() == before {
        assert!(Instant::now() < deadline, "the card refuses no message");
        std::thread::yield_now();
    }
    assert_eq!(joined.other.say("receive 1 64"), format!("[{OK}]"));
    assert_eq!(joined.completions(1)[0].1, 0);
    let received = joined.other.say("completions receives 1");
    assert_eq!(received, format!("[(0, 0, {}, true, 13)]", operation::RECEIVE));
    assert_eq!(joined.other.say("bytes 0 13"), hex(b"over the wire"));

    // What this end's card is told to report.
    for cause in [RETRY_EXCEEDED, RNR_RETRY_EXCEEDED, REMOTE_OPERATION] {
        card.fail(joined.end.queue_pair.number(), 1, cause);
        joined.fails(joined.request(operation::RDMA_READ, 0, 0, 16), cause);
        joined.renew(0);
    }

    // What the other card finds: a key that it does not know ends its queue pair, too.
    assert_eq!(joined.other.say("receive 2 64"), format!("[{OK}, {OK}]"));
    let write = joined.request(operation::RDMA_WRITE, 0, 0, 16);
    joined.fails(SendRequest { rkey: write.rkey ^ 2, ..write }, REMOTE_ACCESS);
    joined.renew(2);

    // A message that is too long for its receive.
    assert_eq!(joined.other.say("receive 2 16"), format!("[{OK}, {OK}]"));
    joined.fails(joined.request(operation::SEND, 0, 0, 17), REMOTE_INVALID_REQUEST);
    let receive = operation::RECEIVE;
    let found = joined.other.say("completions receives 2");
    assert!(found.starts_with(&format!("[(0, {LOCAL_LENGTH}, {receive}, true, ")), "{found}");
    assert!(found.contains(&format!("(1, {FLUSHED}, {receive}, true, ")), "{found}");
    joined.renew(0);
    assert_eq!(joined.other.say("complaint"), "");

    // A process that is gone answers no more.
    writeln!(joined.other.lines.get_mut(), "end").unwrap();
    joined.other.child.wait().unwrap();
    joined.post(&[write]);
    let write = operation::RDMA_WRITE;
    assert_eq!(joined.completions(1)[0], (0, RETRY_EXCEEDED, write, true, 0));
    joined.end.queue_pair.reset().unwrap();
    assert_eq!(card.complaint(), "");
}
