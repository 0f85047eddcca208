//! What the server's owner lets clients have: device memory, idle time, total time, memory of the server; and that all sessions
//! share one device.

use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::by_itself;
use causeway_tests::process::{Outcome, Running, eventually, run};
use causeway_tests::server::{Server, forget_environment};
use std::process::Command;
use std::time::Duration;

/// How long a program may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// MiB of the device that all sessions share.
const DEVICE: &str = "256M";

/// A server with a small device, and clients beside its key.
struct Served {
    folder: tempfile::TempDir,
    server: Server,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key").to_str().unwrap().to_owned();
        let mut command = Server::command(&["--listen", "127.0.0.1:0", "--key-file", &key]);
        command.env("CAUSEWAY_SOFTWARE_GPU_MEMORY", DEVICE);
        Self { folder, server: Server::start_command(command) }
    }

    fn causeway(&self, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        run(command.args(arguments).env("HOME", self.folder.path()).env_remove("XDG_CONFIG_HOME"), LIMIT)
    }

    /// `causeway client` with these arguments; what it prints.
    fn client(&self, arguments: &[&str]) -> String {
        let key = self.folder.path().join("key").to_str().unwrap().to_owned();
        self.causeway(&[&["client", "--key-file", &key], arguments].concat()).must_succeed().stdout
    }

    /// Adds a client; its connect string.
    fn add(&self, name: &str, limits: &[&str]) -> String {
        let address = self.server.target().endpoint.to_string();
        self.client(&[&["add", name, "--address", &address], limits].concat()).trim().to_owned()
    }
}

/// The program that allocates.
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

#[test]
fn sessions_of_a_client_share_its_device_memory_and_see_no_other() {
    let served = Served::start();
    let ada = served.add("ada", &["--device-memory", "64MiB"]);
    let bob = served.add("bob", &[]);
    let devices = |server: &str| served.causeway(&["devices", "--on", server]).must_succeed().stdout;
    assert!(devices(&ada).contains(" 64 MiB of 256 MiB "), "{}", devices(&ada));
    assert!(!devices(&bob).contains(" of "), "{}", devices(&bob));
    let first = stays(&ada, &["40"]);
    let seen = first.stdout();
    assert!(seen.contains("CUDA: 64 of 64 MiB are free") && seen.contains("40 MiB: cudaSuccess"), "{seen}");
    assert!(
        seen.contains("CUDA: 24 of 64 MiB are free") && seen.contains("NVML: 40 of 64 MiB are used"),
        "{seen}"
    );
    // Up to the last byte, and none more; over another connection, too.
    for via in ["tcp", "shm"] {
        let mut second = memory_use(&ada, &["26", "24", "2"]);
        let seen = run(second.env("CAUSEWAY_VIA", via), LIMIT).must_succeed().stdout;
        for line in ["CUDA: 24 of 64", "26 MiB: cudaErrorMemoryAllocation", "24 MiB: cudaSuccess"] {
            assert!(seen.contains(line), "{seen}");
        }
        assert!(seen.contains("\n2 MiB: cudaErrorMemoryAllocation\nCUDA: 0 of 64"), "{seen}");
    }
    served.server.must_log("client ada has 40M of the 64M that `device-memory`");
    // Somebody else has the device, of which ada's sessions have taken a part.
    assert!(prints(&bob, &["128"]).contains("CUDA: 216 of 256 MiB are free\n128 MiB: cudaSuccess"));
    // A program that dies returns what it had, however it dies.
    run(memory_use(&ada, &["24"]).arg("dies"), LIMIT).must_succeed();
    drop(first);
    eventually("the memory has come back", LIMIT, || prints(&ada, &["64"]).contains("64 MiB: cudaSuccess"));
    // Changes count at once.
    served.client(&["limit", "ada", "--device-memory", "32M"]);
    assert!(prints(&ada, &["33", "32"]).contains("33 MiB: cudaErrorMemoryAllocation\n32 MiB: cudaSuccess"));
    served.client(&["limit", "ada", "--device-memory", "none"]);
    assert!(prints(&ada, &["100"]).contains("100 MiB: cudaSuccess"));
}

#[test]
fn one_device_in_software_is_shared_by_all_sessions_and_others_have_limits_of_their_own() {
    let served = Served::start();
    let owner = served.server.connect_string();
    let first = stays(&owner, &["200"]);
    assert!(
        prints(&owner, &["100", "50"]).contains("100 MiB: cudaErrorMemoryAllocation\n50 MiB: cudaSuccess")
    );
    served.server.must_log("all sessions use");
    drop(first);
    eventually("the memory has come back", LIMIT, || {
        prints(&owner, &["200"]).contains("200 MiB: cudaSuccess")
    });
    // Whoever has no key of its own has this together with all of its address.
    served.client(&["limit", "*", "--device-memory", "50M"]);
    let ada = served.add("ada", &["--device-memory", "60M"]);
    let first = stays(&owner, &["30"]);
    assert!(
        prints(&owner, &["30"]).contains("CUDA: 20 of 50 MiB are free\n30 MiB: cudaErrorMemoryAllocation")
    );
    assert!(prints(&ada, &["60"]).contains("60 MiB: cudaSuccess"));
    drop(first);
    let list = served.client(&["list"]);
    assert!(list.contains("60M of device memory") && list.contains("50M of device memory"), "{list}");
}

#[test]
fn sessions_end_when_their_time_is_over_and_say_why() {
    let served = Served::start();
    let idle = served.add("idle", &["--idle-timeout", "5s"]);
    let short = served.add("short", &["--session-time", "10s"]);
    let long = served.add("long", &["--idle-timeout", "5s"]);
    // One that waits for the GPU is not idle.
    let mut works = Running::start(by_itself(&long, &cuda_program("long_kernel")).arg("8"));
    let (idle, short) = (stays(&idle, &["1"]), stays(&short, &["1"]));
    served.server.must_log("it was idle for the maximum time of its client's sessions (idle-timeout)");
    served.server.must_log("it was open for the maximum time of its client's sessions (session-time)");
    for (program, why) in [(idle, "it was idle for 5s"), (short, "it was open for 10s")] {
        eventually("the user learns why", LIMIT, || program.stderr().contains(why));
    }
    works.finish(LIMIT).must_succeed();
    served.server.must_have_workers(1);
}

#[test]
fn what_makes_no_sense_is_named_with_line_and_key() {
    let served = Served::start();
    served.add("ada", &["--session-memory", "1G"]);
    let path = served.folder.path().join("clients.toml");
    let good = std::fs::read_to_string(&path).unwrap();
    assert!(good.contains("session-memory = \"1G\""), "{good}");
    std::fs::write(&path, format!("{good}device-memory = \"plenty\"\n")).unwrap();
    let config = served.folder.path().join("config.toml");
    std::fs::write(&config, format!("[serve]\nkey-file = {:?}\n", served.folder.path().join("key"))).unwrap();
    let check = || {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        run(command.args(["config", "check"]).env("CAUSEWAY_CONFIG", &config), LIMIT)
    };
    let outcome = check();
    let line = good.lines().count() + 1;
    let expected = format!("clients.toml:{line}: [ada] device-memory: \"plenty\" is not a size");
    assert!(outcome.code() == Some(1) && outcome.stdout.contains(&expected), "{outcome}");
    std::fs::write(&path, good).unwrap();
    check().must_succeed();
}
