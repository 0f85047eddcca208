//! Shared memory in a forked child: pages of its own, which its own worker gets.
//!
//! Pages that a program shares with a worker are not copied on write by a fork: parent and child would have
//! them in common. The child therefore copies pinned and managed memory before its session has it; copies of
//! registered memory the fork itself has made ([`moved`](super::moved)). A file that the program has mapped is
//! the child's as well as the parent's, as without Causeway.
//!
//! The journal of the session has the numbers of all memory, and the new worker waits for each in turn: the
//! child hands it over in the order of the numbers, which is about that in which the session got it.

use std::io;

use causeway_memory::mappings::{self, Mapping};
use causeway_memory::{SealedMemory, SharedFile};

use super::moved::{Move, NotShared, is_left_out_of_children};
use super::registered::{one_mapping, pages_of};
use super::{Backing, SHARED};
use crate::model::host_window;
use crate::remote::session::Session;

/// What is handed over of a piece.
struct Inherited {
    host: usize,
    size: usize,
    number: u64,
    backing: Backing,
}

/// What the session has of the program's memory, in the order in which it got it.
fn inherited() -> Vec<Inherited> {
    let pieces = SHARED.pieces.read();
    let mut inherited: Vec<Inherited> = pieces
        .by_host
        .values()
        .map(|piece| Inherited {
            host: piece.host,
            size: piece.size,
            number: piece.number,
            backing: piece.backing,
        })
        .collect();
    inherited.sort_unstable_by_key(|piece| piece.number);
    inherited
}

/// Whether a child will have all memory that this process shares with its worker.
///
/// # Errors
/// What it will not have, as a sentence.
pub fn must_be_inheritable() -> Result<(), String> {
    let left_out = inherited()
        .into_iter()
        .find(|piece| piece.backing == Backing::Moved && is_left_out_of_children(piece.host));
    left_out.map_or(Ok(()), |piece| {
        Err(format!(
            "{} bytes of registered memory at {:#x} are left out of forked processes (MADV_DONTFORK): unregister \
             them before the fork",
            piece.size, piece.host
        ))
    })
}

/// Hands the memory of this process to the worker of its session, in a forked child.
///
/// # Errors
/// What the worker cannot have, as a sentence. Then the session is of no use.
pub fn hand_over_in_child(session: &Session) -> Result<(), String> {
    let inherited = inherited();
    if !inherited.is_empty() && !session.shares_memory() {
        return Err("its session does not use shared memory, as that of its parent does".to_owned());
    }
    for piece in inherited {
        let handed_over = match piece.backing {
            Backing::Window => piece.copy(session),
            Backing::Moved => piece.move_again(session),
            Backing::File => piece.share_file(session),
        };
        handed_over.map_err(|cause| {
            format!("{} bytes of its memory at {:#x} cannot be shared: {cause}", piece.size, piece.host)
        })?;
    }
    Ok(())
}

impl Inherited {
    fn mapping(&self) -> Result<Mapping, NotShared> {
        let pages = pages_of(self.host, self.size);
        one_mapping(mappings::within(pages.clone()).map_err(NotShared::Unknown)?, &pages)
    }

    /// Puts copies of the parent's pages in their place.
    fn copy(&self, session: &Session) -> Result<(), NotShared> {
        // The program may have left it out of its children.
        self.mapping()?;
        // SAFETY: mapped for reading, as was seen just now, and this thread is the only one of the process. What the
        // parent writes meanwhile is its own race with the fork.
        let memory = unsafe { SealedMemory::copy_of("causeway-pinned", self.host as *const u8, self.size) };
        let memory = memory.map_err(|cause| NotShared::NotCopied(io::Error::other(cause)))?;
        host_window::replace(self.host, self.size, &memory).map_err(NotShared::NotCopied)?;
        session.hand_over(self.number, &memory).map_err(NotShared::Refused)
    }

    /// Moves the private memory that the fork has put in the place of the parent's.
    fn move_again(&self, session: &Session) -> Result<(), NotShared> {
        let moving = Move::prepare(self.host, &self.mapping()?)?;
        session.hand_over(self.number, moving.file()).map_err(NotShared::Refused)?;
        moving.carry_out()
    }

    fn share_file(&self, session: &Session) -> Result<(), NotShared> {
        let file = SharedFile::of_mapping(&self.mapping()?).map_err(NotShared::File)?;
        session.hand_over_file(self.number, file.descriptor()).map_err(NotShared::Refused)
    }
}
