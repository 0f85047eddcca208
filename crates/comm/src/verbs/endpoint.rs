//! Endpoint address of an RDMA connection, as exchanged.
//!
//! 64 bytes, little-endian: the number of the queue pair (4), of its first packet (4), GID (16), LID (2), a
//! code of the path MTU (1), how many reads it answers at a time (1), whether rdma_cm joins the two (1), a
//! zero, and the port at which it does (2), a secret by which that knows the peer (8), and of a sender the
//! memory through which payloads pass: address (8), key (4), how many slots (2), 2 zeros, bytes of a slot
//! (4), and 4 zeros. Where rdma_cm joins two ranks of one host, the GID is the sender's address: IPv4 ones
//! are mapped into IPv6, as RoCE does it.

use std::net::IpAddr;

use causeway_ibverbs::{Gid, PathMtu, RemoteEnd, RemoteMemory};

/// Bytes of an end as it travels.
pub(crate) const ENDPOINT_BYTES: usize = 64;

/// The largest number of a queue pair, and of a packet.
const MAX_PACKET_NUMBER: u32 = 0x00ff_ffff;

/// Slots of a sender, which the receiver reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) memory: RemoteMemory,
    pub(crate) count: u16,
    pub(crate) bytes: u32,
}

/// One end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndpointAddress {
    pub(super) remote: RemoteEnd,
    pub(super) mtu: PathMtu,
    /// Reads that it answers at a time, 1 at least.
    pub(super) reads: u8,
    /// Whether rdma_cm joins the two, and not the numbers above.
    pub(super) by_manager: bool,
    /// The port at which the sender then waits.
    pub(super) manager_port: u16,
    pub(super) secret: [u8; 8],
    /// All zeros of a receiver, which has none.
    pub(crate) slots: Slots,
}

impl EndpointAddress {
    /// The same of a sender whom rdma_cm reaches at this address.
    pub(super) fn at(self, address: IpAddr) -> Self {
        let address = match address {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(six) => six,
        };
        Self { remote: RemoteEnd { gid: Gid(address.octets()), ..self.remote }, ..self }
    }

    /// That address, if it tells one.
    pub(super) fn address(&self) -> Option<IpAddr> {
        (self.by_manager && !self.remote.gid.is_empty()).then(|| self.remote.gid.address())
    }

    pub(crate) fn encode(&self) -> [u8; ENDPOINT_BYTES] {
        let mut bytes = [0; ENDPOINT_BYTES];
        bytes[..4].copy_from_slice(&self.remote.queue_pair.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.remote.packet.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.remote.gid.0);
        bytes[24..26].copy_from_slice(&self.remote.lid.to_le_bytes());
        bytes[26] = self.mtu as u8;
        bytes[27] = self.reads;
        bytes[28] = u8::from(self.by_manager);
        bytes[30..32].copy_from_slice(&self.manager_port.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.secret);
        bytes[40..48].copy_from_slice(&self.slots.memory.address.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.slots.memory.key.to_le_bytes());
        bytes[52..54].copy_from_slice(&self.slots.count.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.slots.bytes.to_le_bytes());
        bytes
    }

