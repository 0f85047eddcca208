//! Device memory: what is allocated, by which context, and how it goes back.

use super::action::Action;
use super::context::{Context, ContextId};
use super::operation::Operation;
use super::pool::Pool;
use super::scheduler::Scheduler;
use crate::handles::StreamId;
use causeway_api::sys::{CUdevice, CUresult};
use causeway_gpu::{CuResult, Staging};
use causeway_ptx::memory::AddressSpace;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::error::Error;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Every allocation's address is a multiple of this, as CUDA promises.
const ALIGNMENT: u64 = 512;

struct Allocation {
    context: ContextId,
    /// The pool it came from and its size there; nothing for memory of `cuMemAlloc`.
    pool: Option<(Arc<Pool>, u64)>,
}

/// The pools of one device.
struct DevicePools {
    default: Arc<Pool>,
    current: Arc<Pool>,
}

struct Pools {
    of_devices: Vec<DevicePools>,
    created: HashMap<u64, Arc<Pool>>,
}

/// All memory that clients have asked for.
pub(super) struct Memory {
    space: Arc<AddressSpace>,
    scheduler: Arc<Scheduler>,
    allocations: Mutex<HashMap<u64, Allocation>>,
    pools: Mutex<Pools>,
}

impl Memory {
    /// The memory of so many devices, none of it allocated.
    pub(super) fn new(space: Arc<AddressSpace>, scheduler: Arc<Scheduler>, devices: u32) -> Self {
        let of_device = |_| {
            let default = Arc::new(Pool::new(0));
            DevicePools { current: Arc::clone(&default), default }
        };
        let pools = Pools { of_devices: (0..devices).map(of_device).collect(), created: HashMap::new() };
        Self { space, scheduler, allocations: Mutex::default(), pools: Mutex::new(pools) }
    }

    /// Bytes that are free, and all bytes.
    pub(super) fn info(&self) -> (usize, usize) {
        let total = self.space.capacity();
        (total.saturating_sub(self.space.allocated()) as usize, total as usize)
    }

    /// Allocates memory; its first contents are zeros.
    pub(super) fn allocate(&self, context: &Context, size: usize) -> CuResult<u64> {
        if size == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let address = self.space.allocate(size as u64, ALIGNMENT).map_err(|error| {
            tracing::debug!("{error}");
            CUresult::CUDA_ERROR_OUT_OF_MEMORY
        })?;
        self.allocations.lock().insert(address, Allocation { context: context.id, pool: None });
        Ok(address)
    }

    /// Memory at `address` of the window, or anywhere for 0, that is also this process's to use.
    pub(super) fn share(&self, address: u64, size: usize) -> CuResult<(u64, Staging)> {
        let refused = |error: &dyn Error| {
            tracing::debug!("{error}");
            CUresult::CUDA_ERROR_OUT_OF_MEMORY
        };
        let address = match address {
            _ if size == 0 => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            0 => self.space.allocate(size as u64, ALIGNMENT).map_err(|error| refused(&error))?,
            _ => {
                self.space.allocate_at(address, size as u64).map_err(|error| refused(&error))?;
                address
            }
        };
        Ok((address, self.hand_out(address, size)))
    }

    /// Memory of the client at `address` of the window: that of a file from `offset` on.
    ///
    /// # Safety
    /// As for [`causeway_gpu::Gpu::client_memory`].
    pub(super) unsafe fn share_of_client(
        &self,
        address: u64,
        size: usize,
        memory: BorrowedFd<'_>,
        offset: u64,
    ) -> CuResult<Staging> {
        // SAFETY: the caller has `size` bytes in whole pages of the file, and handles the SIGBUS of those
        // that are taken away.
        let shared = unsafe { self.space.share_at(address, size as u64, memory, offset) };
        shared.map_err(|error| {
            tracing::debug!("{error}");
            CUresult::CUDA_ERROR_OUT_OF_MEMORY
        })?;
        Ok(self.hand_out(address, size))
    }

    /// An allocation of the space that ends when nobody holds it any more.
    fn hand_out(&self, address: u64, size: usize) -> Staging {
        let space = Arc::clone(&self.space);
        let release = move |_, _| {
            if let Err(error) = space.free(address) {
                tracing::error!("cannot free shared memory: {error}");
            }
        };
        // SAFETY: the callers have just made the allocation, whose bytes are initialised, and nothing but
        // `release` frees it.
        unsafe { Staging::new(address as *mut u8, size, release) }
    }

