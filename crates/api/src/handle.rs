//! Handles of driver objects on both sides of the wire.
//!
//! A [`Handle`] is made by the client, which gives its program an address in its place: kind, server,
//! generation and index in 64 bits. A [`Native`] is the back end's own handle for the same object. The
//! worker's table translates; a handle that is unknown, freed or of the wrong kind is an error for that
//! client, never an address.

use crate::sys;
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use core::fmt;
use core::marker::PhantomData;

/// A kind of driver object.
pub trait Kind: Copy + Send + Sync + 'static {
    /// The C type of its handles.
    type Raw: Copy;
    /// The number that marks its handles.
    const TAG: u8;
    /// Its name in messages.
    const NAME: &'static str;
    /// Whether handles of kind `other` are accepted where this kind is expected.
    fn accepts(other: u8) -> bool {
        other == Self::TAG
    }
    /// The address in a C handle.
    fn address(raw: Self::Raw) -> u64;
    /// The C handle of an address.
    fn raw(address: u64) -> Self::Raw;
}

macro_rules! kinds {
    ($($(#[$text:meta])* $name:ident = $tag:literal : $raw:ident, $label:literal $(, accepts $other:literal)?;)*) => {$(
        $(#[$text])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name;

        impl Kind for $name {
            type Raw = sys::$raw;
            const TAG: u8 = $tag;
            const NAME: &'static str = $label;
            $(fn accepts(other: u8) -> bool {
                other == Self::TAG || other == $other
            })?
            fn address(raw: Self::Raw) -> u64 {
                raw as u64
            }
            fn raw(address: u64) -> Self::Raw {
                address as Self::Raw
            }
        }
    )*};
}

kinds! {
    /// A context.
    Context = 1: CUcontext, "context";
    /// A module.
    Module = 2: CUmodule, "module";
    /// A library.
    Library = 3: CUlibrary, "library";
    /// A function; the driver takes a kernel in its place everywhere.
    Function = 4: CUfunction, "function", accepts 5;
    /// A kernel of a library.
    Kernel = 5: CUkernel, "kernel";
    /// A stream.
    Stream = 6: CUstream, "stream";
    /// An event.
    Event = 7: CUevent, "event";
    /// A graph.
    Graph = 8: CUgraph, "graph";
    /// A node of a graph.
    GraphNode = 9: CUgraphNode, "graph node";
    /// An executable graph.
    GraphExec = 10: CUgraphExec, "executable graph";
    /// A pool for stream-ordered allocation.
    MemoryPool = 11: CUmemoryPool, "memory pool";
    /// An array.
    Array = 12: CUarray, "array";
    /// A mipmapped array.
    MipmappedArray = 13: CUmipmappedArray, "mipmapped array";
    /// A state of the JIT linker.
    LinkState = 14: CUlinkState, "link state";
    /// A texture reference.
    TextureReference = 20: CUtexref, "texture reference";
    /// A surface reference.
    SurfaceReference = 21: CUsurfref, "surface reference";
    /// A green context.
    GreenContext = 22: CUgreenCtx, "green context";
    /// A description of the resources of a green context.
    ResourceDescription = 23: CUdevResourceDesc, "resource description";
    /// Memory of a device, or a part of it, that is given addresses apart from being made.
    Allocation = 24: CUmemGenericAllocationHandle, "memory allocation";
    /// Something of the program that lives as long as it is referred to. Servers know none.
    UserObject = 25: CUuserObject, "user object";
}

/// The most servers that a program can use.
pub const MAX_SERVERS: usize = 16;

const SERVER_SHIFT: u32 = 52;
const SERVER_BITS: u64 = (MAX_SERVERS as u64 - 1) << SERVER_SHIFT;
const GENERATION_BITS: u32 = (1 << 20) - 1;

/// A client's handle.
pub struct Handle<K>(u64, PhantomData<K>);

/// A back end's handle.
pub struct Native<K>(u64, PhantomData<K>);

impl<K: Kind> Handle<K> {
    /// The handle that names nothing; for streams it names the legacy default stream.
    pub const NULL: Self = Self(0, PhantomData);

    /// Makes the handle for slot `index` in its use number `generation`. Generations wrap at 20 bits.
    pub fn new(index: u32, generation: u32) -> Self {
        let value =
            u64::from(K::TAG) << 56 | u64::from(generation & GENERATION_BITS) << 32 | u64::from(index);
        Self(value, PhantomData)
    }

    /// The null handle by which a client finds one of its servers, counted from 0.
    pub fn null_of(server: usize) -> Self {
        Self(0, PhantomData).of(server)
    }

    /// The same handle, with the mark of one of the client's servers. Only contexts need it: whatever else
    /// there is belongs to one.
    pub fn of(self, server: usize) -> Self {
        Self(self.0 & !SERVER_BITS | (server as u64) << SERVER_SHIFT & SERVER_BITS, PhantomData)
    }

    /// Which of the client's servers it belongs to; less than [`MAX_SERVERS`]. It means nothing to the
    /// servers.
    pub fn server(self) -> usize {
        ((self.0 & SERVER_BITS) >> SERVER_SHIFT) as usize
    }

    /// The slot.
    pub fn index(self) -> u32 {
        self.0 as u32
    }

    /// Which use of the slot the handle means.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & GENERATION_BITS
    }

    /// The mark of its kind, which for a hostile value may be any number.
    pub fn tag(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// The handle as a number.
    pub fn value(self) -> u64 {
        self.0
    }

    /// The handle that a number stands for; nothing is checked.
    pub fn from_value(value: u64) -> Self {
        Self(value, PhantomData)
    }

    /// The handle names nothing, on whichever server.
    pub fn is_null(self) -> bool {
        self.0 & !SERVER_BITS == 0
    }
}

impl<K: Kind> Native<K> {
    /// The null handle of the back end.
    pub const NULL: Self = Self(0, PhantomData);

    /// The handle as a number.
    pub fn value(self) -> u64 {
        self.0
    }

    /// The handle that a number of the back end stands for.
    pub fn from_value(value: u64) -> Self {
        Self(value, PhantomData)
    }

    /// The handle as the driver has it.
    pub fn as_raw(self) -> K::Raw {
        K::raw(self.0)
    }

    /// The handle that the driver gave.
    pub fn from_raw(raw: K::Raw) -> Self {
        Self(K::address(raw), PhantomData)
    }
}

macro_rules! handle_traits {
    ($($type:ident, $label:literal;)*) => {$(
        impl<K> Clone for $type<K> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<K> Copy for $type<K> {}
        impl<K> PartialEq for $type<K> {
            fn eq(&self, other: &Self) -> bool {
                self.0 == other.0
            }
        }
        impl<K> Eq for $type<K> {}
        impl<K> core::hash::Hash for $type<K> {
            fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }
        }
        impl<K: Kind> fmt::Debug for $type<K> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, "{} {:#x}"), K::NAME, self.0)
            }
        }
    )*};
}

handle_traits! {
    Handle, "";
    Native, "native ";
}

impl<K> Encode for Handle<K> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

impl<'a, K> Decode<'a> for Handle<K> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self(input.value()?, PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_kind_generation_and_index() {
        let handle = Handle::<Stream>::new(77, 0x0112_3456);
        assert_eq!((handle.tag(), handle.index(), handle.generation()), (Stream::TAG, 77, 0x0002_3456));
        assert_eq!(Handle::<Stream>::from_value(handle.value()), handle);
        assert!(Function::accepts(Kernel::TAG) && !Kernel::accepts(Function::TAG));
    }
    #[test]
    fn the_mark_of_a_server_changes_nothing_else() {
        let handle = Handle::<Context>::new(77, GENERATION_BITS).of(3);
        assert_eq!((handle.server(), handle.of(0)), (3, Handle::new(77, GENERATION_BITS)));
        assert_eq!((handle.tag(), handle.index(), handle.generation()), (Context::TAG, 77, GENERATION_BITS));
        assert!(Handle::<Context>::null_of(15).is_null() && Handle::<Context>::null_of(15).server() == 15);
        assert!(!handle.is_null() && Handle::<Context>::NULL.server() == 0);
    }
}
