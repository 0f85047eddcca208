//! What ends with what: programs, workers and servers that stop, are stopped, or are killed.

use causeway_api::calls;
use causeway_api::handle::Handle;
use causeway_api::image::Form;
use causeway_api::types::{JitOptions, LaunchShape, Payload};
use causeway_tests::built::cuda_program;
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::process::{Outcome, Running, eventually};
use causeway_tests::raw_session::RawSession;
use causeway_tests::server::{Server, WORKER_TIMEOUT, children_of, is_alive};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::time::Duration;

/// How long a program may take to start.
const START: Duration = Duration::from_secs(60);

/// How long a program whose server or worker is gone may go on: 5 s are promised; this machine may be busy.
const NOTICE: Duration = Duration::from_secs(10);

/// A program that works until it is stopped, once its kernels run.
fn working(server: &Server) -> Running {
    let running = Running::start(&mut by_itself(&server.connect_string(), &cuda_program("long_run")));
    running.must_print("running", START);
    running
}

/// Asserts that a program gets a CUDA error instead of waiting for ever.
#[track_caller]
fn must_get_an_error(mut program: Running) -> Outcome {
    let outcome = program.finish(NOTICE);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(
        outcome.stdout.contains("FAIL long_run: ") && outcome.stdout.contains("returned cudaError"),
        "{outcome}"
    );
    let said: Vec<_> = outcome.stderr.lines().collect();
    assert!(
        matches!(said.as_slice(), [line] if line.starts_with("causeway: ")),
        "one line must be said: {outcome}"
    );
    outcome
}

#[track_caller]
fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id is a positive number");
    kill_process(pid, Signal::KILL).expect("the process runs");
}

#[track_caller]
fn only_worker(server: &Server) -> u32 {
    match server.workers().as_slice() {
        [worker] => *worker,
        others => panic!("the server has the workers {others:?} instead of one"),
    }
}

#[test]
fn what_the_driver_reads_from_the_environment_reaches_the_worker() {
    // Nobody but root reads the environment of a confined worker.
    let server = Server::start_with(&["--listen", "127.0.0.1:0", "--sandbox", "off"]);
    let mut command = by_itself(&server.connect_string(), &cuda_program("long_run"));
    command.env("CUDA_DEVICE_MAX_CONNECTIONS", "3").env("LD_BIND_NOT", "1");
    let running = Running::start(&mut command);
    running.must_print("running", START);
    let environment = std::fs::read(format!("/proc/{}/environ", only_worker(&server))).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("CUDA_DEVICE_MAX_CONNECTIONS=3") && !environment.contains("LD_BIND_NOT"));
}

#[test]
fn a_killed_server_is_an_error_to_its_programs_and_leaves_no_worker() {
    let server = Server::start();
    let programs = [working(&server), working(&server)];
    let workers = server.workers();
    assert_eq!(workers.len(), 2);
    server.kill();
    programs.into_iter().for_each(|program| drop(must_get_an_error(program)));
    eventually("no worker is left", WORKER_TIMEOUT, || !workers.iter().any(|worker| is_alive(*worker)));
}

#[test]
fn a_killed_worker_is_an_error_to_its_own_program_only() {
    let server = Server::start();
    let program = working(&server);
    let worker = only_worker(&server);
    let mut other = working(&server);
    kill(worker);
    must_get_an_error(program);
    assert!(!other.has_exited(), "{}", other.finish(Duration::ZERO));
    Running::start(&mut through_run(Some(&server.connect_string()), &cuda_program("vector_add")))
        .finish(START)
        .must_succeed();
    server.must_have_workers(1);
}

