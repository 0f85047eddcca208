//! Copies of one size along one path.

use super::clock::{Measured, Stopwatch};
use causeway_cuda::CudaError;

use super::driver::{DriverError, Gpu, Handle, cuda};
use super::error::CaseError;
use super::memory::{DeviceMemory, HostMemory};
use crate::case::{Direction, Path};
use crate::prng::Random;

/// Buffers for copies of one size along one path.
#[derive(Debug)]
pub struct Copies {
    gpu: &'static Gpu,
    path: Path,
    /// Bytes of one copy.
    bytes: usize,
    /// The host's side, for all copies of a row.
    host: Option<HostMemory>,
    /// The first device's side, for all copies of a row.
    device: DeviceMemory,
    /// Where copies between devices, or within one, go to, and the context of that memory.
    destination: Option<(DeviceMemory, Handle)>,
    random: Random,
}

impl Copies {
    /// Allocates the buffers.
    pub fn new(gpu: &'static Gpu, path: Path, bytes: usize) -> Result<Self, CaseError> {
        let all = bytes * path.row() as usize;
        let host = match path {
            Path::PageableToDevice | Path::PageableFromDevice => Some(HostMemory::pageable(all)),
            Path::PinnedToDevice | Path::PinnedFromDevice | Path::AsyncToDevice | Path::AsyncFromDevice => {
                Some(HostMemory::pinned(gpu, all)?)
            }
            Path::WithinDevice | Path::Peer => None,
        };
        let device = DeviceMemory::new(gpu, gpu.context, all)?;
        let destination = match path {
            Path::WithinDevice => Some((DeviceMemory::new(gpu, gpu.context, all)?, gpu.context)),
            Path::Peer => Some(peer_memory(gpu, all)?),
            _ => None,
        };
        let mut copies = Self { gpu, path, bytes, host, device, destination, random: Random::default() };
        if let Some(host) = &mut copies.host {
            copies.random.fill(host.bytes_mut());
        }
        Ok(copies)
    }

    fn all(&self) -> usize {
        self.bytes * self.path.row() as usize
    }

    /// Copies once, or one row of copies, and says how long a copy took.
    pub fn measure(&mut self) -> Result<Measured, DriverError> {
        if let (Direction::ToDevice, Some(host)) = (self.path.direction(), &mut self.host) {
            self.random.change(host.bytes_mut());
        }
        self.gpu.synchronize()?;
        let watch = Stopwatch::start();
        self.issue()?;
        let returned = watch.lap();
        self.wait()?;
        Ok(watch.stop(returned, self.path.row()))
    }

    fn issue(&self) -> Result<(), DriverError> {
        let gpu = self.gpu;
        for start in (0..self.path.row() as usize).map(|copy| copy * self.bytes) {
            let (device, bytes) = (self.device.address() + start as u64, self.bytes);
            match (&self.host, &self.destination) {
                (Some(host), _) => match self.path {
                    Path::AsyncToDevice => {
                        cuda!(gpu, cuMemcpyHtoDAsync_v2(device, host.at(start), bytes, gpu.stream))
                    }
                    Path::AsyncFromDevice => {
                        cuda!(gpu, cuMemcpyDtoHAsync_v2(host.at(start), device, bytes, gpu.stream))
                    }
                    path if path.direction() == Direction::ToDevice => {
                        cuda!(gpu, cuMemcpyHtoD_v2(device, host.at(start), bytes))
                    }
                    _ => cuda!(gpu, cuMemcpyDtoH_v2(host.at(start), device, bytes)),
                },
                (None, Some((to, context))) if self.path == Path::Peer => {
                    let from = gpu.context;
                    cuda!(gpu, cuMemcpyPeerAsync(to.address(), *context, device, from, bytes, gpu.stream))
                }
                (None, Some((to, _))) => cuda!(gpu, cuMemcpyDtoD_v2(to.address(), device, bytes)),
                (None, None) => unreachable!("a copy has two ends"),
            }?;
        }
        Ok(())
    }

    /// Waits until the copies are done, where the call does not say so by returning.
    fn wait(&self) -> Result<(), DriverError> {
        match self.path {
            Path::PageableFromDevice | Path::PinnedFromDevice => Ok(()),
            Path::AsyncToDevice | Path::AsyncFromDevice | Path::Peer => {
                cuda!(self.gpu, cuStreamSynchronize(self.gpu.stream))
            }
            Path::PageableToDevice | Path::PinnedToDevice | Path::WithinDevice => self.gpu.synchronize(),
        }
    }

