//! Configuration files: servers, options and variables, their order of precedence, and errors in them.

use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::{by_itself, through_run, through_run_as_configured};
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::{Server, forget_environment};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A server with a key of its own, and a folder of a user who has a configuration file.
struct Site {
    folder: tempfile::TempDir,
    server: Server,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("causeway")).unwrap();
        let server = Server::start_with_key(&folder.path().join("server-key"));
        Self { folder, server }
    }

    /// The user's file, which says this.
    fn file(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join("causeway/config.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    /// A file that names the server `box` and says more of it and of clients.
    fn with_box(&self, of_box: &str, of_client: &str) -> PathBuf {
        let address = self.server.target().endpoint.to_string();
        self.file(&format!(
            "[servers.box]\naddress = \"{address}\"\nkey-file = \"../server-key\"\n{of_box}[client]\n{of_client}"
        ))
    }

    /// Has a command find the user's file.
    fn of_user<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("XDG_CONFIG_HOME", self.folder.path()).env_remove("CAUSEWAY_CONFIG")
    }

    fn causeway(&self, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        run(self.of_user(command.args(arguments)), LIMIT)
    }

    /// A program that finds servers by the file alone, without `causeway run`.
    fn alone(&self) -> Command {
        let mut command = by_itself("", &cuda_program("vector_add"));
        self.of_user(command.env_remove("CAUSEWAY_ON"));
        command
    }
}

#[test]
fn a_server_has_a_name_for_every_command_and_for_programs_by_themselves() {
    let site = Site::new();
    site.with_box("via = \"tcp\"\n", "on = \"box\"\n");
    run(&mut site.alone(), LIMIT).must_succeed();
    run(site.of_user(&mut through_run(Some("box"), &cuda_program("vector_add"))), LIMIT).must_succeed();
    // Nothing but the file says what the file says.
    let listed = site.causeway(&["devices", "--verbose"]).must_succeed();
    assert!(listed.stdout.contains("via tcp") && listed.stdout.contains(" at box ("), "{listed}");
    let mut program = through_run_as_configured(&cuda_program("vector_add"));
    let statistics = site.folder.path().join("statistics.json");
    run(site.of_user(program.env("CAUSEWAY_STATS", &statistics)), LIMIT).must_succeed();
    let report: Value = serde_json::from_slice(&fs::read(&statistics).unwrap()).unwrap();
    assert_eq!(report["via"], "tcp", "the program that `causeway run` starts reads the file, too");
    site.server.must_have_workers(0);
    site.server.must_be_well();
}

#[test]
fn options_count_before_variables_and_those_before_the_files() {
    let site = Site::new();
    site.with_box("via = \"tcp\"\n", "on = \"box\"\nvia = \"verbs\"\n");
    let via = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        site.of_user(command.args(["devices", "--verbose"]).args(arguments));
        let listed = run(command.envs(variables.iter().copied()), LIMIT).must_succeed();
        let way = listed.stdout.lines().find_map(|line| line.strip_prefix("via ").map(str::to_owned));
        way.unwrap_or_else(|| panic!("nothing is said of the way: {listed}"))
    };
    assert_eq!(via(&[], &[]), "tcp", "what is said of the server counts before what is said of all");
    assert_eq!(via(&[("CAUSEWAY_VIA", "shm")], &[]), "shm");
    assert_eq!(via(&[("CAUSEWAY_VIA", "tcp")], &["--via", "shm"]), "shm");
    // A server that is not there is not asked where another one counts.
    site.with_box("", "on = \"127.0.0.1:1?insecure-no-key\"\n");
    assert_eq!(via(&[("CAUSEWAY_ON", "box")], &[]), "shm");
    assert_eq!(via(&[("CAUSEWAY_ON", "127.0.0.1:1")], &["--on", "box"]), "shm");
    // Empty is as none, and hides the files.
    let mut command = site.alone();
    let outcome = run(command.env("CAUSEWAY_ON", ""), LIMIT);
    assert!(outcome.code() != Some(0) && outcome.stderr.contains("no server is named"), "{outcome}");
    let outcome = run(site.alone().env("CAUSEWAY_CONFIG", ""), LIMIT);
    assert!(outcome.code() != Some(0) && outcome.stderr.contains("no server is named"), "{outcome}");
    site.server.must_be_well();
}

