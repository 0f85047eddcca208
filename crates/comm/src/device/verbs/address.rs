//! Address of a queue pair. 32 bytes, which the program brings to it.

use causeway_ibverbs::{Gid, PathMtu, RemoteEnd};

/// Bytes of an address.
pub const ADDRESS_BYTES: usize = 32;

/// What they begin with; the last one is the version.
const MAGIC: [u8; 5] = *b"CWqp\x01";

/// Where a queue pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The queue pair and its port.
    pub end: RemoteEnd,
    /// Bytes of a packet that its port takes.
    pub mtu: PathMtu,
}

impl Address {
    /// As the peer gets it.
    pub fn to_bytes(self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[..5].copy_from_slice(&MAGIC);
        bytes[5] = self.mtu as u8;
        bytes[6..8].copy_from_slice(&self.end.lid.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.end.queue_pair.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.end.packet.to_le_bytes());
        bytes[16..].copy_from_slice(&self.end.gid.0);
        bytes
    }

    /// From a peer's bytes; `None` where they are something else.
    pub fn from_bytes(bytes: &[u8; ADDRESS_BYTES]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mtu = PathMtu::ALL.into_iter().find(|mtu| *mtu as u8 == bytes[5])?;
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[16..]);
        let (queue_pair, packet) = (number(8), number(12));
        if bytes[..5] != MAGIC || queue_pair > 0x00ff_ffff || packet > 0x00ff_ffff {
            return None;
        }
        let lid = u16::from_le_bytes([bytes[6], bytes[7]]);
        Some(Self { end: RemoteEnd { queue_pair, packet, lid, gid: Gid(gid) }, mtu })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_and_other_bytes_are_refused() {
        let end = RemoteEnd { queue_pair: 0xabcdef, packet: 0x123456, lid: 7, gid: Gid([9; 16]) };
        let bytes = Address { end, mtu: PathMtu::Mtu4096 }.to_bytes();
        assert_eq!(Address::from_bytes(&bytes), Some(Address { end, mtu: PathMtu::Mtu4096 }));
        for at in [0, 4, 5, 11, 15] {
            let mut wrong = bytes;
            wrong[at] = 0xee;
            assert_eq!(Address::from_bytes(&wrong), None, "byte {at}");
        }
    }
}
