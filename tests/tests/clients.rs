//! Clients that have keys of their own: who they are to the server, what they see of others, what they may have, and how
//! they are shut out.

use causeway_access::keys::file::{Line, read, write};
use causeway_access::target::invitation_id;
use causeway_access::{Invitation, Target};
use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::process::{Outcome, Running, eventually, run};
use causeway_tests::server::{Server, forget_environment};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a program may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A server with a key, clients beside it, and an audit log.
struct Served {
    folder: tempfile::TempDir,
    server: Server,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (key, audit) = (path("key"), path("audit.jsonl"));
        let server =
            Server::start_with(&["--listen", "127.0.0.1:0", "--key-file", &key, "--audit-log", &audit]);
        Self { folder, server }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn causeway(&self, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        run(command.args(arguments).env("HOME", self.folder.path()).env_remove("XDG_CONFIG_HOME"), LIMIT)
    }

    /// `causeway client` with these arguments; what it prints.
    fn client(&self, arguments: &[&str]) -> String {
        let outcome = self.causeway(&[&["client", "--key-file", &self.file("key")], arguments].concat());
        outcome.must_succeed().stdout
    }

    /// Adds or changes a client; its connect string.
    fn connect_string(&self, arguments: &[&str]) -> String {
        let address = self.server.target().endpoint.to_string();
        self.client(&[arguments, &["--address", &address]].concat()).trim().to_owned()
    }

    fn sessions_seen_by(&self, server: &str) -> String {
        self.causeway(&["sessions", "--on", server, "--json"]).must_succeed().stdout
    }
}

fn vector_add(server: &str) -> Outcome {
    run(&mut through_run(Some(server), &cuda_program("vector_add")), LIMIT)
}

/// A program that has a session until it is killed.
fn stays(server: &str) -> Running {
    let mut command = by_itself(server, &cuda_program("long_kernel"));
    let program = Running::start(command.arg("1000"));
    program.must_print("begins", LIMIT);
    program
}

#[track_caller]
fn must_be_refused(server: &str, reason: &str) {
    let outcome = vector_add(server);
    assert!(outcome.code() != Some(0) && outcome.stderr.contains(reason), "{outcome}");
}

#[test]
fn a_client_is_known_by_its_key_and_sees_its_own_sessions_alone() {
    let served = Served::start();
    let (ada, bob) = (served.connect_string(&["add", "ada"]), served.connect_string(&["add", "bob"]));
    assert!(ada.starts_with("causeway://ada:") && ada != bob);
    for via in ["tcp", "shm"] {
        let mut program = by_itself(&ada, &cuda_program("random_copies"));
        run(program.env("CAUSEWAY_VIA", via), LIMIT).must_succeed();
    }
    let (of_ada, of_bob) = (stays(&ada), stays(&bob));
    let of_owner = stays(&served.server.connect_string());
    let names = |seen: &str| (seen.matches("ada at ").count(), seen.matches("bob at ").count());
    assert_eq!(names(&served.sessions_seen_by(&ada)), (1, 0));
    assert_eq!(names(&served.sessions_seen_by(&bob)), (0, 1));
    let all = served.sessions_seen_by(&served.server.connect_string());
    assert!(names(&all) == (1, 1) && all.matches("long_kernel").count() == 3, "{all}");
    drop((of_ada, of_bob, of_owner));
}

