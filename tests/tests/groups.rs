//! Groups of clients and local users: what their members may have together, beside each one's own limits.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use causeway_tests::built::{causeway, client_library, cuda_program};
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::process::{Outcome, Running, eventually, run};
use causeway_tests::server::{Server, forget_environment, leave_terminal};
use rustix::process::Signal;

/// How long a program may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A user who is not the server's, whose group has the same number.
const OTHER_USER: u32 = 65534;

/// A server with a small device, clients beside its key, and an audit log.
struct Served {
    folder: tempfile::TempDir,
    server: Server,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let listen = format!("127.0.0.1:0,unix:{}", at("socket"));
        let mut command = Server::command(&[
            "--listen",
            &listen,
            "--key-file",
            &at("key"),
            "--audit-log",
            &at("audit.jsonl"),
            "--allow-user",
            &OTHER_USER.to_string(),
        ]);
        leave_terminal(&mut command);
        command.env("CAUSEWAY_SOFTWARE_GPU_MEMORY", "256M");
        Self { server: Server::start_command(command), folder }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn causeway(&self, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        run(command.args(arguments).env("HOME", self.folder.path()).env_remove("XDG_CONFIG_HOME"), LIMIT)
    }

    /// `causeway client` with these arguments.
    fn client(&self, arguments: &[&str]) -> Outcome {
        self.causeway(&[&["client", "--key-file", &self.file("key")], arguments].concat())
    }

    /// Adds a client; its connect string.
    fn add(&self, name: &str, limits: &[&str]) -> String {
        let address = self.server.target().endpoint.to_string();
        let added = self.client(&[&["add", name, "--address", &address], limits].concat());
        added.must_succeed().stdout.trim().to_owned()
    }