#[test]
fn a_killed_program_leaves_no_worker() {
    let server = Server::start();
    let program = working(&server);
    only_worker(&server);
    program.signal(Signal::KILL);
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn a_killed_program_leaves_no_worker_while_its_child_sleeps() {
    let server = Server::start();
    let client = Path::new(env!("CARGO_BIN_EXE_forking_client"));
    let program = Running::start(&mut by_itself(&server.connect_string(), client));
    let child =
        program.find(START, |text| text.strip_prefix("child ")?.strip_suffix('\n')?.parse::<u32>().ok());
    let child = child.unwrap_or_else(|| panic!("no child: {}", program.stderr()));
    only_worker(&server);
    program.signal(Signal::KILL);
    server.must_have_workers(0);
    assert!(is_alive(child), "the child must still sleep, or this test shows nothing");
    server.must_be_well();
}

#[test]
fn a_kernel_that_never_ends_goes_with_its_client() {
    const ENDLESS: &str =
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry endless() {\nagain: bra again;\n}\n";
    let server = Server::start();
    let mut client = RawSession::open(server.target());
    let (context, module, function) = (Handle::new(1, 0), Handle::new(1, 0), Handle::new(1, 0));
    client.call(&calls::primary_context_retain { context, device: 0, flags: 0 });
    client.context = context.value();
    let image = Payload::Inline(ENDLESS.as_bytes());
    client.call(&calls::module_load {
        module,
        form: Form::Single.number(),
        options: JitOptions::default(),
        image,
    });
    client.call(&calls::module_function { function, module, name: "endless" });
    let shape = LaunchShape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
    let stream = Handle::NULL;
    client.call(&calls::launch { function, shape, stream, attributes: Vec::new(), params: &[] });
    client.begin(&calls::context_synchronize {});
    drop(client);
    server.must_have_workers(0);
}

#[test]
fn a_program_that_ends_leaves_no_worker() {
    let server = Server::start();
    for arguments in [&["0"][..], &["7"], &["signal", "9"], &["signal", "15"]] {
        let mut command = by_itself(&server.connect_string(), &cuda_program("exit_codes"));
        Running::start(command.args(arguments)).finish(START);
        server.must_have_workers(0);
    }
    server.must_be_well();
}

#[test]
fn sigterm_and_ctrl_c_end_a_server_with_0_and_leave_no_worker() {
    for signal in [Signal::TERM, Signal::INT] {
        let outcome = Server::start().end_by(signal);
        assert_eq!(outcome.code(), Some(0), "{outcome}");

        let server = Server::start();
        let program = working(&server);
        let worker = only_worker(&server);
        let outcome = server.end_by(signal);
        assert_eq!(outcome.code(), Some(0), "{outcome}");
        assert!(!is_alive(worker), "a worker is left");
        let outcome = must_get_an_error(program);
        assert!(outcome.stderr.contains("the server is being stopped"), "{outcome}");
    }
}

#[test]
fn exit_statuses_and_signals_come_through() {
    let server = Server::start();
    let run = |arguments: &[&str]| {
        let mut command = through_run(Some(&server.connect_string()), &cuda_program("exit_codes"));
        Running::start(command.args(arguments)).finish(START)
    };
    for status in [0, 1, 7, 125, 255] {
        let outcome = run(&[&status.to_string()]);
        assert_eq!(outcome.code(), Some(status), "{outcome}");
        assert_eq!(outcome.stdout, "ending as asked\n");
        assert_eq!(outcome.stderr, "");
    }
    for signal in [6, 9, 11, 15] {
        let outcome = run(&["signal", &signal.to_string()]);
        assert_eq!(outcome.signal(), Some(signal), "{outcome}");
    }
}

#[test]
fn signals_to_causeway_run_reach_the_program() {
    let server = Server::start();
    let mut program =
        Running::start(&mut through_run(Some(&server.connect_string()), &cuda_program("long_run")));
    program.must_print("running", START);
    program.signal(Signal::TERM);
    let outcome = program.finish(NOTICE);
    assert_eq!(outcome.signal(), Some(15), "{outcome}");
    server.must_have_workers(0);
}

#[test]
fn a_private_server_ends_with_its_program() {
    let mut run = Running::start(&mut through_run(None, &cuda_program("long_run")));
    run.must_print("running", START);
    let processes = children_of(run.pid());
    assert_eq!(processes.len(), 2, "the program and its worker");
    run.signal(Signal::TERM);
    let outcome = run.finish(NOTICE);
    assert_eq!(outcome.signal(), Some(15), "{outcome}");
    assert!(!processes.iter().any(|process| is_alive(*process)), "something is left");
}

#[test]
fn a_killed_private_server_is_an_error_to_its_program() {
    let mut run = Running::start(&mut through_run(None, &cuda_program("long_run")));
    run.must_print("running", START);
    let processes = children_of(run.pid());
    run.signal(Signal::KILL);
    eventually("program and worker have ended", NOTICE, || {
        !processes.iter().any(|process| is_alive(*process))
    });
    let outcome = run.finish(NOTICE);
    assert!(outcome.stdout.contains("FAIL long_run: "), "{outcome}");
}

#[test]
fn many_programs_at_once_are_served() {
    let server = Server::start();
    let start = || Running::start(&mut by_itself(&server.connect_string(), &cuda_program("vector_add")));
    for mut program in (0..20).map(|_| start()).collect::<Vec<_>>() {
        program.finish(START).must_succeed();
    }
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn two_programs_of_four_threads_each_do_not_disturb_each_other() {
    let server = Server::start();
    let start =
        || Running::start(&mut through_run(Some(&server.connect_string()), &cuda_program("concurrent")));
    for _ in 0..2 {
        for mut program in [start(), start()] {
            program.finish(START).must_succeed();
        }
    }
    server.must_have_workers(0);
    server.must_be_well();
}
