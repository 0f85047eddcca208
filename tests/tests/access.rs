//! Who may use a server, who may not, and what the network and other users of the machine get to see of keys
//! and bytes.

use causeway_access::Key;
use causeway_access::Target;
use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::process::{Outcome, Running, run};
use causeway_tests::server::{Server, forget_environment};
use causeway_tests::tap::Tap;
use causeway_wire::handshake::Protection;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Somebody who is not the user that runs the tests: `nobody`.
const STRANGER: u32 = 65534;

/// A command of `causeway` that finds no key of the user's.
fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(causeway());
    command.args(arguments);
    forget_environment(&mut command);
    command.env("HOME", home).env_remove("XDG_CONFIG_HOME");
    command
}

fn vector_add(target: &Target) -> Outcome {
    run(&mut through_run(Some(&target.connect_string()), &cuda_program("vector_add")), LIMIT)
}

/// Asserts that neither `causeway run` nor a program that starts by itself gets a session, and that both say
/// why.
#[track_caller]
fn must_be_turned_away(target: &Target, reason: &str) {
    let outcome = vector_add(target);
    assert!(outcome.code() == Some(125) && outcome.stdout.is_empty(), "{outcome}");
    assert!(outcome.stderr.contains(reason), "{outcome}");
    let outcome = run(&mut by_itself(&target.connect_string(), &cuda_program("vector_add")), LIMIT);
    assert!(outcome.code() == Some(1) && outcome.stdout.starts_with("FAIL vector_add: "), "{outcome}");
    assert!(outcome.stderr.contains(reason), "{outcome}");
}

#[test]
fn the_key_is_proved_and_everything_is_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with_key(&folder.path().join("key"));
    let tap = Tap::on(server.target());
    // The others send copies over the bulk lanes.
    for program in ["vector_add", "pinned_memory", "concurrent"] {
        let mut command = through_run(Some(&tap.target().connect_string()), &cuda_program(program));
        run(command.env("CAUSEWAY_VIA", "tcp"), LIMIT).must_succeed();
    }
    assert!(tap.bytes_seen() > 1 << 20, "the tap saw {} bytes", tap.bytes_seen());
    // The name is in the first message of every client, and in the module.
    assert!(!tap.has_seen(b"vector_add"), "something travelled in the clear");
    server.must_be_well();
}

#[test]
fn in_the_clear_the_handshake_is_encrypted_and_the_link_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let file = key.to_str().unwrap();
    let server = Server::start_with(&["--listen", "127.0.0.1:0", "--key-file", file, "--clear"]);
    assert_eq!(server.target().protection, Protection::Authenticated);
    for (protection, sees) in [(Protection::Authenticated, true), (Protection::Encrypted, false)] {
        let tap = Tap::on(&Target { protection, ..server.target().clone() });
        for program in ["vector_add", "pinned_memory", "concurrent"] {
            let mut command = through_run(Some(&tap.target().connect_string()), &cuda_program(program));
            run(command.env("CAUSEWAY_VIA", "tcp"), LIMIT).must_succeed();
        }
        // The first is the name of the kernel, the second is in the hello.
        assert_eq!(tap.has_seen(b"_Z3addPKf"), sees, "{protection:?}");
        assert!(!tap.has_seen(b"vector_add"), "{protection:?}: the handshake travelled in the clear");
        assert!(!tap.has_seen(server.target().key.as_ref().unwrap().bytes()), "the key travelled");
    }
    // The option does what the address does.
    let address = format!("causeway://{}", server.target());
    let mut option =
        command(folder.path(), &["devices", "-v", "--clear", "--key-file", file, "--on", &address]);
    run(&mut option, LIMIT).must_succeed();
    server.must_be_well();
}

#[test]
fn without_a_key_nobody_is_let_in_over_loopback_either() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with_key(&folder.path().join("key"));
    let key = server.target().key.clone();
    let unprotected = Target { protection: Protection::Unprotected, key: None, ..server.target().clone() };
    must_be_turned_away(&unprotected, "it requires a key");
    must_be_turned_away(
        &Target { key: Some(Key::generate()), ..server.target().clone() },
        "not this server's",
    );
    let mut clear = server.target().clone();
    clear.request_clear();
    must_be_turned_away(&clear, "started with --clear");
    assert_eq!(server.workers(), [] as [u32; 0]);
    let open = Server::start();
    let encrypted = Target { protection: Protection::Encrypted, key, ..open.target().clone() };
    must_be_turned_away(&encrypted, "insecure-no-key");
    let unknown =
        command(folder.path(), &["devices", "--on", &server.target().to_string()]).output().unwrap();
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && said.contains("there is no key for the server at"), "{said}");
    vector_add(server.target()).must_succeed();
    open.must_log("may use this server");
}

