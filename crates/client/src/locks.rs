//! The locks of this library, in the order in which a thread may take them: [`causeway_sync::ranked`] checks it in debug
//! builds.

pub use causeway_sync::ranked::{Monitor, Mutex, MutexGuard, RwLock, must_be_free};
use causeway_sync::ranked::{bit, must_hold_none_but};

/// What is made once, by a call of a server. The rank is that of the turn.
pub type OnceMap<R, K, V> = causeway_sync::OnceMap<R, rank::MadeOnce, K, V>;

/// Locks that a thread may hold while it waits for a server, since another thread that asks for one needs what the first
/// one is waiting for. What they guard is looked up without them, or by none but their holder. Two are no such locks, and
/// should go from the list: that of all graphs and that of a graph's memory, which are held while a graph is made executable.
const HELD_WHILE_WAITING: u128 = bit::<rank::ConnectionMessages>()
    | bit::<rank::HeldConnections>()
    | bit::<rank::PrimaryContexts>()
    | bit::<rank::LibraryKernels>()
    | bit::<rank::LibraryModules>()
    | bit::<rank::LibraryVariables>()
    | bit::<rank::LibraryManaged>()
    | bit::<rank::LibraryImages>()
    | bit::<rank::ModuleFunctions>()
    | bit::<rank::ModuleVariables>()
    | bit::<rank::PoolsOfLocations>()
    | bit::<rank::IpcImports>()
    | bit::<rank::VirtualMemoryChanges>()
    | bit::<rank::PeerPaths>()
    | bit::<rank::ArrayLevels>()
    | bit::<rank::Importing>()
    | bit::<rank::LinkerResult>()
    | bit::<rank::Linker>()
    | bit::<rank::AllocationMirror>()
    | bit::<rank::Graphs>()
    | bit::<rank::GraphReservation>();

/// Says that the calling thread waits here for a server: debug builds panic where it holds a lock that is no turn. Where
/// every command is waited for (`CAUSEWAY_SYNC`) commands that are posted otherwise are, too, with the locks that keep
/// their order.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn waits_for_server() {
    must_hold_none_but(HELD_WHILE_WAITING);
}

