//! Texture and surface objects, and the older references.
//!
//! An object is the server's own number, since programs hand it to kernels; each context counts for itself.
//! What it was made from is kept here, so that asking costs nothing and gives the program's own handles.

use crate::abi::entry::Outcome;
use crate::arguments::write_out;
use crate::model::array::{Bound, Surface, TEXTURES, Texture};
use crate::model::handles::RawHandle as _;
use crate::model::{array, context, handles};
use crate::remote::mirrored;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Array, MipmappedArray, SurfaceReference, TextureReference};
use causeway_api::sys::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUarray, CUmipmappedArray,
    CUresourcetype, CUresult, CUsurfObject, CUsurfref, CUtexObject, CUtexref,
};
use causeway_api::types::TextureSource;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// What a description means, with its handles checked.
///
/// # Safety
/// The description must have the form that its type says.
unsafe fn source(description: &CUDA_RESOURCE_DESC) -> Result<TextureSource, CUresult> {
    if description.flags != 0 {
        return Err(INVALID);
    }
    // SAFETY: the caller gives a description of the form that its type says, and each branch reads that
    // type's member alone.
    unsafe {
        match description.resType {
            CUresourcetype::CU_RESOURCE_TYPE_ARRAY => {
                Ok(TextureSource::Array(handles::resolve::<Array>(description.res.array.hArray)?))
            }
            CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                let mipmapped = description.res.mipmap.hMipmappedArray;
                Ok(TextureSource::Mipmapped(handles::resolve::<MipmappedArray>(mipmapped)?))
            }
            CUresourcetype::CU_RESOURCE_TYPE_LINEAR => {
                let row = description.res.linear;
                mirrored::note_address(row.devPtr)?;
                Ok(TextureSource::Linear {
                    address: row.devPtr,
                    format: row.format,
                    channels: row.numChannels,
                    bytes: row.sizeInBytes as u64,
                })
            }
            CUresourcetype::CU_RESOURCE_TYPE_PITCH2D => {
                let rows = description.res.pitch2D;
                mirrored::note_address(rows.devPtr)?;
                Ok(TextureSource::Rows {
                    address: rows.devPtr,
                    format: rows.format,
                    channels: rows.numChannels,
                    width: rows.width as u64,
                    height: rows.height as u64,
                    pitch: rows.pitchInBytes as u64,
                })
            }
            _ => Err(INVALID),
        }
    }
}

pub unsafe fn cuTexObjectCreate(
    pTexObject: *mut CUtexObject,
    pResDesc: *const CUDA_RESOURCE_DESC,
    pTexDesc: *const CUDA_TEXTURE_DESC,
    pResViewDesc: *const CUDA_RESOURCE_VIEW_DESC,
) -> Outcome {
    if pTexObject.is_null() {
        return Err(INVALID);
    }
    // SAFETY: descriptions, or null.
    let (description, sampling, view) = unsafe {
        (pResDesc.as_ref().ok_or(INVALID)?, pTexDesc.as_ref().ok_or(INVALID)?, pResViewDesc.as_ref())
    };
    // SAFETY: the program gives a description of the form that its type says.
    let source = unsafe { source(description) }?;
    let request = calls::texture_create { source, texture: *sampling, view: view.copied() };
    let context = context::current()?;
    let object = send::call(&request)?;
    let texture = Texture { source: *description, sampling: *sampling, view: view.copied() };
    TEXTURES.objects.lock().insert((context, object), texture);
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pTexObject, object) }
}

/// As NVIDIA's driver, it has nothing against a number that names no texture of the context, or none any
/// more.
pub unsafe fn cuTexObjectDestroy(texObject: CUtexObject) -> Outcome {
    match TEXTURES.objects.lock().remove(&(context::current()?, texObject)) {
        Some(_) => send::post(&calls::texture_destroy { object: texObject }),
        None => Ok(()),
    }
}

fn texture(object: CUtexObject) -> Result<Texture, CUresult> {
    TEXTURES.objects.lock().get(&(context::current()?, object)).copied().ok_or(INVALID)
}

pub unsafe fn cuTexObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, texObject: CUtexObject) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, texture(texObject)?.source) }
}

pub unsafe fn cuTexObjectGetTextureDesc(out: *mut CUDA_TEXTURE_DESC, texObject: CUtexObject) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, texture(texObject)?.sampling) }
}

pub unsafe fn cuTexObjectGetResourceViewDesc(
    out: *mut CUDA_RESOURCE_VIEW_DESC,
    texObject: CUtexObject,
) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, texture(texObject)?.view.ok_or(INVALID)?) }
}