#[test]
fn limits_rotation_and_revocation_count_at_once() {
    let served = Served::start();
    let ada = served.connect_string(&["add", "ada", "--sessions", "1", "--days", "2"]);
    assert!(served.client(&["list"]).contains("at most 1 sessions"));
    let mut first = stays(&ada);
    must_be_refused(&ada, "1 sessions of client ada");
    // The session goes on when its key is replaced; whoever comes with the old one is turned away.
    let new = served.connect_string(&["rotate", "ada", "--overlap", "0"]);
    must_be_refused(&ada, "has been replaced by a new one");
    must_be_refused(&new, "1 sessions of client ada");
    let exists = served.causeway(&["client", "--key-file", &served.file("key"), "add", "ada"]);
    assert!(exists.code() == Some(1) && exists.stderr.contains("rotate ada"), "{exists}");
    served.client(&["revoke", "ada"]);
    let outcome = first.finish(LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stderr.contains("has revoked its client"), "{outcome}");
    served.server.must_log("its client has been revoked");
    must_be_refused(&new, "has no client with this key");
    // The server's own key is another thing.
    vector_add(&served.server.connect_string()).must_succeed();
    let expired = served.connect_string(&["add", "eve"]);
    let clients = std::fs::read_to_string(served.file("clients.toml")).unwrap();
    std::fs::write(served.file("clients.toml"), format!("{clients}expires = \"2020-01-01T00:00:00Z\"\n"))
        .unwrap();
    must_be_refused(&expired, "the client has expired");
    std::fs::write(served.file("clients.toml"), "[eve]\nkeys = 1\n").unwrap();
    // The list as it was before: an error in the file shuts nobody out, and lets nobody in.
    must_be_refused(&expired, "the client has expired");
    served.server.must_log("[eve] has no key `keys`");
    vector_add(&served.server.connect_string()).must_succeed();
}

#[test]
fn a_client_is_told_when_another_server_answers() {
    let (one, other) = (Served::start(), Served::start());
    let ada: Target = one.connect_string(&["add", "ada"]).parse().unwrap();
    let elsewhere = Target { endpoint: other.server.target().endpoint.clone(), ..ada };
    must_be_refused(&elsewhere.connect_string(), "has no client with this key");
}

#[test]
fn the_audit_log_says_who_used_the_server_and_usage_sums_it_up() {
    let served = Served::start();
    let ada = served.connect_string(&["add", "ada"]);
    for job in ["7", "8"] {
        let mut program = by_itself(&ada, &cuda_program("vector_add"));
        run(program.env("SLURM_JOB_ID", job).env("USER", "lovelace"), LIMIT).must_succeed();
    }
    vector_add(&served.server.connect_string()).must_succeed();
    served.client(&["revoke", "ada"]);
    must_be_refused(&ada, "has no client");
    let log = || std::fs::read_to_string(served.file("audit.jsonl")).unwrap();
    eventually("the sessions have ended", LIMIT, || log().matches("session-ends").count() == 3);
    // The client hears of its refusal before that is written.
    eventually("the refusal is in the log", LIMIT, || log().contains("has no client"));
    assert_eq!(log().lines().filter(|line| line.contains("\"refused\"")).count(), 1, "{}", log());
    let usage =
        |by: &str| served.causeway(&["usage", "--by", by, &served.file("audit.jsonl")]).must_succeed().stdout;
    let rows = |text: &str| {
        text.lines()
            .skip(1)
            .map(|row| row.split_whitespace().map(str::to_owned).collect())
            .collect::<Vec<Vec<_>>>()
    };
    let by_client = rows(&usage("client"));
    assert_eq!(by_client.iter().map(|row| row[..2].concat()).collect::<Vec<_>>(), ["-1", "ada2"]);
    let by_job = usage("user,job");
    assert!(by_job.contains("lovelace") && by_job.contains("slurm 8"), "{by_job}");
    let missing = served.causeway(&["usage", Path::new("/nowhere/audit").to_str().unwrap()]);
    assert!(missing.code() == Some(1) && missing.stderr.contains("/nowhere/audit"), "{missing}");
}

