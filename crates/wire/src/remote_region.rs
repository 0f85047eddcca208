//! Memory of one end that the network card of the other end may read or write, as a command names it.

/// Memory that one end exposes to the other's network card for one copy. Whoever exposes it keeps it until
/// the copy is known to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRegion {
    /// The address of its first byte, by which the card knows it.
    pub address: u64,
    /// The key of its registration.
    pub key: u32,
    /// By which number it is released where it was exposed for reading; 0 where it was exposed for writing.
    pub number: u32,
}

crate::record!(RemoteRegion { address, key, number });
