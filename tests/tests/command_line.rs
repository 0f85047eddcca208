//! Command line of `causeway`: its help, and the environment variables.

use causeway_access::Endpoint;
use causeway_api::coverage::{FUNCTIONS, Kind};
use causeway_tests::built::{causeway, client_library_folder, cuda_program};
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::{OPEN, Server, forget_environment};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn causeway_with(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    run(command.args(arguments), LIMIT)
}

#[test]
fn version_names_commit_and_back_ends() {
    let version = causeway_with(&["--version"]).must_succeed().stdout;
    let (first, rest) = version.split_once('\n').unwrap();
    assert_eq!(rest, "back ends: NVIDIA's driver, the software GPU\n");
    let commit = first.strip_prefix(concat!("causeway ", env!("CARGO_PKG_VERSION"))).unwrap();
    // Built of a tree without git there is none: else " (1a2b3c4d 2026-11-28)".
    let is_commit = commit.len() == 22 && commit.starts_with(" (") && commit.ends_with(')');
    assert!(commit.is_empty() || is_commit, "{version}");
}

#[test]
fn triton_and_jax_find_a_stand_in_for_ptxas_where_all_gpus_are_software() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("k.ptx"), folder.path().join("k.o"));
    let text = ".version 8.7\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
    std::fs::write(&input, text).unwrap();
    let script = r#""$TRITON_PTXAS_PATH" --version && "$TRITON_PTXAS_BLACKWELL_PATH" -v --gpu-name=sm_80 "$0" -o "$1""#;
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(["run", "--on", "software", "--", "sh", "-c", script]).args([&input, &output]);
    let version = run(&mut command, LIMIT).must_succeed().stdout;
    assert!(version.contains("release 12.8"), "{version}");
    assert_eq!(std::fs::read(&output).unwrap(), [text.as_bytes(), &[0]].concat());
    // XLA's files have no extension; its options are completed.
    let (input, output) = (folder.path().join("input"), folder.path().join("output"));
    std::fs::write(&input, text).unwrap();
    let script = r#"echo "$XLA_FLAGS" && "$CUDA_ROOT/bin/ptxas" "$0" -o "$1" -arch=sm_80"#;
    command = Command::new(causeway());
    forget_environment(&mut command);
    command.env("XLA_FLAGS", "--xla_gpu_autotune_level=1").env_remove("CUDA_ROOT");
    command.args(["run", "--on", "software", "--", "sh", "-c", script]).args([&input, &output]);
    let flags = run(&mut command, LIMIT).must_succeed().stdout;
    assert_eq!(flags, "--xla_gpu_autotune_level=1 --xla_gpu_enable_triton_gemm=false\n");
    assert_eq!(std::fs::read(&output).unwrap(), [text.as_bytes(), &[0]].concat());
    let script = r#"test "$TRITON_PTXAS_PATH $CUDA_ROOT" = "/mine /cuda""#;
    command = Command::new(causeway());
    forget_environment(&mut command);
    command.env("TRITON_PTXAS_PATH", "/mine").env("CUDA_ROOT", "/cuda");
    command.args(["run", "--on", "software", "--", "sh", "-c", script]);
    run(&mut command, LIMIT).must_succeed();
}

#[test]
fn every_command_has_a_help_that_explains_each_option() {
    let commands = [
        "serve",
        "run",
        "devices",
        "doctor",
        "api",
        "demo",
        "bench",
        "bench copy",
        "bench latency",
        "bench launch",
        "bench pipeline",
    ];
    let overview = causeway_with(&["--help"]).must_succeed();
    for command in commands {
        let words: Vec<_> = command.split(' ').collect();
        assert!(overview.stdout.contains(words[0]), "{command} is missing: {overview}");
        let help = causeway_with(&[&words[..], &["--help"]].concat()).must_succeed();
        assert!(help.stdout.contains("Usage:"), "{help}");
        let lines: Vec<_> = help.stdout.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            if !line.trim_start().starts_with('-') {
                continue;
            }
            // The explanation stands behind the option, after two spaces, or on the next line.
            let beside = line.trim_start().split_once("  ").is_some_and(|(_, text)| !text.trim().is_empty());
            let below = lines.get(index + 1).is_some_and(|next| next.starts_with("          "));
            assert!(beside || below, "`causeway {command}` does not explain {:?}: {help}", line.trim());
        }
    }
    for (command, options) in [
        ("serve", &["--listen", "--gpu", "--key-file", "--log"][..]),
        ("run", &["--on"]),
        ("devices", &["--on"]),
    ] {
        let help = causeway_with(&[command, "--help"]);
        for option in options {
            assert!(help.stdout.contains(option), "`causeway {command}` does not mention {option}: {help}");
        }
    }
}

