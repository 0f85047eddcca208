//! Connect handle: what a receiver tells a sender through NCCL's bootstrap.
//!
//! 128 bytes, little-endian: `CWncclH1`, the secret that both ends prove to know, the number of the listener and the name
//! of the process's sockets, a port, how many addresses there are, and up to five addresses, IPv4 as IPv6.

use std::net::{IpAddr, Ipv6Addr};

use crate::error::NetError;

/// `NCCL_NET_HANDLE_MAXSIZE`.
pub const HANDLE_BYTES: usize = 128;

/// How many addresses a handle has room for.
pub const MAX_ADDRESSES: usize = 5;

const MAGIC: [u8; 8] = *b"CWncclH1";

/// What only the two ends of a connection know.
pub type Secret = [u8; 16];

/// Where a receiver listens, and what it takes to be let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// The secret.
    pub secret: Secret,
    /// The listener's number in its process.
    pub listener: u64,
    /// The name of its process's Unix sockets, as a number.
    pub process: u64,
    /// The port of TCP, 0 where there is none.
    pub port: u16,
    /// At most [`MAX_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
}

impl Handle {
    /// As bytes. Addresses beyond [`MAX_ADDRESSES`] are left out.
    pub fn encode(&self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.secret);
        bytes[24..32].copy_from_slice(&self.listener.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.process.to_le_bytes());
        bytes[40..42].copy_from_slice(&self.port.to_le_bytes());
        let count = self.addresses.len().min(MAX_ADDRESSES);
        bytes[42] = count as u8;
        for (at, address) in self.addresses.iter().take(count).enumerate() {
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => *address,
            };
            bytes[44 + at * 16..60 + at * 16].copy_from_slice(&address.octets());
        }
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are no handle of this plugin.
    pub fn decode(bytes: &[u8; HANDLE_BYTES]) -> Result<Self, NetError> {
        if bytes[..8] != MAGIC {
            return Err(NetError::Handle("it does not begin as one"));
        }
        let count = usize::from(bytes[42]);
        if count > MAX_ADDRESSES {
            return Err(NetError::Handle("it has too many addresses"));
        }
        let number = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let address = |at: usize| {
            let octets: [u8; 16] = core::array::from_fn(|index| bytes[44 + at * 16 + index]);
            Ipv6Addr::from(octets).to_canonical()
        };
        Ok(Self {
            secret: core::array::from_fn(|index| bytes[8 + index]),
            listener: number(24),
            process: number(32),
            port: u16::from_le_bytes([bytes[40], bytes[41]]),
            addresses: (0..count).map(address).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn handles_are_read_as_written(secret: [u8; 16], listener: u64, process: u64, port: u16,
                                       octets in prop::collection::vec(any::<[u8; 4]>(), 0..=MAX_ADDRESSES)) {
            let addresses = octets.into_iter().map(IpAddr::from).collect();
            let handle = Handle { secret, listener, process, port, addresses };
            prop_assert_eq!(Handle::decode(&handle.encode()).unwrap(), handle);
        }

        #[test]
        fn any_bytes_are_a_handle_or_an_error(mut bytes in prop::array::uniform32(any::<[u8; 4]>())) {
            bytes[0] = *b"CWnc";
            bytes[1] = *b"clH1";
            let bytes: [u8; HANDLE_BYTES] = core::array::from_fn(|at| bytes[at / 4][at % 4]);
            if let Ok(handle) = Handle::decode(&bytes) {
                prop_assert_eq!(Handle::decode(&handle.encode()).unwrap(), handle);
            }
        }
    }
}
