//! Watching a server: metrics, `causeway sessions`, `causeway top`, and ending it by `causeway drain`.

use causeway_api::calls;
use causeway_api::handle::{Context, Handle};
use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::through_run;
use causeway_tests::hostile;
use causeway_tests::process::{Outcome, Running, eventually, run};
use causeway_tests::raw_session::RawSession;
use causeway_tests::server::{Server, forget_environment};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A server that tells metrics, and where.
fn watched(more: &[&str]) -> (Server, u16) {
    let mut arguments = vec!["--listen", "127.0.0.1:0", "--insecure-no-key", "--metrics", "127.0.0.1:0"];
    arguments.extend(more);
    let server = Server::start_with(&arguments);
    server.must_log("serving metrics at http://127.0.0.1:");
    let log = server.log();
    let port = log.split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let port = port.parse().unwrap();
    (server, port)
}

/// Sends a request, and returns the status and the whole answer.
fn http(port: u16, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // One that is hung up on may be told so by a reset.
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer)
}

fn get(port: u16, path: &str) -> (u16, String) {
    http(port, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

/// The value of a sample, or nothing where there is none.
fn sample(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn ask(server: &Server, words: &[&str]) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(words).args(["--on", &server.connect_string()]);
    run(&mut command, LIMIT)
}

#[test]
fn metrics_tell_of_sessions_while_they_run_and_after() {
    let (server, port) = watched(&[]);
    let (status, page) = get(port, "/metrics");
    assert!(status == 200 && page.contains("Content-Type: text/plain; version=0.0.4"), "{page}");
    assert_eq!(sample(&page, "causeway_sessions{transport=\"tcp\"}"), Some(0.0), "{page}");
    let session = RawSession::open(server.target());
    eventually("the session is counted", LIMIT, || {
        sample(&get(port, "/metrics").1, "causeway_sessions_started_total") == Some(1.0)
    });
    drop(session);
    let program = cuda_program("vector_add");
    run(through_run(Some(&server.connect_string()), &program).env("CAUSEWAY_VIA", "tcp"), LIMIT)
        .must_succeed();
    eventually("all has ended and is counted", LIMIT, || {
        let page = get(port, "/metrics").1;
        sample(&page, "causeway_sessions_ended_total{outcome=\"ended\"}") == Some(2.0)
    });
    let page = get(port, "/metrics").1;
    assert!(!page.contains("causeway_session_info"), "nothing is said of clients unless that is asked for");
    let at_least = |name: &str, least: f64| {
        let found = sample(&page, name);
        assert!(found >= Some(least), "{name} is {found:?} and not {least}\n{page}");
    };
    at_least("causeway_launches_total{transport=\"tcp\"}", 1.0);
    at_least("causeway_copy_bytes_total{transport=\"tcp\",direction=\"to_device\"}", 1000.0);
    at_least("causeway_copy_bytes_total{transport=\"tcp\",direction=\"from_device\"}", 1000.0);
    at_least("causeway_commands_total{transport=\"tcp\",kind=\"posted\"}", 1.0);
    at_least("causeway_call_duration_seconds_count{transport=\"tcp\"}", 1.0);
    at_least("causeway_session_start_seconds_count", 2.0);
    at_least("causeway_devices", 1.0);
    at_least("causeway_worker_starts_total", 2.0);
    server.must_be_well();
}

/// The value of each device's sample of a family, by the device's UUID.
fn by_uuid<'a>(page: &'a str, family: &str, label: &str) -> BTreeMap<&'a str, f64> {
    let of_family = |line: &&str| line.strip_prefix(family).is_some_and(|rest| rest.starts_with('{'));
    page.lines()
        .filter(of_family)
        .map(|line| {
            let uuid = line.split_once(&format!("{label}=\"")).unwrap().1.split('"').next().unwrap();
            (uuid, line.rsplit_once(' ').unwrap().1.parse().unwrap())
        })
        .collect()
}