    /// Copies once and compares every byte; pageable memory is overwritten as soon as the call has returned,
    /// as a program may do.
    pub fn verify(&mut self) -> Result<(), CaseError> {
        let gpu = self.gpu;
        let mut expected = vec![0; self.all()];
        self.random.fill(&mut expected);
        let found = match self.path.direction() {
            Direction::ToDevice => {
                self.host_bytes().copy_from_slice(&expected);
                self.issue()?;
                if self.path == Path::PageableToDevice {
                    self.host_bytes().fill(0x5a);
                }
                self.wait()?;
                read(gpu, &self.device, self.all())?
            }
            Direction::FromDevice => {
                write(gpu, &self.device, &expected)?;
                self.host_bytes().fill(0x5a);
                self.issue()?;
                self.wait()?;
                self.host_bytes().to_vec()
            }
            Direction::Device => {
                write(gpu, &self.device, &expected)?;
                let Some((to, context)) = &self.destination else {
                    unreachable!("it was made for this path")
                };
                gpu.enter(*context)?;
                cuda!(gpu, cuMemsetD8_v2(to.address(), 0x5a, self.all()))?;
                gpu.synchronize()?;
                gpu.enter(gpu.context)?;
                self.issue()?;
                self.wait()?;
                gpu.enter(*context)?;
                let found = read(gpu, to, self.all())?;
                gpu.enter(gpu.context)?;
                found
            }
        };
        match first_difference(&expected, &found) {
            None => Ok(()),
            Some(index) => Err(CaseError::Wrong(format!(
                "byte {index} of {} is {:#04x} and must be {:#04x}",
                expected.len(),
                found[index],
                expected[index]
            ))),
        }
    }

    /// The host's buffer, while no copy is under way.
    fn host_bytes(&mut self) -> &mut [u8] {
        self.host.as_mut().map(HostMemory::bytes_mut).unwrap_or_default()
    }
}

/// Memory of the second device, which the first can reach.
fn peer_memory(gpu: &'static Gpu, bytes: usize) -> Result<(DeviceMemory, Handle), CaseError> {
    if gpu.devices()? < 2 {
        return Err(CaseError::Refused("there is one device only".to_owned()));
    }
    let context = gpu.retain_context(1)?;
    let mut reachable = 0;
    cuda!(gpu, cuDeviceCanAccessPeer(&mut reachable, 0, 1))?;
    if reachable != 0 {
        match cuda!(gpu, cuCtxEnablePeerAccess(context, 0)) {
            // 704: the case before has done so.
            Err(DriverError::Call(CudaError { code: 704, .. })) => {}
            other => other?,
        }
    }
    gpu.enter(context)?;
    let memory = DeviceMemory::new(gpu, context, bytes);
    gpu.enter(gpu.context)?;
    Ok((memory?, context))
}

fn read(gpu: &Gpu, memory: &DeviceMemory, count: usize) -> Result<Vec<u8>, DriverError> {
    let mut bytes = vec![0; count];
    cuda!(gpu, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), memory.address(), count))?;
    Ok(bytes)
}

fn write(gpu: &Gpu, memory: &DeviceMemory, bytes: &[u8]) -> Result<(), DriverError> {
    cuda!(gpu, cuMemcpyHtoD_v2(memory.address(), bytes.as_ptr().cast(), bytes.len()))?;
    // A copy from pageable memory may return before the device has the bytes, and other streams do not wait
    // for it.
    gpu.synchronize()
}

fn first_difference(expected: &[u8], found: &[u8]) -> Option<usize> {
    // Comparing whole slices is much faster than looking for the place.
    if expected == found {
        return None;
    }
    expected.iter().zip(found).position(|(one, other)| one != other)
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn the_first_wrong_byte_is_found() {
        let expected: Vec<u8> = (0..200).collect();
        let mut found = expected.clone();
        assert_eq!(first_difference(&expected, &found), None);
        found[7] ^= 1;
        found[190] ^= 1;
        assert_eq!(first_difference(&expected, &found), Some(7));
    }
}
