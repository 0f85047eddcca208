//! Order of a command, as the declaration list has it, and how a stream capture
//! takes it.

use crate::handle::{Event, Handle, Stream};

/// How a command takes part in the order of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Depends on nothing that can be deferred.
    Free,
    /// As [`Order::Free`], and leaves streams and contexts as idle as they were.
    Inert,
    /// Comes after everything before it.
    Barrier,
    /// Belongs into a stream.
    InStream {
        /// The stream.
        stream: Handle<Stream>,
        /// The value of the handle of an event, executable graph or function that the command shares with
        /// commands of other streams, and what it does with it.
        shared: Option<(u64, Access)>,
    },
    /// Changes a graph, executable or not, or the attributes of a function or kernel, for what comes after it
    /// and not for the launches before.
    Changes {
        /// The value of its handle.
        object: u64,
    },
    /// Looks at the attributes of a function, as the changes before it have made them.
    Reads {
        /// The value of its handle.
        object: u64,
    },
    /// Looks at events, or destroys one.
    Uses {
        /// The event.
        event: Handle<Event>,
        /// A second one.
        other: Option<Handle<Event>>,
    },
    /// Looks at a stream and changes nothing.
    Watches {
        /// The stream.
        stream: Handle<Stream>,
    },
    /// Looks at the context that the command works in and changes nothing.
    WatchesContext,
}

/// What a command in a stream does with something that it shares with commands of other streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It comes after the writes before it.
    Read,
    /// It comes after every use before it.
    Write,
}

/// How a command is taken where its stream is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// It is carried out; so is what names no stream.
    Passes,
    /// It becomes a node of the graph.
    Node,
    /// It is refused, and the capture is spoilt.
    Refused,
}
