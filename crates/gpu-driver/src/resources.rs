//! Objects that the client has named: parts of devices, which green contexts use, and textures and surfaces.

use std::collections::HashSet;

use crate::locks::{Mutex, rank};
use causeway_api::handle::{Context, Native};
use causeway_api::sys::{CUdevResource, CUresult};
use causeway_api::types::DeviceResource;
use causeway_gpu::CuResult;

/// The API has no call that gives a resource back, so there is an end to how many a client may ask for.
const MAX_RESOURCES: usize = 1 << 16;

/// The resources that the client knows, by number.
#[derive(Default)]
pub(crate) struct Resources(Mutex<rank::Leaf, Vec<CUdevResource>>);

impl Resources {
    pub(crate) fn keep(&self, resource: CUdevResource) -> CuResult<DeviceResource> {
        let mut kept = self.0.lock();
        if kept.len() >= MAX_RESOURCES {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        kept.push(resource);
        let id = kept.len() as u64 - 1;
        // SAFETY: every byte of the union belongs to `_oversize`, and any byte is a valid number.
        let value = unsafe { resource.__bindgen_anon_1._oversize };
        Ok(DeviceResource { id, kind: resource.type_.0, value })
    }

    pub(crate) fn get(&self, id: u64) -> CuResult<CUdevResource> {
        let index = usize::try_from(id).unwrap_or(usize::MAX);
        self.0.lock().get(index).copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

/// The objects that exist. A program names them by the driver's own numbers, so they are looked up here. Each
/// context counts its own from 1.
#[derive(Default)]
pub(crate) struct Textures {
    pub(crate) textures: Mutex<rank::Leaf, HashSet<Object>>,
    pub(crate) surfaces: Mutex<rank::Leaf, HashSet<Object>>,
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
    use causeway_api::sys::CUdevResourceType;

    use super::*;

    #[test]
    fn a_resource_is_found_by_its_number_alone() {
        let resources = Resources::default();
        let mut resource =
            CUdevResource { type_: CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM, ..Default::default() };
        resource.__bindgen_anon_1.sm.smCount = 132;
        let kept = resources.keep(resource).unwrap();
        assert_eq!((kept.id, kept.kind, kept.value[0]), (0, 1, 132));
        assert!(resources.get(0).is_ok() && resources.get(1).is_err() && resources.get(u64::MAX).is_err());
    }

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
