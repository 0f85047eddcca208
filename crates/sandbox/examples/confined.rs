//! A process that confines itself and says what it can still do, for `tests/confinement.rs`.
//!
//! `confined WRITABLE FORBIDDEN`: a folder that it may write to, and one whose permissions let everybody in
//! but which it may not reach. One line an attempt: its name, and `done` or why not. `confined threads`: it
//! tries to confine itself with two threads.

use std::fs;
use std::io;
use std::process::ExitCode;
use std::sync::mpsc;

use causeway_sandbox::{Confinement, ConfinementError};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let broker =
        rustix::process::getppid().expect("a test started this").as_raw_nonzero().get().unsigned_abs();
    let mut confinement = Confinement {
        broker,
        user: None,
        groups: Vec::new(),
        files: true,
        writable: Vec::new(),
        calls: true,
        uses_rdma: false,
        hidden: true,
    };
    match arguments.as_slice() {
        [what] if what == "threads" => {
            let (end, ended) = mpsc::channel::<()>();
            let second = std::thread::spawn(move || ended.recv());
            let outcome = confinement.enter();
            drop(end);
            // It ends with an error, as nothing is sent.
            let _ = second.join();
            if matches!(outcome, Err(ConfinementError::Threads(2))) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        [what] if what == "orphan" => {
            confinement.broker = 0;
            if confinement.enter().is_err() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        [writable, forbidden] => {
            confinement.writable = vec![writable.into()];
            match confinement.enter().and_then(|()| say(writable, forbidden, "entered")) {
                Ok(()) => {}
                Err(error) => {
                    eprintln!("{error}");
                    return ExitCode::FAILURE;
                }
            }
            match confinement.close().and_then(|()| say(writable, forbidden, "closed")) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            }
        }
        _ => ExitCode::from(2),
    }
}

fn say(writable: &str, forbidden: &str, when: &str) -> Result<(), ConfinementError> {
    let library = || fs::read_dir("/usr/lib").map(drop);
    let socket = || std::net::TcpListener::bind("127.0.0.1:0").map(drop);
    let thread = || std::thread::Builder::new().spawn(|| ()).map(drop);
    let terminal = || {
        // SAFETY: the request reads one byte, of a literal.
        let status = unsafe { libc::ioctl(0, libc::TIOCSTI, b"x".as_ptr()) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    let attempts: [(&str, io::Result<()>); 10] = [
        ("write", fs::write(format!("{writable}/{when}"), "x")),
        ("rename", fs::rename(format!("{writable}/{when}"), format!("{writable}/{when}-renamed"))),
        ("forbidden", fs::read_dir(forbidden).map(drop)),
        ("forbidden-write", fs::write(format!("{forbidden}/{when}"), "x")),
        ("library", library()),
        ("status", fs::read("/proc/self/status").map(drop)),
        ("name", fs::write(format!("/proc/self/task/{}/comm", rustix::thread::gettid()), when)),
        ("socket", socket()),
        ("thread", thread()),
        ("terminal", terminal()),
    ];
    for (name, outcome) in attempts {
        match outcome {
            Ok(()) => println!("{when} {name} done"),
            Err(error) => println!("{when} {name} {}", error.raw_os_error().unwrap_or_default()),
        }
    }
    Ok(())
}