    /// Writes tables of groups behind the clients; the line before them.
    fn set_groups(&self, groups: &str) -> usize {
        let path = self.file("clients.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let clients: Vec<_> = text.lines().take_while(|line| !line.starts_with("[groups.")).collect();
        let clients = clients.join("\n") + "\n";
        std::fs::write(path, format!("{clients}{groups}")).unwrap();
        clients.lines().count()
    }
}

fn memory_use(server: &str, arguments: &[&str]) -> Command {
    let mut command = by_itself(server, &cuda_program("memory_use"));
    command.args(arguments);
    command
}

/// One that has allocated, and stays until it is killed.
fn stays(server: &str, arguments: &[&str]) -> Running {
    let program = Running::start(memory_use(server, arguments).arg("holds"));
    program.must_print("done", LIMIT);
    program
}

/// What one prints that allocates and ends.
fn prints(server: &str, arguments: &[&str]) -> String {
    run(&mut memory_use(server, arguments), LIMIT).must_succeed().stdout
}

#[track_caller]
fn must_be_refused(server: &str, reason: &str) {
    let outcome = run(&mut through_run(Some(server), &cuda_program("vector_add")), LIMIT);
    assert!(outcome.code() != Some(0) && outcome.stderr.contains(reason), "{outcome}");
}

#[test]
fn members_share_sessions_and_device_memory_beside_their_own_limits() {
    let served = Served::start();
    let ada = served.add("ada", &[]);
    let bob = served.add("bob", &["--device-memory", "20M", "--sessions", "1"]);
    let eve = served.add("eve", &[]);
    served
        .set_groups("[groups.staff]\nmembers = [\"ada\", \"bob\"]\ndevice-memory = \"64M\"\nsessions = 2\n");
    let devices = |server: &str| served.causeway(&["devices", "--on", server]).must_succeed().stdout;
    assert!(devices(&ada).contains(" 64 MiB of 256 MiB ") && devices(&bob).contains(" 20 MiB of 256 MiB "));
    assert!(!devices(&eve).contains(" of "), "{}", devices(&eve));
    let first = stays(&ada, &["50"]);
    assert!(first.stdout().contains("CUDA: 64 of 64 MiB are free"), "{}", first.stdout());
    // To the last byte of the group, though bob might have more by itself, over both kinds of connections.
    for via in ["tcp", "shm"] {
        let mut of_bob = memory_use(&bob, &["15", "14", "1"]);
        let seen = run(of_bob.env("CAUSEWAY_VIA", via), LIMIT).must_succeed().stdout;
        let expected = "CUDA: 14 of 20 MiB are free\n15 MiB: cudaErrorMemoryAllocation\n14 MiB: cudaSuccess\n\
                        1 MiB: cudaErrorMemoryAllocation\nCUDA: 0 of 20 MiB are free";
        assert!(seen.contains(expected), "{seen}");
    }
    served.server.must_log("group staff has 50M of the 64M that `device-memory` of [groups.staff]");
    assert!(prints(&eve, &["128"]).contains("128 MiB: cudaSuccess"));
    // The own limit counts as before.
    let second = stays(&bob, &["1"]);
    must_be_refused(&bob, "1 sessions of client bob");
    must_be_refused(&ada, "2 sessions of group staff");
    let staff = |arguments: &[&str]| served.causeway(arguments).must_succeed().stdout;
    let owner = served.server.connect_string();
    let by_group = staff(&["sessions", "--on", &owner, "--by", "group"]);
    assert!(by_group.lines().any(|line| line.starts_with("staff  2 ")), "{by_group}");
    let json = staff(&["sessions", "--on", &owner, "--json"]);
    assert_eq!(json.matches("\"group\":\"staff\"").count(), 2, "{json}");
    // The new server after a restart counts the sessions of the old one.
    served.server.signal(Signal::HUP);
    served.server.must_log("a new server accepts connections");
    must_be_refused(&ada, "2 sessions of group staff");
    drop(second);
    eventually("a member has a session again", LIMIT, || {
        run(&mut memory_use(&ada, &["1"]), LIMIT).code() == Some(0)
    });
    drop(first);
    // What becomes of the file counts at once, and a change of the limit by the command, too.
    served.client(&["limit", "groups.staff", "--device-memory", "10M", "--sessions", "none"]).must_succeed();
    eventually("the first server is gone", LIMIT, || {
        prints(&ada, &["11", "10"]).contains("11 MiB: cudaErrorMemoryAllocation\n10 MiB: cudaSuccess")
    });
    served.set_groups("");
    assert!(prints(&ada, &["100"]).contains("100 MiB: cudaSuccess"));
    let log = || std::fs::read_to_string(served.file("audit.jsonl")).unwrap();
    eventually("the sessions have ended", LIMIT, || {
        log().matches("session-begins").count() == log().matches("session-ends").count()
    });
    let usage = staff(&["usage", "--by", "group,client", &served.file("audit.jsonl")]);
    assert!(["staff  ada ", "staff  bob ", "-      eve "].iter().all(|row| usage.contains(row)), "{usage}");
}

#[test]
fn groups_that_make_no_sense_are_named_with_line_and_key_and_the_list_counts_as_before() {
    let served = Served::start();
    let ada = served.add("ada", &[]);
    served.add("bob", &[]);
    served.set_groups("[groups.staff]\nmembers = [\"ada\", \"@root\"]\nsessions = 0\n");
    must_be_refused(&ada, "0 sessions of group staff");
    let config = served.file("config.toml");
    std::fs::write(&config, format!("[serve]\nkey-file = {:?}\n", served.file("key"))).unwrap();
    let check = || {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        run(command.args(["config", "check"]).env("CAUSEWAY_CONFIG", &config), LIMIT)
    };
    check().must_succeed();
    for (groups, line, cause) in [
        ("[groups.a]\nmembers = [\"eve\"]\n", 2, "[groups.a] members: there is no client `eve`"),
        ("[groups.a]\nmembers = [\"@no-such-group\"]\n", 2, "this machine has no group `no-such-group`"),
        (
            "[groups.a]\nmembers = [\"ada\"]\n[groups.b]\nmembers = [\n\"bob\",\n\"ada\"]\n",
            6,
            "`ada` is in [groups.a]",
        ),
        ("[groups.a]\nmembers = [\"b\"]\n[groups.b]\nmembers = [\"a\"]\n", 2, "`b` is a group"),
        ("[groups.a]\ndevice-memory = 1\n", 2, "[groups.a] device-memory: this must be a text"),
    ] {
        let line = line + served.set_groups(groups);
        let outcome = check();
        let expected = format!("clients.toml:{line}: ");
        assert!(outcome.code() == Some(1) && outcome.stdout.contains(&expected), "{groups}: {outcome}");
        assert!(outcome.stdout.contains(cause), "{outcome}");
        must_be_refused(&ada, "0 sessions of group staff");
    }
    served.server.must_log("[groups.a] device-memory");
    served.set_groups("[groups.staff]\nmembers = [\"bob\", \"ada\"]\n");
    run(&mut through_run(Some(&ada), &cuda_program("vector_add")), LIMIT).must_succeed();
    let list = served.client(&["list"]).must_succeed().stdout;
    assert!(list.contains("groups.staff         members: bob ada"), "{list}");
    // Whoever is revoked leaves the group, and the list can still be used.
    served.client(&["revoke", "ada"]).must_succeed();
    check().must_succeed();
    let list = served.client(&["list", "--json"]).must_succeed().stdout;
    assert!(list.contains("\"groups\"") && !list.contains("ada"), "{list}");
    let reserved = served.client(&["add", "groups"]);
    assert!(
        reserved.code() == Some(1) && reserved.stderr.contains("no client can be called groups"),
        "{reserved}"
    );
    let unknown = served.client(&["limit", "groups.none", "--sessions", "1"]);
    assert!(unknown.code() == Some(1) && unknown.stderr.contains("no group none"), "{unknown}");
}

#[test]
fn users_of_the_host_are_members_by_their_unix_group() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("left out: only root can be somebody else");
    }
    let served = Served::start();
    served.add("ada", &[]);
    let socket = format!("unix:{}", served.file("socket"));
    served.set_groups(&format!(
        "[groups.local]\nmembers = [\"@{OTHER_USER}\", \"ada\"]\ndevice-memory = \"30M\"\n"
    ));
    // Where every user can read them.
    for (file, name) in [(cuda_program("memory_use"), "memory_use"), (client_library(), "libcuda.so.1")] {
        std::fs::copy(file, served.file(name)).unwrap();
    }
    let of = |user: u32, arguments: &[&str]| {
        let mut command = by_itself(&socket, Path::new(&served.file("memory_use")));
        command.args(arguments).env("LD_LIBRARY_PATH", served.folder.path());
        command.env("HOME", "/nonexistent").uid(user).gid(user);
        command
    };
    // The user is in its group by the user database, whatever groups the process has.
    let mut command = of(OTHER_USER, &["20"]);
    let holds = Running::start(command.gid(7).arg("holds"));
    holds.must_print("done", LIMIT);
    assert!(
        holds.stdout().contains("CUDA: 30 of 30 MiB are free\n20 MiB: cudaSuccess"),
        "{}",
        holds.stdout()
    );
    let ada = served.client(&["rotate", "ada", "--address", &served.server.target().endpoint.to_string()]);
    let ada = ada.must_succeed().stdout.trim().to_owned();
    assert!(prints(&ada, &["11", "10"]).contains("11 MiB: cudaErrorMemoryAllocation\n10 MiB: cudaSuccess"));
    // Root is in no group, and has the rest.
    let of_root = run(&mut of(0, &["100"]), LIMIT).must_succeed().stdout;
    assert!(of_root.contains("100 MiB: cudaSuccess"), "{of_root}");
    let json = served.causeway(&["sessions", "--on", &socket, "--json"]).must_succeed().stdout;
    assert!(json.contains("\"group\":\"local\""), "{json}");
}

