//! Map of what is made once, each value when it is first asked for, by a call that may wait for a peer.
//!
//! Two locks: the turn, which one thread has while it makes a value, and that of the entries, which no thread holds while it
//! waits. So who asks for a value that is there does not wait for one that is being made.

use core::borrow::Borrow;
use core::hash::Hash;
use std::collections::HashMap;

use crate::ranked::{Mutex, Rank};

/// Values by key. `T` is the rank of the turn, `E` that of the entries.
#[derive(Debug)]
pub struct OnceMap<T, E, K, V> {
    making: Mutex<T, ()>,
    entries: Mutex<E, Option<HashMap<K, V>>>,
}

impl<T: Rank, E: Rank, K: Eq + Hash, V: Clone> OnceMap<T, E, K, V> {
    /// A map without values.
    pub const fn new() -> Self {
        Self { making: Mutex::new(()), entries: Mutex::new(None) }
    }

    /// The value of a key, if it has been made.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries.lock().as_ref()?.get(key).cloned()
    }

    /// The value of a key, which `make` makes where there is none. It is not called for two threads at once.
    ///
    /// # Errors
    /// That of `make`; the next one who asks tries again.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn get_or_make<Q, F>(&self, key: &Q, make: impl FnOnce() -> Result<V, F>) -> Result<V, F>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        if let Some(known) = self.get(key) {
            return Ok(known);
        }
        let _making = self.making.lock();
        // Another thread may have made it meanwhile.
        if let Some(known) = self.get(key) {
            return Ok(known);
        }
        let made = make()?;
        self.entries.lock().get_or_insert_default().insert(key.to_owned(), made.clone());
        Ok(made)
    }

    /// Takes values out, also one that is being made.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn extract(&self, mut is_meant: impl FnMut(&K, &V) -> bool) -> Vec<(K, V)> {
        let _making = self.making.lock();
        let mut entries = self.entries.lock();
        let Some(entries) = &mut *entries else { return Vec::new() };
        entries.extract_if(|key, value| is_meant(key, value)).collect()
    }

    /// All values that have been made.
    pub fn values(&self) -> Vec<V> {
        self.entries.lock().iter().flat_map(HashMap::values).cloned().collect()
    }
}

impl<T: Rank, E: Rank, K: Eq + Hash, V: Clone> Default for OnceMap<T, E, K, V> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    mod rank {
        crate::ranks! {
            tier 0;
            Turn,
            Entries,
        }
    }

    type Map = OnceMap<rank::Turn, rank::Entries, String, u32>;

    #[test]
    fn values_are_found_while_another_one_is_made() {
        let (map, in_call) = (Map::new(), Barrier::new(2));
        assert_eq!(map.get_or_make::<_, ()>("one", || Ok(1)), Ok(1));
        thread::scope(|scope| {
            scope.spawn(|| {
                map.get_or_make::<_, ()>("two", || {
                    in_call.wait();
                    in_call.wait();
                    Ok(2)
                })
            });
            in_call.wait();
            let known = map.get_or_make::<_, ()>("one", || unreachable!("it was made"));
            assert_eq!((known, map.get("two"), map.values()), (Ok(1), None, vec![1]));
            in_call.wait();
        });
        assert_eq!(map.get("two"), Some(2));
        assert_eq!(map.extract(|key, _| key == "one"), [("one".to_owned(), 1)]);
        assert_eq!((map.get("one"), map.extract(|_, _| true).len(), map.values()), (None, 1, vec![]));
    }

    #[test]
    fn two_threads_make_one_value() {
        const THREADS: usize = 4;
        let (map, start, made) = (Map::new(), Barrier::new(THREADS), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    map.get_or_make::<_, ()>("one", || Ok(made.fetch_add(1, Ordering::Relaxed)))
                });
            }
        });
        assert_eq!((map.get("one"), made.load(Ordering::Relaxed)), (Some(0), 1));
    }

    #[test]
    fn what_could_not_be_made_is_tried_again() {
        let map = Map::new();
        assert_eq!(map.get_or_make("one", || Err("lost")), Err("lost"));
        assert_eq!(map.get_or_make::<_, ()>("one", || Ok(1)), Ok(1));
    }
}
