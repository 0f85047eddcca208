//! Connections that fail at any point: nothing is lost, doubled, out of order or hung.
//!
//! Programs that count what they do work behind a relay that fails at exact points of the session: at every
//! frame and chunk, at every byte of a connection's handshake, and by schedules of chance.
//! `CAUSEWAY_CHAOS_SEEDS=FIRST..END` takes other schedules, and more of them (`make chaos`).

use causeway_tests::built::causeway;
use causeway_tests::chaos::{Calls, Carries, Chaos, Direction, Fault, Random, Rounds, Schedule, Scope};
use causeway_tests::client::by_itself;
use causeway_tests::process::{Running, eventually};
use causeway_tests::server::{OPEN, Server, children_of, leave_terminal};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a round may take beyond what its faults take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The rounds that are cut behind every frame and chunk, each as it says.
const CUT_ROUNDS: Range<u64> = 1..19;

/// The schedules of chance.
const SCHEDULES: Range<u64> = 0..500;

/// Those of sessions that are encrypted.
const ENCRYPTED_SCHEDULES: Range<u64> = 0..100;

/// Programs that work at the same time.
const PROGRAMS: u64 = 4;

/// The programs of the model that work while connections fail.
const MODEL_PROGRAMS: Range<u64> = 9000..9150;

/// The shortest handshake of a connection in one direction.
const SHORT_HANDSHAKE_BYTES: u64 = 64;

/// The longest handshake of a connection that takes another one's place, and some bytes of frames.
const HANDSHAKE_BYTES: u64 = 128;

const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// A server that gives up no connection since nothing comes: where connections end, nobody may wait for that.
fn patient_server() -> Server {
    Server::start_with(&[OPEN.as_slice(), &["--keepalive-timeout", "0", "--client-timeout", "0"]].concat())
}

/// A program that does not, either.
const PATIENT: [(&str, &str); 1] = [("CAUSEWAY_KEEPALIVE_TIMEOUT", "0")];

/// Past the test harness, which would swallow what a test that passes says.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "chaos: {text}");
}

/// These numbers; or, where `CAUSEWAY_CHAOS_SEEDS` names schedules of chance, as many in proportion, one for
/// each `schedules` of them.
fn numbers(default: Range<u64>, schedules: u64) -> Range<u64> {
    let Ok(text) = std::env::var("CAUSEWAY_CHAOS_SEEDS") else { return default };
    let bounds =
        text.split_once("..").and_then(|(first, end)| Some((first.parse().ok()?, end.parse().ok()?)));
    let (first, end): (u64, u64) = bounds.expect("CAUSEWAY_CHAOS_SEEDS is two numbers with .. between them");
    first / schedules..end.div_ceil(schedules)
}

/// A program behind a relay of its own.
struct Disturbed {
    chaos: Chaos,
    rounds: Rounds,
}

impl Disturbed {
    fn start(server: &Server, variables: &[(&str, &str)]) -> Self {
        let chaos = Chaos::on(server.target());
        Self { rounds: Rounds::start(&chaos, variables), chaos }
    }

    /// What a round gives while nothing fails.
    #[track_caller]
    fn undisturbed(&mut self, seed: u64) -> String {
        self.rounds.work(seed, LIMIT).unwrap_or_else(|error| panic!("round {seed}, undisturbed: {error}"))
    }

    /// Works a round with these faults, which must give this number. How many of the faults did not happen.
    #[track_caller]
    fn must_give(&mut self, seed: u64, expected: &str, schedule: &Schedule) -> usize {
        self.chaos.set(schedule);
        match self.rounds.work(seed, LIMIT) {
            Ok(found) => assert_eq!(found, expected, "round {seed} with {schedule:?}"),
            Err(error) => panic!("round {seed} with {schedule:?}: {error}"),
        }
        let left = self.chaos.left();
        self.chaos.set(&Schedule::default());
        left
    }

    /// Fails behind every end of this in a round, once each, until there are no more. How often that was.
    fn fail_everywhere(&mut self, of: Carries, direction: Direction, seed: u64, fault: &Fault) -> u64 {
        let expected = self.undisturbed(seed);
        let (mut happened, mut fruitless) = (0, 0);
        for ends in 1.. {
            // Behind some bytes of what follows, too: headers are cut in two.
            for bytes in [0, 7] {
                let schedule = Schedule::one(of, direction, ends, bytes, fault.clone());
                let has_happened = self.must_give(seed, &expected, &schedule) == 0;
                (happened, fruitless) =
                    if has_happened { (happened + 1, 0) } else { (happened, fruitless + 1) };
            }
            if fruitless >= 4 {
                break;
            }
        }
        happened
    }

    /// Ends the program, once its connections work again.
    fn finish(mut self) -> Duration {
        self.undisturbed(1);
        let longest = self.rounds.longest();
        self.rounds.finish(LIMIT);
        longest
    }
}