#[test]
fn mistakes_on_the_command_line_are_explained() {
    for arguments in
        [&["fly"][..], &["serve", "--gpu", "abacus"], &["serve", "--listen", "nowhere"], &["run"]]
    {
        let outcome = causeway_with(arguments);
        assert!(outcome.code().is_some_and(|code| code != 0), "{arguments:?}: {outcome}");
        assert!(!outcome.stderr.is_empty() && outcome.stdout.is_empty(), "{arguments:?}: {outcome}");
        assert!(!outcome.stderr.contains("panicked"), "{arguments:?}: {outcome}");
    }
    let server = Server::start();
    for missing in ["/no/such/program", "/etc/hostname"] {
        let outcome = run(&mut through_run(Some(&server.connect_string()), Path::new(missing)), LIMIT);
        // As a shell says it: 127 for what is not there, 126 for what cannot be started.
        assert!(matches!(outcome.code(), Some(125..=127)), "{outcome}");
        assert!(outcome.stderr.contains(missing) && outcome.stderr.lines().count() == 1, "{outcome}");
    }
    for (variable, value, arguments, code, said) in [
        ("CAUSEWAY_VIA", "foo", &["devices"][..], 2, "'CAUSEWAY_VIA'"),
        ("CAUSEWAY_ON", "", &["devices"], 1, "CAUSEWAY_ON is empty"),
        ("CAUSEWAY_LOG", "", &["devices", "--on", ""], 1, "--on is empty"),
        ("CAUSEWAY_LOG", "", &["run", "--on", "", "--", "true"], 125, "--on is empty"),
    ] {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        let outcome = run(command.args(arguments).env(variable, value), LIMIT);
        assert!(outcome.code() == Some(code) && outcome.stderr.contains(said), "{outcome}");
        assert!(outcome.stdout.is_empty(), "{outcome}");
    }
    // Nobody reads what is printed: the program's exit code stays, and a list ends quietly.
    for (script, code) in [
        ("exec 2>/dev/full; exec \"$0\" run --stats --on \"$1\" -- sh -c 'exit 7'", 7),
        ("exec 2>&-; exec \"$0\" run --stats --on \"$1\" -- sh -c 'exit 7'", 7),
        ("\"$0\" api | true", 0),
    ] {
        let mut command = Command::new("sh");
        forget_environment(&mut command);
        command.args(["-c", script]).arg(causeway()).arg(&*server.connect_string());
        let outcome = run(&mut command, LIMIT);
        assert!(outcome.code() == Some(code) && outcome.stderr.is_empty(), "{script}: {outcome}");
    }
}