#[test]
fn whoever_owns_the_key_file_types_no_key() {
    let home = tempfile::tempdir().unwrap();
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let mut serve = Server::command(&["--listen", listen]);
        serve.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME");
        let server = Server::start_command(serve);
        let Some((_, port)) = server
            .target()
            .to_string()
            .rsplit_once(':')
            .map(|(host, port)| (host.to_owned(), port.to_owned()))
        else {
            panic!("{}", server.target())
        };
        let on = format!("127.0.0.1:{port}");
        run(&mut command(home.path(), &["devices", "--on", &on]), LIMIT).must_succeed();
        let mut program = by_itself(&on, &cuda_program("vector_add"));
        run(program.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME"), LIMIT).must_succeed();
        let told = format!("{}{}", server.log(), server.connect_string());
        let key = std::fs::read_to_string(home.path().join(".config/causeway/key")).unwrap();
        assert!(!told.contains(key.trim()), "the key is in what a log keeps: {told}");
        assert!(told.contains(".config/causeway/key"), "nobody is told where the key is: {told}");
    }
    let file = home.path().join(".config/causeway/key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_key_is_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let first = Server::start_with_key(&file);
    let key = first.target().key.clone();
    assert!(first.end_by(Signal::TERM).code() == Some(0) && key.is_some());
    assert_eq!(
        Server::start_with_key(&file).target().key,
        key,
        "the second start must find the key of the first"
    );
}

/// Runs `causeway key` with something at its standard input.
fn key(home: &Path, arguments: &[&str], input: &str) -> Outcome {
    let file = home.join("input");
    std::fs::write(&file, input).unwrap();
    let file = file.to_str().unwrap();
    let program = causeway().to_str().unwrap().to_owned();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "file=$1; shift; exec \"$@\" <\"$file\"", "sh", file, &program, "key"]).args(arguments);
    forget_environment(&mut shell);
    run(shell.env("HOME", home).env_remove("XDG_CONFIG_HOME"), LIMIT)
}

#[test]
fn a_key_is_carried_to_a_client_once() {
    let [there, here] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let file = there.path().join("key");
    let server = Server::start_with_key(&file);
    let address = server.target().to_string();
    let shown =
        key(there.path(), &["show", &address, "--key-file", file.to_str().unwrap()], "").must_succeed();
    assert_eq!(shown.stdout.trim().parse::<Target>().as_ref(), Ok(server.target()));
    let added = key(here.path(), &["add"], &shown.stdout).must_succeed();
    assert!(!added.stdout.contains(shown.stdout.trim()) && added.stdout.contains("keys"), "{added}");
    assert_eq!(key(here.path(), &["list"], "").must_succeed().stdout.trim(), address);
    run(&mut command(here.path(), &["devices", "--on", &address]), LIMIT).must_succeed();
    let nothing = key(here.path(), &["add"], &address);
    assert!(nothing.code() == Some(1) && nothing.stderr.contains("contains no key"), "{nothing}");
    key(here.path(), &["remove", &address], "").must_succeed();
    let again = key(here.path(), &["remove", &address], "");
    assert!(again.code() == Some(1) && again.stderr.contains("no key of"), "{again}");
    assert_eq!(run(&mut command(here.path(), &["devices", "--on", &address]), LIMIT).code(), Some(1));
}

#[test]
fn no_key_gets_into_the_arguments_or_the_environment_of_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let server = Server::start_with_key(&file);
    let key = server.target().key.as_ref().unwrap().to_text();
    let text = "tr '\\0' '\\n' </proc/$$/environ; tr '\\0' '\\n' </proc/$$/cmdline; exec \"$0\"";
    let program = cuda_program("vector_add");
    let program = program.to_str().unwrap();
    let connect_string = server.connect_string();
    let address = server.target().to_string();
    let by_file = ["--key-file", file.to_str().unwrap(), "--on", &address];
    for (how, warns) in [(&["--on", &connect_string][..], true), (&by_file, false)] {
        for stats in [&[][..], &["--stats"]] {
            let arguments = [&["run"], how, stats, &["--", "/bin/sh", "-c", text, program]].concat();
            let outcome = run(&mut command(folder.path(), &arguments), LIMIT).must_succeed();
            assert!(outcome.stdout.contains("CAUSEWAY_ON=causeway://127.0.0.1"), "{outcome}");
            assert!(!outcome.stdout.contains(&**key) && !outcome.stderr.contains(&**key), "{outcome}");
            assert_eq!(
                outcome.stderr.contains("warning: other users can see the key in --on"),
                warns,
                "{outcome}"
            );
        }
    }
    assert!(!server.log().contains(&**key), "{}", server.log());
}

