//! Descriptors of the library are never the program's standard streams: whatever makes one moves it above them.

use std::path::{Path, PathBuf};

/// The crates that live in programs.
const IN_PROGRAMS: [&str; 13] = [
    "client",
    "comm",
    "connection",
    "cuda",
    "link",
    "memory",
    "nccl-net",
    "nvml",
    "sync",
    "transport",
    "transport-shm",
    "transport-tcp",
    "transport-verbs",
];

/// What makes a descriptor that stays open; names of `libc` are followed by `from_raw_fd`.
const MAKERS: [&str; 14] = [
    "from_raw_fd(",
    " memfd_create(",
    " eventfd(",
    "(eventfd(",
    "epoll::create(",
    "socket_with(",
    "socketpair(",
    " pipe_with(",
    "UnixStream::connect",
    "TcpStream::connect",
    "TcpListener::bind",
    "UnixListener::bind",
    "listener.accept()?",
    "File::open(\"/proc",
];

/// Files that are part of tests, and what is closed before the call that made it returns.
const OTHERS: [&str; 5] = [
    "transport-shm/src/hostile.rs",
    "transport-shm/src/fuzzing.rs",
    "client/src/remote/image/origin.rs",
    // The driver's, closed once another process has it.
    "cuda/src/gpudirect.rs",
    "cuda/src/sharing.rs",
];

/// Sources below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|ending| ending == "rs") && !entry.ends_with("tests.rs") {
            found.push(entry);
        }
    }
}

/// The statement around a place, two lines before it, and the one behind it.
fn around(text: &str, place: usize) -> &str {
    let start = text[..place].rmatch_indices('\n').nth(2).map_or(0, |(start, _)| start);
    let end = text[place..].match_indices(';').nth(1).map_or(text.len(), |(end, _)| place + end);
    &text[start..end]
}

#[test]
fn every_new_descriptor_is_moved_above_stdio() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    IN_PROGRAMS.iter().for_each(|name| sources(&crates.join(name).join("src"), &mut files));
    let (mut found, mut unmoved) = (0, Vec::new());
    for path in files.iter().filter(|path| !OTHERS.iter().any(|other| path.ends_with(other))) {
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for (place, _) in MAKERS.iter().flat_map(|maker| text.match_indices(maker)) {
            let line = text[..place].lines().last().unwrap_or_default();
            if line.trim_start().starts_with("//") || line.starts_with("use ") {
                continue;
            }
            found += 1;
            if !around(text, place).contains("above_stdio") {
                let number = text[..place].lines().count();
                unmoved.push(format!("{}:{number}", path.strip_prefix(crates).unwrap().display()));
            }
        }
    }
    assert!(found >= 15, "{found} places make descriptors: does this test still know how?");
    assert!(unmoved.is_empty(), "use causeway_sync::descriptors::above_stdio at {unmoved:?}");
}
