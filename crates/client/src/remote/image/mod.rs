//! Images of modules: where one ends, of which programs pass only the address; what it is called; how it is
//! sent.
//!
//! Compatibility of an image with the devices. The load of one that is sure to suit them need not be waited
//! for.

mod origin;
pub mod pending_images;

use core::ffi::{CStr, c_char, c_void};
use core::slice;

use causeway_api::image::{
    ELF_MAGIC, EntryKind, FATBIN_HEADER_BYTES, FATBIN_MAGIC, Form, WRAPPER_MAGIC, cubin_architecture,
    entries, fatbin_bytes, runs_on,
};
use causeway_api::sys::{CUdevice_attribute, CUresult};
use causeway_config::table::{CUDA_FORCE_JIT, CUDA_FORCE_PTX_JIT};

use crate::environment;
use crate::model::device::{self, Device};
use crate::remote::session::Session;

/// An image as it is sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Image<'a> {
    /// A fat binary, a cubin or PTX text, where the program has it.
    Single(&'a [u8]),
    /// The fat binaries of a device-linked program, put together.
    Linked(Vec<u8>),
}

impl Image<'_> {
    /// Its description on the wire.
    pub fn form(&self) -> Form {
        match self {
            Self::Single(_) => Form::Single,
            Self::Linked(_) => Form::Linked,
        }
    }

    /// Whether it lies in a loaded program or library as it is in the file.
    pub fn is_of_file(&self) -> bool {
        origin::of(self.bytes().as_ptr(), self.bytes().len()).is_some()
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Single(bytes) => bytes,
            Self::Linked(bytes) => bytes,
        }
    }
}

/// The wrapper that the runtime passes; `nvcc` puts it into the section `.nvFatBinSegment`.
#[repr(C)]
struct Wrapper {
    magic: u32,
    /// 1: `data` is the fat binary. 2: `data` is the device-linked one, and `parts` a list, ended by null, of
    /// those it was linked from.
    version: u32,
    data: *const c_void,
    parts: *const *const c_void,
}

/// The image at an address.
///
/// # Safety
/// `address` is null or points to an image of one of the forms that `cuModuleLoadData` takes, or to the
/// runtime's wrapper of one, and the image stays as it is while the result is used.
pub unsafe fn at<'a>(address: *const c_void) -> Result<Image<'a>, CUresult> {
    if address.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: every form has at least four bytes: a magic number, or text with its NUL.
    if unsafe { leading_number(address) } != WRAPPER_MAGIC {
        // SAFETY: `address` points to an image, which the caller keeps as it is while the result is used.
        return unsafe { single(address) }.map(Image::Single);
    }
    // SAFETY: the magic number says that this is a wrapper.
    let wrapper = unsafe { address.cast::<Wrapper>().read_unaligned() };
    if wrapper.data.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    // SAFETY: the wrapper of a valid image points to one.
    let linked = unsafe { single(wrapper.data) }?;
    if wrapper.version != 2 || wrapper.parts.is_null() {
        return Ok(Image::Single(linked));
    }
    let mut all = linked.to_vec();
    let mut next = wrapper.parts;
    loop {
        // SAFETY: the list ends with null, which is where this loop ends.
        let part = unsafe { next.read_unaligned() };
        if part.is_null() {
            return Ok(Image::Linked(all));
        }
        // SAFETY: the list holds addresses of fat binaries.
        all.extend_from_slice(unsafe { single(part) }?);
        // SAFETY: not the end of the list yet.
        next = unsafe { next.add(1) };
    }
}

/// # Safety
/// `address` points to at least four bytes, or to text that ends before.
unsafe fn leading_number(address: *const c_void) -> u32 {
    let mut bytes = [0; 4];
    for (index, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: the text, if it is one, has not ended yet.
        *byte = unsafe { address.cast::<u8>().add(index).read() };
        if *byte == 0 && index == 0 {
            break;
        }
    }
    u32::from_le_bytes(bytes)
}

/// # Safety
/// `address` points to a fat binary, an ELF file or NUL-terminated text, which stays as it is.
unsafe fn single<'a>(address: *const c_void) -> Result<&'a [u8], CUresult> {
    let start = address.cast::<u8>();
    // SAFETY: the caller's image lasts as long as the result; each magic number says what follows it.
    unsafe {
        match leading_number(address) {
            FATBIN_MAGIC => {
                let header = start.cast::<[u8; FATBIN_HEADER_BYTES]>().read();
                let length = fatbin_bytes(&header).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
                region(start, length)
            }
            magic if magic == u32::from_le_bytes(ELF_MAGIC) => region(start, elf_bytes(start)?),
            _ => match CStr::from_ptr(start.cast::<c_char>()).to_bytes() {
                [] => Err(CUresult::CUDA_ERROR_INVALID_IMAGE),
                text => Ok(text),
            },
        }
    }
}

