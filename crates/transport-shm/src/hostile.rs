//! Tests with a hostile peer that writes anything into the shared memory.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::layout::{Direction, LINE, Layout};
use super::segment::Segment;
use super::side::Peer;
use super::state::Role;
use super::transfers::parts;
use causeway_connection::channel::Connection;
use causeway_link::Link;
use causeway_transport::slots::STAGING_LIMITS;
use causeway_transport::staging::Lease;
use causeway_transport::{Destination, LinkError, LinkEvents};

struct AcceptAll(Mutex<Vec<Lease>>);

impl LinkEvents for AcceptAll {
    fn open_transfer(&self, _transfer: u64, total: u64) -> Option<Destination> {
        (total < 1 << 20).then(|| Destination::buffer(vec![0; total as usize], |_| {}))
    }
    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        if transfer.is_multiple_of(2) {
            return Err(lease);
        }
        let mut leases = self.0.lock();
        leases.push(lease);
        if leases.len() > 3 {
            leases.clear();
        }
        Ok(())
    }
    fn lost(&self, _cause: &LinkError) {}
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// A peer that writes whatever it likes wherever the other one looks. Nothing must panic, block for ever or
/// be touched outside the memory.
#[test]
fn a_peer_that_scribbles_over_the_memory_ends_its_own_link_at_most() {
    for seed in 1..25 {
        let (segment, memory) = Segment::create(Layout::halves(STAGING_LIMITS.0)).unwrap();
        let hostile = Arc::new(Segment::map(&memory, Layout::halves(STAGING_LIMITS.0)).unwrap());
        let (here, there) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let command = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let command = Connection::new(command, None);
        let parts = parts(Role::Worker, Arc::new(segment), Peer::new(here.into()), &command).unwrap();
        let (link, mut receiver) = Link::new(parts).unwrap();
        link.start(Arc::new(AcceptAll(Mutex::default())));
        let receiving = std::thread::spawn(move || while receiver.recv().is_ok() {});
        let sending = std::thread::spawn({
            let link = link.clone();
            move || {
                for number in 0..50 {
                    if link.send_transfer(number, &[1; 70_000]).is_err()
                        || link.send(|out| out.extend_from_slice(&[0; 5000])).is_err()
                    {
                        break;
                    }
                }
            }
        });
        let mut state = seed;
        for _ in 0..20_000 {
            let direction =
                if random(&mut state).is_multiple_of(2) { Direction::Up } else { Direction::Down };
            let parts = hostile.parts(direction);
            let offset = match random(&mut state) % 3 {
                0 => parts.words_offset + random(&mut state) as usize % 10 * LINE,
                1 => parts.announcements + random(&mut state) as usize % (parts.entries * 5) * 8,
                _ => parts.returns + random(&mut state) as usize % parts.entries * 8,
            };
            let value = match random(&mut state) % 4 {
                0 => u64::MAX,
                1 => random(&mut state) << 40,
                _ => random(&mut state) % 10,
            };
            hostile.word(offset).store(value, Ordering::Relaxed);
        }
        drop(there);
        receiving.join().unwrap();
        sending.join().unwrap();
        assert!(link.is_lost());
    }
}
