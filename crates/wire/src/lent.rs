//! Memory of one end that the network card of the other end may read or write, as a command names it.

/// Memory that is lent for one copy. Whoever lends it keeps it until the copy is known to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LentMemory {
    /// The address of its first byte, by which the card knows it.
    pub address: u64,
    /// The key of its registration.
    pub key: u32,
    /// By which number it is given back where it was lent to be read; 0 where it was lent to be written.
    pub number: u32,
}

crate::record!(LentMemory { address, key, number });
