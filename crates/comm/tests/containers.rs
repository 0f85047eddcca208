//! Which channels two ranks have in containers that share more or less, for each kind of pair that engines
//! and launchers make.
//!
//! Containers are made with `unshare`, so this needs root, and namespaces that a sandbox may not give; where
//! it cannot be had, the output says so. Rank 0 serves in container A, and rank 1 looks at it from container
//! B (`examples/rank_in_container.rs`).

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_comm::Job;

/// What a container has for itself, as arguments of `unshare`.
const HOST_NAME: &[&str] = &["--uts"];
const ENGINE: &[&str] = &["--uts", "--ipc", "--pid", "--net", "--mount-proc"];
const HOST_IPC: &[&str] = &["--uts", "--pid", "--net", "--mount-proc"];
const HOST_IPC_PID: &[&str] = &["--uts", "--net"];
const HOST_PID: &[&str] = &["--uts", "--net", "--ipc"];
const OWN_USER: &[&str] = &["--user", "--map-root-user", "--uts"];

/// What is mounted at `/dev/shm`.
#[derive(Clone, Copy)]
enum Shm {
    Host,
    Own,
    /// A volume that both containers have.
    Volume,
}

struct Container {
    unshared: &'static [&'static str],
    shm: Shm,
}

/// What they have in common: a folder on a volume, and with the names of folders the places of their boards.
struct Host {
    volume: tempfile::TempDir,
    nonce: String,
}

impl Host {
    /// None where containers cannot be made here, which the output says.
    fn new() -> Option<Self> {
        let mut tried = Command::new("unshare");
        tried.args(ENGINE).args(["--user", "--map-root-user", "--mount", "--fork", "true"]);
        let can = tried.output().is_ok_and(|output| output.status.success());
        if !rustix::process::geteuid().is_root() || !can {
            eprintln!("not tested: this needs root, and unshare with namespaces of every kind");
            return None;
        }
        let volume = tempfile::tempdir().unwrap();
        for folder in ["share", "shm"] {
            std::fs::create_dir(volume.path().join(folder)).unwrap();
        }
        let nonce = format!("{:032x}", u128::from_le_bytes(Job::random_nonce().unwrap()));
        Some(Self { volume, nonce })
    }

    /// A folder that all containers see.
    fn shared(&self) -> String {
        self.volume.path().join("share").to_str().unwrap().to_owned()
    }

    /// A rank in a container, with boards in these places.
    fn rank(&self, container: &Container, rank: u32, locations: &str, what: &[&str]) -> Command {
        let volume = self.volume.path().join("shm");
        let mount = match container.shm {
            Shm::Host => "true".to_owned(),
            Shm::Own => "mount -t tmpfs tmpfs /dev/shm".to_owned(),
            Shm::Volume => format!("mount --bind {} /dev/shm", volume.display()),
        };
        let mut command = Command::new("unshare");
        command.args(container.unshared).args(["--mount", "--fork", "--kill-child", "sh", "-c"]);
        command.arg(format!("hostname container-{rank}; {mount} && exec \"$@\"")).arg("sh").arg(program());
        command.args([&self.nonce, &rank.to_string(), "2", locations]).args(what);
        command
    }

    /// What rank 1 in B says of rank 0 in A, a line each.
    fn between(&self, a: &Container, b: &Container, locations: &str) -> Vec<String> {
        let serving = Serving::start(self.rank(a, 0, locations, &["serve"]));
        let output = self.rank(b, 1, locations, &["meet", "0"]).output().unwrap();
        drop(serving);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said.lines().map(str::to_owned).collect()
    }
}

/// The rank that serves, until this value goes.
struct Serving {
    child: Child,
    /// Reads what it says, until nobody is left who could say anything.
    listener: JoinHandle<usize>,
}

