//! A worker that has come to run foreign code, for tests of the sandbox: once it is confined as every worker
//! is, it tries what such code would try, and tells its client how each attempt ended.
//!
//! The program name that its client gives says what to try, with blanks between the words: `key FILE`, `trace
//! PROCESS`, `memory BYTES`, and others without more words. The answer is the snapshot of the welcome, one
//! line an attempt: its name, and `done` or why it was refused. An attempt for memory comes after the
//! welcome, since it may end the process.

use std::fs::File;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Command, ExitCode};

use causeway_server::worker_process::WorkerStart;

fn main() -> ExitCode {
    let mut start = match WorkerStart::receive(causeway_server::worker::prepare) {
        Ok(start) => start,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = start.confine() {
        eprintln!("{error}");
        return ExitCode::from(3);
    }
    let program = start.hello().program.clone();
    let mut words = program.split(' ');
    let (what, argument) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
    let result = match what {
        "memory" => "the welcome comes first\n".to_owned(),
        _ => attempts(what, &argument),
    };
    let (link, mut receiver, _) =
        start.welcome(result.into_bytes()).expect("the client waits for its welcome");
    if what == "memory" {
        let bytes = argument.parse().expect("a number of bytes");
        let text = line("memory", use_memory(bytes));
        // A client that has gone has learnt nothing, which its test notices.
        let _ = link.send(|out| out.extend_from_slice(text.as_bytes()));
    }
    // Until the client goes.
    while receiver.recv().is_ok() {}
    ExitCode::SUCCESS
}

fn line(name: &str, outcome: io::Result<()>) -> String {
    match outcome {
        Ok(()) => format!("{name}: done\n"),
        Err(error) => format!("{name}: {error}\n"),
    }
}

fn attempts(what: &str, argument: &str) -> String {
    let attempts: Vec<(&str, io::Result<()>)> = match what {
        "key" => vec![
            ("read", File::open(argument).map(drop)),
            ("write", File::options().write(true).open(argument).map(drop)),
            ("remove", std::fs::remove_file(argument)),
            ("list", std::fs::read_dir(parent(argument)).map(drop)),
            ("leave", File::create_new(format!("{argument}-new")).map(drop)),
        ],
        "trace" => trace(argument),
        "open" => open(),
        "program" => programs(),
        "itself" => {
            return std::fs::read_to_string("/proc/self/status").expect("a process reads its own status");
        }
        other => panic!("nobody knows how to try `{other}`"),
    };
    attempts.into_iter().map(|(name, outcome)| line(name, outcome)).collect()
}

fn parent(path: &str) -> &std::path::Path {
    std::path::Path::new(path).parent().expect("a file lies in a folder")
}

/// What a system call returns, as a result.
fn outcome(status: i64) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn trace(process: &str) -> Vec<(&'static str, io::Result<()>)> {
    let number: libc::pid_t = process.parse().expect("a process id");
    let mut bytes = [0_u8; 8];
    let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let there = libc::iovec { iov_base: 0x40_0000 as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: these calls take numbers, and two locals that say where bytes go; what they do to another
    // process is the test.
    unsafe {
        vec![
            ("attach", outcome(libc::ptrace(libc::PTRACE_ATTACH, number, 0, 0))),
            ("seize", outcome(libc::ptrace(libc::PTRACE_SEIZE, number, 0, 0))),
            (
                "read",
                outcome(libc::process_vm_readv(number, &raw const here, 1, &raw const there, 1, 0) as i64),
            ),
            ("memory", File::options().read(true).write(true).open(format!("/proc/{process}/mem")).map(drop)),
            ("maps", std::fs::read(format!("/proc/{process}/maps")).map(drop)),
            ("environment", std::fs::read(format!("/proc/{process}/environ")).map(drop)),
            ("descriptor", File::open(format!("/proc/{process}/fd/0")).map(drop)),
            ("kill", outcome(libc::kill(number, libc::SIGSTOP).into())),
            ("pidfd", outcome(libc::syscall(libc::SYS_pidfd_open, number, 0))),
        ]
    }
}

fn open() -> Vec<(&'static str, io::Result<()>)> {
    let name = SocketAddr::from_abstract_name("causeway-hostile").expect("a short name");
    let raw = |domain, kind, protocol| {
        // SAFETY: the call takes numbers.
        let descriptor = unsafe { libc::socket(domain, kind, protocol) };
        outcome(descriptor.into())?;
        // SAFETY: made just now, and nobody else's.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        Ok(())
    };
    vec![
        ("listen", TcpListener::bind("127.0.0.1:0").map(drop)),
        ("udp", UdpSocket::bind("127.0.0.1:0").map(drop)),
        ("unix", UnixListener::bind_addr(&name).map(drop)),
        ("pair", UnixStream::pair().map(drop)),
        ("stream", raw(libc::AF_INET, libc::SOCK_STREAM, 0)),
        ("local", raw(libc::AF_UNIX, libc::SOCK_STREAM, 0)),
        ("netlink", raw(libc::AF_NETLINK, libc::SOCK_RAW, 0)),
        ("packet", raw(libc::AF_PACKET, libc::SOCK_RAW, 0)),
        ("vsock", raw(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
        ("ring", {
            let mut parameters = [0_u8; 120];
            // SAFETY: the parameters have 120 bytes (`linux/io_uring.h`).
            outcome(unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) })
        }),
    ]
}

fn programs() -> Vec<(&'static str, io::Result<()>)> {
    let memory = || -> io::Result<()> {
        // A program that came over the wire would be one in memory.
        let memory = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::empty())?;
        let mut file = File::from(memory);
        io::copy(&mut File::open("/proc/self/exe")?, &mut file)?;
        let (nothing, arguments) = (c"".as_ptr(), [core::ptr::null::<libc::c_char>()]);
        // SAFETY: the strings and the list end with a null; the call returns only if it fails.
        outcome(unsafe {
            libc::syscall(
                libc::SYS_execveat,
                file.as_raw_fd(),
                nothing,
                arguments.as_ptr(),
                arguments.as_ptr(),
                libc::AT_EMPTY_PATH,
            )
        })
    };
    let fork = || -> io::Result<()> {
        // SAFETY: the child ends at once.
        match unsafe { libc::syscall(libc::SYS_fork) } {
            // SAFETY: ends the child without running anything of the parent's.
            0 => unsafe { libc::_exit(0) },
            status => outcome(status),
        }
    };
    vec![
        ("spawn", Command::new("/bin/true").status().map(drop)),
        ("shell", Command::new("/bin/sh").args(["-c", "true"]).status().map(drop)),
        ("fork", fork()),
        ("memory", memory()),
        // SAFETY: the call takes a number, and new rights would be the test.
        ("namespace", outcome(unsafe { libc::unshare(libc::CLONE_NEWUSER) }.into())),
        ("thread", std::thread::Builder::new().spawn(|| ()).map(drop)),
    ]
}

/// Takes memory and writes to each page of it, as shared memory too, which lies in no heap.
fn use_memory(bytes: usize) -> io::Result<()> {
    let file = File::from(rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::empty())?);
    let page = vec![1_u8; 1 << 20];
    for _ in 0..bytes.div_ceil(page.len()) {
        io::Write::write_all(&mut &file, &page)?;
    }
    Ok(())
}
