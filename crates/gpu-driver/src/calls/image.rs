//! Module images: bringing the bytes of a client into a form that the driver takes.
//!
//! The driver is given no size: it finds the end of an image in the image. What a client sent shorter than
//! its header says is refused here where that is cheap to see; a cubin that lies about itself can only harm
//! the worker process of the client that sent it.

use crate::driver::Driver;
use crate::fatbin::has_code_for;
use crate::jit::Options;
use causeway_api::handle::{Kind, Library, Module, Native};
use causeway_api::image::{self, FATBIN_HEADER_BYTES, Form, WRAPPER_MAGIC};
use causeway_api::sys::{CUdevice, CUjitInputType, CUlinkState, CUresult};
use causeway_api::types::{JitOptions, JitReport};
use causeway_gpu::CuResult;
use core::ffi::c_void;
use std::borrow::Cow;

/// What the runtime passes for a fat binary, and the driver expects.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    fatbin: *const c_void,
    parts: *const c_void,
}

/// An image in memory as the driver wants it.
enum Prepared<'a> {
    Fatbin(Wrapper, Aligned<'a>),
    Cubin(Aligned<'a>),
    Ptx(Vec<u8>),
}

/// Bytes at an address that is a multiple of eight, copied only when they are not.
enum Aligned<'a> {
    InPlace(&'a [u8]),
    Copied(Vec<u64>),
}

impl<'a> Aligned<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        if bytes.as_ptr().cast::<u64>().is_aligned() {
            return Self::InPlace(bytes);
        }
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        Self::Copied(words.collect())
    }

    fn address(&self) -> *const c_void {
        match self {
            Self::InPlace(bytes) => bytes.as_ptr().cast(),
            Self::Copied(words) => words.as_ptr().cast(),
        }
    }
}

impl<'a> Prepared<'a> {
    fn new(bytes: &'a [u8]) -> CuResult<Self> {
        if bytes.starts_with(&image::FATBIN_MAGIC.to_le_bytes()) {
            let header = bytes.first_chunk::<FATBIN_HEADER_BYTES>();
            let length = header.and_then(image::fatbin_bytes).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
            if length > bytes.len() as u64 {
                return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
            }
            let fatbin = Aligned::new(bytes);
            let wrapper = Wrapper {
                magic: WRAPPER_MAGIC,
                version: 1,
                fatbin: fatbin.address(),
                parts: core::ptr::null(),
            };
            Ok(Self::Fatbin(wrapper, fatbin))
        } else if bytes.starts_with(&image::ELF_MAGIC) {
            Ok(Self::Cubin(Aligned::new(bytes)))
        } else if bytes.is_empty() || core::str::from_utf8(bytes).is_err() {
            // Among others a wrapper, whose addresses a client must not choose.
            Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
        } else {
            let mut text = bytes.to_vec();
            text.push(0);
            Ok(Self::Ptx(text))
        }
    }

    /// What is passed to `cuLibraryLoadData`; valid while `self` lives and stays where it is.
    fn for_library(&self) -> *const c_void {
        match self {
            Self::Fatbin(wrapper, _) => core::ptr::from_ref(wrapper).cast(),
            other => other.for_module(),
        }
    }

    /// What is passed to `cuModuleLoadDataEx`, which takes fat binaries bare and calls a wrapper an invalid
    /// image (580.159, 2026-11-21); valid while `self` lives.
    fn for_module(&self) -> *const c_void {
        match self {
            Self::Fatbin(_, fatbin) => fatbin.address(),
            Self::Cubin(bytes) => bytes.address(),
            Self::Ptx(text) => text.as_ptr().cast(),
        }
    }
}

impl Driver {
    pub(crate) fn load_module(
        &self,
        form: u32,
        options: &JitOptions,
        bytes: &[u8],
    ) -> CuResult<Native<Module>> {
        self.load_image(form, options, bytes, |prepared, options, raw| {
            let (image, values) = (prepared.for_module().cast_mut(), options.values());
            // SAFETY: the image lives during the call, in which the driver copies what it needs; as many
            // options as values.
            unsafe { self.functions.cuModuleLoadDataEx(raw, image, options.count(), options.names(), values) }
        })
    }

