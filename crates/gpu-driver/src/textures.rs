//! The textures and surfaces that exist.

use causeway_api::handle::{Context, Native};
use causeway_sync::face::Mutex;
use std::collections::HashSet;

/// The objects that exist. A program names them by the driver's own numbers, so they are looked up here. Each
/// context counts its own from 1.
#[derive(Default)]
pub(crate) struct Textures {
    pub(crate) textures: Mutex<HashSet<Object>>,
    pub(crate) surfaces: Mutex<HashSet<Object>>,
}

/// A context and the number of an object in it.
type Object = (Native<Context>, u64);

impl Textures {
    /// Forgets the objects of a context that ends.
    pub(crate) fn forget(&self, context: Native<Context>) {
        self.textures.lock().retain(|(owner, _)| *owner != context);
        self.surfaces.lock().retain(|(owner, _)| *owner != context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_have_objects_of_the_same_number() {
        let (textures, contexts) = (Textures::default(), [0x100, 0x200].map(Native::from_value));
        for context in contexts {
            assert!(
                textures.surfaces.lock().insert((context, 1))
                    && textures.textures.lock().insert((context, 2))
            );
        }
        textures.forget(contexts[0]);
        assert_eq!(*textures.surfaces.lock(), HashSet::from([(contexts[1], 1)]));
        assert_eq!(*textures.textures.lock(), HashSet::from([(contexts[1], 2)]));
    }
}
