//! Mirrors of a session that goes on in another worker: their bytes, and what both ends last agreed on.

use super::on_device::BLOCK;
use super::{Memory, Mirrors};
use causeway_api::sys::CUresult;
use causeway_gpu::CuResult;

/// A part of a mirror.
#[derive(Debug, PartialEq, Eq)]
pub struct MirrorPart<'a> {
    /// The mirror.
    pub address: u64,
    /// Where in it the part begins: at a multiple of the length of all parts but the last.
    pub at: u64,
    /// What kernels see.
    pub bytes: &'a [u8],
    /// What both ends agreed on, where that is something else: as many bytes, or a hash of each block.
    pub agreed: &'a [u8],
}

impl Mirrors {
    /// Calls `each` with the parts of all mirrors that are not as new ones are, of at most `length` bytes. Nothing may use
    /// them meanwhile.
    pub fn each_part<E: From<CUresult>>(
        &self,
        length: usize,
        mut each: impl FnMut(&MirrorPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        debug_assert!(length.is_multiple_of(BLOCK), "a part has whole blocks");
        let mut bytes = vec![0; length];
        for (address, mirror) in self.table.lock().mirrors.iter() {
            for at in (0..mirror.len()).step_by(length) {
                let bytes = &mut bytes[..length.min(mirror.len() - at)];
                let hashes;
                let agreed = match &mirror.memory {
                    Memory::Here { memory, base } => {
                        // SAFETY: the memory has as many bytes as the base, which are those of the mirror.
                        unsafe {
                            bytes.as_mut_ptr().copy_from_nonoverlapping(memory.as_ptr().add(at), bytes.len());
                        }
                        let base = &base[at..at + bytes.len()];
                        if base == &*bytes { &[] } else { base }
                    }
                    Memory::OnDevice(memory) => {
                        memory.read(at, bytes)?;
                        hashes = memory.agreed_hashes(at, bytes);
                        &hashes
                    }
                };
                if !agreed.is_empty() || bytes.iter().any(|byte| *byte != 0) {
                    each(&MirrorPart { address: *address, at: at as u64, bytes, agreed })?;
                }
            }
        }
        Ok(())
    }

    /// Makes a part of a new mirror what it was.
    pub fn set_part(&self, part: &MirrorPart<'_>) -> CuResult<()> {
        let mut table = self.table.lock();
        let mirror = table.mirrors.get_mut(&part.address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let at = usize::try_from(part.at).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let end = at.checked_add(part.bytes.len()).filter(|end| *end <= mirror.len());
        let end = end.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        match &mut mirror.memory {
            Memory::Here { memory, base } => {
                if !part.agreed.is_empty() && part.agreed.len() != part.bytes.len() {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                base[at..end].copy_from_slice(if part.agreed.is_empty() { part.bytes } else { part.agreed });
                // SAFETY: the memory has as many bytes as the base, which has these.
                unsafe {
                    let to = memory.as_ptr().add(at);
                    to.copy_from_nonoverlapping(part.bytes.as_ptr(), part.bytes.len());
                }
                Ok(())
            }
            Memory::OnDevice(memory) => memory.set_with_hashes(at, part.bytes, part.agreed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mirror;
    use super::super::on_device::OnDevice;
    use super::super::on_device::tests::Bytes;
    use super::*;
    use causeway_api::handle::Handle;
    use causeway_gpu::Staging;
    use causeway_gpu_software::{Options, SoftwareGpu};
    use parking_lot::Mutex;
    use std::sync::Arc;

    const HERE: u64 = 0x10_0000;
    const THERE: u64 = 0x100_0000;
    const SIZE: usize = 3 * BLOCK + 100;

    /// Mirrors of memory of this process and of a device, and the device's bytes.
    fn mirrors() -> (Mirrors, Vec<u8>, Arc<Mutex<Vec<u8>>>) {
        let mut memory = vec![0_u8; SIZE];
        // SAFETY: the vector lives as long as the mirrors do, and is reached through this alone.
        let shared = unsafe { Staging::new(memory.as_mut_ptr(), memory.len(), |_, _| ()) };
        let mirrors = Mirrors::default();
        mirrors.adopt(HERE, shared).unwrap();
        let bytes = Arc::new(Mutex::new(vec![0; SIZE]));
        let on_device = Memory::OnDevice(OnDevice::zeroed(Box::new(Bytes(Arc::clone(&bytes))), SIZE));
        mirrors.table.lock().insert(THERE, Mirror { context: Handle::NULL, memory: on_device });
        (mirrors, memory, bytes)
    }

    type Parts = Vec<(u64, u64, Vec<u8>, Vec<u8>)>;

    fn parts(mirrors: &Mirrors) -> Parts {
        let mut parts = Parts::new();
        let done: Result<(), CUresult> = mirrors.each_part(2 * BLOCK, |part| {
            parts.push((part.address, part.at, part.bytes.to_vec(), part.agreed.to_vec()));
            Ok(())
        });
        done.unwrap();
        parts
    }

    #[test]
    fn changes_that_the_client_does_not_know_are_still_changes_elsewhere() {
        let gpu = SoftwareGpu::with_options(&Options { memory: 1 << 20, ..Options::default() }).unwrap();
        let (first, mut memory, bytes) = mirrors();
        assert_eq!(parts(&first), []);
        for (at, value) in [(5, 7), (2 * BLOCK + 3, 8)] {
            memory[at] = value;
            bytes.lock()[at] = value;
        }
        let mut sent = causeway_memory::mirror::Changes::default();
        sent.add(HERE + 64, &[4; 64]);
        sent.add(THERE + 3 * BLOCK as u64, &[5; 100]);
        first.write(sent.as_bytes()).unwrap();
        let carried = parts(&first);
        let (second, its_memory, its_bytes) = mirrors();
        for (address, at, bytes, agreed) in &carried {
            second.set_part(&MirrorPart { address: *address, at: *at, bytes, agreed }).unwrap();
        }
        assert_eq!((&its_memory, &*its_bytes.lock()), (&memory, &*bytes.lock()));
        assert_eq!(parts(&second), carried);
        let found = |mirrors: &Mirrors| mirrors.changes(&gpu, 0).unwrap().changes.as_bytes().to_vec();
        let changes = found(&second);
        assert!(!changes.is_empty() && changes == found(&first));
        assert!(found(&second).is_empty());
    }

    #[test]
    fn parts_of_what_is_not_there_are_refused() {
        let (mirrors, _memory, _) = mirrors();
        let set = |address: u64, at: u64, bytes: &[u8], agreed: &[u8]| {
            mirrors.set_part(&MirrorPart { address, at, bytes, agreed })
        };
        for address in [HERE, THERE] {
            assert!(set(address + 1, 0, &[1], &[]).is_err());
            assert!(set(address, u64::MAX, &[1], &[]).is_err());
            assert!(set(address, SIZE as u64 - 1, &[1, 2], &[]).is_err());
            assert!(set(address, 0, &[1, 2], &[1]).is_err());
        }
        assert!(set(THERE, 1, &[1; BLOCK], &[0; 17]).is_err(), "hashes are of whole blocks");
    }
}
