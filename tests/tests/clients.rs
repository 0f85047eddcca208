//! Clients that have keys of their own: who they are to the server, what they see of others, what they may have, and how
//! they are shut out.

use causeway_access::Target;
use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::process::{Outcome, Running, eventually, run};
use causeway_tests::server::{Server, forget_environment};
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
    served.server.must_log("its client has been revoked");
    must_be_refused(&new, "knows no client with this key");
    // The server's own key is another thing.
    vector_add(&served.server.connect_string()).must_succeed();
    let expired = served.connect_string(&["add", "eve"]);
    let clients = std::fs::read_to_string(served.file("clients.toml")).unwrap();
    std::fs::write(served.file("clients.toml"), format!("{clients}expires = \"2020-01-01T00:00:00Z\"\n"))
        .unwrap();
    must_be_refused(&expired, "the client has expired");
    std::fs::write(served.file("clients.toml"), "[eve]\nkeys = 1\n").unwrap();
    must_be_refused(&expired, "knows no client with this key");
    served.server.must_log("[eve] has no key `keys`");
    vector_add(&served.server.connect_string()).must_succeed();
}

#[test]
fn a_client_is_told_when_another_server_answers() {
    let (one, other) = (Served::start(), Served::start());
    let ada: Target = one.connect_string(&["add", "ada"]).parse().unwrap();
    let elsewhere = Target { endpoint: other.server.target().endpoint.clone(), ..ada };
    must_be_refused(&elsewhere.connect_string(), "knows no client with this key");
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
    must_be_refused(&ada, "knows no client");
    let log = || std::fs::read_to_string(served.file("audit.jsonl")).unwrap();
    eventually("the sessions have ended", LIMIT, || log().matches("session-ends").count() == 3);
    let refused = log().lines().filter(|line| line.contains("\"refused\"")).count();
    assert!(refused == 1 && log().contains("knows no client"), "{}", log());
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
