//! What a process inherits and what its machine is like: the same happens as without Causeway.

use causeway_tests::built::cuda_program;
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::{OPEN, Server};
use rustix::process::Signal;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Has a command start with a signal ignored.
fn ignoring(command: &mut Command, signal: i32) -> &mut Command {
    // SAFETY: between fork and exec one async-signal-safe call is made.
    unsafe {
        command.pre_exec(move || {
            libc::signal(signal, libc::SIG_IGN);
            Ok(())
        })
    }
}

/// A shell with this script, with a private server.
fn shell(script: &str) -> Command {
    let mut command = through_run(None, Path::new("/bin/sh"));
    command.args(["-c", script]);
    command
}

/// The signals that a process ignores, as the kernel says it.
fn ignored(outcome: &Outcome) -> u64 {
    let line =
        outcome.stdout.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("the kernel says it");
    u64::from_str_radix(line.trim(), 16).expect("it is a number")
}

#[test]
fn run_gives_back_the_exit_code_where_sigchld_is_ignored() {
    let outcome = run(ignoring(&mut shell("exit 7"), libc::SIGCHLD), LIMIT);
    assert_eq!(outcome.code(), Some(7), "{outcome}");
}

#[test]
fn program_inherits_what_causeway_run_has_inherited() {
    let mut command = shell("grep SigIgn /proc/self/status; ulimit -Sn");
    ignoring(&mut command, libc::SIGPIPE);
    // SAFETY: between fork and exec async-signal-safe calls are made.
    unsafe {
        command.pre_exec(|| {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            limit.rlim_cur = 600.min(limit.rlim_max);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            Ok(())
        });
    }
    let outcome = run(&mut command, LIMIT).must_succeed();
    let ignored = ignored(&outcome);
    let is_ignored = |signal: i32| ignored >> (signal - 1) & 1 == 1;
    assert!(
        is_ignored(libc::SIGPIPE) && !is_ignored(libc::SIGXFSZ) && !is_ignored(libc::SIGCHLD),
        "{outcome}"
    );
    assert!(outcome.stdout.lines().any(|line| line == "600"), "{outcome}");
}

#[test]
fn timer_ends_the_program_and_not_causeway_run() {
    let mut command = shell("while :; do sleep 1; done");
    // SAFETY: between fork and exec one async-signal-safe call is made.
    unsafe {
        command.pre_exec(|| {
            libc::alarm(2);
            Ok(())
        });
    }
    // Whoever ended, it was by this signal; had it been `causeway run` itself, the program would be left.
    let outcome = run(&mut command, LIMIT);
    assert_eq!(outcome.signal(), Some(libc::SIGALRM), "{outcome}");
    assert!(!outcome.stderr.contains("Alarm clock"), "{outcome}");
}

#[test]
fn server_learns_how_workers_end_where_sigchld_is_ignored() {
    let mut command = Server::command(&OPEN);
    ignoring(&mut command, libc::SIGCHLD);
    let server = Server::start_command(command);
    let program = cuda_program("first_kernel");
    run(&mut by_itself(&server.connect_string(), &program), LIMIT).must_succeed();
    server.must_have_workers(0);
    let outcome = server.end_by(Signal::TERM);
    assert_eq!(outcome.code(), Some(0), "{outcome}");
    assert!(!outcome.stderr.contains("could not be waited for"), "{outcome}");
}

#[test]
fn programs_run_under_a_limit_of_file_sizes() {
    let program = cuda_program("pinned_memory");
    let outcome = run(&mut shell(&format!("ulimit -f 64; exec {}", program.display())), LIMIT);
    outcome.must_succeed();
}

#[test]
fn folders_with_long_names_have_sockets_too() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("long".repeat(40));
    std::fs::create_dir(&folder).unwrap();
    let program = cuda_program("first_kernel");
    run(through_run(None, &program).env("XDG_RUNTIME_DIR", &folder), LIMIT).must_succeed();
    let socket = folder.join("server.sock");
    let server = Server::start_with(&["--listen", &format!("unix:{}", socket.display())]);
    run(&mut by_itself(&server.connect_string(), &program), LIMIT).must_succeed();
    server.must_have_workers(0);
    assert!(socket.exists());
}

/// Moments of a process, and ends that it may come to at each of them, with the signal that ends it, if one does.
const MOMENTS: [&str; 6] = ["start", "working", "waiting", "callback", "at_exit", "destructor"];
const ENDS: [(&str, Option<i32>); 19] = [
    ("exit", None),
    ("_exit", None),
    ("quick_exit", None),
    ("abort", Some(libc::SIGABRT)),
    ("signal", Some(libc::SIGTERM)),
    ("exec", None),
    ("fork", None),
    ("vfork", None),
    ("pthread_exit", None),
    ("pthread_cancel", None),
    ("dlclose", None),
    ("streams", None),
    ("files", None),
    ("descriptors", None),
    ("memory", None),
    ("threads", None),
    ("setuid", None),
    ("chroot", None),
    ("unshare", None),
];

/// Whether C leaves open what happens: `exit` may be called once, and starts nothing anew.
fn is_undefined(moment: &str, end: &str) -> bool {
    matches!((moment, end), ("at_exit" | "destructor", "exit" | "quick_exit" | "fork"))
}

/// Names of what lies in the memory that all processes share.
fn shared_files() -> Vec<std::ffi::OsString> {
    let found = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    found.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().contains("causeway")).collect()
}

/// One process, of which this says what is wrong with it.
fn end_at(server: &str, moment: &str, (end, signal): (&str, Option<i32>), via: &str) -> Option<String> {
    let mut command = by_itself(server, &cuda_program("process_life"));
    let outcome = run(command.args([moment, end]).env("CAUSEWAY_VIA", via), LIMIT);
    let expected = (signal.is_none().then_some(3), signal);
    // Without memory a program may be ended by whoever needs some; the C library does so with 127.
    let lacks_memory = outcome.signal() == Some(libc::SIGABRT) || outcome.code() == Some(127);
    let is_right = (outcome.code(), outcome.signal()) == expected || end == "memory" && lacks_memory;
    let is_wrong = !is_right || outcome.stderr.contains("panicked");
    is_wrong.then(|| format!("{end} at {moment} over {via}: {outcome}"))
}

#[test]
fn processes_end_in_every_way_at_every_moment() {
    let (server, before) = (Server::start(), shared_files());
    let connect_string = server.connect_string();
    let all: Vec<_> = MOMENTS
        .into_iter()
        .flat_map(|moment| ENDS.map(|end| (moment, end)))
        .filter(|(moment, (end, _))| !is_undefined(moment, end))
        .flat_map(|(moment, end)| [(moment, end, "shm"), (moment, end, "tcp")])
        .collect();
    let at_once = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some((moment, end, via)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    wrong.lock().unwrap().extend(end_at(&connect_string, moment, *end, via));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    server.must_have_workers(0);
    server.must_be_well();
    assert_eq!(shared_files(), before);
}