/// The ranks: one type each.
#[cfg_attr(
    not(feature = "private-tables"),
    allow(dead_code, reason = "what private tables keep has ranks, too")
)]
pub mod rank {
    causeway_sync::ranks! {
        tier 0;
        /// Held while sessions are being opened; what was said last.
        ConnectionMessages,
        /// Sessions that were granted before `cuInit`.
        HeldConnections,
        /// How often a primary context is retained.
        PrimaryContexts,
        /// Streams of ours in a context.
        ProxyStreams,
        /// Whose turn it is to ask for a kernel of a library.
        LibraryKernels,
        /// Whose turn it is to make the module of a library in a context.
        LibraryModules,
        /// Whose turn it is to ask for a variable of a library.
        LibraryVariables,
        /// Whose turn it is to ask for a managed variable of a library.
        LibraryManaged,
        /// Images of a library that the server may still ask for.
        LibraryImages,
        /// Whose turn it is to ask for a function of a module.
        ModuleFunctions,
        /// Changes of a function's attributes.
        FunctionChanges,
        /// Functions of a kernel, by context.
        KernelFunctions,
        /// Whose turn it is to ask for a variable of a module.
        ModuleVariables,
        /// Pools of devices.
        PoolsOfDevices,
        /// Default pools of places that are no devices.
        PoolsOfLocations,
        /// Whose turn it is to export from one server's worker to another's.
        IpcImports,
        /// What of an executable graph changes.
        ExecutableGraph,
        /// An event's last record.
        EventRecord,
        /// Stream captures.
        Captures,
        /// Whose turn it is to change mappings.
        VirtualMemoryChanges,
        /// Reserved addresses and mappings.
        VirtualMemory,
        /// Whose turn it is to find out how servers reach each other.
        PeerPaths,
        /// The heaps of contexts.
        HeapsOfContexts,
        /// Whose turn it is to ask for a level of a mipmapped array.
        ArrayLevels,
        /// Whose turn it is to map what another process exported.
        Importing,
        /// What other processes exported and this one uses.
        Imported,
        /// What a linker made.
        LinkerResult,
        /// What a linker was given.
        Linker,
        /// Held while pieces of a copy from a device are asked for.
        CopiesFromDevice,
        /// Mappings and handles of an allocation.
        AllocationUses,
        /// Where the pages of an allocation in host memory lie for its mirror.
        AllocationMirror,
        /// Attributes of a function.
        FunctionAttributes,
        /// Texture and surface objects.
        Textures,
        /// What texture and surface references are bound to.
        TextureReferences,
        /// Answers about occupancy.
        OccupancyResults,
        /// Launches that are set up with `cuParamSet`.
        PreparedLaunches,
        /// Answers that hold for ever.
        CachedResults,
        /// Pools that end when their memory is free.
        EndingPools,
        /// Memory of all pools in host memory, by address.
        LiveRanges,
        /// Memory of a pool in host memory.
        Ranges,
        /// All pools in host memory.
        AllRanges,
        /// Imports that are closed when a stream has passed.
        ClosingImports,
        /// Memory that is registered with network cards.
        RegisteredMemory,
        /// Plans for copies.
        Plans,
        /// The program's loaded files.
        LoadedObjects,
        /// Hashes of files.
        FileHashes,
        /// How network cards reach the devices.
        GpuDirectText,
        /// Pages of managed variables.
        ManagedPages,
        /// What was found out about that, for the statistics.
        PeerAddresses,
        /// All graphs and their nodes.
        Graphs,
        /// The program's own references to user objects.
        ProgramReferences,
        /// All user objects.
        UserObjects,
        /// Memory of graphs that is released when launches are done.
        RetiredGraphMemory,
        /// The making of an event on the server.
        EventMaking,
        /// Whose turn it is to make the mirror of memory.
        MirrorMaking,
        /// Whose turn it is to fetch what kernels wrote.
        MirrorFetches,
        /// Held from the look for what the program wrote until that is queued.
        MirrorSending,
        /// Memory of which a server has a mirror.
        MirroredRegions,
        /// Memory of allocation nodes.
        GraphAllocations,
        /// Memory that launches of graphs have allocated.
        LiveGraphMemory,
        /// Who needs the memory at the addresses of a graph.
        GraphReservation,
        /// How much memory graphs hold.
        GraphMemoryUsage,
        /// Parts of a transfer that came before its turn.
        BouncedParts,
        /// Buffers that wait for their next use.
        BounceBuffers,
        /// Registered memory that is being handed to a worker.
        SharingMemory,
        /// Private memory that was moved into files.
        MovedMemory,
        /// Memory that the worker of a server on this host has, too.
        SharedMemory,
        /// Pinned and registered host memory.
        HostMemory,
        /// Memory that is being read for copies.
        Uploads,
        /// What the server reports the end of.
        Watches,
        /// What is to be done when streams reach a point.
        Callbacks,
        /// What became of a transfer.
        TransferOutcome,
        /// Writes to the program's memory that are not done.
        PendingWrites,
        /// Device memory by address.
        DeviceMemory,
        /// What was advised for memory.
        MemoryAdvice,
        /// Mappings of host memory at addresses of the program's.
        HostMappings,
        /// Free addresses of a window.
        FreeAddresses,
        /// Which windows there are.
        AddressWindows,
        /// A heap of device memory.
        Heap,
        /// All heaps.
        Heaps,
        /// Blocks that other processes may open.
        OwnExports,
        /// Copies of a stream whose bytes are not there.
        StreamTransfers,
        /// Limits of a context.
        ContextLimits,
        /// Peers of a context.
        ContextPeers,
        /// Free pages of the host window.
        HostWindow,
        /// Why registered memory has mirrors, for the statistics.
        MirrorReasons,
        /// Values that the runtime keeps with contexts.
        ContextStorage,
        /// Texts that were compiled.
        CompiledTexts,
        /// Which handles are free.
        FreeHandles,
        /// What is kept of the objects of one kind.
        Objects,
        /// Which slots for replies are free.
        ReplySlots,
        /// The reply that a thread waits for.
        ReplyOutcome,
        /// What calls waited for.
        WaitStatistics,
        /// Commands that a server does not know.
        MissingCommands,
        /// Events around traced launches.
        DeviceTimes,
        /// What a trace has.
        TraceSpans,
        /// Addresses of mirrored memory that devices may have.
        NotedAddresses,
        /// What has been made once ([`OnceMap`]).
        MadeOnce,
        /// Which devices copy from each other's memory, as far as that has shown.
        ReachingDevices,
    }
}
