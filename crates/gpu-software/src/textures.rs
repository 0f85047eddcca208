//! The textures and surfaces that there are, and those that a launch finds.
//!
//! Kernels look handles up while other threads make and destroy objects. So each launch holds a table that
//! never changes, taken when it is issued, whose objects stay as long as it does; one that is taken when it
//! begins has what has come since, for a graph that is launched again.

use super::context::ContextId;
use super::handles;
use causeway_ptx::texture::{Surface, Texture};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// What kernels read or write by coordinates.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// What `tex` reads.
    Texture(Arc<Texture>),
    /// What `suld` and `sust` read and write.
    Surface(Surface),
}

/// The objects of one moment, by handle, in the order of the handles.
#[derive(Default)]
pub(super) struct Table(Box<[(u64, Object)]>);

impl Table {
    fn get(&self, handle: u64) -> Option<&Object> {
        let index = self.0.binary_search_by_key(&handle, |(handle, _)| *handle).ok()?;
        Some(&self.0[index].1)
    }

    /// The texture of a handle.
    pub(super) fn texture(&self, handle: u64) -> Option<&Texture> {
        match self.get(handle)? {
            Object::Texture(texture) => Some(texture),
            Object::Surface(_) => None,
        }
    }

    /// The surface of a handle.
    pub(super) fn surface(&self, handle: u64) -> Option<&Surface> {
        match self.get(handle)? {
            Object::Surface(surface) => Some(surface),
            Object::Texture(_) => None,
        }
    }
}

#[derive(Default)]
struct State {
    objects: HashMap<u64, (ContextId, Object)>,
    /// Made when a launch wants it.
    table: Option<Arc<Table>>,
}

/// All textures and surfaces of the device.
#[derive(Default)]
pub(super) struct Textures(Mutex<State>);

impl Textures {
    /// Keeps an object of a context, by a handle that no other has or had.
    pub(super) fn add(&self, context: ContextId, object: Object) -> u64 {
        let handle = handles::next();
        self.put(handle, context, object);
        handle
    }

    /// Keeps an object by this handle, in place of what has it.
    pub(super) fn put(&self, handle: u64, context: ContextId, object: Object) {
        self.change(|objects| objects.insert(handle, (context, object)));
    }

    /// Forgets an object. Launches that were issued before keep it.
    pub(super) fn remove(&self, handle: u64) -> Option<Object> {
        self.change(|objects| objects.remove(&handle)).map(|(_, object)| object)
    }

    /// Forgets the objects of a context that ends.
    pub(super) fn forget_all_of(&self, context: ContextId) {
        self.change(|objects| objects.retain(|_, (owner, _)| *owner != context));
    }

    fn change<R>(&self, change: impl FnOnce(&mut HashMap<u64, (ContextId, Object)>) -> R) -> R {
        let mut state = self.0.lock();
        state.table = None;
        change(&mut state.objects)
    }

    /// The objects that there are now.
    pub(super) fn table(&self) -> Arc<Table> {
        let State { objects, table } = &mut *self.0.lock();
        let table = table.get_or_insert_with(|| {
            let mut sorted: Vec<_> =
                objects.iter().map(|(handle, (_, object))| (*handle, object.clone())).collect();
            sorted.sort_unstable_by_key(|(handle, _)| *handle);
            Arc::new(Table(sorted.into()))
        });
        Arc::clone(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_ptx::texture::{Channel, Image, Slices, TexelFormat};

    fn surface(address: u64) -> Object {
        let format = TexelFormat { channel: Channel::Single, channels: 1 };
        let image = Image { address, size: [1; 3], row_pitch: 4, slice_pitch: 4 };
        Object::Surface(Surface { image, slices: Slices::Depth, format })
    }

    #[test]
    fn a_table_keeps_what_it_had_when_it_was_taken() {
        let textures = Textures::default();
        let (first, second) = (textures.add(1, surface(0x100)), textures.add(2, surface(0x200)));
        let before = textures.table();
        assert!(Arc::ptr_eq(&before, &textures.table()), "it is made once");
        textures.remove(first);
        let third = textures.add(1, surface(0x300));
        let after = textures.table();
        let found = |table: &Table| {
            [first, second, third].map(|handle| table.surface(handle).map(|surface| surface.image.address))
        };
        assert_eq!(found(&before), [Some(0x100), Some(0x200), None]);
        assert_eq!(found(&after), [None, Some(0x200), Some(0x300)]);
        assert!(after.texture(second).is_none() && after.surface(u64::MAX).is_none());
        textures.forget_all_of(1);
        assert_eq!(found(&textures.table()), [None, Some(0x200), None]);
    }
}