/// What a machine has whose user logs in at servers.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        self.at_home(command.args(arguments));
        command
    }

    /// Has a command read and write the files of this machine's user.
    fn at_home(&self, command: &mut Command) {
        command.env("HOME", self.0.path()).env_remove("XDG_CONFIG_HOME").env_remove("CAUSEWAY_CONFIG");
    }

    fn login(&self, invitation: &str) -> Outcome {
        run(&mut self.command(&["login", "box", invitation]), LIMIT)
    }

    /// The files of the user's configuration of Causeway.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path().join(".config/causeway")).into_iter().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[track_caller]
    fn must_be_refused(&self, invitation: &str, reason: &str) {
        let outcome = self.login(invitation);
        assert!(outcome.code() == Some(1) && outcome.stderr.contains(reason), "{outcome}");
        assert!(self.files().iter().all(|name| name == "keys.lock"), "{:?}", self.files());
    }
}

#[test]
fn an_invited_client_logs_in_once_and_runs_by_name() {
    let served = Served::start();
    let invitation = served.connect_string(&["invite", "ada", "--sessions", "3"]);
    assert!(served.client(&["list"]).contains("invited until"));
    let machine = Machine::new();
    // Through standard input, which no other user sees.
    let mut login = Command::new("sh");
    forget_environment(&mut login);
    machine.at_home(login.args(["-c", "echo \"$1\" | \"$0\" login box"]).arg(causeway()).arg(&invitation));
    let outcome = run(&mut login, LIMIT);
    assert!(outcome.must_succeed().stdout.contains("client ada of 127.0.0.1"));
    assert_eq!(machine.files(), ["config.toml", "keys", "keys.lock"]);
    let folder = machine.0.path().join(".config/causeway");
    for file in machine.files() {
        let mode = std::fs::metadata(folder.join(&file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let program = cuda_program("vector_add").to_str().unwrap().to_owned();
    run(&mut machine.command(&["run", "--on", "box", "--", &program]), LIMIT).must_succeed();
    let listed = served.client(&["list"]);
    assert!(listed.contains("at most 3 sessions") && !listed.contains("invited"), "{listed}");
    // Nothing of it is in the server's files that could be used again, and it is of no more use.
    let secret = invitation.split([':', '@']).nth(2).unwrap().to_owned();
    assert!(!std::fs::read_to_string(served.file("clients.toml")).unwrap().contains(&secret));
    Machine::new().must_be_refused(&invitation, "the invitation has been used");
    let again = machine.login(&invitation);
    assert!(again.code() == Some(1) && again.stderr.contains("there is a key of 127.0.0.1"), "{again}");
    let outcome = run(&mut machine.command(&["devices", "--on", &invitation]), LIMIT);
    assert!(outcome.code() == Some(1) && outcome.stderr.contains("causeway login NAME"), "{outcome}");
    let log = std::fs::read_to_string(served.file("audit.jsonl")).unwrap();
    let enrolled = log.lines().find(|line| line.contains("key-enrolled")).unwrap();
    assert!(enrolled.contains("\"client\":\"ada\"") && !log.contains(&secret), "{log}");
    assert!(log.lines().any(|line| line.contains("refused") && line.contains("has been used")), "{log}");
    served.server.must_log("has enrolled the key of client ada");
    served.client(&["revoke", "ada"]);
    let outcome = run(&mut machine.command(&["devices", "--on", "box"]), LIMIT);
    assert!(outcome.stderr.contains("has no client with this key"), "{outcome}");
}

#[test]
fn invitations_that_do_not_count_are_refused_with_the_reason() {
    let (served, other) = (Served::start(), Served::start());
    let machine = Machine::new();
    machine.must_be_refused("causeway-invitation://ada", "incomplete");
    machine.must_be_refused(&served.connect_string(&["add", "bob"]), "this is no invitation");
    let first = served.connect_string(&["invite", "ada"]);
    let second = served.connect_string(&["invite", "ada"]);
    machine.must_be_refused(&first, "has no such invitation");
    let elsewhere = second.rsplit_once('@').unwrap().0.to_owned();
    let elsewhere = format!("{elsewhere}@{}", other.server.target().endpoint);
    machine.must_be_refused(&elsewhere, "has no such invitation");
    served.client(&["revoke", "ada"]);
    machine.must_be_refused(&second, "was revoked or replaced");
    let expired = served.connect_string(&["invite", "ada", "--expires", "1h"]);
    let clients = std::fs::read_to_string(served.file("clients.toml")).unwrap();
    let until = clients.lines().find(|line| line.starts_with("invitation-until")).unwrap();
    let past = clients.replace(until, "invitation-until = \"2020-01-01T00:00:00Z\"");
    std::fs::write(served.file("clients.toml"), past).unwrap();
    machine.must_be_refused(&expired, "the invitation has expired");
    assert!(served.client(&["list"]).contains("its invitation has expired"));
    let log = std::fs::read_to_string(served.file("audit.jsonl")).unwrap();
    assert!(log.contains("the invitation has expired") && log.contains("has no such invitation"), "{log}");
    // What is wrong here is an error before the invitation is used.
    let good = served.connect_string(&["invite", "ada"]);
    let folder = machine.0.path().join(".config/causeway");
    std::fs::write(folder.join("config.toml"), "[servers.box]\naddress = \"elsewhere\"\n").unwrap();
    let taken = machine.login(&good);
    assert!(
        taken.code() == Some(1) && taken.stderr.contains("config.toml:2: there is a server `box`"),
        "{taken}"
    );
    std::fs::remove_file(folder.join("config.toml")).unwrap();
    // A peer that tries one after the other is held up, and others are not.
    let wrong = |number: u32| {
        let secret = format!("{number:064x}");
        format!("causeway-invitation://ada:{secret}@{}", served.server.target().endpoint)
    };
    let tried = |number| machine.login(&wrong(number)).stderr.contains("too many invitations");
    assert!((0..20).any(tried), "twenty in a row");
    vector_add(&served.server.connect_string()).must_succeed();
}

#[test]
fn one_of_several_clients_wins_the_race_for_an_invitation() {
    let served = Served::start();
    let invitation = served.connect_string(&["invite", "ada"]);
    let machines: Vec<_> = (0..4).map(|_| Machine::new()).collect();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let login = |machine: &Machine| machine.login(&invitation);
        let running: Vec<_> = machines.iter().map(|machine| scope.spawn(move || login(machine))).collect();
        running.into_iter().map(|login| login.join().unwrap()).collect()
    });
    let winners: Vec<_> = outcomes.iter().map(|outcome| outcome.code() == Some(0)).collect();
    assert_eq!(winners.iter().filter(|won| **won).count(), 1, "{outcomes:?}");
    for ((machine, outcome), won) in machines.iter().zip(&outcomes).zip(winners) {
        let works = run(&mut machine.command(&["devices", "--on", "box"]), LIMIT).code() == Some(0);
        assert_eq!(works, won, "{outcome}");
        assert!(won || outcome.stderr.contains("the invitation has been used"), "{outcome}");
    }
}

#[test]
fn a_login_that_was_cut_short_goes_on() {
    let served = Served::start();
    let invitation = served.connect_string(&["invite", "ada"]);
    let machine = Machine::new();
    machine.login(&invitation).must_succeed();
    // As it is when the command has ended between the server's answer and its own files.
    let folder = machine.0.path().join(".config/causeway");
    let key = read(&folder.join("keys")).unwrap()[0].key.clone();
    let secret = invitation.parse::<Invitation>().unwrap().enrolment_target().key.unwrap();
    let id: String = invitation_id(&secret).0.iter().map(|byte| format!("{byte:02x}")).collect();
    let pending = format!("login-{id}");
    write(&folder.join(&pending), &[Line { server: None, key: key.clone() }]).unwrap();
    std::fs::remove_file(folder.join("keys")).unwrap();
    std::fs::remove_file(folder.join("config.toml")).unwrap();
    machine.login(&invitation).must_succeed();
    assert_eq!(machine.files(), ["config.toml", "keys", "keys.lock"]);
    assert!(read(&folder.join("keys")).unwrap()[0].key == key, "the key that the server has");
    run(&mut machine.command(&["devices", "--on", "box"]), LIMIT).must_succeed();
    // Between its own files.
    write(&folder.join(&pending), &[Line { server: None, key }]).unwrap();
    std::fs::remove_file(folder.join("config.toml")).unwrap();
    machine.login(&invitation).must_succeed();
    assert_eq!(machine.files(), ["config.toml", "keys", "keys.lock"]);
    // Before the server had it: the key of the interrupted command is the one that is enrolled.
    let (machine, invitation) = (Machine::new(), served.connect_string(&["invite", "eve"]));
    let down = format!("{}@127.0.0.1:1", invitation.rsplit_once('@').unwrap().0);
    machine.must_be_refused(&down, "Nothing has changed here");
    machine.login(&invitation).must_succeed();
}

#[test]
fn an_invitation_that_is_typed_is_not_shown() {
    if Command::new("tmux").arg("-V").output().is_err() {
        println!("NOT checked: causeway login in a terminal, for tmux is not installed");
        return;
    }
    let (served, machine) = (Served::start(), Machine::new());
    let invitation = served.connect_string(&["invite", "ada"]);
    let socket = machine.0.path().join("tmux");
    let tmux = |words: &[&str]| {
        let mut command = Command::new("tmux");
        forget_environment(&mut command);
        command.arg("-S").arg(&socket).args(words).env("TERM", "xterm-256color");
        machine.at_home(&mut command);
        run(&mut command, LIMIT)
    };
    let login = format!("{} login box; sleep 600", causeway().display());
    tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "20", &login]).must_succeed();
    let screen = || tmux(&["capture-pane", "-p"]).stdout;
    eventually("it asks", LIMIT, || screen().contains("will not be shown"));
    tmux(&["send-keys", "-l", &invitation]).must_succeed();
    tmux(&["send-keys", "Enter"]).must_succeed();
    eventually("it is logged in", LIMIT, || screen().contains("is now the client ada"));
    assert!(!screen().contains("causeway-invitation"), "{}", screen());
    let _ = tmux(&["kill-server"]);
}

