//! Network namespace of a process.
//!
//! One without any device, which all workers of a server share. Sockets that were handed to a worker keep
//! their own network.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

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
    use super::*;
    use std::net::TcpListener;

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