#[test]
fn sessions_of_members_end_when_the_time_of_their_group_is_over() {
    let served = Served::start();
    let (ada, bob) = (served.add("ada", &[]), served.add("bob", &["--idle-timeout", "5s"]));
    served.set_groups(
        "[groups.staff]\nmembers = [\"ada\", \"bob\"]\nsession-time = \"1h\"\nidle-timeout = \"6s\"\n",
    );
    let (of_ada, of_bob) = (stays(&ada, &["1"]), stays(&bob, &["1"]));
    for (program, why) in [(of_ada, "it was idle for 6s"), (of_bob, "it was idle for 5s")] {
        eventually("the user learns why", LIMIT, || program.stderr().contains(why));
    }
    served.server.must_log("it was idle for the maximum time of its group's sessions (idle-timeout)");
    served.server.must_log("it was idle for the maximum time of its client's sessions (idle-timeout)");
}

#[test]
fn members_share_the_bandwidth_of_their_group() {
    let served = Served::start();
    let (ada, bob) = (served.add("ada", &[]), served.add("bob", &[]));
    served.set_groups("[groups.staff]\nmembers = [\"ada\", \"bob\"]\nbandwidth = \"16M\"\n");
    let copies = |server: &str, mib: &str| {
        let mut command = by_itself(server, &cuda_program("copy_rate"));
        command.args([mib, "1"]);
        command
    };
    let shared = run(copies(&ada, "1").env("CAUSEWAY_VIA", "shm"), LIMIT);
    assert_eq!(shared.code(), Some(1), "{shared}");
    let started = std::time::Instant::now();
    let mut of_ada = Running::start(&mut copies(&ada, "64"));
    let mut of_bob = Running::start(&mut copies(&bob, "64"));
    of_ada.finish(LIMIT).must_succeed();
    of_bob.finish(LIMIT).must_succeed();
    // Each copies 64 MiB once or more in each direction; alone, one takes 4 s for that.
    let seconds = started.elapsed().as_secs_f64();
    assert!(seconds > 6.5, "128 MiB in each direction took {seconds} s at 16 MiB a second");
}