#[test]
fn devices_have_the_names_of_opentelemetry_and_dcgm_where_these_are_asked_for() {
    let (server, port) = watched(&[]);
    eventually("the devices are known", LIMIT, || {
        sample(&get(port, "/metrics").1, "causeway_devices") == Some(1.0)
    });
    let (ours, otel, dcgm) =
        (get(port, "/metrics").1, get(port, "/metrics/otel").1, get(port, "/metrics/dcgm").1);
    let memory = by_uuid(&ours, "causeway_device_memory_bytes", "uuid");
    assert!(memory.len() == 1 && memory.values().all(|bytes| *bytes > 0.0), "{ours}");
    assert_eq!(by_uuid(&otel, "hw_gpu_memory_limit_bytes", "hw_id"), memory, "{otel}");
    let mebibytes: BTreeMap<_, _> =
        memory.iter().map(|(uuid, bytes)| (*uuid, (bytes / f64::from(1 << 20)).floor())).collect();
    assert_eq!(by_uuid(&dcgm, "DCGM_FI_DEV_FB_TOTAL", "UUID"), mebibytes, "{dcgm}");
    assert!(otel.contains("hw_type=\"gpu\"") && dcgm.contains("Hostname=\""), "{otel}{dcgm}");
    assert!(!ours.contains("hw_gpu") && !ours.contains("DCGM"), "each name has a path of its own: {ours}");
    server.must_be_well();
}

#[test]
fn hostile_callers_of_the_metrics_are_hung_up_on_and_others_are_answered() {
    let (server, port) = watched(&[]);
    for (request, wanted) in [
        ("GET /healthz HTTP/1.1\r\n\r\n", 200),
        ("GET /readyz HTTP/1.0\r\n\r\n", 200),
        ("GET /etc/passwd HTTP/1.1\r\n\r\n", 404),
        ("DELETE /metrics HTTP/1.1\r\n\r\n", 400),
        ("CSWY\0\0\0\0\r\n\r\n", 400),
    ] {
        assert_eq!(http(port, request).0, wanted, "{request}");
    }
    let (status, head) = http(port, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(status == 200 && head.ends_with("\r\n\r\n"), "{head}");
    let long = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(20_000));
    assert!(matches!(http(port, &long).0, 431 | 0));
    // Those that say nothing take every place for seconds, and then somebody else has one.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    eventually("somebody is answered beside those who say nothing", LIMIT, || get(port, "/healthz").0 == 200);
    drop(silent);
    server.must_be_well();
}

#[test]
fn a_metrics_port_that_is_taken_or_wrong_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (given, wanted) in [
        (address.as_str(), "choose another port with --metrics"),
        ("127.0.0.1", "it names no port"),
        ("no-such-host.invalid:1", "give HOST:PORT"),
        ("203.0.113.1:9469", "this machine has no such address"),
    ] {
        let outcome = run(
            &mut Server::command(&["--listen", "127.0.0.1:0", "--insecure-no-key", "--metrics", given]),
            LIMIT,
        );
        assert_eq!(outcome.code(), Some(1), "{given}: {outcome}");
        assert!(outcome.stderr.contains(wanted), "{given}: {}", outcome.stderr);
    }
}