#[test]
fn a_value_that_makes_no_sense_is_refused_by_whoever_acts_on_it() {
    let few = ("CAUSEWAY_CORES", "few");
    let wanted = "CAUSEWAY_CORES=few cannot be used: give a number from 1 to 4096";
    let refused = run(Server::command(&OPEN).env(few.0, few.1), LIMIT);
    assert!(refused.code() == Some(1) && refused.stderr.contains(wanted), "{refused}");
    let server = Server::start();
    let program = cuda_program("vector_add");
    let refused = run(through_run(Some(&server.connect_string()), &program).env(few.0, few.1), LIMIT);
    assert!(refused.code() == Some(125) && refused.stderr.contains(wanted), "{refused}");
    for (name, value) in [
        few,
        ("CAUSEWAY_LANES", "foo"),
        ("CAUSEWAY_DEDUP", "maybe"),
        ("CAUSEWAY_LOG", "loud"),
        ("CAUSEWAY_GPUDIRECT", "perhaps"),
        ("CAUSEWAY_BETWEEN_SERVERS", "rdma"),
        ("CAUSEWAY_VERBS_MTU", "1500"),
    ] {
        let refused = run(by_itself(&server.connect_string(), &program).env(name, value), LIMIT);
        let wanted = format!("{name}={value} cannot be used: give ");
        assert_eq!(refused.code(), Some(1), "{refused}");
        assert_eq!(refused.stderr.matches(&wanted).count(), 1, "{refused}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let server = Server::start();
    let address = server.target().to_string();
    let outcome = run(&mut Server::command(&["--listen", &address, "--insecure-no-key"]), LIMIT);
    assert!(outcome.code().is_some_and(|code| code != 0), "{outcome}");
    assert!(outcome.stderr.contains(&address) && !outcome.stderr.contains("panicked"), "{outcome}");
}

#[test]
fn what_says_nothing_or_something_else_is_no_server_and_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let other = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let [silent_at, other_at] =
        [&silent, &other].map(|listener| listener.local_addr().expect("it listens").to_string());
    std::thread::spawn(move || {
        for stream in other.incoming().flatten() {
            // It reads for ever: what it is asked never ends in a line.
            let mut reader = std::io::BufReader::new(&stream);
            let _ = (&stream).write_all(b"SSH-2.0-OpenSSH_9.9\r\n");
            let _ = reader.read_to_end(&mut Vec::new());
        }
    });
    for (address, wanted) in
        [(silent_at, "sent nothing for"), (other_at, "is not a Causeway server (received \"SSH-")]
    {
        for command in [&["devices"][..], &["run", "--", "true"]] {
            let on = format!("causeway://{address}?insecure-no-key");
            let outcome = causeway_with(&[&command[..1], &["--on", &on], &command[1..]].concat());
            assert!(matches!(outcome.code(), Some(1 | 125)) && outcome.stderr.contains(wanted), "{outcome}");
            // On a busy machine it waits longer, and says so.
            let is_reason = |line: &&str| !line.starts_with("causeway: still waiting for a response");
            assert_eq!(outcome.stderr.lines().filter(is_reason).count(), 1, "{outcome}");
        }
    }
}

#[test]
fn a_key_file_is_made_in_a_folder_that_is_there() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let missing = folder.path().join("misspelt");
    let key = missing.join("key");
    let key = key.to_str().expect("temporary folders have simple names");
    let outcome = run(&mut Server::command(&["--listen", "127.0.0.1:0", "--key-file", key]), LIMIT);
    assert!(outcome.code() == Some(1) && outcome.stdout.is_empty(), "{outcome}");
    assert!(outcome.stderr.contains("misspelt") && outcome.stderr.contains("mkdir -p"), "{outcome}");
    assert!(!missing.exists());
}

#[test]
fn an_address_that_is_a_port_alone_is_every_address() {
    let server = Server::start_with(&["--listen", ":0", "--insecure-no-key"]);
    let Endpoint::Tcp { port, .. } = server.target().endpoint else { panic!("{:?}", server.target()) };
    let on = format!("causeway://127.0.0.1:{port}?insecure-no-key");
    causeway_with(&["devices", "--on", &on]).must_succeed();
}

#[test]
fn a_program_without_a_server_is_refused_where_nobody_reads_that_it_has_none() {
    // A machine with a GPU has a server.
    if Path::new("/dev/nvidiactl").exists() {
        return;
    }
    for (arguments, variable, text) in [
        (&["--on", ""][..], None, "is empty"),
        (&[], Some(""), "no server is named"),
        (&[], None, "no server is named"),
    ] {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        command.arg("run").args(arguments).arg(cuda_program("vector_add"));
        command.envs(variable.map(|value| ("CAUSEWAY_ON", value)));
        let outcome = run(&mut command, LIMIT);
        assert!(outcome.code() == Some(125) && outcome.stdout.is_empty(), "{outcome}");
        assert!(outcome.stderr.contains(text) && outcome.stderr.contains("software"), "{outcome}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
    }
}

#[test]
fn libraries_are_found_in_a_folder_beside_the_program() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = folder.path().join("causeway");
    std::fs::copy(causeway(), &program).expect("the program can be copied");
    let mut command = Command::new(&program);
    forget_environment(&mut command);
    let command = command.args(["run", "--on", "software"]).arg(cuda_program("vector_add"));
    let missing = run(command, LIMIT);
    assert!(missing.code() == Some(125) && missing.stderr.contains("causeway-lib"), "{missing}");
    assert!(!missing.stderr.contains("cargo"), "{missing}");
    std::os::unix::fs::symlink(client_library_folder(), folder.path().join("causeway-lib")).expect("a link");
    run(command, LIMIT).must_succeed();
}

#[test]
fn devices_lists_the_software_gpu() {
    let server = Server::start();
    let outcome = causeway_with(&["devices", "--on", &server.connect_string()]).must_succeed();
    for word in ["0", "software", "MiB"] {
        let found = outcome.stdout.to_lowercase().contains(&word.to_lowercase());
        assert!(found || word == "MiB" && outcome.stdout.contains("GiB"), "no {word:?}: {outcome}");
    }
    assert_eq!(outcome.stderr, "");
    server.must_have_workers(0);
}