pub unsafe fn cuSurfObjectCreate(
    pSurfObject: *mut CUsurfObject,
    pResDesc: *const CUDA_RESOURCE_DESC,
) -> Outcome {
    if pSurfObject.is_null() {
        return Err(INVALID);
    }
    // SAFETY: a description, or null.
    let description = unsafe { pResDesc.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program gives a description of the form that its type says.
    let source = unsafe { source(description) }?;
    if !matches!(source, TextureSource::Array(_)) {
        return Err(INVALID);
    }
    let context = context::current()?;
    let object = send::call(&calls::surface_create { source })?;
    TEXTURES.surfaces.lock().insert((context, object), Surface(*description));
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pSurfObject, object) }
}

/// As [`cuTexObjectDestroy`].
pub unsafe fn cuSurfObjectDestroy(surfObject: CUsurfObject) -> Outcome {
    match TEXTURES.surfaces.lock().remove(&(context::current()?, surfObject)) {
        Some(_) => send::post(&calls::surface_destroy { object: surfObject }),
        None => Ok(()),
    }
}

pub unsafe fn cuSurfObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, surfObject: CUsurfObject) -> Outcome {
    let surface = TEXTURES.surfaces.lock().get(&(context::current()?, surfObject)).copied().ok_or(INVALID)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, surface.0) }
}

pub unsafe fn cuTexRefSetArray(hTexRef: CUtexref, hArray: CUarray, Flags: u32) -> Outcome {
    let reference = handles::resolve::<TextureReference>(hTexRef)?;
    let array = array::resolve(hArray)?.handle;
    send::call(&calls::cuTexRefSetArray { hTexRef: reference, hArray: array, Flags })?;
    TEXTURES.bound.lock().insert(reference.value(), Bound::Array(array));
    Ok(())
}

pub unsafe fn cuTexRefSetMipmappedArray(
    hTexRef: CUtexref,
    hMipmappedArray: CUmipmappedArray,
    Flags: u32,
) -> Outcome {
    let reference = handles::resolve::<TextureReference>(hTexRef)?;
    let mipmapped = handles::resolve::<MipmappedArray>(hMipmappedArray)?;
    let request = calls::cuTexRefSetMipmappedArray { hTexRef: reference, hMipmappedArray: mipmapped, Flags };
    send::call(&request)?;
    TEXTURES.bound.lock().insert(reference.value(), Bound::Mipmapped(mipmapped));
    Ok(())
}

pub unsafe fn cuTexRefGetArray(phArray: *mut CUarray, hTexRef: CUtexref) -> Outcome {
    let reference = handles::resolve::<TextureReference>(hTexRef)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(phArray, bound_array(reference.value())?) }
}

fn bound_array(reference: u64) -> Result<CUarray, CUresult> {
    match TEXTURES.bound.lock().get(&reference) {
        Some(Bound::Array(array)) => Ok(array.as_raw()),
        _ => Err(INVALID),
    }
}

pub unsafe fn cuTexRefGetMipmappedArray(out: *mut CUmipmappedArray, hTexRef: CUtexref) -> Outcome {
    let reference = handles::resolve::<TextureReference>(hTexRef)?;
    let bound = TEXTURES.bound.lock().get(&reference.value()).copied();
    let Some(Bound::Mipmapped(mipmapped)) = bound else { return Err(INVALID) };
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, mipmapped.as_raw()) }
}

pub unsafe fn cuTexRefDestroy(hTexRef: CUtexref) -> Outcome {
    let reference = handles::retire::<TextureReference>(hTexRef)?;
    TEXTURES.bound.lock().remove(&reference.value());
    send::call(&calls::cuTexRefDestroy { hTexRef: reference })
}

pub unsafe fn cuSurfRefSetArray(hSurfRef: CUsurfref, hArray: CUarray, Flags: u32) -> Outcome {
    let reference = handles::resolve::<SurfaceReference>(hSurfRef)?;
    let array = array::resolve(hArray)?.handle;
    send::call(&calls::cuSurfRefSetArray { hSurfRef: reference, hArray: array, Flags })?;
    TEXTURES.bound.lock().insert(reference.value(), Bound::Array(array));
    Ok(())
}

pub unsafe fn cuSurfRefGetArray(phArray: *mut CUarray, hSurfRef: CUsurfref) -> Outcome {
    let reference = handles::resolve::<SurfaceReference>(hSurfRef)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(phArray, bound_array(reference.value())?) }
}
