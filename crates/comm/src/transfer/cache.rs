//! Which memory of a peer stays open? What was used last, up to a number.

/// Values by the number of the peer's buffer. A buffer's number is never given again, so that what is here
/// may be useless, and is never another buffer's.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    /// The one that was used last stands at the end.
    entries: Vec<(u64, V)>,
    most: usize,
}

impl<V> Cache<V> {
    /// With at most so many values, and at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self { entries: Vec::new(), most: most.max(1) }
    }

    pub(crate) fn get(&mut self, buffer: u64) -> Option<&V> {
        let at = self.entries.iter().position(|(key, _)| *key == buffer)?;
        let entry = self.entries.remove(at);
        self.entries.push(entry);
        self.entries.last().map(|(_, value)| value)
    }

    /// Keeps a value. The one that has not been used for longest goes where there are too many.
    pub(crate) fn insert(&mut self, buffer: u64, value: V) {
        self.entries.retain(|(key, _)| *key != buffer);
        if self.entries.len() == self.most {
            self.entries.remove(0);
        }
        self.entries.push((buffer, value));
    }

    /// Lets all go, for what is short of memory. Says whether there was anything.
    pub(crate) fn clear(&mut self) -> bool {
        let had = !self.entries.is_empty();
        self.entries.clear();
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let mut cache = Cache::new(2);
        cache.insert(1, 'a');
        cache.insert(2, 'b');
        assert_eq!(cache.get(1), Some(&'a'));
        cache.insert(3, 'c');
        assert_eq!([1, 2, 3].map(|buffer| cache.get(buffer).copied()), [Some('a'), None, Some('c')]);
        cache.insert(3, 'd');
        assert_eq!([1, 3].map(|buffer| cache.get(buffer).copied()), [Some('a'), Some('d')]);
        assert!(cache.clear() && !cache.clear());
    }
}