    pub(crate) fn load_library(
        &self,
        form: u32,
        options: &JitOptions,
        bytes: &[u8],
    ) -> CuResult<Native<Library>> {
        self.load_image(form, options, bytes, |prepared, options, raw| {
            let (image, values) = (prepared.for_library().cast_mut(), options.values());
            let (names, count) = (options.names(), options.count());
            let (no_names, no_values) = (core::ptr::null(), core::ptr::null_mut());
            // Without the option CU_LIBRARY_BINARY_IS_PRESERVED the driver makes its own copy of the code.
            // SAFETY: the image lives during the call; as many options as values.
            unsafe {
                self.functions.cuLibraryLoadData(raw, image, names, values, count, no_names, no_values, 0)
            }
        })
    }

    /// Has `call` load what the client sent, with its options.
    fn load_image<K: Kind>(
        &self,
        form: u32,
        options: &JitOptions,
        bytes: &[u8],
        call: impl FnOnce(&Prepared<'_>, &mut Options, &mut K::Raw) -> CuResult<()>,
    ) -> CuResult<Native<K>> {
        let image = self.single_image(form, options, bytes)?;
        let prepared = Prepared::new(&image)?;
        let mut raw = Native::<K>::NULL.as_raw();
        self.reporting(options, |options| call(&prepared, options, &mut raw))?;
        Ok(Native::from_raw(raw))
    }

    /// Lets `load` work with the client's options, and keeps what the compiler said for the client.
    fn reporting(
        &self,
        options: &JitOptions,
        load: impl FnOnce(&mut Options) -> CuResult<()>,
    ) -> CuResult<()> {
        let mut options = Options::new(options)?;
        let outcome = load(&mut options);
        let answers = options.answers();
        if let Err(status) = outcome {
            tracing::info!(status = status.0, log = answers.errors, "an image cannot be loaded");
        }
        self.reports.put(options.report, answers);
        outcome
    }

    /// One image from what the client sent: itself, or its parts linked.
    fn single_image<'a>(&self, form: u32, options: &JitOptions, bytes: &'a [u8]) -> CuResult<Cow<'a, [u8]>> {
        match Form::from_number(form).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)? {
            Form::Single => {
                self.output.inspect(bytes, self.capabilities()?);
                Ok(Cow::Borrowed(bytes))
            }
            Form::Linked => {
                let parts = image::split_linked(bytes).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
                let (linked, parts) = parts.split_first().ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
                let capabilities = self.capabilities()?;
                parts.iter().chain([linked]).for_each(|part| self.output.inspect(part, capabilities));
                // nvcc has linked for the architectures it was told, by default one that is older than most
                // devices; for others the driver must link.
                if parts.is_empty() || has_code_for(linked, self.capability()?) {
                    return Ok(Cow::Borrowed(linked));
                }
                self.link(parts, options.report).map(Cow::Owned)
            }
        }
    }

    /// The compute capability of the current context's device, times ten.
    pub(crate) fn capability(&self) -> CuResult<u32> {
        self.capability_of(self.current_device()?)
    }

    fn capability_of(&self, device: CUdevice) -> CuResult<u32> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the pointers are to locals.
        unsafe { self.functions.cuDeviceComputeCapability(&mut major, &mut minor, device)? };
        Ok((major * 10 + minor).cast_unsigned())
    }

    /// The compute capabilities of all devices: a library's code is for any of them.
    fn capabilities(&self) -> CuResult<&[u32]> {
        if let Some(known) = self.capabilities.get() {
            return Ok(known);
        }
        let devices = self.all_devices()?.into_iter();
        let found = devices.map(|device| self.capability_of(device)).collect::<CuResult<_>>()?;
        Ok(self.capabilities.get_or_init(|| found))
    }

    /// Links fat binaries of relocatable code into one cubin for the current context's device.
    fn link(&self, parts: &[&[u8]], report: u64) -> CuResult<Vec<u8>> {
        let linker = Linker::new(self)?;
        let result = linker.link(parts);
        if let Err(status) = result {
            let errors = linker.options.answers().errors;
            tracing::warn!(
                status = status.0,
                parts = parts.len(),
                log = errors,
                "device code cannot be linked"
            );
            self.reports.put(report, JitReport { errors, ..JitReport::default() });
        }
        result
    }
}