#[test]
fn the_time_of_the_gpu_is_divided_among_groups_first() {
    let served = Served::start();
    let [ada, bob, eve] = ["ada", "bob", "eve"].map(|name| served.add(name, &[]));
    served.set_groups(
        "[groups.lab]\nmembers = [\"ada\", \"bob\"]\nshare = 8\n[groups.guests]\nmembers = [\"eve\"]\nshare = 1\n",
    );
    let kernels = |server: &str, count: &str| {
        let mut command = by_itself(server, &cuda_program("long_kernel"));
        Running::start(command.args(["0.03", count]))
    };
    let of_eve = kernels(&eve, "5000");
    of_eve.must_print("kernel 5", LIMIT);
    let mut of_lab = [kernels(&ada, "60"), kernels(&bob, "60")];
    of_lab.iter().for_each(|program| program.must_print("kernel 1\n", LIMIT));
    let done = || of_eve.stdout().matches("kernel").count();
    let before = done();
    of_lab.iter_mut().for_each(|program| drop(program.finish(LIMIT).must_succeed()));
    // Without groups it would be 60, and with the share of one member against another 120 / 16.
    let meanwhile = done() - before;
    assert!(
        (5..=35).contains(&meanwhile),
        "{meanwhile} kernels beside 120 of a group with eight times the share"
    );
}

#[test]
fn a_server_without_a_network_limits_users_by_the_list_beside_the_key_file_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("clients.toml"), "[\"*\"]\nsessions = 1\n").unwrap();
    std::fs::set_permissions(at("clients.toml"), std::fs::Permissions::from_mode(0o600)).unwrap();
    // It proves no key and makes none; the test's server is asked for one.
    causeway_access::keys::file::load_or_create(Path::new(&at("key"))).unwrap();
    let socket = format!("unix:{}", at("socket"));
    let _server = Server::start_with(&["--listen", &socket, "--key-file", &at("key")]);
    let _only = stays(&socket, &["1"]);
    must_be_refused(&socket, "1 sessions of user ");
}
