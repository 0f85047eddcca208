//! Queue pair states: INIT, RTR, RTS, and the exchange with the peer's queue pair.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use std::io;

use super::lifetime::{QueuePair, QueuePairError};
use super::settings::Settings;
use crate::description::Port;
use crate::gid::{Gid, LinkLayer};
use crate::memory::Access;
use crate::sys::*;

/// The peer's end of a path, as the peer says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteEnd {
    /// Its queue pair's number.
    pub queue_pair: u32,
    /// The number of the first packet that it will send.
    pub packet: u32,
    /// Its port's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Its port's GID.
    pub gid: Gid,
}

impl QueuePair {
    /// From reset to *init*: bound to a port, so that receives can be posted. The peer may then write to and
    /// read from memory of the domain that is registered for it.
    pub fn initialise(&self, port: u8) -> Result<(), QueuePairError> {
        self.initialise_for(port, Access::REMOTE_WRITE | Access::REMOTE_READ)
    }

    /// The same, where the peer may do what `access` says.
    pub fn initialise_for(&self, port: u8, access: Access) -> Result<(), QueuePairError> {
        let mut attributes = blank();
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = port;
        attributes.qp_access_flags = (access.0 & !IBV_ACCESS_LOCAL_WRITE) as u32;
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attributes, mask, "initialised")
    }

    /// From *init* to *ready to receive*: joined with the peer's queue pair. `gid` is the index of this end's
    /// GID in the port's table.
    pub fn receive_from(
        &self,
        port: &Port,
        gid: u32,
        peer: &RemoteEnd,
        settings: &Settings,
    ) -> Result<(), QueuePairError> {
        let mut attributes = blank();
        attributes.qp_state = IBV_QPS_RTR;
        attributes.path_mtu = settings.mtu as c_int;
        attributes.dest_qp_num = peer.queue_pair;
        attributes.rq_psn = peer.packet & 0x00ff_ffff;
        attributes.max_dest_rd_atomic = settings.answered_reads;
        attributes.min_rnr_timer = settings.rnr_timer;
        // InfiniBand within a subnet goes by local identifiers; Ethernet has none, so the GIDs stand in the
        // packets.
        let is_global = port.link_layer != LinkLayer::InfiniBand || peer.lid == 0;
        attributes.ah_attr = ibv_ah_attr {
            grh: ibv_global_route {
                dgid: crate::sys::Gid(peer.gid.0),
                flow_label: 0,
                sgid_index: gid as u8,
                hop_limit: 64,
                traffic_class: settings.traffic_class,
            },
            dlid: peer.lid,
            sl: settings.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: u8::from(is_global),
            port_num: port.number,
        };
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attributes, mask, "ready to receive")
    }

    /// From *ready to receive* to *ready to send*. `packet` is the number of the first packet, which the peer
    /// was told.
    pub fn send_from(&self, packet: u32, settings: &Settings) -> Result<(), QueuePairError> {
        let mut attributes = blank();
        attributes.qp_state = IBV_QPS_RTS;
        attributes.timeout = settings.timeout;
        attributes.retry_cnt = settings.retries;
        attributes.rnr_retry = settings.rnr_retries;
        attributes.sq_psn = packet & 0x00ff_ffff;
        attributes.max_rd_atomic = settings.reads;
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attributes, mask, "ready to send")
    }

    /// To *error*, from any state: every request comes back as [`FLUSHED`](crate::Status::FLUSHED).
    pub fn end(&self) -> Result<(), QueuePairError> {
        let mut attributes = blank();
        attributes.qp_state = IBV_QPS_ERR;
        self.modify(&mut attributes, IBV_QP_STATE, "ended")
    }

    /// To *reset*, from any state: requests that are in it are forgotten.
    pub fn reset(&self) -> Result<(), QueuePairError> {
        let mut attributes = blank();
        attributes.qp_state = IBV_QPS_RESET;
        self.modify(&mut attributes, IBV_QP_STATE, "reset")
    }

    fn modify(
        &self,
        attributes: &mut ibv_qp_attr,
        mask: c_int,
        state: &'static str,
    ) -> Result<(), QueuePairError> {
        let device = self.domain.device();
        // SAFETY: the queue pair lives, and the structure has the header's layout.
        let code = unsafe { (device.libraries().verbs.ibv_modify_qp)(self.raw.as_ptr(), attributes, mask) };
        if code == 0 {
            return Ok(());
        }
        let source = io::Error::from_raw_os_error(code.abs());
        Err(QueuePairError::State { device: device.name().to_owned(), state, source })
    }
}

/// Attributes of which nothing is set.
fn blank() -> ibv_qp_attr {
    // SAFETY: all fields are numbers, for which 0 is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
