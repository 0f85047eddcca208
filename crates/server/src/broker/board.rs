//! What have sessions left for each other?
//!
//! A session leaves a few bytes and perhaps a descriptor under a token that nobody can guess; another session that was
//! told the token gets a copy. All callers have proved that they hold the server's key, so they are one identity.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_wire::handshake::SessionId;
use parking_lot::Mutex;

/// More things than this of one session are refused, so that it cannot take all descriptors of the broker.
const MOST_OF_A_SESSION: usize = 4096;

/// The most bytes that a thing may have.
const LONGEST: usize = 256;

/// The name of a thing.
pub type Token = [u8; 16];

/// Something that a session has left.
#[derive(Debug, Clone)]
pub struct Thing {
    /// What it is, in words of the workers' own.
    pub bytes: Vec<u8>,
    /// What goes with it.
    pub descriptor: Option<Arc<OwnedFd>>,
}

/// Everything that sessions have left.
#[derive(Default)]
pub struct Board {
    things: Mutex<HashMap<Token, (SessionId, Thing)>>,
}

impl Board {
    /// Takes something in; false when it is too much or its token is taken.
    pub fn leave(&self, owner: SessionId, token: Token, thing: Thing) -> bool {
        let mut things = self.things.lock();
        let of_owner = things.values().filter(|(other, _)| *other == owner).count();
        if thing.bytes.len() > LONGEST || of_owner >= MOST_OF_A_SESSION || things.contains_key(&token) {
            return false;
        }
        things.insert(token, (owner, thing));
        true
    }

    /// A copy of what is there under a token.
    pub fn find(&self, token: &Token) -> Option<Thing> {
        self.things.lock().get(token).map(|(_, thing)| thing.clone())
    }

    /// Takes away what its owner wants back.
    pub fn withdraw(&self, owner: SessionId, token: &Token) {
        let mut things = self.things.lock();
        if things.get(token).is_some_and(|(other, _)| *other == owner) {
            things.remove(token);
        }
    }

    /// Takes away everything that a session has left.
    pub fn session_ends(&self, owner: SessionId) {
        self.things.lock().retain(|_, (other, _)| *other != owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_found_by_their_token_and_go_with_their_owner() {
        let (board, one, other) = (Board::default(), SessionId([1; 16]), SessionId([2; 16]));
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
    fn one_session_cannot_fill_the_board() {
        let board = Board::default();
        let token = |number: usize| core::array::from_fn(|index| (number >> (8 * (index % 8))) as u8);
        let leave = |owner, number| {
            board.leave(SessionId([owner; 16]), token(number), Thing { bytes: Vec::new(), descriptor: None })
        };
        assert!((0..MOST_OF_A_SESSION).all(|number| leave(1, number)));
        assert!(!leave(1, MOST_OF_A_SESSION) && leave(2, MOST_OF_A_SESSION));
    }
}
