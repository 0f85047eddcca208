//! Queue memory of mlx5 devices (DevX and DV layout). For kernels that write work requests and read completions
//! themselves.
//!
//! The queues are made by libmlx5, in memory of this process. What is known here are addresses: nothing of
//! it is to be posted to or polled by [`QueuePair::post`] and [`CompletionQueue::poll`] any more.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::io;

use thiserror::Error;

use crate::completion::CompletionQueue;
use crate::device::{Device, last_error};
use crate::library::{LoadError, mlx5};
use crate::memory::ProtectionDomain;
use crate::queue_pair::{Capacity, QueuePair, QueuePairError, initial};
use crate::sys::*;

/// Why queues of a device cannot be used directly.
#[derive(Debug, Error)]
pub enum Mlx5Error {
    /// libmlx5 is not there.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Another kind of device.
    #[error(
        "the RDMA device `{0}` does not use the driver mlx5 (NVIDIA's ConnectX-4 and later, BlueField), the \
         only one whose work requests kernels can write"
    )]
    OtherDevice(String),
    /// The queue pair is refused.
    #[error(transparent)]
    QueuePair(#[from] QueuePairError),
    /// libmlx5 does not say where a queue lies.
    #[error("libmlx5 does not report the address of a {what} of the RDMA device `{device}`: {source}")]
    Layout {
        /// Which device.
        device: String,
        /// Which kind of queue.
        what: &'static str,
        /// What it answered.
        source: io::Error,
    },
}

/// A ring of slots in memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// The first one.
    pub address: u64,
    /// How many there are.
    pub count: u32,
    /// Bytes of each.
    pub bytes: u32,
}

/// Where a queue pair lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairLayout {
    /// Work requests to send.
    pub sends: Slots,
    /// Receives.
    pub receives: Slots,
    /// The doorbell record: 32 bits for receives, 32 bits for sends.
    pub record: u64,
    /// The device's register that is the doorbell of sends, in a page that the device's driver has mapped.
    pub doorbell: u64,
}

/// Where a completion queue lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionQueueLayout {
    /// Its entries.
    pub entries: Slots,
    /// The doorbell record: 32 bits.
    pub record: u64,
    /// Its number.
    pub number: u32,
}

fn layout_error(device: &Device, what: &'static str, code: c_int) -> Mlx5Error {
    let source = io::Error::from_raw_os_error(code.abs());
    Mlx5Error::Layout { device: device.name().to_owned(), what, source }
}

fn nothing() -> mlx5dv_obj {
    mlx5dv_obj {
        qp_in: ptr::null_mut(),
        qp_out: ptr::null_mut(),
        cq_in: ptr::null_mut(),
        cq_out: ptr::null_mut(),
        _others: [ptr::null_mut(); 10],
    }
}

/// Whether the device's queues can be used directly, or why not.
pub fn check(device: &Device) -> Result<(), Mlx5Error> {
    // SAFETY: an open context names its device, which lives as long as the context.
    if unsafe { (mlx5()?.mlx5dv_is_supported)((*device.0.raw).device) } {
        return Ok(());
    }
    Err(Mlx5Error::OtherDevice(device.name().to_owned()))
}

/// Makes a queue pair whose completions of sends and receives come to these queues, and leave all bytes in the
/// memory that the requests name. It is as [`QueuePair::new`] makes it else.
pub fn new_queue_pair(
    domain: &ProtectionDomain,
    sends: &CompletionQueue,
    receives: &CompletionQueue,
    capacity: Capacity,
) -> Result<QueuePair, Mlx5Error> {
    let functions = mlx5()?;
    let mut usual = initial(sends, capacity);
    let mut attributes = ibv_qp_init_attr_ex {
        qp_context: ptr::null_mut(),
        send_cq: sends.raw(),
        recv_cq: receives.raw(),
        srq: ptr::null_mut(),
        cap: ibv_qp_cap { max_send_sge: 1, ..usual.cap },
        qp_type: usual.qp_type,
        sq_sig_all: 0,
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd: domain.raw(),
        xrcd: ptr::null_mut(),
        create_flags: 0,
        max_tso_header: 0,
        rwq_ind_tbl: ptr::null_mut(),
        rx_hash_conf: [0; 3],
        source_qpn: 0,
        send_ops_flags: 0,
    };
    // Without it short messages stay in the completion.
    let mut of_provider = mlx5dv_qp_init_attr {
        comp_mask: MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
        create_flags: MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
        ..mlx5dv_qp_init_attr::default()
    };
    let device = domain.device();
    // SAFETY: context, domain and queues live; the queue pair holds them from here on.
    let raw = unsafe { (functions.mlx5dv_create_qp)(device.0.raw, &mut attributes, &mut of_provider) };
    let raw = NonNull::new(raw).ok_or_else(|| QueuePairError::Make {
        device: device.name().to_owned(),
        capacity,
        source: last_error(),
    })?;
    usual.cap = attributes.cap;
    Ok(QueuePair::of_provider(raw, &usual, domain, [sends, receives]))
}

/// Where a queue pair lies.
pub fn queue_pair_layout(queue_pair: &QueuePair) -> Result<QueuePairLayout, Mlx5Error> {
    // SAFETY: all fields are numbers and pointers, for which 0 is a value.
    let mut found: mlx5dv_qp = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut object = mlx5dv_obj { qp_in: queue_pair.raw(), qp_out: &raw mut found, ..nothing() };
    // SAFETY: the queue pair is of this library's device, and there is room for the answer.
    let code = unsafe { (mlx5()?.mlx5dv_init_obj)(&mut object, MLX5DV_OBJ_QP) };
    if code != 0 {
        return Err(layout_error(queue_pair.device(), "queue pair", code));
    }
    let slots =
        |ring: mlx5dv_ring| Slots { address: ring.buf as u64, count: ring.wqe_cnt, bytes: ring.stride };
    Ok(QueuePairLayout {
        sends: slots(found.sq),
        receives: slots(found.rq),
        record: found.dbrec as u64,
        doorbell: found.bf_reg as u64,
    })
}

/// Where a completion queue of a device lies.
pub fn completion_queue_layout(
    device: &Device,
    queue: &CompletionQueue,
) -> Result<CompletionQueueLayout, Mlx5Error> {
    // SAFETY: all fields are numbers and pointers, for which 0 is a value.
    let mut found: mlx5dv_cq = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut object = mlx5dv_obj { cq_in: queue.raw(), cq_out: &raw mut found, ..nothing() };
    // SAFETY: the queue is of this library's device, and there is room for the answer.
    let code = unsafe { (mlx5()?.mlx5dv_init_obj)(&mut object, MLX5DV_OBJ_CQ) };
    if code != 0 {
        return Err(layout_error(device, "completion queue", code));
    }
    Ok(CompletionQueueLayout {
        entries: Slots { address: found.buf as u64, count: found.cqe_cnt, bytes: found.cqe_size },
        record: found.dbrec as u64,
        number: found.cqn,
    })
}