/// The ports at which a process listens.
fn listening_ports(process: u32) -> usize {
    let sockets = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().filter_map(|entry| {
        let link = std::fs::read_link(entry.ok()?.path()).ok()?;
        Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    });
    let sockets: Vec<_> = sockets.collect();
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/{process}/net/{table}")));
    let lines = tables.iter().flatten().flat_map(|table| table.lines().skip(1));
    // The fourth field is the state, 0A for one that listens, and the tenth the inode.
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[3] == "0A" && sockets.iter().any(|socket| socket == fields[9]))
        .count()
}

#[test]
fn a_private_server_opens_a_port_only_where_tcp_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (via, ports) in [("auto", 0), ("shm", 0), ("tcp", 1)] {
        let program = cuda_program("long_run");
        let arguments = ["run", "--on", "software", "--via", via, "--", program.to_str().unwrap()];
        let mut command = command(folder.path(), &arguments);
        command.env("XDG_RUNTIME_DIR", folder.path());
        let running = Running::start(&mut command);
        running.must_print("running", LIMIT);
        assert_eq!(listening_ports(running.pid()), ports, "via {via}");
        running.signal(Signal::TERM);
        drop(running);
    }
}

/// What only this user can enter is left as it was found by what ran in it, but for the links by which Triton and XLA
/// (as a toolkit's folder) find a stand-in for `ptxas`: programs share them.
#[test]
fn nothing_of_a_private_server_stays_behind() {
    let folder = tempfile::tempdir().unwrap();
    let program = cuda_program("vector_add");
    for via in ["auto", "tcp"] {
        let arguments = ["run", "--on", "software", "--via", via, "--", program.to_str().unwrap()];
        let mut command = command(folder.path(), &arguments);
        run(command.env("XDG_RUNTIME_DIR", folder.path()), LIMIT).must_succeed();
        let entries = std::fs::read_dir(folder.path().join("causeway")).unwrap().flatten();
        let left: Vec<_> = entries
            .filter(|entry| !["ptxas", "cuda"].iter().any(|shared| entry.file_name() == *shared))
            .collect();
        assert!(left.is_empty(), "via {via}: {left:?}");
    }
}

/// A folder that every user can enter, with a copy of the program that every user can start.
fn open_folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("causeway");
    std::fs::copy(causeway(), &program).unwrap();
    (folder, program)
}

#[test]
fn at_a_unix_socket_only_those_who_are_named_are_served() {
    let (folder, program) = open_folder();
    let socket = folder.path().join("server.sock");
    let listen = format!("unix:{}", socket.display());
    let ask = |user: Option<u32>| {
        let mut command = Command::new(&program);
        command.args(["devices", "-v", "--on", &listen]);
        forget_environment(&mut command);
        command.env("HOME", "/nonexistent");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        run(&mut command, LIMIT)
    };
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("strangers are left out: only root can be somebody else");
    }
    let serve = |more: &[&str]| Server::start_with(&[&["--listen", &listen], more].concat());
    let server = serve(&[]);
    assert_eq!(server.connect_string(), listen);
    let own = ask(None).must_succeed();
    assert!(own.stdout.contains("via shm"), "{own}");
    if is_root {
        let stranger = ask(Some(STRANGER));
        assert!(stranger.code() == Some(1) && stranger.stderr.contains("may this user use it"), "{stranger}");
    }
    assert_eq!(server.end_by(Signal::TERM).code(), Some(0));
    assert!(!socket.exists(), "the socket is left behind");
    let stranger = STRANGER.to_string();
    for (options, serves) in [
        (&["--allow-user", "12345"][..], false),
        (&["--allow-group", "12345"], false),
        (&["--allow-user", &stranger], true),
        (&["--allow-group", &stranger, "--allow-group", "12345"], true),
    ] {
        let server = serve(options);
        ask(None).must_succeed();
        if is_root {
            let outcome = ask(Some(STRANGER));
            assert_eq!(outcome.code(), Some(i32::from(!serves)), "{options:?}: {outcome}");
            assert!(serves || outcome.stderr.contains("it serves its own user here"), "{outcome}");
            if !serves {
                server.must_log("of user 65534 on this host");
            }
        }
        server.must_be_well();
    }
    let nobody = run(&mut Server::command(&["--allow-user", "no such user"]), LIMIT);
    assert!(nobody.code() == Some(2) && nobody.stderr.contains("no user `no such user`"), "{nobody}");
}