    /// Frees memory at once.
    pub(super) fn free(&self, address: u64) -> CuResult<()> {
        if address == 0 {
            return Ok(());
        }
        let allocation = self.take(address)?;
        self.release(address, allocation);
        Ok(())
    }

    /// Allocates memory from a pool (the current one for 0), for use from this point of `stream` on.
    pub(super) fn allocate_async(
        &self,
        context: &Context,
        size: usize,
        pool: u64,
        stream: StreamId,
    ) -> CuResult<u64> {
        if size == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.scheduler.state.lock().usable(stream)?;
        let pool = match pool {
            0 => Arc::clone(&self.pools.lock().of_devices[context.device as usize].current),
            id => self.pool(id)?,
        };
        let (address, size) =
            pool.allocate(size as u64, stream, &self.space, |point| self.scheduler.has_passed(point))?;
        let allocation = Allocation { context: context.id, pool: Some((pool, size)) };
        self.allocations.lock().insert(address, allocation);
        Ok(address)
    }

    /// Frees memory when `stream` gets here.
    pub(super) fn free_async(&self, address: u64, stream: StreamId) -> CuResult<()> {
        let allocation = self.take(address)?;
        let issued = match &allocation.pool {
            None => {
                let free = Action::Run(Operation::Free { address });
                self.scheduler.issue_action(stream, free).map(drop)
            }
            Some((pool, size)) => {
                let block = pool.free(address, *size, stream);
                let release = Operation::Release { pool: Arc::clone(pool), block };
                let issued = self.scheduler.issue_action(stream, Action::Run(release));
                match issued {
                    Ok(point) => pool.freed_at(block, point),
                    Err(_) => pool.take_again(block),
                }
                issued.map(drop)
            }
        };
        if issued.is_err() {
            self.allocations.lock().insert(address, allocation);
        }
        issued
    }

    /// Frees everything that a context has left.
    pub(super) fn free_all_of(&self, context: ContextId) {
        let left: Vec<_> =
            self.allocations.lock().extract_if(|_, allocation| allocation.context == context).collect();
        for (address, allocation) in left {
            self.release(address, allocation);
        }
    }

    fn take(&self, address: u64) -> CuResult<Allocation> {
        self.allocations.lock().remove(&address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn release(&self, address: u64, allocation: Allocation) {
        if let Err(error) = self.space.free(address) {
            tracing::error!("cannot free allocated memory: {error}");
        }
        if let Some((pool, size)) = allocation.pool {
            pool.forget(size);
        }
    }

    /// Makes a pool that reserves at most `limit` bytes; 0 sets no limit.
    pub(super) fn create_pool(&self, limit: usize) -> u64 {
        let pool = Arc::new(Pool::new(limit as u64));
        let id = pool.id;
        self.pools.lock().created.insert(id, pool);
        id
    }

    /// The pool that a device has from the start.
    pub(super) fn default_pool(&self, device: CUdevice) -> u64 {
        self.pools.lock().of_devices[device as usize].default.id
    }

    /// The pool of this number.
    pub(super) fn pool(&self, id: u64) -> CuResult<Arc<Pool>> {
        let pools = self.pools.lock();
        let mut defaults = pools.of_devices.iter().map(|device| &device.default);
        let pool = defaults.find(|pool| pool.id == id).or_else(|| pools.created.get(&id));
        pool.cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Makes a pool the one that allocations without a pool come from.
    pub(super) fn set_current_pool(&self, device: CUdevice, id: u64) -> CuResult<()> {
        let pool = self.pool(id)?;
        self.pools.lock().of_devices[device as usize].current = pool;
        Ok(())
    }

    /// Gives memory of a pool back until it keeps no more than `keep` bytes.
    pub(super) fn trim_pool(&self, id: u64, keep: usize) -> CuResult<()> {
        self.pool(id)?.trim_to(keep as u64, &self.space, |point| self.scheduler.has_passed(point));
        Ok(())
    }

    /// Destroys a pool. Memory that is allocated from it stays valid until it is freed.
    pub(super) fn destroy_pool(&self, id: u64) -> CuResult<()> {
        let pool = {
            let mut pools = self.pools.lock();
            let pool = pools.created.remove(&id).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            for device in pools.of_devices.iter_mut().filter(|device| device.current.id == id) {
                device.current = Arc::clone(&device.default);
            }
            pool
        };
        pool.destroy(&self.space, |point| self.scheduler.has_passed(point));
        Ok(())
    }
}