#[test]
fn a_limit_of_bandwidth_holds_in_both_directions_and_for_no_other_client() {
    let served = Served::start();
    let ada = served.connect_string(&["add", "ada", "--bandwidth", "32M"]);
    let bob = served.connect_string(&["add", "bob"]);
    let refused =
        served.causeway(&["client", "--key-file", &served.file("key"), "limit", "ada", "--bandwidth", "1K"]);
    assert!(refused.code() == Some(2) && refused.stderr.contains("1M or more"), "{refused}");
    assert!(served.client(&["list"]).contains("32M a second in each direction"));
    // On the server's own host, where a client shares memory with its worker otherwise.
    let copies = |server: &str, mib: &str| {
        let mut command = by_itself(server, &cuda_program("copy_rate"));
        command.args([mib, "1"]);
        command
    };
    let printed = run(&mut copies(&ada, "64"), LIMIT).must_succeed().stdout;
    let best = printed.lines().find_map(|line| line.strip_prefix("best ")).unwrap();
    let rates: Vec<f64> = best.split(' ').filter_map(|word| word.parse().ok()).collect();
    // What sockets and threads hold passes before anything waits, so it is somewhat more than 34 MB/s; without a limit it
    // is ten times as much.
    assert!(rates.len() == 2 && rates.iter().all(|rate| *rate < 100.0), "{best}");
    let shared = run(copies(&ada, "1").env("CAUSEWAY_VIA", "shm"), LIMIT);
    assert_eq!(shared.code(), Some(1), "{shared}");
    // One that is at its limit for minutes; the server, its other sessions' calls and others go on.
    served.client(&["limit", "ada", "--bandwidth", "8M"]);
    let at_limit = Running::start(copies(&ada, "1024").arg("1"));
    at_limit.must_print("begins", LIMIT);
    run(&mut copies(&bob, "64"), LIMIT).must_succeed();
    run(&mut by_itself(&ada, &cuda_program("many_launches")), LIMIT).must_succeed();
    let seen = served.sessions_seen_by(&ada);
    assert!(seen.contains("\"via\":\"tcp\"") && seen.contains("copy_rate"), "{seen}");
    // Its session ends at once, however long its copies would have to wait.
    drop(at_limit);
    eventually("its session ends", LIMIT, || !served.sessions_seen_by(&ada).contains("copy_rate"));
}