impl Serving {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = said.any(|line| line.unwrap() == "ready");
        // What it says later is nobody's concern, and must not end it.
        let listener = std::thread::spawn(move || said.count());
        assert!(ready, "the rank that serves did not come up");
        Self { child, listener }
    }

    /// Kills it, and waits until the rank has ended, too: the kernel signals that one when the process that made its
    /// container has ended.
    fn kill(mut self) {
        // `wait` would close it, and a rank whose input ends takes its leave.
        let _input = self.child.stdin.take();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while !self.listener.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Its standard input ends, and so does it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    // Cargo puts examples beside the folder of the test programs.
    let tests = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let program = tests.parent().unwrap().join("examples").join("rank_in_container");
    assert!(program.exists(), "build the example first: cargo build --examples -p causeway-comm");
    program
}

const HIDDEN: &str = "the processes are in PID namespaces that hide them from each other, where handles of \
                      cudaIPC cannot be opened";
const NO_BAR: &str = "cannot map the GPU's BAR: there is no /dev/gdrdrv";
const ON_ONE_HOST: &str = "both ranks are on one host, where `loopback` uses a card";
const NO_CARD: &str = "the ranks do not both have an RDMA device: this host has none";
const OTHER_HOST: &str = "the peer is on another host, or no board shows it";
const NO_NETWORK: &str =
    "no network connects the ranks: both network namespaces have no address but their own loopback's";

/// The lines of the channels ipc, vmm, staged, bar, rdma, loopback, tcp on one host.
fn on_one_host(ipc: &str, vmm: &str, staged: &str, tcp: &str) -> Vec<String> {
    let outcomes = [
        ("ipc", ipc),
        ("vmm", vmm),
        ("staged", staged),
        ("bar", NO_BAR),
        ("rdma", ON_ONE_HOST),
        ("loopback", NO_CARD),
        ("tcp", tcp),
    ];
    outcomes.map(|(channel, outcome)| format!("channel {channel}: {outcome}")).to_vec()
}

fn channels(said: &[String]) -> Vec<String> {
    said.iter().filter(|line| line.starts_with("channel ")).cloned().collect()
}

#[track_caller]
fn says(said: &[String], line: &str) {
    assert!(said.iter().any(|said| said == line), "{line:?} is missing in {said:#?}");
}

/// What every pair says that has met over a socket.
#[track_caller]
fn met_in(said: &[String], folder: &str) {
    says(said, "local count 2 order Some(1)");
    says(said, "place in another container of this host");
    says(said, "descriptor came whole");
    says(said, "lives true ended false");
    says(said, &format!("memory a descriptor by a socket in {folder}"));
}

fn both(unshared: &'static [&'static str], shm: Shm) -> [Container; 2] {
    [Container { unshared, shm }, Container { unshared, shm }]
}

/// All places that a rank looks at: the shared folder, `/dev/shm`, System V memory.
fn everywhere(host: &Host) -> String {
    format!("{}:/dev/shm:sysv", host.shared())
}

#[test]
fn row_1_only_the_host_name_differs() {
    let Some(host) = Host::new() else { return };
    let [a, b] = both(HOST_NAME, Shm::Host);
    let said = host.between(&a, &b, &everywhere(&host));
    met_in(&said, &host.shared());
    says(&said, &format!("media {}, /dev/shm, System V memory", host.shared()));
    says(&said, "processes Same");
    says(&said, "reach into yes");
    assert_eq!(channels(&said), on_one_host("yes", "yes", "yes", "yes"));
}

#[test]
fn row_2_as_an_engine_makes_them() {
    let Some(host) = Host::new() else { return };
    let [a, b] = both(ENGINE, Shm::Own);
    let said = host.between(&a, &b, &everywhere(&host));
    met_in(&said, &host.shared());
    says(&said, &format!("media {}", host.shared()));
    says(&said, "processes Hidden");
    says(&said, "reach into No such process (os error 3)");
    assert_eq!(channels(&said), on_one_host(HIDDEN, "yes", "yes", NO_NETWORK));
    // Without the folder they do not find each other, and say so.
    let said = host.between(&a, &b, "/dev/shm:sysv");
    says(&said, "local count 1 order Some(0)");
    let far = ["ipc", "vmm", "staged", "bar"].map(|channel| format!("channel {channel}: {OTHER_HOST}"));
    let rest = [
        format!("channel rdma: {NO_CARD}"),
        format!("channel loopback: {OTHER_HOST}"),
        // Whether TCP leads anywhere is found out by trying.
        "channel tcp: yes".to_owned(),
    ];
    assert_eq!(channels(&said), [far.to_vec(), rest.to_vec()].concat());
}

