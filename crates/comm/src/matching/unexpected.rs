//! Messages that a probe took out of the MPI's queue.

use std::collections::VecDeque;

/// What a receive or a probe asks for: `None` is `MPI_ANY_SOURCE` or `MPI_ANY_TAG`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The communicator, by a number that no two of them have.
    pub communicator: u64,
    /// The rank in it.
    pub source: Option<i32>,
    /// The tag.
    pub tag: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry<M> {
    communicator: u64,
    source: i32,
    tag: i32,
    message: M,
}

/// Messages that have been taken out, in that order. Receives and probes look here before they ask the MPI.
///
/// Whoever puts a message here has taken out all those before that came from the same rank on the same
/// communicator; then everything here is older than what the MPI still has of that rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unexpected<M> {
    entries: VecDeque<Entry<M>>,
}

impl<M> Default for Unexpected<M> {
    fn default() -> Self {
        Self { entries: VecDeque::new() }
    }
}

impl<M> Unexpected<M> {
    /// Keeps a message behind all others.
    pub fn push(&mut self, communicator: u64, source: i32, tag: i32, message: M) {
        self.entries.push_back(Entry { communicator, source, tag, message });
    }

    /// The first message that a pattern matches. It stays.
    pub fn find(&self, pattern: Pattern) -> Option<&M> {
        self.position(pattern).map(|at| &self.entries[at].message)
    }

    /// Takes the first message out that a pattern matches.
    pub fn take(&mut self, pattern: Pattern) -> Option<M> {
        let at = self.position(pattern)?;
        self.entries.remove(at).map(|entry| entry.message)
    }

    fn position(&self, pattern: Pattern) -> Option<usize> {
        self.entries.iter().position(|entry| {
            entry.communicator == pattern.communicator
                && pattern.source.is_none_or(|source| source == entry.source)
                && pattern.tag.is_none_or(|tag| tag == entry.tag)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_matches_is_taken() {
        let mut list = Unexpected::default();
        for (communicator, source, tag, message) in
            [(1, 0, 5, 'a'), (1, 1, 5, 'b'), (1, 0, 6, 'c'), (2, 0, 5, 'd')]
        {
            list.push(communicator, source, tag, message);
        }
        let pattern = |communicator, source, tag| Pattern { communicator, source, tag };
        assert_eq!(list.find(pattern(1, Some(0), None)), Some(&'a'));
        assert_eq!(list.take(pattern(1, None, Some(6))), Some('c'));
        assert_eq!(list.take(pattern(2, None, None)), Some('d'));
        assert_eq!(list.take(pattern(1, None, Some(5))), Some('a'));
        assert_eq!(list.take(pattern(1, None, Some(5))), Some('b'));
        assert_eq!(list.take(pattern(1, None, None)), None);
    }
}