#[test]
fn shares_divide_the_time_of_the_gpu() {
    let served = Served::start();
    let refused =
        served.causeway(&["client", "--key-file", &served.file("key"), "add", "eve", "--share", "0"]);
    assert!(refused.code() == Some(2) && refused.stderr.contains("from 1 to 1000"), "{refused}");
    let ada = served.connect_string(&["add", "ada", "--share", "3"]);
    let bob = served.connect_string(&["add", "bob"]);
    assert!(served.client(&["list"]).contains("share 3 of a GPU"));
    let kernels = |server: &str, count: &str| {
        let mut command = by_itself(server, &cuda_program("long_kernel"));
        Running::start(command.args(["0.03", count]))
    };
    let of_bob = kernels(&bob, "5000");
    // Alone, it waits for nobody.
    of_bob.must_print("kernel 5", LIMIT);
    let mut of_ada = kernels(&ada, "60");
    of_ada.must_print("kernel 1\n", LIMIT);
    let done = || of_bob.stdout().matches("kernel").count();
    let before = done();
    of_ada.finish(LIMIT).must_succeed();
    // Without shares it would be as many. The kernels sleep, so that other programs of the machine do not matter.
    let meanwhile = done() - before;
    assert!(
        (5..=40).contains(&meanwhile),
        "{meanwhile} kernels beside 60 of a client with three times the share"
    );
    // A session that ends leaves the GPU to others.
    let of_ada = kernels(&ada, "5000");
    of_ada.must_print("kernel 1\n", LIMIT);
    drop(of_ada);
    let before = done();
    eventually("the other one goes on", LIMIT, || done() > before + 5);
}

