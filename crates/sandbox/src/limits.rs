//! Limits of a process: resource limits (rlimits) besides memory, and an empty network namespace.
//!
//! How much memory a worker may have is bounded by its control group ([`Bounds`](crate::cgroup::Bounds)); how
//! much that is says [`SandboxRequest::session_memory`](crate::SandboxRequest::session_memory).
//!
//! Addresses are not limited: the driver and the windows of memory reserve terabytes of them and use little.
//!
//! The network namespace is one without any device, which all workers of a server share. Sockets that were
//! handed to a worker keep their own network.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// Threads, and in a control group also processes, of one worker. A driver has some tens of threads, the
/// lanes up to 32, the software GPU one a core.
pub const MAX_THREADS: u64 = 4096;

/// What is not a worker's limit, but that of whoever started the server. Network cards and the driver lock what they
/// read and write, as much memory as the control group has; the capability by which root does so without limit goes
/// with the others. Memory that is shared counts as a file, and the software GPU's work as that of a processor.
const LIFTED: [Resource; 5] =
    [Resource::Memlock, Resource::Fsize, Resource::Cpu, Resource::As, Resource::Data];

/// When memory runs out, workers go before the rest of the machine, the broker and their clients among them.
/// 1000 would be first of all.
const OUT_OF_MEMORY_SCORE: &[u8] = b"500";

/// Sets the limits of this process. Async-signal-safe: it runs between `fork` and `exec`.
pub fn set() -> io::Result<()> {
    // A core file would hold the client's data.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    LIFTED.into_iter().for_each(lift);
    Ok(())
}

/// Offers this process to the kernel for when memory runs out. It must be dumpable: the file is root's
/// otherwise.
pub fn prefer_for_oom_kill() -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", OUT_OF_MEMORY_SCORE)
}

/// Raises a limit of this process to what the system allows.
fn lift(resource: Resource) {
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(resource, unlimited).is_err() {
        let max = getrlimit(resource).maximum;
        // Without the right to raise it, as much as there may be; that is always granted.
        let _ = setrlimit(resource, Rlimit { current: max, maximum: max });
    }
}

/// Bounds the threads of this process, where its user is its own: the kernel counts those of a user together.
pub fn limit_threads() -> io::Result<()> {
    let max = Rlimit { current: Some(MAX_THREADS), maximum: Some(MAX_THREADS) };
    Ok(setrlimit(Resource::Nproc, max)?)
}

/// A network without devices, kept by its descriptor.
#[derive(Debug)]
pub struct EmptyNetwork {
    namespace: OwnedFd,
}

impl EmptyNetwork {
    /// Makes one. This needs `CAP_SYS_ADMIN`.
    pub fn make() -> io::Result<Self> {
        let made = std::thread::Builder::new().name("network".into()).spawn(|| {
            // SAFETY: only the network of this thread is exchanged, which opens no socket and ends at once.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
            File::open("/proc/thread-self/ns/net")
        })?;
        let namespace = made.join().map_err(|_| io::Error::other("the thread that makes it panicked"))??;
        Ok(Self { namespace: namespace.into() })
    }

    /// Moves the calling thread there. Async-signal-safe.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn nobody_is_reached_in_an_empty_network() {
        let network = match EmptyNetwork::make() {
            Ok(network) => network,
            Err(error) => return eprintln!("not tested: no network can be made here: {error}"),
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let inside = std::thread::spawn(move || {
            network.enter().unwrap();
            std::net::TcpStream::connect(address)
        });
        let error = inside.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable, "{error}");
        assert!(std::net::TcpStream::connect(address).is_ok(), "outside there is a network");
    }
}