#[test]
fn sessions_and_top_tell_whose_sessions_there_are() {
    let (server, port) = watched(&["--metrics-sessions"]);
    let mut hello = hostile::hello();
    (hello.user, hello.job) = ("love\"lace".into(), format!("slurm 7{}", "x".repeat(500)).into());
    let _session = hostile::ask_for_session(server.target(), &hello);
    let listed = ask(&server, &["sessions"]).must_succeed().stdout;
    assert!(
        listed.contains("1 of ") && listed.contains("love\"lace  slurm 7xxxxxxxxxxxxxxxxx~ "),
        "{listed}"
    );
    let told: Value =
        serde_json::from_str(&ask(&server, &["sessions", "--json"]).must_succeed().stdout).unwrap();
    assert_eq!(told["sessions"][0]["process"], std::process::id());
    assert_eq!(told["draining"], false);
    let told = told["sessions"][0].clone();
    assert_eq!((&told["user"], &told["client"]), (&Value::from("love\"lace"), &Value::from("")));
    let job = told["job"].as_str().unwrap().to_owned();
    assert!(job.starts_with("slurm 7x") && job.ends_with("x [cut]") && job.len() == 64, "{job}");
    let by_user = ask(&server, &["sessions", "--by", "user,job", "--json"]).must_succeed().stdout;
    let by_user: Value = serde_json::from_str(&by_user).unwrap();
    assert_eq!((&by_user["by"][0]["user"], &by_user["by"][0]["sessions"]), (&told["user"], &Value::from(1)));
    let metrics = get(port, "/metrics").1;
    assert!(
        metrics.contains("# TYPE causeway_rank_gpudirect_bytes_total counter"),
        "ranks are named, too: {metrics}"
    );
    let info = format!("client=\"\",user=\"love\\\"lace\",job=\"{job}\"}}");
    assert_eq!(
        sample(&metrics, &format!("causeway_session_info{{session={},{info}", told["session"])),
        Some(1.0)
    );
    assert_eq!(sample(&metrics, "causeway_sessions_unnamed"), Some(0.0));
    let page = ask(&server, &["top", "--once", "--interval", "0.1"]).must_succeed().stdout;
    assert!(page.contains("1 of ") && page.contains("Causeway software GPU"), "{page}");
    let line = ask(&server, &["top", "--once", "--json", "--interval", "0.1"]).must_succeed().stdout;
    let told: Value = serde_json::from_str(line.trim()).unwrap();
    assert!(told["devices"][0]["memory_bytes"].as_u64() > Some(0), "{line}");
    assert_eq!(told["sessions"][0]["job"], job, "{line}");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut wrong = Command::new(causeway());
    forget_environment(&mut wrong);
    let outcome = run(
        wrong.args(["top", "--once", "--on", &format!("causeway://127.0.0.1:{nobody}?insecure-no-key")]),
        LIMIT,
    );
    // On a host with ranks of an MPI job the page is shown, with these ranks and the error in it.
    let words = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.code() == Some(1) && words.contains("127.0.0.1"), "{outcome}");
    // Beside one that is there it is reported, and the other one is shown.
    let both = format!("causeway://127.0.0.1:{nobody}?insecure-no-key,{}", server.connect_string());
    for (arguments, shown) in
        [(&["top", "--once"][..], "sessions"), (&["sessions"], "of "), (&["devices"], "software GPU")]
    {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        let outcome = run(command.args(arguments).args(["--on", &both]), LIMIT);
        assert!(outcome.code() == Some(1) && outcome.stdout.contains(shown), "{outcome}");
        assert!(format!("{}{}", outcome.stdout, outcome.stderr).contains(&nobody.to_string()), "{outcome}");
    }
}

#[test]
fn who_may_not_use_a_server_is_not_told_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with_key(&folder.path().join("key"));
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    let address = server.target().to_string();
    let outcome = run(command.args(["sessions", "--on", &address]).env("HOME", folder.path()), LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    ask(&server, &["sessions"]).must_succeed();
}

#[test]
fn a_drained_server_goes_on_with_its_sessions_and_ends_with_the_last() {
    let (server, port) = watched(&[]);
    let mut session = RawSession::open(server.target());
    let context = Handle::<Context>::new(1, 0);
    session.call(&calls::primary_context_retain { context, device: 0, flags: 0 });
    session.context = context.value();
    eventually("the session is listed", LIMIT, || {
        ask(&server, &["sessions"]).must_succeed().stdout.contains("1 of ")
    });
    let told = ask(&server, &["drain", "--no-wait"]).must_succeed().stdout;
    assert!(told.contains("accepts no new sessions; remaining sessions: 1"), "{told}");
    let again = ask(&server, &["drain", "--no-wait"]).must_succeed().stdout;
    assert!(again.contains("is already being drained"), "{again}");
    let (status, why) = get(port, "/readyz");
    assert!(status == 503 && why.contains("drained"), "{why}");
    let refused = run(&mut through_run(Some(&server.connect_string()), &cuda_program("vector_add")), LIMIT);
    assert_ne!(refused.code(), Some(0), "{refused}");
    assert!(refused.stderr.contains("it is being drained"), "{}", refused.stderr);
    assert!(sample(&get(port, "/metrics").1, "causeway_refusals_total{reason=\"draining\"}") >= Some(1.0));
    // The open session works as before.
    let (free, total) = session.call(&calls::cuMemGetInfo_v2 {});
    assert!(free <= total);
    drop(session);
    eventually("the server ends with its last session", LIMIT, || server.has_ended());
    assert!(server.log().contains("stopping: the server is drained"), "{}", server.log());
}

