//! Texture and surface references: variables of modules that stand for what a program binds to them.
//!
//! A kernel names such a variable by its address, under which the bound object is kept among the others. It is
//! made anew whenever something of the reference changes; launches keep what was bound when they were issued.

use super::array::Arrays;
use super::context::ContextId;
use super::textures::{Object, Textures};
use super::{handles, texture};
use causeway_api::sys::{CUDA_TEXTURE_DESC, CUarray_format, CUresult};
use causeway_gpu::{CuResult, NativeSource};
use causeway_ptx::memory::AddressSpace;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// What a reference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Texture,
    Surface,
}

/// One reference.
#[derive(Clone, Copy)]
pub(super) struct Reference {
    kind: Kind,
    context: ContextId,
    /// The module that has the variable, and the variable's address; 0 of one that is no variable.
    module: u64,
    address: u64,
    /// What is bound to it.
    pub(super) source: Option<NativeSource>,
    pub(super) description: CUDA_TEXTURE_DESC,
    /// What a texel of linear memory is.
    pub(super) format: CUarray_format,
    pub(super) channels: u32,
}

impl Reference {
    fn new(kind: Kind, context: ContextId, module: u64, address: u64) -> Self {
        Self {
            kind,
            context,
            module,
            address,
            source: None,
            description: CUDA_TEXTURE_DESC::default(),
            format: CUarray_format::CU_AD_FORMAT_FLOAT,
            channels: 1,
        }
    }
}

/// All references of the device.
#[derive(Default)]
pub(super) struct References(Mutex<HashMap<u64, Reference>>);

impl References {
    /// The reference that the variable of a module at this address is.
    pub(super) fn of_variable(&self, kind: Kind, context: ContextId, module: u64, address: u64) -> u64 {
        let mut references = self.0.lock();
        let known = references.iter().find(|(_, reference)| {
            (reference.kind, reference.module, reference.address) == (kind, module, address)
        });
        if let Some((id, _)) = known {
            return *id;
        }
        let id = handles::next();
        references.insert(id, Reference::new(kind, context, module, address));
        id
    }

    /// A texture reference that no kernel can name.
    pub(super) fn of_no_variable(&self, context: ContextId) -> u64 {
        let id = handles::next();
        self.0.lock().insert(id, Reference::new(Kind::Texture, context, 0, 0));
        id
    }

    /// A reference as it is.
    pub(super) fn get(&self, kind: Kind, id: u64) -> CuResult<Reference> {
        let references = self.0.lock();
        let found = references.get(&id).filter(|reference| reference.kind == kind);
        found.copied().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Keeps a reference as it is now to be, and binds what it names to its variable. What cannot be read in this
    /// way yet is bound when it can: a program sets one thing after the other.
    pub(super) fn set(
        &self,
        id: u64,
        reference: Reference,
        (space, arrays, textures): (&AddressSpace, &Arrays, &Textures),
    ) {
        self.0.lock().insert(id, reference);
        let Reference { context, address, source, description, .. } = reference;
        if address == 0 {
            return;
        }
        let Some(source) = source else { return drop(textures.remove(address)) };
        let object = match reference.kind {
            Kind::Texture => texture::texture(space, arrays, &source, &description, None)
                .map(|texture| Object::Texture(Arc::new(texture))),
            Kind::Surface => texture::surface(space, arrays, &source).map(Object::Surface),
        };
        match object {
            Ok(object) => textures.put(address, context, object),
            Err(_) => drop(textures.remove(address)),
        }
    }

    /// Forgets a reference that is no variable.
    pub(super) fn destroy(&self, id: u64) -> CuResult<()> {
        let mut references = self.0.lock();
        match references.get(&id) {
            Some(reference) if reference.module == 0 => {
                references.remove(&id);
                Ok(())
            }
            _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Forgets the variables of a module that ends, and what is bound to them.
    pub(super) fn forget_module(&self, module: u64, textures: &Textures) {
        let ended: Vec<_> = self.0.lock().extract_if(|_, reference| reference.module == module).collect();
        for (_, reference) in ended {
            textures.remove(reference.address);
        }
    }

    /// Forgets the references of a context that ends.
    pub(super) fn forget_all_of(&self, context: ContextId) {
        self.0.lock().retain(|_, reference| reference.context != context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::types::TextureSource;

    #[test]
    fn what_is_bound_to_a_variable_is_found_by_its_address_until_its_module_ends() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let memory = space.allocate(4096, 512).unwrap();
        let (arrays, textures, references) = (Arrays::default(), Textures::default(), References::default());
        let id = references.of_variable(Kind::Texture, 1, 2, 0x5000);
        assert_eq!(references.of_variable(Kind::Texture, 1, 2, 0x5000), id);
        assert_ne!(references.of_variable(Kind::Texture, 1, 3, 0x6000), id);
        let width = || textures.table().texture(0x5000).map(|texture| texture.levels[0].size[0]);
        let bind = |bytes: u64| {
            let mut reference = references.get(Kind::Texture, id).unwrap();
            let (format, channels) = (reference.format, reference.channels);
            reference.source = Some(TextureSource::Linear { address: memory, format, channels, bytes });
            references.set(id, reference, (&space, &arrays, &textures));
        };
        assert_eq!(width(), None);
        bind(40);
        assert_eq!(width(), Some(10));
        let before = textures.table();
        bind(80);
        assert_eq!(width(), Some(20));
        assert_eq!(before.texture(0x5000).map(|texture| texture.levels[0].size[0]), Some(10));
        bind(8000);
        assert_eq!(width(), None, "it lies outside of memory");
        bind(40);
        assert!(references.get(Kind::Surface, id).is_err() && references.destroy(id).is_err());
        references.forget_module(2, &textures);
        assert_eq!(width(), None);
        assert!(references.get(Kind::Texture, id).is_err());
        let own = references.of_no_variable(1);
        assert_eq!((references.destroy(own), references.destroy(own).is_err()), (Ok(()), true));
    }
}