#[test]
fn row_3_host_ipc_and_shm_with_own_pid_and_net() {
    let Some(host) = Host::new() else { return };
    let [a, b] = both(HOST_IPC, Shm::Host);
    for locations in ["/dev/shm", "/dev/shm:sysv"] {
        let said = host.between(&a, &b, locations);
        met_in(&said, "/dev/shm");
        says(&said, "processes Hidden");
        assert_eq!(channels(&said), on_one_host(HIDDEN, "yes", "yes", NO_NETWORK));
    }
    // The IPC namespace alone carries no descriptors; abstract sockets belong to the network namespaces.
    let said = host.between(&a, &b, "sysv");
    says(&said, "local count 2 order Some(1)");
    says(&said, "media System V memory");
    says(&said, "memory a System V segment");
    let no_socket = "the ranks cannot pass descriptors: rank 0 has no reachable socket: the \
                     boards that list it are not in a folder, and it is in another network namespace";
    assert_eq!(channels(&said), on_one_host(HIDDEN, no_socket, "yes", NO_NETWORK));
}

#[test]
fn row_4_host_ipc_shm_and_pid_with_own_net() {
    let Some(host) = Host::new() else { return };
    let [a, b] = both(HOST_IPC_PID, Shm::Host);
    let said = host.between(&a, &b, &everywhere(&host));
    met_in(&said, &host.shared());
    says(&said, "processes Same");
    says(&said, "reach into yes");
    assert_eq!(channels(&said), on_one_host("yes", "yes", "yes", NO_NETWORK));
}

#[test]
fn row_5_host_pid_with_own_ipc_net_and_shm() {
    let Some(host) = Host::new() else { return };
    let [a, b] = both(HOST_PID, Shm::Own);
    let said = host.between(&a, &b, &everywhere(&host));
    met_in(&said, &host.shared());
    says(&said, &format!("media {}", host.shared()));
    says(&said, "reach into yes");
    assert_eq!(channels(&said), on_one_host("yes", "yes", "yes", NO_NETWORK));
}

#[test]
fn row_6_own_ipc_pid_and_net_with_a_volume_as_shm() {
    let Some(host) = Host::new() else { return };
    let [a, b] = both(ENGINE, Shm::Volume);
    let said = host.between(&a, &b, "/dev/shm:sysv");
    met_in(&said, "/dev/shm");
    says(&said, "media /dev/shm");
    says(&said, "processes Hidden");
    assert_eq!(channels(&said), on_one_host(HIDDEN, "yes", "yes", NO_NETWORK));
}

#[test]
fn rows_7_and_8_with_user_namespaces() {
    let Some(host) = Host::new() else { return };
    let plain = Container { unshared: HOST_NAME, shm: Shm::Host };
    for a in [plain, Container { unshared: OWN_USER, shm: Shm::Host }] {
        let said = host.between(&a, &Container { unshared: OWN_USER, shm: Shm::Host }, &everywhere(&host));
        met_in(&said, &host.shared());
        says(&said, "processes Same");
        says(&said, "reach into Operation not permitted (os error 1)");
        assert_eq!(channels(&said), on_one_host("yes", "yes", "yes", "yes"));
    }
}

