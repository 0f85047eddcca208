//! Driver objects of a session: which client handle stands for which native handle, and dispatch of requests.
//!
//! This is the one place where handles of a peer are checked: an unknown, freed or wrongly typed handle, or
//! one that is in use already, is an error for that client.

use causeway_api::calls::Request;
use causeway_api::handle::{Handle, Kind, Native, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::{DeviceLocation, TextureSource};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::{Calls, NativeLocation, NativeSource};

/// More objects than this in one session are refused, so that a hostile client cannot exhaust the worker.
const MAX_OBJECTS: usize = 1 << 22;

/// All objects of one session.
///
/// Keyed by the whole handle, not by its slot: a client may use a slot again, with the next epoch, while the
/// command that destroys the old object still waits for its stream. The hash is a fast one: a launch looks up
/// three handles, and a client that makes them collide slows down its own worker alone.
#[derive(Default)]
pub struct Objects {
    natives: RwLock<FxHashMap<u64, u64>>,
    /// Objects that could not be made although nobody waited to hear it, and why.
    failed: RwLock<FxHashMap<u64, CUresult>>,
}

impl Objects {
    /// The native handle of `handle`. The null stream is the legacy default stream, `CU_STREAM_LEGACY` too.
    pub fn native<K: Kind>(&self, handle: Handle<K>) -> Result<Native<K>, CUresult> {
        if let Some(native) = null::<K>(handle) {
            return Ok(native);
        }
        if !K::accepts(handle.tag()) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        match self.natives.read().get(&handle.value()) {
            Some(native) => Ok(Native::from_value(*native)),
            None => Err(self.failure(handle.value()).unwrap_or(CUresult::CUDA_ERROR_INVALID_HANDLE)),
        }
    }

    /// Remembers that the object which the client has named by this value could not be made. Whoever uses it
    /// gets `error`, as if the call that made it had waited and failed.
    pub fn fail(&self, handle: u64, error: CUresult) {
        let mut failed = self.failed.write();
        if failed.len() < MAX_OBJECTS {
            failed.insert(handle, error);
        }
    }

    /// Why the object of this value could not be made, if it could not.
    pub fn failure(&self, handle: u64) -> Option<CUresult> {
        self.failed.read().get(&handle).copied()
    }

    /// Forgets an object that could not be made; false when it is none.
    pub fn forget_failed(&self, handle: u64) -> bool {
        self.failed.write().remove(&handle).is_some()
    }

    /// Enters an object that the client has named `handle`.
    pub fn insert<K: Kind>(&self, handle: Handle<K>, native: Native<K>) -> Result<(), CUresult> {
        let mut natives = self.natives.write();
        if handle.tag() != K::TAG || natives.len() >= MAX_OBJECTS || natives.contains_key(&handle.value()) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        natives.insert(handle.value(), native.value());
        Ok(())
    }

    /// Has a handle stand for another native handle of the same kind.
    pub fn replace<K: Kind>(&self, handle: Handle<K>, native: Native<K>) -> Result<(), CUresult> {
        let mut natives = self.natives.write();
        let known = natives.get_mut(&handle.value()).filter(|_| K::accepts(handle.tag()));
        *known.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)? = native.value();
        Ok(())
    }

    /// The handles of all objects of a kind. It looks at all objects.
    pub fn handles<K: Kind>(&self) -> Vec<Handle<K>> {
        let natives = self.natives.read();
        natives
            .keys()
            .map(|value| Handle::from_value(*value))
            .filter(|handle| handle.tag() == K::TAG)
            .collect()
    }

    /// Takes an object out; its handle is not valid any more.
    pub fn remove<K: Kind>(&self, handle: Handle<K>) -> Result<Native<K>, CUresult> {
        if !K::accepts(handle.tag()) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        match self.natives.write().remove(&handle.value()) {
            Some(native) => Ok(Native::from_value(native)),
            None => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }
}

/// A value of the wire that holds handles, and its counterpart with the back end's own.
pub trait Translate {
    /// What the back end gets.
    type Native;
    /// Looks every handle up.
    ///
    /// # Errors
    /// When one of them is not valid.
    fn natives(&self, objects: &Objects) -> Result<Self::Native, CUresult>;
}

impl Translate for DeviceLocation {
    type Native = NativeLocation;
    fn natives(&self, objects: &Objects) -> Result<NativeLocation, CUresult> {
        self.try_map(|array| objects.native(*array))
    }
}

impl Translate for TextureSource {
    type Native = NativeSource;
    fn natives(&self, objects: &Objects) -> Result<NativeSource, CUresult> {
        Ok(match *self {
            Self::Array(array) => TextureSource::Array(objects.native(array)?),
            Self::Mipmapped(array) => TextureSource::Mipmapped(objects.native(array)?),
            Self::Linear { address, format, channels, bytes } => {
                TextureSource::Linear { address, format, channels, bytes }
            }
            Self::Rows { address, format, channels, width, height, pitch } => {
                TextureSource::Rows { address, format, channels, width, height, pitch }
            }
        })
    }
}

/// Null handles that mean something: the legacy default stream, and "no context", "no pool".
fn null<K: Kind>(handle: Handle<K>) -> Option<Native<K>> {
    const LEGACY: u64 = 1;
    let legacy = K::TAG == Stream::TAG && handle.value() == LEGACY;
    let nullable = K::TAG == Stream::TAG
        || K::TAG == causeway_api::handle::Context::TAG
        || K::TAG == causeway_api::handle::MemoryPool::TAG;
    (legacy || (nullable && handle.is_null())).then_some(Native::NULL)
}

causeway_api_macros::dispatch!();

#[cfg(test)]
mod tests {
    use causeway_api::handle::{Event, Function, Kernel};

    use super::*;

    #[test]
    fn a_handle_is_valid_from_insert_to_remove() {
        let objects = Objects::default();
        let handle = Handle::<Event>::new(3, 1);
        assert!(objects.native(handle).is_err());
        objects.insert(handle, Native::from_value(99)).unwrap();
        assert_eq!(objects.native(handle), Ok(Native::from_value(99)));
        assert!(objects.insert(handle, Native::from_value(1)).is_err());
        assert_eq!((objects.handles::<Event>(), objects.handles::<Kernel>()), (vec![handle], vec![]));
        assert_eq!(objects.replace(handle, Native::from_value(98)), Ok(()));
        assert_eq!(objects.remove(handle), Ok(Native::from_value(98)));
        assert!(objects.replace(handle, Native::from_value(97)).is_err());
        assert_eq!(objects.native(handle), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
        assert!(objects.remove(handle).is_err());
        objects.insert(Handle::<Event>::new(3, 2), Native::from_value(1)).unwrap();
        assert!(objects.native(handle).is_err(), "an old epoch stays invalid");
    }

    #[test]
    fn the_use_of_what_could_not_be_made_tells_why() {
        let objects = Objects::default();
        let handle = Handle::<Event>::new(3, 1);
        objects.fail(handle.value(), CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
        assert_eq!(objects.native(handle), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        assert!(objects.forget_failed(handle.value()) && !objects.forget_failed(handle.value()));
        assert_eq!(objects.native(handle), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
    }

    #[test]
    fn kinds_are_kept_apart() {
        let objects = Objects::default();
        let kernel = Handle::<Kernel>::new(0, 0);
        objects.insert(kernel, Native::from_value(5)).unwrap();
        assert_eq!(objects.native(Handle::<Function>::from_value(kernel.value())), Ok(Native::from_value(5)));
        assert!(objects.native(Handle::<Event>::from_value(kernel.value())).is_err());
        assert!(objects.native(Handle::<Event>::NULL).is_err());
        assert_eq!(objects.native(Handle::<Stream>::NULL), Ok(Native::NULL));
        let hostile = Handle::<Event>::from_value(u64::MAX);
        assert!(objects.insert(hostile, Native::from_value(1)).is_err());
    }
}
