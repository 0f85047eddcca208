//! Making TCP connections, and telling a dead peer from a quiet one.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use causeway_sync::descriptors::above_stdio;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use thiserror::Error;

use causeway_access::Endpoint;
use causeway_access::servers::names_instead;

use crate::keepalive::Traffic;
use crate::vsock::VsockError;

/// How long an unanswered segment or keep-alive probe may last before the peer counts as dead. With the
/// one-second steps in which it is looked at, a program hears of a dead server within 5 s.
pub const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(3);

/// How often a waiting receiver looks whether the peer's machine still answers.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why no connection could be made.
#[derive(Debug, Error)]
pub enum DialError {
    /// The host name is unknown.
    #[error(
        "cannot resolve the host name `{host}` ({cause}): check its spelling, or give an address{}",
        names_instead(host).map_or_else(String::new, |names| format!("; {names}"))
    )]
    Unresolved {
        /// The name.
        host: String,
        /// What the resolver said.
        cause: io::Error,
    },
    /// Nothing listens.
    #[error("nothing listens at {target}: is `causeway serve` running there, and is the port right?")]
    Refused {
        /// The server.
        target: String,
    },
    /// No answer.
    #[error(
        "{target} did not answer within {seconds:.0} s: is the machine up, and is the port open in its \
         firewall?"
    )]
    TimedOut {
        /// The server.
        target: String,
        /// How long was waited.
        seconds: f64,
    },
    /// There is no such Unix socket, or it cannot be used.
    #[error(
        "the Unix socket {name} cannot be reached ({cause}): does `causeway serve` listen there, and may this user use it?"
    )]
    NoSocket {
        /// Its name.
        name: String,
        /// What the system said.
        cause: io::Error,
    },
    /// A machine cannot be reached over vsock.
    #[error(transparent)]
    Vsock(#[from] VsockError),
    /// Something else.
    #[error("{target} cannot be reached: {cause}")]
    Other {
        /// The server.
        target: String,
        /// What the system said.
        cause: io::Error,
    },
}

/// Connects to a port of a host, trying every address of the host until one answers or `timeout` is over.
pub fn dial(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, DialError> {
    let unresolved = |cause| DialError::Unresolved { host: host.to_owned(), cause };
    let addresses: Vec<_> = (host, port).to_socket_addrs().map_err(unresolved)?.collect();
    dial_one_of(&addresses, timeout).map_err(|cause| {
        let target = Endpoint::Tcp { host: host.to_owned(), port }.to_string();
        match cause.kind() {
            io::ErrorKind::ConnectionRefused => DialError::Refused { target },
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                DialError::TimedOut { target, seconds: timeout.as_secs_f64() }
            }
            _ => DialError::Other { target, cause },
        }
    })
}