/// Kernels that wait for each other, for the host and for memory, that fail, and graphs: each in several streams.
#[test]
fn programs_are_right_while_others_have_the_gpu_in_turn() {
    let served = Served::start();
    let ada = served.connect_string(&["add", "ada", "--share", "3"]);
    let bob = served.connect_string(&["add", "bob"]);
    let mut other = by_itself(&bob, &cuda_program("kernel_turns"));
    let other = Running::start(other.args(["5", "3600", "3"]));
    other.must_print("kernel 5", LIMIT);
    for name in [
        "stop_flag",
        "concurrent",
        "stopped_streams",
        "callback_waits",
        "wait_value",
        "stream_fails",
        "graphs",
        "graph_branches",
        "streams_events",
        "threads_ptds",
        "many_launches",
        "context_ends",
    ] {
        let before = other.stdout().matches("kernel").count();
        run(&mut by_itself(&ada, &cuda_program(name)), LIMIT).must_succeed();
        eventually("the other one goes on", LIMIT, || other.stdout().matches("kernel").count() > before + 3);
    }
}

#[test]
fn programs_of_a_revoked_client_that_ask_nvml_lose_the_device() {
    let served = Served::start();
    let (ada, bob) = (served.connect_string(&["add", "ada"]), served.connect_string(&["add", "bob"]));
    let asks = |server: &str| Running::start(by_itself(server, &cuda_program("nvml")).arg("gone"));
    let (mut of_ada, of_bob) = (asks(&ada), asks(&bob));
    of_ada.must_print("waiting", LIMIT);
    of_bob.must_print("waiting", LIMIT);
    served.client(&["revoke", "ada"]);
    of_ada.finish(LIMIT).must_succeed();
    // Another client's connection stays, and so does the process that answers both.
    assert!(!of_bob.has_exited());
    served.client(&["revoke", "bob"]);
    eventually("it has lost the device", LIMIT, || of_bob.has_exited());
}