#[test]
fn row_9_a_container_and_its_host() {
    let Some(host) = Host::new() else { return };
    let container = Container { unshared: ENGINE, shm: Shm::Own };
    let outside = Container { unshared: HOST_NAME, shm: Shm::Host };
    let no_network =
        "no network connects the ranks: its network namespace has no address but its own loopback's";
    let seen = host.between(&container, &outside, &everywhere(&host));
    met_in(&seen, &host.shared());
    says(&seen, "processes FromHere");
    says(&seen, "reach into yes");
    let unseen = host.between(&outside, &container, &everywhere(&host));
    met_in(&unseen, &host.shared());
    says(&unseen, "processes FromThere");
    let with = |tcp: &str| on_one_host("yes", "yes", "yes", tcp);
    let this_has_none = no_network.replace("its network", "this network");
    // A test machine may itself be without a network.
    assert!(channels(&seen) == with(no_network) || channels(&seen) == with(NO_NETWORK), "{seen:#?}");
    assert!(
        channels(&unseen) == with(&this_has_none) || channels(&unseen) == with(NO_NETWORK),
        "{unseen:#?}"
    );
}

#[test]
fn another_user_does_not_get_in_even_with_the_nonce() {
    let Some(host) = Host::new() else { return };
    // Everybody may enter the folder, as with /dev/shm.
    let mode = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(host.volume.path(), 0o755);
    mode(&host.volume.path().join("share"), 0o1777);
    let rank = |rank: &str, what: &[&str]| {
        let mut command = Command::new(program());
        command.args([&host.nonce, rank, "2", &host.shared()]).args(what);
        command
    };
    let serving = Serving::start(rank("0", &["serve"]));
    let output = rank("1", &["meet", "0"]).uid(65_000).gid(65_000).output();
    let Ok(output) = output else {
        eprintln!("not tested: another user cannot start {}", program().display());
        return;
    };
    drop(serving);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && said.contains("belongs to another user"), "{said}");
}

#[test]
fn a_rank_that_is_killed_is_noticed() {
    let Some(host) = Host::new() else { return };
    let [a, b] = both(ENGINE, Shm::Own);
    Serving::start(host.rank(&a, 0, &host.shared(), &["serve"])).kill();
    // Once: whoever meets a rank that lives removes the names of the board, and later ones do not see that rank.
    let output = host.rank(&b, 1, &host.shared(), &["meet", "0"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let ended = format!("disbelieved 0 on {}: its process has ended", host.shared());
    assert!(said.contains("local count 1") && said.contains(&ended), "{said}");
}

/// What the doctor says in two containers at once, a line each.
fn doctors(host: &Host, containers: &[Container; 2], folder: &str, seconds: &str) -> [Vec<String>; 2] {
    let start = |rank: u32| {
        let mut command = host.rank(&containers[rank as usize], rank, folder, &["doctor", seconds]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    [start(0), start(1)].map(|child| {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said.lines().map(str::to_owned).collect()
    })
}

#[test]
fn the_doctor_tells_both_containers_the_same() {
    let Some(host) = Host::new() else { return };
    let neither = "cannot map the GPU's BAR: neither process has /dev/gdrdrv (the kernel module of GDRCOPY)";
    let no_card = "the ranks do not both have an RDMA device: neither process has an RDMA device";
    for said in doctors(&host, &both(ENGINE, Shm::Own), &host.shared(), "60") {
        says(&said, "came true heard true");
        says(&said, "place in another container of this host");
        let expected = on_one_host(HIDDEN, "yes", "yes", NO_NETWORK).join("\n");
        let expected = expected.replace(NO_BAR, neither).replace(NO_CARD, no_card);
        assert_eq!(channels(&said).join("\n"), expected);
        // What would make it better is said, and of what is there nothing.
        let advised =
            |channel: &str| said.iter().any(|line| line.starts_with(&format!("advice {channel}: ")));
        assert!(advised("ipc") && advised("tcp") && !advised("vmm") && !advised("staged"), "{said:#?}");
    }
    // Without a folder neither comes to the other, and both hear what to do.
    for said in doctors(&host, &both(ENGINE, Shm::Own), "", "1") {
        says(&said, "came false heard false");
        says(&said, &format!("channel staged: {OTHER_HOST}"));
        let advice = said.iter().find(|line| line.starts_with("advice staged: ")).unwrap();
        assert!(advice.contains("CAUSEWAY_SOCKET_DIR"), "{advice}");
    }
    // Nothing is left in the folder.
    assert_eq!(std::fs::read_dir(host.shared()).unwrap().count(), 0);
}