    /// An end as a peer tells it, if it can be.
    pub(crate) fn decode(bytes: &[u8; ENDPOINT_BYTES]) -> Option<Self> {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let long = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let end = Self {
            remote: RemoteEnd {
                queue_pair: word(0),
                packet: word(4),
                gid: Gid(core::array::from_fn(|index| bytes[8 + index])),
                lid: short(24),
            },
            mtu: PathMtu::ALL.into_iter().find(|mtu| *mtu as u8 == bytes[26])?,
            reads: bytes[27],
            by_manager: bytes[28] == 1,
            manager_port: short(30),
            secret: core::array::from_fn(|index| bytes[32 + index]),
            slots: Slots {
                memory: RemoteMemory { address: long(40), key: word(48) },
                count: short(52),
                bytes: word(56),
            },
        };
        let total = u64::from(end.slots.count) * u64::from(end.slots.bytes);
        let is_sensible = end.remote.queue_pair <= MAX_PACKET_NUMBER
            && end.remote.packet <= MAX_PACKET_NUMBER
            && end.reads > 0
            && end.slots.memory.address.checked_add(total).is_some();
        // What has no meaning is zero, so that an end has one form.
        (is_sensible && end.encode() == *bytes).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn end(
        numbers: (u32, u32, u16, u8, u16, u64, u32, u16, u32),
        gid: [u8; 16],
        by_manager: bool,
    ) -> EndpointAddress {
        let (queue_pair, packet, lid, reads, manager_port, address, key, count, bytes) = numbers;
        EndpointAddress {
            remote: RemoteEnd {
                queue_pair: queue_pair & MAX_PACKET_NUMBER,
                packet: packet & MAX_PACKET_NUMBER,
                lid,
                gid: Gid(gid),
            },
            mtu: PathMtu::ALL[usize::from(reads) % 5],
            reads: reads.max(1),
            by_manager,
            manager_port,
            secret: address.to_be_bytes(),
            slots: Slots { memory: RemoteMemory { address: address >> 1, key }, count, bytes },
        }
    }

    proptest! {
        #[test]
        fn ends_survive_the_way(
            numbers: (u32, u32, u16, u8, u16, u64, u32, u16, u32),
            gid: [u8; 16],
            by_manager: bool,
        ) {
            let end = end(numbers, gid, by_manager);
            prop_assert_eq!(EndpointAddress::decode(&end.encode()), Some(end));
        }

        #[test]
        fn any_bytes_are_one_end_or_none(low: [u8; 32], high: [u8; 32], at in 0..ENDPOINT_BYTES, byte: u8) {
            let mut bytes = [0; ENDPOINT_BYTES];
            bytes[..32].copy_from_slice(&low);
            bytes[32..].copy_from_slice(&high);
            let mut changed = end((1, 2, 3, 4, 5, 6, 7, 8, 9), [1; 16], false).encode();
            changed[at] = byte;
            for bytes in [bytes, changed] {
                if let Some(end) = EndpointAddress::decode(&bytes) {
                    prop_assert_eq!(end.encode(), bytes);
                    prop_assert!(end.reads > 0 && end.remote.queue_pair <= MAX_PACKET_NUMBER);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_sender_is_found_at_the_address_that_it_tells(four: [u8; 4], six: [u8; 16]) {
            let end = end((0, 0, 0, 1, 7, 0, 0, 0, 0), [0; 16], true);
            prop_assert_eq!(end.address(), None);
            // Some of IPv6 stand for ones of IPv4, and none for that no address is told.
            let six = std::net::Ipv6Addr::from(six);
            prop_assume!(six.to_ipv4_mapped().is_none() && !six.is_unspecified());
            for address in [IpAddr::from(four), six.into()] {
                let told = EndpointAddress::decode(&end.at(address).encode()).map(|end| end.address());
                prop_assert_eq!(told, Some(Some(address)));
            }
            // Whom no rdma_cm joins tells a GID.
            prop_assert_eq!(EndpointAddress { by_manager: false, ..end.at(four.into()) }.address(), None);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = end((7, 8, 9, 10, 11, 12, 13, 4, 4096), [1; 16], false).encode();
        assert!(EndpointAddress::decode(&good).is_some());
        // A queue pair beyond 24 bits, no MTU, an MTU beyond them, no reads, neither yes nor no, what is to
        // be zero.
        for (at, byte) in [(3, 1), (7, 1), (26, 0), (26, 6), (27, 0), (28, 2), (29, 1), (54, 1), (63, 1)] {
            let mut bytes = good;
            bytes[at] = byte;
            assert_eq!(EndpointAddress::decode(&bytes), None, "byte {at}");
        }
        let mut beyond = good;
        beyond[40..48].copy_from_slice(&(u64::MAX - 100).to_le_bytes());
        assert_eq!(EndpointAddress::decode(&beyond), None, "slots that end behind the last address");
    }
}