/// # Safety
/// `start` points to that many bytes, if they are not more than an image can have.
unsafe fn region<'a>(start: *const u8, length: u64) -> Result<&'a [u8], CUresult> {
    /// No image is larger; a header that says so is broken.
    const MAX_IMAGE_BYTES: u64 = 1 << 36;
    if length > MAX_IMAGE_BYTES {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    // SAFETY: the caller has `length` bytes there as long as the result lives, and that many are what an
    // image may have.
    Ok(unsafe { slice::from_raw_parts(start, length as usize) })
}

/// The size of a 64-bit ELF file: where the last of its header tables, sections and segments ends.
///
/// # Safety
/// `start` points to an ELF file that is whole.
unsafe fn elf_bytes(start: *const u8) -> Result<u64, CUresult> {
    const HEADER_BYTES: u64 = 64;
    const SECTION_WITHOUT_BYTES: u32 = 8;
    // SAFETY: the fields lie within the header and the tables that a whole file has.
    let half = |offset: u64| u64::from(unsafe { start.add(offset as usize).cast::<u16>().read_unaligned() });
    // SAFETY: the fields lie within the header and the tables that a whole file has.
    let word = |offset: u64| unsafe { start.add(offset as usize).cast::<u32>().read_unaligned() };
    // SAFETY: the fields lie within the header and the tables that a whole file has.
    let long = |offset: u64| unsafe { start.add(offset as usize).cast::<u64>().read_unaligned() };
    // SAFETY: the class is byte 4 of every ELF file.
    if unsafe { start.add(4).read() } != 2 {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    let overflow = CUresult::CUDA_ERROR_INVALID_IMAGE;
    let (segments, segment_bytes, segment_count) = (long(32), half(54), half(56));
    let (sections, section_bytes, section_count) = (long(40), half(58), half(60));
    let mut end = HEADER_BYTES;
    let mut include = |offset: u64, length: u64| {
        end = end.max(offset.checked_add(length).ok_or(overflow)?);
        Ok(())
    };
    if segment_count > 0 {
        include(segments, segment_bytes * segment_count)?;
    }
    if section_count > 0 {
        include(sections, section_bytes * section_count)?;
    }
    for index in 0..section_count {
        let header = sections + index * section_bytes;
        if word(header + 4) != SECTION_WITHOUT_BYTES {
            include(long(header + 24), long(header + 32))?;
        }
    }
    for index in 0..segment_count {
        let header = segments + index * segment_bytes;
        include(long(header + 8), long(header + 32))?;
    }
    Ok(end)
}

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
    use causeway_api::image::sample::{fatbin, fatbin_around, plain};

    use super::*;

    fn found<'a>(address: *const c_void) -> Result<Image<'a>, CUresult> {
        // SAFETY: every test passes an image or null.
        unsafe { at(address) }
    }

    #[test]
    fn image_length_is_found_for_text_and_fat_binary() {
        assert_eq!(found(c".version 8.0".as_ptr().cast()), Ok(Image::Single(b".version 8.0")));
        assert_eq!(found(c"".as_ptr().cast()), Err(CUresult::CUDA_ERROR_INVALID_IMAGE));
        assert_eq!(found(core::ptr::null()), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        let binary = fatbin_around(b"body");
        let followed = [&binary[..], b"something else"].concat();
        assert_eq!(found(followed.as_ptr().cast()), Ok(Image::Single(&binary)));
    }

    #[test]
    fn a_fat_binary_of_absurd_size_is_refused() {
        let mut binary = fatbin_around(b"");
        binary[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(found(binary.as_ptr().cast()), Err(CUresult::CUDA_ERROR_INVALID_IMAGE));
    }

    #[test]
    fn wrappers_lead_to_one_image_or_to_linked_ones() {
        let (linked, first, second) = (fatbin_around(b"linked"), fatbin_around(b"1"), fatbin_around(b"22"));
        let parts: [*const c_void; 3] = [first.as_ptr().cast(), second.as_ptr().cast(), core::ptr::null()];
        let mut wrapper =
            Wrapper { magic: WRAPPER_MAGIC, version: 1, data: linked.as_ptr().cast(), parts: parts.as_ptr() };
        assert_eq!(found((&raw const wrapper).cast()), Ok(Image::Single(&linked)));
        wrapper.version = 2;
        let image = found((&raw const wrapper).cast()).unwrap();
        assert_eq!(image.form(), Form::Linked);
        assert_eq!(image.bytes(), [linked, first, second].concat());
    }

    #[test]
    fn an_elf_file_ends_behind_its_last_part() {
        let mut file = vec![0_u8; 64];
        file[..4].copy_from_slice(&ELF_MAGIC);
        file[4] = 2;
        file[40..48].copy_from_slice(&80_u64.to_le_bytes());
        file[58..60].copy_from_slice(&64_u16.to_le_bytes());
        file[60..62].copy_from_slice(&2_u16.to_le_bytes());
        file.resize(80 + 128, 0);
        let mut section = |index: usize, kind: u32, offset: u64, size: u64| {
            let header = 80 + 64 * index;
            file[header + 4..header + 8].copy_from_slice(&kind.to_le_bytes());
            file[header + 24..header + 32].copy_from_slice(&offset.to_le_bytes());
            file[header + 32..header + 40].copy_from_slice(&size.to_le_bytes());
        };
        section(0, 1, 208, 30);
        section(1, 8, 208, 4000);
        file.resize(400, 7);
        assert_eq!(found(file.as_ptr().cast()).unwrap().bytes().len(), 238);
    }

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