#[test]
fn mistakes_are_named_with_file_line_and_key_and_nothing_is_done() {
    let site = Site::new();
    for (text, expected) in [
        ("[client]\nlanes = 99\n", ":2: lanes = 99 cannot be used: give a number from 1 to 32"),
        ("[client]\nlane = 4\n", ":2: [client] has no key `lane`: is `lanes` meant?"),
        ("[client\n", ":1: this is not TOML"),
        (
            "\n[client]\non = \"box\"\n[servers.box]\naddress = \"a:b\"\n",
            ":5: [servers.box] address cannot be used: `b` in",
        ),
        ("[client]\non = \"127.0.0.1:1\"\npipeline = \"much\"\n", ":3: pipeline: `much`"),
    ] {
        let path = site.file(text);
        let expected = format!("{}{expected}", path.display());
        for outcome in [run(&mut site.alone(), LIMIT), site.causeway(&["run", "--", "/bin/echo", "started"])]
        {
            assert!(outcome.code().is_some_and(|code| code != 0), "{text}: {outcome}");
            assert!(
                outcome.stderr.contains(&expected) && !outcome.stdout.contains("started"),
                "{text}: {outcome}"
            );
        }
        let checked = site.causeway(&["config", "check"]);
        assert!(checked.code() == Some(1) && checked.stdout.contains(&expected), "{text}: {checked}");
    }
    site.with_box("", "");
    let outcome = site.causeway(&["config", "check", "--json"]);
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["errors"].as_array().map(Vec::len), Some(0), "{outcome}");
    let missing = site.folder.path().join("missing.toml");
    let outcome = run(site.alone().env("CAUSEWAY_CONFIG", &missing), LIMIT);
    assert!(outcome.stderr.contains("missing.toml: the configuration file cannot be read"), "{outcome}");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let site = Site::new();
    let path = site.file(&format!(
        "[servers.box]\naddress = \"{}\"\n[client]\non = \"box\"\n",
        site.server.connect_string()
    ));
    for mode in [0o644, 0o640] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        for outcome in [run(&mut site.alone(), LIMIT), site.causeway(&["devices"])] {
            assert!(outcome.code() != Some(0), "{outcome}");
            assert!(
                outcome.stderr.contains("config.toml:2: ") && outcome.stderr.contains("chmod 600"),
                "{outcome}"
            );
        }
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    run(&mut site.alone(), LIMIT).must_succeed();
    let shown = site.causeway(&["config", "show"]).must_succeed();
    let key = site.server.target().key.as_ref().unwrap().to_text();
    assert!(shown.stdout.contains("[servers.box]") && !shown.stdout.contains(&**key), "{shown}");
    // The file that `key-file` names is looked at likewise.
    site.with_box("", "on = \"box\"\n");
    fs::set_permissions(site.folder.path().join("server-key"), fs::Permissions::from_mode(0o644)).unwrap();
    let outcome = run(&mut site.alone(), LIMIT);
    assert!(outcome.stderr.contains("can be read by others (mode 644)"), "{outcome}");
}

#[test]
fn a_name_that_no_file_has_is_told_with_those_that_there_are() {
    let site = Site::new();
    site.with_box("", "");
    for (name, advice) in [("bx", "is `box` meant?"), ("nowhere", "name box")] {
        let outcome = site.causeway(&["devices", "--on", name]);
        assert!(outcome.code() == Some(1), "{outcome}");
        let refused = format!("cannot resolve the host name `{name}`");
        assert!(outcome.stderr.contains(&refused) && outcome.stderr.contains(advice), "{outcome}");
    }
}