/// Connects to the first of the addresses that answers, until `timeout` is over; why not to the last one
/// otherwise.
pub fn dial_one_of(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + timeout;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match connect(address, left).and_then(|stream| tune(&stream).map(|()| stream)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to an address within `timeout`. Unlike the standard library's, the socket has its final number before it is
/// connected: until then nothing that is written to it goes anywhere.
fn connect(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = above_stdio(socket_with(family, SocketType::STREAM, flags, None)?)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => wait_for_connection(&socket, timeout)?,
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn wait_for_connection(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(sockopt::socket_error(socket)??),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How connections within one host share it: not at all. Linux' other choice, BBR, sends as fast as it has
/// found the network to be lately, and finds a loopback device out anew for each copy: with it 1 to 16 MiB
/// took two to three times as long, and long copies half again as much of the processor's time (a virtual
/// machine with Linux 6.18, 2026-11-22). This one is in every kernel, and anybody may choose it.
const CONGESTION_WITHIN_A_HOST: &str = "reno";

/// The most bytes that are under way on a connection within one host. The kernel lets them grow to 33 MB,
/// which is more than a processor's cache holds of eight lanes; with this much copies from a device were a
/// tenth faster (16 cores, 2026-11-22).
const WINDOW_WITHIN_A_HOST: libc::c_int = 4 << 20;

/// Sets an option of TCP that is a number.
fn set_number(stream: &TcpStream, option: libc::c_int, number: libc::c_int) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is one number, which is there as long as the call.
    let status = unsafe {
        let value = (&raw const number).cast();
        libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, option, value, size)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The bytes that wait in the kernel to be sent on a lane over a long network, beside those that are under
/// way. The kernel takes in megabytes, whatever the lane carries: what waits behind bytes that were lost
/// comes a round trip later, while lanes that lost nothing have no more to send. Half of this lasts 6 ms on
/// each of 16 lanes that share 10 Gbit/s, in which a thread that sends is awake again.
const MAX_UNSENT_BYTES: libc::c_int = 1 << 20;

/// Lets the kernel take in no more than 1 MiB, so that lanes which get on take what one that stands still
/// would have kept.
pub fn limit_unsent(stream: &TcpStream) -> io::Result<()> {
    set_number(stream, libc::TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
}

/// Sets the options of a connection over TCP; others have none of them: nothing waits to be joined with later bytes, and an idle peer is asked
/// for a sign of life every 2 s. What shares a network with others is left to the system's administrator.
///
/// Buffer sizes are left to the kernel: setting them switches its own tuning off and caps them at a
/// system limit that is usually lower. `TCP_USER_TIMEOUT` is not set, since it would also end a connection
/// whose peer is alive and merely does not read for a while; [`PeerWatch`] looks at acknowledgements instead.
pub fn tune(stream: &TcpStream) -> io::Result<()> {
    if !is_tcp(stream)? {
        return Ok(());
    }
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(2))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 2)?;
    if is_within_a_host(stream) {
        // Where it is refused the connection works as well.
        let _ = sockopt::set_tcp_congestion(stream, CONGESTION_WITHIN_A_HOST);
        let _ = set_number(stream, libc::TCP_WINDOW_CLAMP, WINDOW_WITHIN_A_HOST);
    }
    Ok(())
}

fn is_tcp(stream: &TcpStream) -> io::Result<bool> {
    Ok(matches!(sockopt::socket_domain(stream)?, AddressFamily::INET | AddressFamily::INET6))
}

/// Whether both ends have one address, so that no network lies between them.
pub fn is_within_a_host(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(own), Ok(peer)) => own.ip() == peer.ip() || peer.ip().is_loopback(),
        _ => false,
    }
}

/// Watches whether the machine at the other end still acknowledges what was sent to it.
///
/// Keep-alive probes cover a connection with nothing under way; while sent bytes wait for an acknowledgement
/// the kernel sends no probes and would go on repeating them for about a quarter of an hour.
#[derive(Debug, Default)]
pub struct PeerWatch {
    unanswered_looks: u32,
}

impl PeerWatch {
    /// Looks once; to be called every [`LOOK_EVERY`] while nothing arrives. True when the peer counts as
    /// dead.
    pub fn look(&mut self, socket: impl AsFd) -> bool {
        match last_acknowledgement(socket) {
            Some(age) if age >= DEAD_PEER_TIMEOUT => self.unanswered_looks += 1,
            _ => self.unanswered_looks = 0,
        }
        // One look may come just after a long silence ended with a new segment.
        self.unanswered_looks >= 2
    }

    /// Says that something arrived.
    pub fn received(&mut self) {
        self.unanswered_looks = 0;
    }
}

/// The shortest round trip that the kernel has seen on a connection. Longer ones say little of the network,
/// since a peer may keep its acknowledgement back for 40 ms. Nothing where the kernel does not know.
pub fn round_trip(socket: impl AsFd) -> Option<Duration> {
    let (info, size) = information(socket)?;
    let known = size >= core::mem::offset_of!(libc::tcp_info, tcpi_min_rtt) + 4;
    (known && info.tcpi_min_rtt != u32::MAX).then(|| Duration::from_micros(u64::from(info.tcpi_min_rtt)))
}

/// Bytes of the longest packet that the kernel sends to the peer. Nothing where it does not know.
pub fn path_mtu(socket: impl AsFd) -> Option<u32> {
    let (info, size) = information(socket)?;
    let known = size >= core::mem::offset_of!(libc::tcp_info, tcpi_pmtu) + 4;
    (known && info.tcpi_pmtu > 0).then_some(info.tcpi_pmtu)
}

/// What has come and gone on a connection. Nothing where the kernel does not count it, and at a Unix socket: what
/// falls silent within a host is stopped, and not cut off.
pub fn traffic(socket: impl AsFd) -> Option<Traffic> {
    let (info, size) = information(&socket)?;
    let is_known = size >= core::mem::offset_of!(libc::tcp_info, tcpi_notsent_bytes) + 4;
    // The handshake has come, whatever else has.
    let counts = is_known && info.tcpi_bytes_received > 0;
    counts.then(|| Traffic {
        received: info.tcpi_bytes_received,
        unread: rustix::io::ioctl_fionread(&socket).unwrap_or_default(),
        acknowledged: info.tcpi_bytes_acked,
        has_unacknowledged: info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0,
    })
}

/// Whether a short message can be sent without waiting.
pub fn has_capacity(socket: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut waiting = [PollFd::new(&socket, PollFlags::OUT)];
    // A connection that has ended is found out by sending on it.
    !matches!(poll(&mut waiting, Some(&now)), Ok(0))
}

/// How long ago the peer's kernel acknowledged anything, when something is waiting to be acknowledged: what was
/// sent, or what this machine cannot even send, since its network is down, although the peer has room for it.
fn last_acknowledgement(socket: impl AsFd) -> Option<Duration> {
    let (info, size) = information(socket)?;
    let known = size >= core::mem::offset_of!(libc::tcp_info, tcpi_last_ack_recv) + 4;
    let has_send_window = size >= core::mem::offset_of!(libc::tcp_info, tcpi_snd_wnd) + 4;
    let is_unsent = has_send_window && info.tcpi_notsent_bytes > 0 && info.tcpi_snd_wnd >= info.tcpi_snd_mss;
    let waits = known && (info.tcpi_unacked > 0 || is_unsent);
    waits.then(|| Duration::from_millis(u64::from(info.tcpi_last_ack_recv)))
}

/// What the kernel knows of a connection, and how many bytes of that it has filled in.
fn information(socket: impl AsFd) -> Option<(libc::tcp_info, usize)> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: tcp_info is plain data; getsockopt writes at most `size` bytes of it.
    unsafe {
        let mut info: libc::tcp_info = core::mem::zeroed();
        let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
        let status = libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut size,
        );
        (status == 0).then_some((info, size as usize))
    }
}
