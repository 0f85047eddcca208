//! Exports: memory that sessions share with each other.
//!
//! A session exports a few bytes and perhaps a descriptor under a token that cannot be guessed; another
//! session that has received the token gets a copy. Callers that hold the server's key are one identity, each client with
//! a key of its own is another, and a session finds what its own identity has exported (`worker_requests`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_wire::handshake::SessionId;

use crate::locks::{Mutex, rank};
use crate::protocol::messages::Token;

/// The most bytes that an export may have.
const MAX_NAME_BYTES: usize = 256;

/// Something that a session has exported.
#[derive(Debug, Clone)]
pub struct Exported {
    /// What it is, in words of the workers' own.
    pub bytes: Vec<u8>,
    /// What goes with it.
    pub descriptor: Option<Arc<OwnedFd>>,
}

/// Everything that sessions have exported.
pub struct ExportRegistry {
    capacity: usize,
    max_per_session: usize,
    contents: Mutex<rank::Leaf, Contents>,
}

#[derive(Default)]
struct Contents {
    exports: HashMap<Token, (SessionId, Exported)>,
    /// How many each session has exported.
    of_session: HashMap<SessionId, usize>,
}

impl Contents {
    fn remove(&mut self, token: &Token) {
        if let Some((owner, _)) = self.exports.remove(token)
            && let Entry::Occupied(mut count) = self.of_session.entry(owner)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl ExportRegistry {
    /// One for so many exports, and so many of one session, so that none can take all descriptors of the
    /// broker.
    pub fn new(capacity: usize, max_per_session: usize) -> Self {
        Self { capacity, max_per_session, contents: Mutex::default() }
    }

    /// Takes something in; false when it is too much or its token is taken.
    pub fn export(&self, owner: SessionId, token: Token, exported: Exported) -> bool {
        let mut contents = self.contents.lock();
        let of_owner = contents.of_session.get(&owner).copied().unwrap_or(0);
        if exported.bytes.len() > MAX_NAME_BYTES
            || of_owner >= self.max_per_session
            || contents.exports.len() >= self.capacity
            || contents.exports.contains_key(&token)
        {
            return false;
        }
        contents.exports.insert(token, (owner, exported));
        contents.of_session.insert(owner, of_owner + 1);
        true
    }

    /// A copy of what is there under a token.
    pub fn find(&self, token: &Token) -> Option<Exported> {
        self.contents.lock().exports.get(token).map(|(_, exported)| exported.clone())
    }

    /// Takes away what its owner wants back.
    pub fn withdraw(&self, owner: SessionId, token: &Token) {
        let mut contents = self.contents.lock();
        if contents.exports.get(token).is_some_and(|(other, _)| *other == owner) {
            contents.remove(token);
        }
    }

    /// Takes away everything that a session has exported.
    pub fn session_ends(&self, owner: SessionId) {
        let mut contents = self.contents.lock();
        if contents.of_session.remove(&owner).is_some() {
            contents.exports.retain(|_, (other, _)| *other != owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_found_by_their_token_and_go_with_their_owner() {
        let (exports, one, other) = (ExportRegistry::new(9, 9), SessionId([1; 16]), SessionId([2; 16]));
        let exported = |length| Exported { bytes: vec![7; length], descriptor: None };
        assert!(exports.export(one, [1; 16], exported(3)) && !exports.export(other, [1; 16], exported(3)));
        assert!(!exports.export(one, [2; 16], exported(MAX_NAME_BYTES + 1)));
        assert_eq!(exports.find(&[1; 16]).map(|exported| exported.bytes), Some(vec![7; 3]));
        exports.withdraw(other, &[1; 16]);
        assert!(exports.find(&[1; 16]).is_some() && exports.find(&[2; 16]).is_none());
        assert!(exports.export(other, [3; 16], exported(0)));
        exports.session_ends(one);
        assert!(exports.find(&[1; 16]).is_none() && exports.find(&[3; 16]).is_some());
        exports.withdraw(other, &[3; 16]);
        assert!(exports.find(&[3; 16]).is_none());
    }

    #[test]
    fn one_session_cannot_fill_the_board_and_gets_the_places_back_that_it_frees() {
        let exports = ExportRegistry::new(5, 3);
        let export = |owner, number| {
            let exported = Exported { bytes: Vec::new(), descriptor: None };
            exports.export(SessionId([owner; 16]), [number; 16], exported)
        };
        assert!((0..3).all(|number| export(1, number)) && !export(1, 3));
        assert!(export(2, 4) && export(2, 5) && !export(3, 6), "there is no more room for anybody");
        exports.withdraw(SessionId([1; 16]), &[1; 16]);
        assert!(export(1, 6) && !export(1, 7) && !export(3, 7));
        exports.session_ends(SessionId([1; 16]));
        assert!((7..10).all(|number| export(3, number)) && !export(1, 10));
        assert_eq!(
            exports.contents.lock().of_session.len(),
            2,
            "sessions that have exported nothing are not remembered"
        );
    }
}
