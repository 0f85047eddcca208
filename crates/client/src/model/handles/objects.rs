//! Object table: the client's state of the program's objects, by handle.

use crate::locks::{RwLock, rank};
use causeway_api::handle::{Context, Handle, Kind};
use causeway_api::sys::CUresult;
use core::any::Any;
use std::sync::Arc;

/// What is kept of an object: one type for each kind of handle.
pub trait Object: Any + Send + Sync {
    /// The kind of its handle.
    type Kind: Kind;
}

/// The value of a handle, and what is kept under it.
type Entry = (u64, Arc<dyn Any + Send + Sync>);

/// More than the tags of handles.
const TAGS: usize = 32;

/// All that is kept: by the tag of the kind, then by slot.
static OBJECTS: [RwLock<rank::Objects, Vec<Option<Entry>>>; TAGS] = [const { RwLock::new(Vec::new()) }; TAGS];

fn of_kind<T: Object>() -> &'static RwLock<rank::Objects, Vec<Option<Entry>>> {
    const { assert!((T::Kind::TAG as usize) < TAGS) };
    &OBJECTS[T::Kind::TAG as usize]
}

/// Keeps `object` under `handle`.
pub fn insert<T: Object>(handle: Handle<T::Kind>, object: Arc<T>) {
    let index = handle.index() as usize;
    let mut entries = of_kind::<T>().write();
    if index >= entries.len() {
        entries.resize_with(index + 1, || None);
    }
    entries[index] = Some((handle.value(), object));
}

/// What is kept under `handle`.
#[inline]
pub fn get<T: Object>(handle: Handle<T::Kind>) -> Result<Arc<T>, CUresult> {
    let object = match of_kind::<T>().read().get(handle.index() as usize) {
        Some(Some((value, object))) if *value == handle.value() => object.clone(),
        _ => return Err(refusal::<T::Kind>()),
    };
    object.downcast().map_err(|_| refusal::<T::Kind>())
}

/// Takes out what is kept under `handle`.
pub fn remove<T: Object>(handle: Handle<T::Kind>) -> Option<Arc<T>> {
    let mut entries = of_kind::<T>().write();
    let entry = entries.get_mut(handle.index() as usize)?;
    let (_, object) = entry.take_if(|(value, _)| *value == handle.value())?;
    object.downcast().ok()
}

/// Everything of a sort that `wanted` picks.
pub fn select<T: Object>(predicate: impl Fn(&T) -> bool) -> Vec<(Handle<T::Kind>, Arc<T>)> {
    let entries = of_kind::<T>().read();
    let is_selected = |object: &&Entry| object.1.downcast_ref().is_some_and(&predicate);
    let selected = entries.iter().flatten().filter(is_selected);
    selected
        .filter_map(|(value, object)| Some((Handle::from_value(*value), object.clone().downcast().ok()?)))
        .collect()
}

/// What a program gets that passes something else for a handle of the kind.
pub fn refusal<K: Kind>() -> CUresult {
    if K::TAG == Context::TAG {
        CUresult::CUDA_ERROR_INVALID_CONTEXT
    } else {
        CUresult::CUDA_ERROR_INVALID_HANDLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::handle::UserObject;

    /// Of a kind of which nothing else is kept.
    struct Number(u32);

    impl Object for Number {
        type Kind = UserObject;
    }

    #[test]
    fn removed_objects_and_older_handles_are_not_found() {
        let (old, new) = (Handle::new(5, 0), Handle::new(5, 1));
        let number = |handle| get::<Number>(handle).map(|number| number.0);
        insert(old, Arc::new(Number(1)));
        assert_eq!(number(old), Ok(1));
        insert(new, Arc::new(Number(2)));
        assert!(number(old).is_err() && remove::<Number>(old).is_none());
        assert_eq!(select::<Number>(|number| number.0 == 2).len(), 1);
        assert!(select::<Number>(|number| number.0 == 1).is_empty());
        assert_eq!(remove::<Number>(new).map(|number| number.0), Some(2));
        assert_eq!(number(new), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
    }
}
