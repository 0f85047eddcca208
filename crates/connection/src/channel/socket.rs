//! Socket shared by both directions of a connection, and its shutdown.

use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;

use crate::transmit::receive_some;

/// Records that are sent with one system call.
pub(super) const RECORDS_AT_ONCE: usize = 4;

/// An open connection: what both directions share.
pub type Socket = Arc<TcpStream>;

/// Ends both directions of a connection at once, whoever is waiting on it.
pub fn shut_down(socket: &Socket) {
    // An error means that the connection has ended already, which is what is wanted.
    let _ = socket.shutdown(Shutdown::Both);
}

/// Ends a connection so that what was sent last still reaches the peer.
///
/// Closing a socket with unread bytes resets the connection, which can overtake the last words; so the peer's
/// bytes are read and dropped until it ends the connection too, for half a second at most.
pub fn end_after_goodbye(socket: &Socket) {
    let deadline = Instant::now() + Duration::from_millis(500);
    // Errors here and below mean that the connection has ended already.
    let _ = socket.shutdown(Shutdown::Write);
    let mut dropped = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match receive_some(socket.as_fd(), &mut dropped, RecvFlags::empty()) {
            Ok(count) if count > 0 => {}
            _ => return,
        }
    }
}