/// The driver's linker at work for one load.
struct Linker<'a> {
    driver: &'a Driver,
    state: CUlinkState,
    /// The driver writes to the log in it until the linker is destroyed.
    options: Options,
}

impl<'a> Linker<'a> {
    fn new(driver: &'a Driver) -> CuResult<Self> {
        let options = Options::new(&JitOptions::default())?;
        let mut linker = Self { driver, state: core::ptr::null_mut(), options };
        let values = linker.options.values();
        // SAFETY: as many options as values; the log is on the heap and lives until the state is destroyed.
        unsafe {
            driver.functions.cuLinkCreate_v2(
                linker.options.count(),
                linker.options.names(),
                values,
                &mut linker.state,
            )?;
        }
        Ok(linker)
    }

    fn link(&self, parts: &[&[u8]]) -> CuResult<Vec<u8>> {
        let none = core::ptr::null_mut();
        for part in parts {
            let aligned = Aligned::new(part);
            // SAFETY: the data is of the size that is passed along, and read during the call only.
            unsafe {
                self.driver.functions.cuLinkAddData_v2(
                    self.state,
                    CUjitInputType::CU_JIT_INPUT_FATBINARY,
                    aligned.address().cast_mut(),
                    part.len(),
                    c"part".as_ptr(),
                    0,
                    core::ptr::null(),
                    none,
                )?;
            }
        }
        let (mut cubin, mut size) = (core::ptr::null_mut(), 0);
        // SAFETY: the pointers are to locals; the result belongs to the linker, which still lives when it is
        // copied.
        unsafe {
            self.driver.functions.cuLinkComplete(self.state, &raw mut cubin, &mut size)?;
            Ok(core::slice::from_raw_parts(cubin.cast::<u8>(), size).to_vec())
        }
    }
}

impl Drop for Linker<'_> {
    fn drop(&mut self) {
        if !self.state.is_null() {
            // SAFETY: made by `new` and not used any more. There is nobody to tell of a failure.
            let _ = unsafe { self.driver.functions.cuLinkDestroy(self.state) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_apart_and_checked() {
        let bytes = image::sample::fatbin_around(&[0; 8]);
        assert!(matches!(Prepared::new(&bytes), Ok(Prepared::Fatbin(wrapper, _)) if wrapper.version == 1));
        assert!(Prepared::new(&bytes[..bytes.len() - 1]).is_err());
        assert!(Prepared::new(&bytes[..7]).is_err());
        assert!(Prepared::new(b"").is_err());
        assert!(Prepared::new(&WRAPPER_MAGIC.to_le_bytes()).is_err());
        assert!(matches!(Prepared::new(b"\x7fELF rest"), Ok(Prepared::Cubin(_))));
        assert!(matches!(Prepared::new(b".version 8.0"), Ok(Prepared::Ptx(text)) if text.ends_with(b"0\0")));
    }

    #[test]
    fn unaligned_images_are_moved() {
        let bytes: Vec<u8> = (0..32).collect();
        for start in 0..8 {
            let aligned = Aligned::new(&bytes[start..start + 13]);
            assert_eq!(aligned.address() as usize % 8, 0);
            // SAFETY: thirteen bytes were put there.
            let there = unsafe { core::slice::from_raw_parts(aligned.address().cast::<u8>(), 13) };
            assert_eq!(there, &bytes[start..start + 13]);
        }
    }
}
