//! Synchronisation mode of a copy: synchronous, asynchronous, or in a graph.

/// When a copying call returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// When CUDA's synchronous copies do.
    Synchronous,
    /// When the copy has been put into its stream.
    Asynchronous,
    /// As [`Asynchronous`](Self::Asynchronous), but the source need not wait for its turn in the stream.
    SourceAtOnce,
    /// As an asynchronous one; memory that is not pinned stays valid and as it is until the stream has passed
    /// the copy, too, since a launch of a graph copies and not the call that made the copy's node.
    InGraph,
}
