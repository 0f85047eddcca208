//! What have sessions left for each other?
//!
//! A session leaves a few bytes and perhaps a descriptor under a token that nobody can guess; another session
//! that was told the token gets a copy. All callers have proved that they hold the server's key, so they are
//! one identity.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_wire::handshake::SessionId;
use parking_lot::Mutex;

use crate::protocol::messages::Token;

/// The most bytes that a thing may have.
const LONGEST: usize = 256;

/// Something that a session has left.
#[derive(Debug, Clone)]
pub struct Thing {
    /// What it is, in words of the workers' own.
    pub bytes: Vec<u8>,
    /// What goes with it.
    pub descriptor: Option<Arc<OwnedFd>>,
}

/// Everything that sessions have left.
pub struct Board {
    most: usize,
    most_of_a_session: usize,
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    things: HashMap<Token, (SessionId, Thing)>,
    /// How many each session has left.
    of_session: HashMap<SessionId, usize>,
}

impl Contents {
    fn remove(&mut self, token: &Token) {
        if let Some((owner, _)) = self.things.remove(token)
            && let Entry::Occupied(mut count) = self.of_session.entry(owner)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Board {
    /// One for so many things, and so many of one session, so that none can take all descriptors of the
    /// broker.
    pub fn new(most: usize, most_of_a_session: usize) -> Self {
        Self { most, most_of_a_session, contents: Mutex::default() }
    }

    /// Takes something in; false when it is too much or its token is taken.
    pub fn leave(&self, owner: SessionId, token: Token, thing: Thing) -> bool {
        let mut contents = self.contents.lock();
        let of_owner = contents.of_session.get(&owner).copied().unwrap_or(0);
        if thing.bytes.len() > LONGEST
            || of_owner >= self.most_of_a_session
            || contents.things.len() >= self.most
            || contents.things.contains_key(&token)
        {
            return false;
        }
        contents.things.insert(token, (owner, thing));
        contents.of_session.insert(owner, of_owner + 1);
        true
    }

    /// A copy of what is there under a token.
    pub fn find(&self, token: &Token) -> Option<Thing> {
        self.contents.lock().things.get(token).map(|(_, thing)| thing.clone())
    }

    /// Takes away what its owner wants back.
    pub fn withdraw(&self, owner: SessionId, token: &Token) {
        let mut contents = self.contents.lock();
        if contents.things.get(token).is_some_and(|(other, _)| *other == owner) {
            contents.remove(token);
        }
    }

    /// Takes away everything that a session has left.
    pub fn session_ends(&self, owner: SessionId) {
        let mut contents = self.contents.lock();
        if contents.of_session.remove(&owner).is_some() {
            contents.things.retain(|_, (other, _)| *other != owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_found_by_their_token_and_go_with_their_owner() {
        let (board, one, other) = (Board::new(9, 9), SessionId([1; 16]), SessionId([2; 16]));
        let thing = |length| Thing { bytes: vec![7; length], descriptor: None };
        assert!(board.leave(one, [1; 16], thing(3)) && !board.leave(other, [1; 16], thing(3)));
        assert!(!board.leave(one, [2; 16], thing(LONGEST + 1)));
        assert_eq!(board.find(&[1; 16]).map(|thing| thing.bytes), Some(vec![7; 3]));
        board.withdraw(other, &[1; 16]);
        assert!(board.find(&[1; 16]).is_some() && board.find(&[2; 16]).is_none());
        assert!(board.leave(other, [3; 16], thing(0)));
        board.session_ends(one);
        assert!(board.find(&[1; 16]).is_none() && board.find(&[3; 16]).is_some());
        board.withdraw(other, &[3; 16]);
        assert!(board.find(&[3; 16]).is_none());
    }

    #[test]
    fn one_session_cannot_fill_the_board_and_gets_the_places_back_that_it_frees() {
        let board = Board::new(5, 3);
        let leave = |owner, number| {
            let thing = Thing { bytes: Vec::new(), descriptor: None };
            board.leave(SessionId([owner; 16]), [number; 16], thing)
        };
        assert!((0..3).all(|number| leave(1, number)) && !leave(1, 3));
        assert!(leave(2, 4) && leave(2, 5) && !leave(3, 6), "there is no more room for anybody");
        board.withdraw(SessionId([1; 16]), &[1; 16]);
        assert!(leave(1, 6) && !leave(1, 7) && !leave(3, 7));
        board.session_ends(SessionId([1; 16]));
        assert!((7..10).all(|number| leave(3, number)) && !leave(1, 10));
        assert_eq!(
            board.contents.lock().of_session.len(),
            2,
            "sessions that have left nothing are not remembered"
        );
    }
}
