//! Handshakes in progress, and closing of those that are evicted.
//!
//! Its connection is shut down, so that the thread that waits for it finds it ended, and ends.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{Shutdown, shutdown};

use super::handshake_slots::{HandshakeSlots, Number};
use super::source::Source;
use crate::locks::{Mutex, rank};

/// The callers of one kind that shake hands.
#[derive(Debug, Clone)]
pub struct Handshakes(Arc<Mutex<rank::Leaf, Table>>);

#[derive(Debug)]
struct Table {
    slots: HandshakeSlots,
    /// Connections that may be closed to make room for others.
    connections: HashMap<Number, OwnedFd>,
}

/// A caller's slot; given up when dropped.
#[derive(Debug)]
pub struct HandshakeSlot {
    handshakes: Handshakes,
    number: Number,
    /// Whether somebody else had to go.
    pub displaced: bool,
}

impl Handshakes {
    /// Nobody yet, and so many at the same time.
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(Mutex::new(Table {
            slots: HandshakeSlots::new(capacity),
            connections: HashMap::new(),
        })))
    }

    /// Whether one more can come in now.
    pub fn has_capacity(&self) -> bool {
        self.0.lock().slots.has_capacity()
    }

    /// Whether nobody shakes hands.
    pub fn is_empty(&self) -> bool {
        self.0.lock().slots.is_empty()
    }

    /// Ends the connections of all who have not said yet what they want.
    pub fn hang_up_all(&self) {
        let mut table = self.0.lock();
        table.slots.evict_all();
        for (_, connection) in table.connections.drain() {
            // It may have been ended by its peer.
            let _ = shutdown(&connection, Shutdown::Both);
        }
    }

    /// Lets a caller in, for which another one may have to go; nothing when there is no room.
    pub fn enter(&self, source: Source, connection: &impl AsFd) -> io::Result<Option<HandshakeSlot>> {
        let own = connection.as_fd().try_clone_to_owned()?;
        let mut table = self.0.lock();
        let Some(entry) = table.slots.enter(source) else { return Ok(None) };
        table.connections.insert(entry.number, own);
        if let Some(connection) = entry.evicted.and_then(|number| table.connections.remove(&number)) {
            // It may have been ended by its peer.
            let _ = shutdown(&connection, Shutdown::Both);
        }
        let displaced = entry.evicted.is_some();
        Ok(Some(HandshakeSlot { handshakes: self.clone(), number: entry.number, displaced }))
    }
}

impl HandshakeSlot {
    /// The caller has said what it wants, and nobody can end its connection any more; false when it has been
    /// ended.
    pub fn finish(&self) -> bool {
        let mut table = self.handshakes.0.lock();
        table.connections.remove(&self.number);
        table.slots.finish(self.number)
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let mut table = self.handshakes.0.lock();
        table.connections.remove(&self.number);
        table.slots.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    #[test]
    fn all_who_shake_hands_are_hung_up_on_and_none_who_has_finished() {
        let handshakes = Handshakes::new(4);
        let enter = |stream: &UnixStream| handshakes.enter(Source::User(0), stream).unwrap().unwrap();
        let (mut open, mut peer) = UnixStream::pair().unwrap();
        let finished = enter(&open);
        assert!(finished.finish() && !handshakes.is_empty());
        let (mut shaking, _its_peer) = UnixStream::pair().unwrap();
        let slot = enter(&shaking);
        handshakes.hang_up_all();
        assert_eq!(shaking.read(&mut [0; 1]).unwrap(), 0);
        peer.write_all(b"x").unwrap();
        assert_eq!(open.read(&mut [0; 1]).unwrap(), 1);
        assert!(!slot.finish());
        drop((slot, finished));
        assert!(handshakes.is_empty());
    }

    #[test]
    fn who_gives_way_finds_its_connection_ended_and_who_has_finished_does_not() {
        let handshakes = Handshakes::new(2);
        let enter =
            |stream: &UnixStream| handshakes.enter(Source::User(0), stream).unwrap().expect("there is room");
        let (mut finished, mut peer) = UnixStream::pair().unwrap();
        let slot = enter(&finished);
        assert!(slot.finish());
        let (mut first, _first_peer) = UnixStream::pair().unwrap();
        let (second, _second_peer) = UnixStream::pair().unwrap();
        let (first_slot, second_slot) = (enter(&first), enter(&second));
        assert_eq!(first.read(&mut [0; 1]).unwrap(), 0);
        assert!(second_slot.displaced && !first_slot.displaced && !first_slot.finish());
        peer.write_all(b"x").unwrap();
        assert_eq!(finished.read(&mut [0; 1]).unwrap(), 1);
        // A slot is free again, and nothing keeps the connection open.
        drop((slot, first_slot, second_slot));
        drop(finished);
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
        assert!(!enter(&second).displaced);
    }
}