#[test]
fn api_names_every_function_and_its_counts_add_up() {
    let outcome = causeway_with(&["api"]).must_succeed();
    let words: Vec<_> = outcome.stdout.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    for function in FUNCTIONS {
        assert!(words.contains(&function.symbol), "{} is missing", function.symbol);
    }
    let unsupported =
        FUNCTIONS.iter().filter(|function| matches!(function.kind, Kind::Unsupported { .. })).count();
    for count in [FUNCTIONS.len() - unsupported, unsupported] {
        assert!(words.contains(&count.to_string().as_str()), "the count {count} is missing: {outcome}");
    }
}

#[test]
fn api_lists_the_symbols_that_the_library_exports() {
    // SAFETY: loading the library runs no code of it that needs anything.
    let library = unsafe { libloading::Library::new(causeway_tests::built::client_library()) };
    let library = library.expect("the client library can be loaded");
    for function in FUNCTIONS {
        for symbol in
            [Some(function.symbol), function.per_thread.map(|variant| variant.symbol)].into_iter().flatten()
        {
            // SAFETY: the symbol is looked for, never used.
            let found = unsafe { library.get::<*const ()>(symbol).is_ok() };
            assert!(found, "{symbol} is not exported");
        }
    }
}

#[test]
fn demo_runs_a_program_and_says_what_happened() {
    let program = cuda_program("vector_add");
    let outcome = causeway_with(&["demo", "--", program.to_str().expect("the folder has a plain name")]);
    let outcome = outcome.must_succeed();
    let said = format!("{}{}", outcome.stdout, outcome.stderr).to_lowercase();
    for word in ["pass vector_add", "software", "local", "posted", "called", "bytes"] {
        let found =
            said.contains(word) || word == "bytes" && ["kib", "mib"].iter().any(|unit| said.contains(unit));
        assert!(found, "nothing is said of {word:?}: {outcome}");
    }
}

#[test]
fn run_without_a_server_brings_its_own() {
    let outcome = run(&mut through_run(None, &cuda_program("vector_add")), LIMIT).must_succeed();
    assert_eq!(outcome.stdout.lines().last(), Some("PASS vector_add"), "{outcome}");
    assert_eq!(outcome.stderr, "", "nothing is said unless asked or on trouble");
    let mut command = through_run(None, &cuda_program("exit_codes"));
    assert_eq!(run(command.arg("7"), LIMIT).code(), Some(7));
}

#[test]
fn run_says_what_it_is_asked_to_say() {
    let server = Server::start();
    for target in [None, Some(server.connect_string())] {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        command.args(["run", "--stats", "--verbose", "--on", target.as_deref().unwrap_or("software")]);
        let outcome = run(command.arg(cuda_program("vector_add")), LIMIT).must_succeed();
        assert_eq!(outcome.stdout.lines().last(), Some("PASS vector_add"), "{outcome}");
        for word in ["causeway: ", "software GPU", "posted", "to the device"] {
            assert!(outcome.stderr.contains(word), "nothing is said of {word:?}: {outcome}");
        }
    }
}

#[test]
fn log_lines_can_be_json() {
    let server = Server::start_with(&[&OPEN[..], &["--log", "json"]].concat());
    run(&mut through_run(Some(&server.connect_string()), &cuda_program("vector_add")), LIMIT).must_succeed();
    server.must_have_workers(0);
    let log = server.log();
    assert!(!log.is_empty(), "nothing was logged");
    for line in log.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|value| value.is_object()), "no JSON: {line}");
    }
}

#[test]
fn any_number_of_lanes_carries_copies() {
    let server = Server::start();
    for lanes in ["1", "32", ""] {
        let mut command = through_run(Some(&server.connect_string()), &cuda_program("pinned_memory"));
        run(command.env("CAUSEWAY_LANES", lanes), LIMIT).must_succeed();
    }
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn visible_devices_are_those_that_the_variable_names() {
    let server = Server::start();
    let with = |devices: &str| {
        let mut command = through_run(Some(&server.connect_string()), &cuda_program("vector_add"));
        run(command.env("CUDA_VISIBLE_DEVICES", devices), LIMIT)
    };
    with("0").must_succeed();
    for none in ["", "-1", "7"] {
        let outcome = with(none);
        assert!(
            outcome.code() == Some(1) && outcome.stdout.contains("cudaErrorNoDevice"),
            "{none:?}: {outcome}"
        );
    }
}