/// The file of the program is replaced while a session is open, as package managers do it.
#[test]
fn a_server_is_upgraded_with_sessions_open() {
    let folder = tempfile::tempdir().unwrap();
    let installed = folder.path().join("causeway");
    let install = |file: &Path| {
        let beside = folder.path().join("causeway.new");
        std::fs::copy(file, &beside).unwrap();
        std::fs::rename(&beside, &installed).unwrap();
    };
    let serve = |listen: &str| {
        let mut command = Command::new(&installed);
        command.args(Server::command(&["--listen", listen, "--insecure-no-key"]).get_args());
        forget_environment(&mut command);
        Server::start_command(command)
    };
    let use_it =
        |on: &str| run(&mut through_run(Some(on), &cuda_program("vector_add")), LIMIT).must_succeed();
    install(causeway());
    let old = serve("127.0.0.1:0");
    let mut session = RawSession::open(old.target());
    // Nothing that could be started as a worker: what the old server starts is its own program.
    install(Path::new("/bin/false"));
    use_it(&old.connect_string());
    install(causeway());
    ask(&old, &["drain", "--no-wait"]).must_succeed();
    let context = Handle::<Context>::new(1, 0);
    session.call(&calls::primary_context_retain { context, device: 0, flags: 0 });
    assert!(!old.has_ended());
    let address = old.target().endpoint.to_string();
    drop(session);
    eventually("the old server ends with its last session", LIMIT, || old.has_ended());
    let new = serve(&address);
    use_it(&new.connect_string());
    new.must_be_well();
}

#[test]
fn sigterm_drains_where_that_is_wished_and_a_second_one_ends() {
    let (server, _) = watched(&["--grace-period", "600"]);
    let _session = RawSession::open(server.target());
    server.signal(Signal::TERM);
    server.must_log("draining: new sessions are refused");
    assert!(!server.has_ended());
    let outcome = server.end_by(Signal::TERM);
    assert_eq!(outcome.code(), Some(0), "{outcome}");
}

#[test]
fn a_limit_ends_the_sessions_that_are_left() {
    let (server, _) = watched(&[]);
    let _session = RawSession::open(server.target());
    eventually("the session is listed", LIMIT, || {
        ask(&server, &["sessions"]).must_succeed().stdout.contains("1 of ")
    });
    let told = ask(&server, &["drain", "--timeout", "1s"]).must_succeed().stdout;
    assert!(told.contains("the server has ended"), "{told}");
    assert!(told.lines().filter(|line| line.contains(" was ended after ")).count() == 1, "{told}");
}

/// `causeway top` in a terminal of tmux, which is resized while it runs.
#[test]
fn top_lives_in_a_terminal_of_any_size() {
    if Command::new("tmux").arg("-V").output().is_err() {
        println!("NOT checked: causeway top in a terminal, for tmux is not installed");
        return;
    }
    let (server, _) = watched(&[]);
    let _session = RawSession::open(server.target());
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tmux");
    let tmux = |words: &[&str]| {
        let mut command = Command::new("tmux");
        forget_environment(&mut command);
        command.arg("-S").arg(&socket).args(words).env("TERM", "xterm-256color");
        run(&mut command, LIMIT)
    };
    let program = causeway().to_str().unwrap().to_owned();
    let shown = format!("{program} top --interval 0.2 --on '{}'; sleep 600", server.connect_string());
    tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "20", &shown]).must_succeed();
    let screen = || tmux(&["capture-pane", "-p"]).stdout;
    eventually("top shows the session", LIMIT, || {
        screen().contains("1 of ") && screen().contains("launch/s")
    });
    for (width, height, wanted) in [("20", "8", "1/"), ("4", "2", "1/"), ("160", "30", "launch/s")] {
        tmux(&["resize-window", "-x", width, "-y", height]).must_succeed();
        eventually(&format!("top fits into {width} x {height}"), LIMIT, || screen().contains(wanted));
    }
    let pid = tmux(&["list-panes", "-F", "#{pane_pid}"]).stdout;
    tmux(&["send-keys", "q"]).must_succeed();
    eventually("q ends it, and the terminal is as before", LIMIT, || !screen().contains("launch/s"));
    assert!(!pid.trim().is_empty());
    let _ = tmux(&["kill-server"]);
    server.must_be_well();
}

/// Commands that do not exist any more when the test ends are killed with it.
#[test]
fn top_without_a_terminal_says_what_to_do() {
    let (server, _) = watched(&[]);
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    let mut top = Running::start(command.args(["top", "--on", &server.connect_string()]));
    let outcome = top.finish(LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stderr.contains("--once"), "{}", outcome.stderr);
}