#[test]
fn a_server_is_what_its_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("serve.toml");
    let serve = |text: &str, arguments: &[&str]| {
        fs::write(&path, text).unwrap();
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        command.arg("serve").args(arguments).env("CAUSEWAY_CONFIG", &path);
        command
    };
    let socket = folder.path().join("a.sock").display().to_string();
    let text = format!(
        "[serve]\nlisten = \"unix:{socket}\"\ngpu = \"cpu\"\nno-cache = true\nsoftware-gpu-devices = 3\n[client]\nlanes = 99\n"
    );
    let server = Server::start_command(serve(&text, &[]));
    assert_eq!(server.target().to_string(), format!("unix:{socket}"));
    assert_eq!(devices(&server.connect_string()), 3, "workers act on what the server's file says");
    server.must_be_well();
    drop(server);
    let other = Server::start_command(serve(&text, &["--listen", "127.0.0.1:0", "--insecure-no-key"]));
    assert!(other.target().to_string().starts_with("127.0.0.1:"), "an option counts before the file");
    other.must_be_well();
    for (text, expected) in [
        ("[serve]\nlisen = \":1\"\n", "serve.toml:2: [serve] has no key `lisen`: is `listen` meant?"),
        ("[serve]\n\nhung-worker = \"never\"\n", "serve.toml:3: hung-worker = never cannot be used: "),
        (
            "[serve]\nsoftware-gpu-devices = 0\n",
            "serve.toml:2: software-gpu-devices = 0 cannot be used: give a number",
        ),
        (
            "[serve]\naudit-log = \"nowhere/log\"\n",
            "serve.toml:2: audit-log cannot be used: there is no folder ",
        ),
        (
            "[serve]\ncache-dir = \"serve.toml/images\"\n",
            "serve.toml, which is for the image cache, is not a folder",
        ),
        (
            "[serve]\nlisten = \"unix:/no/such/folder/s\"\n",
            "serve.toml:2: listen cannot be used: there is no folder /no/such/folder for the Unix socket",
        ),
        ("[serve]\nlisten = \"203.0.113.7\"\n", "this machine has no such address; `ip address` lists"),
        ("[serve]\nmetrics = \"203.0.113.7:9469\"\n", "is no address for metrics (this machine has no such"),
        ("[serve]\nlisten = \"0.0.0.0:99999\"\n", "`99999` is no port"),
        ("[serve]\nsession-memory = \"16Q\"\n", "session-memory = 16Q cannot be used: \"16Q\" is not a size"),
        ("[serve]\nallow-group = \"no-such-group\"\n", "this machine has no group `no-such-group`"),
        ("[serve]\nworker-users = \"5\"\n", "worker-users = 5 cannot be used: `5` is not a range of users"),
        ("[serve]\npeers = \"a:b\"\n", "peers = a:b cannot be used: `a:b` names no other servers"),
        ("[serve]\nsandbox = \"maybe\"\n", "sandbox = maybe cannot be used: "),
        ("[serve]\nidle-release = \"soon\"\n", "idle-release = soon cannot be used: \"soon\" is not a time"),
        ("[serve]\ngpu = \"amd\"\n", "gpu = amd cannot be used: `amd` is not a kind of GPU"),
        ("[serve]\nmax-sessions = 0\n", "max-sessions = 0 cannot be used: give a whole number of 1 or more"),
        ("[serve]\nsocket-dir = \"/no/such\"\n", "socket-dir cannot be used: there is no folder /no/such"),
        (
            "[serve]\ngpu = \"cpu\"\nallow-software = true\n",
            "serve.toml:3: allow-software cannot be used: --allow-software requires --gpu auto",
        ),
        (
            "[serve]\nresume-timeout = \"500ms\"\n",
            "serve.toml:2: resume-timeout = 500ms cannot be used: give a time of 0 or more",
        ),
    ] {
        let outcome = run(&mut serve(text, &[]), LIMIT);
        assert!(outcome.code() == Some(1) && outcome.stdout.is_empty(), "{outcome}");
        assert!(outcome.stderr.contains(expected), "{text}: {outcome}");
        // Before a server is started the same is found.
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        let command = command.args(["config", "check"]).env("CAUSEWAY_CONFIG", &path);
        let outcome = run(command, LIMIT);
        assert!(outcome.code() == Some(1) && outcome.stdout.contains(expected), "{text}: {outcome}");
    }
    // It would run, and refuse every client.
    fs::write(&path, "[serve]\ndriver = \"/no/such/libcuda.so.1\"\n").unwrap();
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    let outcome = run(command.args(["config", "check"]).env("CAUSEWAY_CONFIG", &path), LIMIT);
    let expected = "serve.toml:2: driver cannot be used: there is no file /no/such/libcuda.so.1";
    assert!(outcome.code() == Some(1) && outcome.stdout.contains(expected), "{outcome}");
    // What is typed takes the place of what the file says, be that wrong or not.
    let text = format!("[serve]\nlisten = \"unix:{socket}\"\ngpu = \"cpu\"\nkey-file = \"no/such/key\"\n");
    drop(Server::start_command(serve(&text, &["--listen", "127.0.0.1:0", "--insecure-no-key"])));
}

/// How many devices a list of servers has.
fn devices(on: &str) -> usize {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    let listed = run(command.args(["devices", "--json", "--on", on]), LIMIT).must_succeed();
    let report: Value =
        serde_json::from_str(&listed.stdout).unwrap_or_else(|error| panic!("{error}: {listed}"));
    report["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| server["devices"].as_array().unwrap().len())
        .sum()
}

#[test]
fn the_software_gpu_and_the_machines_own_stand_in_a_list_with_others() {
    let server = Server::start();
    let on = format!("software,{}", server.connect_string());
    assert_eq!(devices(&on), 2);
    let program = cuda_program("several_devices");
    run(&mut through_run(Some(&on), &program), LIMIT).must_succeed();
    run(&mut through_run(Some(&format!("{},software,software", server.connect_string())), &program), LIMIT)
        .must_succeed();
    // Without NVIDIA's driver the machine has no GPU of its own.
    let mut command = through_run(Some(&format!("local,{}", server.connect_string())), &program);
    let outcome = run(command.env("CAUSEWAY_DRIVER", "/nowhere/libcuda.so.1"), LIMIT);
    assert_eq!(outcome.code(), Some(125), "{outcome}");
    for part in ["`local` means the GPUs of this machine", "/nowhere/libcuda.so.1"] {
        assert!(outcome.stderr.contains(part), "{part} in {outcome}");
    }
    // A program by itself starts no server.
    let outcome = run(&mut by_itself(&on, &program), LIMIT);
    assert!(outcome.stderr.contains("`causeway run --on software"), "{outcome}");
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn the_example_says_nothing_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    let example = run(command.args(["config", "example"]), LIMIT).must_succeed().stdout;
    let path: &Path = &folder.path().join("c.toml");
    fs::write(path, example).unwrap();
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    let outcome = run(command.args(["config", "check"]).env("CAUSEWAY_CONFIG", path), LIMIT).must_succeed();
    assert!(outcome.stdout.contains("c.toml: no errors"), "{outcome}");
}
