//! The plugin under a made-up NCCL: random traffic, late calls, peers that die and strangers that come.
//!
//! Each scene runs in a process of its own, which is this program again: the plugin reads its settings when it is
//! initialised, and keeps its threads.

mod nccl;

use std::collections::VecDeque;
use std::ffi::c_void;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nccl::{Handle, INVALID_ARGUMENT, INVALID_USAGE, Plugin, REMOTE_ERROR, Random, VERSIONS, fill};

/// What says which scene a process plays.
const SCENE: &str = "NCCL_NET_TEST_SCENE";

const TIMEOUT: Duration = Duration::from_secs(60);

/// This program as a process of a scene.
fn process(scene: &str, variables: &[(&str, &str)], isolated: bool) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = if isolated {
        let mut command = Command::new("unshare");
        command.args(["--net", "--ipc", "--uts"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.args(["--exact", "scene_of_a_process", "--nocapture"]).env(SCENE, scene);
    for name in ["CAUSEWAY_NCCL_PATH", "CAUSEWAY_NCCL_LANES", "CAUSEWAY_SOCKET_DIR", "NCCL_SOCKET_IFNAME"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    command
}

fn play(scene: &str, variables: &[(&str, &str)]) {
    let output = process(scene, variables, false).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{scene}: {}\n{}", output.status, String::from_utf8_lossy(&text));
}

/// A scene of two processes: the second one connects to the first one's handle.
struct Peer {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Peer {
    fn start(scene: &str, variables: &[(&str, &str)], isolated: bool) -> Self {
        Self::of(process(scene, variables, isolated))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn tell(&mut self, text: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{text}").unwrap();
    }

    /// What it says next that begins so.
    fn hear(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.lines.read_line(&mut line).unwrap(),
                0,
                "the peer ended before it said {beginning}"
            );
            // The harness may have begun the line.
            if let Some((_, rest)) = line.split_once(beginning) {
                return rest.trim().to_owned();
            }
        }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{rest}");
    }
}

fn hex(handle: &Handle) -> String {
    handle.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Handle {
    std::array::from_fn(|at| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).unwrap())
}

fn say(text: &str) {
    println!("{text}");
    std::io::stdout().flush().unwrap();
}

fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

#[test]
fn random_traffic_within_a_host() {
    play("traffic", &[("CAUSEWAY_NCCL_PATH", "unix")]);
}

#[test]
fn random_traffic_over_tcp() {
    play("traffic", &[("CAUSEWAY_NCCL_PATH", "tcp"), ("CAUSEWAY_NCCL_LANES", "3")]);
}

#[test]
fn random_traffic_over_one_lane() {
    play("traffic", &[("CAUSEWAY_NCCL_PATH", "tcp"), ("CAUSEWAY_NCCL_LANES", "1")]);
}

#[test]
fn calls_that_are_wrong_and_peers_that_close() {
    play("endings", &[]);
}

#[test]
fn strangers_are_refused() {
    play("strangers", &[]);
}

#[test]
fn forked_child_is_refused_and_holds_no_connection() {
    play("fork", &[]);
}

#[test]
fn two_processes_exchange_and_one_is_killed() {
    for path in ["unix", "tcp"] {
        exchange(&[("CAUSEWAY_NCCL_PATH", path)], false);
    }
}

#[test]
fn two_network_namespaces_meet_in_a_folder() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("namespaces need root");
        return;
    }
    let folder = std::env::temp_dir().join(format!("causeway-nccl-test-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    exchange(&[("CAUSEWAY_SOCKET_DIR", folder.to_str().unwrap())], true);
    let left = std::fs::read_dir(&folder).unwrap().count();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(left, 0, "sockets are left in the folder");
}

#[test]
fn cut_link_is_an_error_at_both_ends() {
    /// Two network namespaces with a link between them, which go with this.
    struct Namespaces([String; 2]);

    impl Drop for Namespaces {
        fn drop(&mut self) {
            for name in &self.0 {
                let _ = Command::new("ip").args(["netns", "del", name]).status();
            }
        }
    }

    let names = ["a", "b"].map(|side| format!("causeway-nccl-{}-{side}", std::process::id()));
    let [a, b] = &names;
    let is_made =
        Command::new("ip").args(["netns", "add", a]).output().is_ok_and(|made| made.status.success());
    if !is_made {
        eprintln!("network namespaces need root, and the program ip");
        return;
    }
    let namespaces = Namespaces(names.clone());
    let setup = [
        format!("netns add {b}"),
        format!("link add va netns {a} type veth peer name vb netns {b}"),
        format!("-n {a} addr add 10.93.0.1/24 dev va"),
        format!("-n {b} addr add 10.93.0.2/24 dev vb"),
        format!("-n {a} link set va up"),
        format!("-n {b} link set vb up"),
    ];
    let ip = |arguments: &str| Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(setup.iter().all(|arguments| ip(arguments).success()));
    let start = |namespace: &str, scene| {
        let inner = process(scene, &[("CAUSEWAY_NCCL_PATH", "tcp")], false);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Peer::of(command)
    };
    let mut receiver = start(a, "receiver");
    let handle = receiver.hear("HANDLE ");
    let mut sender = start(b, "sender");
    sender.tell(&handle);
    receiver.hear("RECEIVED");
    sender.hear("SENT");
    assert!(ip(&format!("-n {a} link set va down")).success());
    receiver.hear("LOST");
    receiver.end();
    sender.end();
    drop(namespaces);
}

/// Two processes exchange messages; then one is killed while the other one receives.
fn exchange(variables: &[(&str, &str)], isolated: bool) {
    let mut receiver = Peer::start("receiver", variables, isolated);
    let handle = receiver.hear("HANDLE ");
    let mut sender = Peer::start("sender", variables, isolated);
    sender.tell(&handle);
    receiver.hear("RECEIVED");
    sender.hear("SENT");
    sender.child.kill().unwrap();
    sender.child.wait().unwrap();
    receiver.hear("LOST");
    receiver.end();
}

/// What a process of a scene does. Without a scene it is no test.
#[test]
fn scene_of_a_process() {
    match std::env::var(SCENE).as_deref() {
        Err(_) => {}
        Ok("traffic") => traffic(),
        Ok("endings") => endings(),
        Ok("strangers") => strangers(),
        Ok("fork") => fork(),
        Ok("receiver") => receiver(),
        Ok("sender") => sender(),
        Ok(scene) => panic!("there is no scene {scene}"),
    }
}

/// Messages of the scene with two processes.
const EXCHANGED: u64 = 30;

fn receiver() {
    let plugin = Plugin::load(8);
    let (listener, handle) = plugin.listen();
    say(&format!("HANDLE {}", hex(&handle)));
    let communicator = plugin.accept(listener);
    plugin.close_listen(listener);
    let mut random = Random(99);
    let mut memory = vec![0_u8; 3 << 20];
    let registration = plugin.register(communicator, &mut memory, 1).unwrap();
    for number in 0..EXCHANGED {
        let mut expected = vec![0; random.size()];
        fill(&mut expected, 1, number);
        let request = plugin.receive(communicator, &mut memory, registration).unwrap();
        assert_eq!(plugin.wait(request), Ok(expected.len()));
        assert!(memory[..expected.len()] == expected[..], "message {number}");
    }
    say("RECEIVED");
    // The sender is killed meanwhile.
    let request = plugin.receive(communicator, &mut memory, registration).unwrap();
    assert_eq!(plugin.wait(request), Err(REMOTE_ERROR));
    assert_eq!(plugin.receive(communicator, &mut memory, registration), Err(REMOTE_ERROR));
    plugin.deregister(communicator, registration);
    plugin.close_receive(communicator);
    say("LOST");
}

fn sender() {
    let plugin = Plugin::load(12);
    let communicator = plugin.connect(&from_hex(&hear())).unwrap();
    let mut random = Random(99);
    for number in 0..EXCHANGED {
        let mut memory = vec![0; random.size()];
        fill(&mut memory, 1, number);
        let registration = plugin.register(communicator, &mut memory, 1).unwrap();
        let request = plugin.send(communicator, &memory, registration).unwrap();
        assert_eq!(plugin.wait(request), Ok(memory.len()));
        plugin.deregister(communicator, registration);
    }
    say("SENT");
    hear();
}

/// A connection of the traffic scene.
struct Connection {
    number: u64,
    /// The tables through which its ends are used.
    plugins: [Plugin; 2],
    listener: *mut c_void,
    handle: Handle,
    ends: [*mut c_void; 2],
    registrations: [*mut c_void; 2],
    sent: u64,
    received: u64,
    sends: VecDeque<(*mut c_void, Vec<u8>)>,
    receives: VecDeque<(*mut c_void, Vec<u8>, u64)>,
    sizes: VecDeque<usize>,
}

/// Messages of a connection, and requests in flight.
const MESSAGES: u64 = 60;
const IN_FLIGHT: usize = 12;

/// Bytes behind a receive that must stay.
const GUARD: usize = 64;

impl Connection {
    fn new(number: u64, plugins: &[Plugin]) -> Self {
        let of = |at: u64| plugins[(number + at) as usize % plugins.len()];
        let (listener, handle) = of(1).listen();
        Self {
            number,
            plugins: [of(0), of(1)],
            listener,
            handle,
            ends: [std::ptr::null_mut(); 2],
            registrations: [std::ptr::null_mut(); 2],
            sent: 0,
            received: 0,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            sizes: VecDeque::new(),
        }
    }

    /// Does something, as chance will have it. Whether all messages are there.
    fn step(&mut self, random: &mut Random) -> bool {
        let [sender, receiver] = self.plugins;
        let mut own = [0_u8; 1];
        if self.ends[0].is_null() {
            self.ends[0] = sender.try_connect(&self.handle).unwrap();
            if !self.ends[0].is_null() {
                self.registrations[0] = sender.register(self.ends[0], &mut own, 1).unwrap();
            }
        }
        // Late more often than not.
        if self.ends[1].is_null() && random.below(50) == 0 {
            self.ends[1] = receiver.try_accept(self.listener);
            if !self.ends[1].is_null() {
                self.registrations[1] = receiver.register(self.ends[1], &mut own, 1).unwrap();
                receiver.close_listen(self.listener);
            }
        }
        let is_turn = |random: &mut Random, end: *mut c_void| !end.is_null() && random.below(3) == 0;
        if is_turn(random, self.ends[0]) && self.sent < MESSAGES && self.sends.len() < IN_FLIGHT {
            let mut memory = vec![0; random.size()];
            fill(&mut memory, self.number, self.sent);
            let request = sender.send(self.ends[0], &memory, self.registrations[0]).unwrap();
            if !request.is_null() {
                self.sizes.push_back(memory.len());
                self.sends.push_back((request, memory));
                self.sent += 1;
            }
        }
        if is_turn(random, self.ends[1]) && self.receives.len() < IN_FLIGHT {
            let posted = self.received + self.receives.len() as u64;
            if posted < MESSAGES {
                let mut memory = vec![0xee; (3 << 20) + GUARD];
                let room = 3 << 20;
                let request =
                    receiver.receive(self.ends[1], &mut memory[..room], self.registrations[1]).unwrap();
                if !request.is_null() {
                    self.receives.push_back((request, memory, posted));
                }
            }
        }
        // In any order: NCCL tests what it likes.
        if !self.sends.is_empty() {
            let at = random.below(self.sends.len() as u64) as usize;
            let (request, memory) = &self.sends[at];
            if let Some(size) = sender.test(*request).unwrap() {
                assert_eq!(size, memory.len());
                self.sends.remove(at);
            }
        }
        if let Some((request, memory, number)) = self.receives.front()
            && let Some(size) = receiver.test(*request).unwrap()
        {
            let mut expected = vec![0; self.sizes.pop_front().unwrap()];
            fill(&mut expected, self.number, *number);
            assert_eq!(size, expected.len(), "connection {} message {number}", self.number);
            assert!(memory[..size] == expected[..], "connection {} message {number}", self.number);
            assert!(memory[size..].iter().all(|byte| *byte == 0xee), "bytes behind message {number}");
            self.receives.pop_front();
            self.received += 1;
        }
        self.received == MESSAGES && self.sends.is_empty()
    }

    fn close(&self) {
        let [sender, receiver] = self.plugins;
        sender.deregister(self.ends[0], self.registrations[0]);
        receiver.deregister(self.ends[1], self.registrations[1]);
        receiver.flush(self.ends[1]);
        sender.close_send(self.ends[0]);
        receiver.close_receive(self.ends[1]);
    }
}

fn traffic() {
    let plugins = VERSIONS.map(Plugin::load);
    for plugin in plugins {
        let (pointers, speed, receives, refused) = plugin.properties();
        assert_eq!((pointers, receives, refused), (1, 1, INVALID_ARGUMENT));
        assert!(speed > 0);
    }
    let mut random = Random(0x1234_5678);
    let mut connections: Vec<Connection> =
        (0..VERSIONS.len() as u64 + 1).map(|number| Connection::new(number, &plugins)).collect();
    let start = Instant::now();
    while !connections.is_empty() {
        let at = random.below(connections.len() as u64) as usize;
        if connections[at].step(&mut random) {
            connections.remove(at).close();
        }
        assert!(start.elapsed() < TIMEOUT * 2, "the traffic stands still");
    }
    plugins.iter().for_each(Plugin::finalize);
}

/// A connected pair: sender and receiver.
fn pair(plugin: &Plugin) -> [*mut c_void; 2] {
    let (listener, handle) = plugin.listen();
    let sender = plugin.connect(&handle).unwrap();
    let receiver = plugin.accept(listener);
    plugin.close_listen(listener);
    [sender, receiver]
}

fn endings() {
    let none = std::ptr::null_mut();
    let plugin = Plugin::load(9);
    let mut memory = vec![7_u8; 1 << 20];

    // What was sent before the sender has closed arrives.
    let [sender, receiver] = pair(&plugin);
    let mut room = vec![0_u8; 1 << 20];
    let receive = plugin.receive(receiver, &mut room, none).unwrap();
    let send = plugin.send(sender, &memory, none).unwrap();
    assert_eq!(plugin.wait(send), Ok(memory.len()));
    plugin.close_send(sender);
    assert_eq!(plugin.wait(receive), Ok(memory.len()));
    assert!(room == memory);
    // And then there is nothing more.
    let receive = plugin.receive(receiver, &mut room, none);
    assert_eq!(receive.and_then(|request| plugin.wait(request)), Err(REMOTE_ERROR));
    plugin.close_receive(receiver);

    // A message that is longer than its receive is an error at both ends, and nothing is written.
    let [sender, receiver] = pair(&plugin);
    let mut room = vec![1_u8; 2000];
    let receive = plugin.receive(receiver, &mut room[..1000], none).unwrap();
    let send = plugin.send(sender, &memory[..1001], none).unwrap();
    assert!(plugin.wait(receive).is_err());
    assert!(room.iter().all(|byte| *byte == 1));
    let _ = plugin.wait(send);
    let start = Instant::now();
    // The next one fails, for the receiver has ended the connection.
    while let Ok(request) = plugin.send(sender, &memory[..1], none)
        && (request.is_null() || plugin.wait(request).is_ok())
    {
        assert!(start.elapsed() < TIMEOUT);
    }
    plugin.close_send(sender);
    plugin.close_receive(receiver);

    // A receive whose memory is taken back is never written to, nor is one whose communicator is closed.
    for is_closed in [false, true] {
        let [sender, receiver] = pair(&plugin);
        let mut room = vec![1_u8; 1 << 20];
        let registration = plugin.register(receiver, &mut room, 1).unwrap();
        plugin.receive(receiver, &mut room, registration).unwrap();
        let send = plugin.send(sender, &memory, none).unwrap();
        if is_closed {
            plugin.close_receive(receiver);
        } else {
            plugin.deregister(receiver, registration);
        }
        let before = room.clone();
        let _ = plugin.wait(send);
        std::thread::sleep(Duration::from_millis(20));
        assert!(room == before, "memory was written that was taken back");
        plugin.close_send(sender);
        if !is_closed {
            plugin.close_receive(receiver);
        }
    }

    // A send without a receive waits, and can be given up. There is an end to what is taken.
    let [sender, receiver] = pair(&plugin);
    let mut requests = 0;
    while !plugin.send(sender, &memory, none).unwrap().is_null() {
        requests += 1;
        assert!(requests < 1000);
    }
    assert!(requests >= 32, "NCCL may have 32 requests, not {requests}");
    plugin.close_send(sender);
    plugin.close_receive(receiver);

    // Wrong calls.
    let [sender, receiver] = pair(&plugin);
    assert_eq!(
        plugin.register(sender, &mut memory, 2),
        Err(INVALID_ARGUMENT),
        "memory of a GPU is not offered"
    );
    assert_eq!(plugin.send(receiver, &memory, none), Err(INVALID_ARGUMENT));
    assert_eq!(plugin.receive(sender, &mut memory, none), Err(INVALID_ARGUMENT));
    assert_eq!(plugin.connect(&[0; 128]), Err(INVALID_ARGUMENT));
    plugin.close_receive(receiver);
    plugin.close_send(sender);

    // A listener that is gone is an error within the time of a connection.
    let (listener, handle) = plugin.listen();
    plugin.close_listen(listener);
    assert_eq!(plugin.connect(&handle), Err(REMOTE_ERROR));
}

/// The port in a handle.
fn port(handle: &Handle) -> u16 {
    u16::from_le_bytes([handle[40], handle[41]])
}

fn strangers() {
    let plugin = Plugin::load(11);
    let (listener, handle) = plugin.listen();
    // With another secret.
    let mut forged = handle;
    forged[8] ^= 1;
    assert_eq!(plugin.connect(&forged), Err(REMOTE_ERROR));
    // Many who say nothing, or something else.
    let address = ("127.0.0.1", port(&handle));
    let mut strangers: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stranger in strangers.iter_mut().skip(50) {
        // It may have been sent away by now.
        let _ = stranger.write_all(&[0x5a; 200]);
    }
    assert!(plugin.try_accept(listener).is_null());
    // The right one is let in all the same.
    let sender = plugin.connect(&handle).unwrap();
    let receiver = plugin.accept(listener);
    let (memory, mut room) = (vec![3_u8; 100_000], vec![0_u8; 100_000]);
    let none = std::ptr::null_mut();
    let receive = plugin.receive(receiver, &mut room, none).unwrap();
    let send = plugin.send(sender, &memory, none).unwrap();
    assert_eq!((plugin.wait(send), plugin.wait(receive)), (Ok(100_000), Ok(100_000)));
    assert!(room == memory);
    // Who said something wrong was sent away.
    for stranger in &mut strangers[50..] {
        stranger.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut rest = Vec::new();
        // With an end, or because it had said more than is read.
        let _ = stranger.read_to_end(&mut rest);
    }
    plugin.close_send(sender);
    plugin.close_receive(receiver);
    plugin.close_listen(listener);
}

fn fork() {
    let plugin = Plugin::load(8);
    let [sender, receiver] = pair(&plugin);
    // SAFETY: the child makes calls of the plugin alone, which refuses them, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = plugin.try_listen() == INVALID_USAGE
            && plugin.send(sender, &[1], std::ptr::null_mut()) == Err(INVALID_USAGE);
        plugin.close_send(sender);
        std::thread::sleep(Duration::from_secs(if refused { 2 } else { 0 }));
        // SAFETY: ends the child without the parent's handlers.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    // The child lives, and the connection is the parent's alone: its end is seen.
    plugin.close_send(sender);
    let mut room = [0_u8; 8];
    let receive = plugin.receive(receiver, &mut room, std::ptr::null_mut());
    assert_eq!(receive.and_then(|request| plugin.wait(request)), Err(REMOTE_ERROR));
    let mut status = 0;
    // SAFETY: room for the status; the child is this process's.
    let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
    assert_eq!(ended, 0, "the child has ended before");
    // SAFETY: room for the status; the child is this process's.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child used the parent's connections");
    plugin.close_receive(receiver);
}
