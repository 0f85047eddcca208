//! LRU cache of opened peer memory and of registrations: what was used last, up to a number.

/// Values by the number of the peer's buffer. A buffer's number is never given again, so that what is here
/// may be useless, and is never another buffer's.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    /// The one that was used last stands at the end.
    entries: Vec<(u64, V)>,
    max_entries: usize,
}

impl<V> Cache<V> {
    /// With at most so many values, and at least one.
    pub(crate) fn new(max_entries: usize) -> Self {
        Self { entries: Vec::new(), max_entries: max_entries.max(1) }
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
        if self.entries.len() == self.max_entries {
            self.entries.remove(0);
        }
        self.entries.push((buffer, value));
    }

    /// Lets a value go that is of no use any more.
    pub(crate) fn remove(&mut self, buffer: u64) {
        self.entries.retain(|(key, _)| *key != buffer);
    }

    /// Keeps those of which `keeps` says so, and lets the others go.
    pub(crate) fn retain(&mut self, keeps: impl Fn(u64, &V) -> bool) {
        self.entries.retain(|(buffer, value)| keeps(*buffer, value));
    }

    /// Opens what is not here yet. Where that fails, all that is here goes and it is tried once more: memory
    /// may be short, or the peer has freed what is open and has made this in its place, which the driver does
    /// not open beside it.
    pub(crate) fn open<E>(&mut self, open: impl Fn() -> Result<V, E>) -> Result<V, E> {
        open().or_else(|error| {
            if self.entries.is_empty() {
                return Err(error);
            }
            self.entries.clear();
            open()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let mut cache = Cache::new(2);
        cache.insert(1, 'a');
        cache.insert(2, 'b');
        assert_eq!(cache.get(1), Some(&'a'));
        cache.insert(3, 'c');
        assert_eq!([1, 2, 3].map(|buffer| cache.get(buffer).copied()), [Some('a'), None, Some('c')]);
        cache.insert(2, 'e');
        cache.remove(2);
        assert_eq!(cache.get(2), None);
        cache.insert(1, 'a');
        cache.insert(3, 'd');
        assert_eq!([1, 3].map(|buffer| cache.get(buffer).copied()), [Some('a'), Some('d')]);
        cache.retain(|buffer, value| buffer != 1 && *value == 'd');
        assert_eq!([1, 3].map(|buffer| cache.get(buffer).copied()), [None, Some('d')]);
    }

    #[test]
    fn what_cannot_be_opened_beside_others_is_opened_without_them() {
        // A driver that has room for one at a time.
        #[derive(Debug)]
        struct Open<'a>(&'a Cell<bool>);
        impl Drop for Open<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        let (is_open, tries) = (Cell::new(false), Cell::new(0));
        let open = || {
            tries.set(tries.get() + 1);
            if is_open.replace(true) { Err("it is full") } else { Ok(Open(&is_open)) }
        };
        let mut cache = Cache::new(2);
        for buffer in [1, 2] {
            let opened = cache.open(open).unwrap();
            cache.insert(buffer, opened);
        }
        assert_eq!((cache.get(1).is_some(), cache.get(2).is_some(), tries.get()), (false, true, 3));
        assert_eq!(Cache::<()>::new(2).open(|| Err::<(), _>("it never does")), Err("it never does"));
    }
}
