//! Compatibility of an image with the devices. The load of one that is sure to suit them need not be waited for.

use super::Image;
use crate::environment;
use crate::model::device::{self, Device};
use crate::remote::session::Session;
use causeway_api::image::{ELF_MAGIC, EntryKind, FATBIN_MAGIC, cubin_architecture, entries, runs_on};
use causeway_api::sys::CUdevice_attribute;
use causeway_config::table::{CUDA_FORCE_JIT, CUDA_FORCE_PTX_JIT};

/// Whether every device of a server that the program sees runs the image as it is. Only headers are read. An
/// image of which this cannot be said may suit all the same, which the server's driver knows.
pub fn all_devices(session: &Session, image: &Image<'_>) -> bool {
    // These make the driver compile what it would load otherwise.
    if environment::is_on(&CUDA_FORCE_PTX_JIT) || environment::is_on(&CUDA_FORCE_JIT) {
        return false;
    }
    let machine_code = session.snapshot.machine_code;
    let mut devices = device::all().iter().filter(|device| device.server == session.server());
    devices.all(|device| capability(device).is_some_and(|it| suits(image, it, machine_code)))
}

fn capability(device: &Device) -> Option<u32> {
    let major =
        device.info.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.0 as i32)?;
    let minor =
        device.info.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR.0 as i32)?;
    u32::try_from(major * 10 + minor).ok()
}

/// Whether a device of a compute capability, times ten, runs the image without anything being compiled; one
/// that runs PTX only, whether there is a text for it.
fn suits(image: &Image<'_>, capability: u32, machine_code: bool) -> bool {
    let bytes = image.bytes();
    if bytes.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        // Of linked ones this reads the first, which is the one that counts.
        return entries(bytes).is_ok_and(|entries| {
            entries.iter().any(|entry| match entry.kind {
                EntryKind::Cubin => machine_code && runs_on(entry.architecture, capability),
                EntryKind::Ptx => !machine_code && entry.architecture <= capability,
                EntryKind::Other(_) => false,
            })
        });
    }
    machine_code
        && bytes.starts_with(&ELF_MAGIC)
        && bytes
            .first_chunk()
            .and_then(cubin_architecture)
            .is_some_and(|architecture| runs_on(architecture, capability))
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::image::sample::{fatbin, plain};

    #[test]
    fn machine_code_suits_its_generation_and_ptx_needs_compiling() {
        let code = fatbin(&[plain(EntryKind::Cubin, 80, b"")]);
        let ptx = fatbin(&[plain(EntryKind::Ptx, 75, b"")]);
        let (code, ptx) = (Image::Single(&code), Image::Single(&ptx));
        assert!(suits(&code, 86, true) && !suits(&code, 90, true) && !suits(&code, 86, false));
        assert!(!suits(&ptx, 90, true) && suits(&ptx, 90, false) && !suits(&ptx, 70, false));
        assert!(!suits(&Image::Single(b".version 8.0"), 90, false));
        let mut cubin = [0; 64];
        cubin[..4].copy_from_slice(&ELF_MAGIC);
        (cubin[8], cubin[48]) = (7, 90);
        assert!(suits(&Image::Single(&cubin), 90, true) && !suits(&Image::Single(&cubin), 100, true));
        assert!(!suits(&Image::Single(&cubin[..20]), 90, true));
    }
}