/// How each round is disturbed behind its every frame and chunk.
fn fault_of(seed: u64) -> Fault {
    match seed % 5 {
        0 => Fault::Cut(Scope::This),
        1 => Fault::Cut(Scope::All),
        2 => Fault::Reset(Scope::All),
        3 => Fault::HalfClose,
        _ => Fault::Cut(Scope::Lanes),
    }
}

/// Does this with each number on a few threads.
fn in_parallel(numbers: Range<u64>, each: impl Fn(&mut dyn Iterator<Item = u64>) + Sync) {
    let next = AtomicU64::new(numbers.start);
    std::thread::scope(|scope| {
        for _ in 0..PROGRAMS {
            scope.spawn(|| {
                let take =
                    || Some(next.fetch_add(1, Ordering::SeqCst)).filter(|number| *number < numbers.end);
                each(&mut std::iter::from_fn(take));
            });
        }
    });
}

#[test]
fn a_program_computes_the_same_wherever_its_session_is_cut() {
    let server = patient_server();
    let happened = AtomicU64::new(0);
    in_parallel(numbers(CUT_ROUNDS, 25), |seeds| {
        for seed in seeds {
            let mut program = Disturbed::start(&server, &PATIENT);
            let fault = fault_of(seed);
            for of in [Carries::Frames, Carries::Lane] {
                for direction in DIRECTIONS {
                    let count = program.fail_everywhere(of, direction, seed, &fault);
                    happened.fetch_add(count, Ordering::SeqCst);
                }
            }
            say(&format!("round {seed}, {fault:?}: the longest took {:.2?}", program.finish()));
        }
    });
    let (happened, rounds) = (happened.into_inner(), numbers(CUT_ROUNDS, 25));
    say(&format!("rounds {rounds:?}: {happened} points of failure"));
    assert!(happened > 50 * (rounds.end - rounds.start), "{happened} points of failure");
    assert!(server.log().contains("resumed after"), "{}", server.log());
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn a_connection_that_fails_while_it_takes_the_place_of_another_is_made_again() {
    let server = patient_server();
    in_parallel(0..2 * HANDSHAKE_BYTES / 16, |numbers| {
        let mut program = Disturbed::start(&server, &PATIENT);
        let expected = program.undisturbed(5);
        for number in numbers {
            let direction = DIRECTIONS[(number % 2) as usize];
            for bytes in number / 2 * 16..(number / 2 + 1) * 16 {
                let fault = if bytes % 3 == 0 { Fault::HalfClose } else { Fault::Cut(Scope::This) };
                let schedule = Schedule::one(
                    Carries::Frames,
                    Direction::ToServer,
                    4,
                    0,
                    Fault::Cut(Scope::All),
                )
                .then(Carries::Handshake, direction, 1, bytes, fault);
                let left = program.must_give(5, &expected, &schedule);
                // What has come when the round is over may be no longer than this.
                assert!(left == 0 || left == 1 && bytes >= SHORT_HANDSHAKE_BYTES, "{left} of {schedule:?}");
            }
        }
        say(&format!("handshakes: the longest took {:.2?}", program.finish()));
    });
    server.must_have_workers(0);
    server.must_be_well();
}

/// Stops processes for a while.
fn stops(
    name: &'static str,
    which: impl Fn() -> Vec<u32> + Send + Sync + 'static,
) -> (&'static str, Arc<dyn Fn() + Send + Sync>) {
    let stop = move || {
        let processes: Vec<_> = which().into_iter().filter_map(|pid| Pid::from_raw(pid as i32)).collect();
        for (signal, time) in [(Signal::STOP, 80), (Signal::CONT, 0)] {
            // One may have ended.
            for pid in &processes {
                let _ = kill_process(*pid, signal);
            }
            std::thread::sleep(Duration::from_millis(time));
        }
    };
    (name, Arc::new(stop))
}

#[test]
fn a_program_computes_the_same_whatever_fails_in_whatever_order() {
    let server = patient_server();
    let broker = server.pid();
    let happened = AtomicU64::new(0);
    // So that few have many: each program works some schedules.
    let schedules = numbers(SCHEDULES, 1);
    let groups = (schedules.end - schedules.start).div_ceil(50);
    in_parallel(0..groups, |groups| {
        for group in groups {
            let mut program = Disturbed::start(&server, &PATIENT);
            let client = program.rounds.pid();
            let calls: Calls = vec![
                stops("StopClient", move || vec![client]),
                stops("StopWorkers", move || children_of(broker)),
            ];
            let first = schedules.start + group * 50;
            for seed in first..schedules.end.min(first + 50) {
                let expected = program.undisturbed(seed);
                let schedule = Random::new(seed).schedule(&calls);
                program.must_give(seed, &expected, &schedule);
            }
            happened.fetch_add(program.chaos.happened(), Ordering::SeqCst);
            say(&format!("schedules from {first} on: the longest took {:.2?}", program.finish()));
        }
    });
    let happened = happened.into_inner();
    say(&format!("schedules {schedules:?}: {happened} faults happened"));
    assert!(happened > schedules.end - schedules.start, "{happened} faults happened");
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn a_program_computes_the_same_though_encrypted_connections_fail() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with_key(&folder.path().join("key"));
    let schedules = numbers(ENCRYPTED_SCHEDULES, 5);
    let happened = AtomicU64::new(0);
    in_parallel(0..PROGRAMS, |numbers| {
        for number in numbers {
            let mut program = Disturbed::start(&server, &[]);
            for seed in schedules.clone().filter(|seed| seed % PROGRAMS == number) {
                let expected = program.undisturbed(seed);
                program.must_give(seed, &expected, &Random::new(seed).schedule(&Calls::new()).unread());
            }
            happened.fetch_add(program.chaos.happened(), Ordering::SeqCst);
            say(&format!("encrypted: the longest took {:.2?}", program.finish()));
        }
    });
    assert!(happened.into_inner() > schedules.end - schedules.start);
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn a_program_computes_the_same_though_connections_fall_silent() {
    let timeouts = ["--keepalive-timeout", "3", "--client-timeout", "3"];
    let server = Server::start_with(&[OPEN.as_slice(), &timeouts].concat());
    // Connections that come later work.
    let silent = |scope| Fault::Stall(scope, Duration::from_secs(3600));
    let at = |of, ends, scope| move |direction| Schedule::one(of, direction, ends, 0, silent(scope));
    let in_handshake = |ends| {
        move |direction| {
            Schedule::one(Carries::Frames, direction, 2, 0, Fault::Cut(Scope::All)).then(
                Carries::Handshake,
                direction,
                ends,
                3,
                silent(Scope::This),
            )
        }
    };
    let scenes: [Box<dyn Fn(Direction) -> Schedule>; 7] = [
        Box::new(at(Carries::Frames, 3, Scope::All)),
        Box::new(at(Carries::Frames, 3, Scope::This)),
        Box::new(at(Carries::Lane, 2, Scope::This)),
        Box::new(at(Carries::Lane, 2, Scope::Lanes)),
        Box::new(in_handshake(1)),
        Box::new(in_handshake(2)),
        Box::new(in_handshake(4)),
    ];
    std::thread::scope(|threads| {
        for (number, schedule) in (1..).zip(scenes.iter().flat_map(|scene| DIRECTIONS.map(scene))) {
            let server = &server;
            threads.spawn(move || {
                let mut program = Disturbed::start(server, &[("CAUSEWAY_KEEPALIVE_TIMEOUT", "3")]);
                let expected = program.undisturbed(number);
                assert_eq!(program.must_give(number, &expected, &schedule), 0, "{schedule:?}");
                say(&format!("{schedule:?}: the round took {:.2?}", program.finish()));
            });
        }
    });
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn a_program_computes_the_same_though_the_server_is_replaced_while_connections_are_away() {
    let mut command = Server::command(&OPEN);
    leave_terminal(&mut command);
    let server = Server::start_command(command);
    let mut programs = [0, 1].map(|_| Disturbed::start(&server, &[]));
    for number in 1..4 {
        for program in &mut programs {
            let expected = program.undisturbed(number);
            let away = Fault::Away(Duration::from_secs(1));
            program.chaos.set(&Schedule::one(Carries::Frames, Direction::ToServer, 3, 0, away));
            let replaced = || server.log().matches("a new server accepts connections").count();
            let before = replaced();
            let found = program.rounds.work_beside(number, LIMIT, || {
                server.signal(Signal::HUP);
                eventually("a new server serves", LIMIT, || replaced() > before);
            });
            assert_eq!(found.as_ref(), Ok(&expected), "round {number}");
        }
    }
    for program in programs {
        program.finish();
    }
    server.must_be_well();
}

#[test]
fn random_programs_are_in_order_though_connections_fail() {
    // The program kills the process that has the session.
    let server = Server::start_with(&[OPEN.as_slice(), &["--resume-timeout", "5"]].concat());
    let chaos = Chaos::on(server.target());
    let mut command =
        by_itself(&chaos.target().connect_string(), &causeway().with_file_name("causeway-model"));
    let Range { start, end } = numbers(MODEL_PROGRAMS, 3);
    command.args(["--seeds", &format!("{start}..{end}"), "--reduce", "0"]);
    command.env("CAUSEWAY_VIA", "tcp").env("CAUSEWAY_LANES", "2").env("CAUSEWAY_RESUME_TIMEOUT", "60");
    let mut model = Running::start(&mut command);
    let mut random = Random::new(start);
    // A session is not resumed before it has begun.
    while chaos.sessions() == 0 && !model.has_exited() {
        std::thread::sleep(Duration::from_millis(10));
    }
    while !model.has_exited() {
        chaos.set(&random.schedule(&Calls::new()));
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(5));
            if chaos.left() == 0 {
                break;
            }
        }
    }
    let outcome = model.finish(LIMIT).must_succeed();
    say(&format!("{}, {} faults happened", outcome.stdout.trim(), chaos.happened()));
    // How many depends on how long the programs take: about one for each of them.
    assert!(chaos.happened() > (end - start) / 2, "{} faults happened", chaos.happened());
    server.must_have_workers(0);
    server.must_be_well();
}
