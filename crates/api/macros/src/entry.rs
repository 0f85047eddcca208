//! Entries of the declaration list: kinds, arguments and facts. The names below are the grammar of its language.

/// How a call is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Answered in the client.
    Local,
    /// Appended to the command stream, no reply.
    Posted,
    /// Waits for its reply.
    Called,
    /// Hand-written in the client, which sends operations of its own choice.
    Hand,
    /// Another name of a newer entry point with the same arguments.
    Same,
    /// Exported, answers "not supported".
    Unsupported,
}

/// Who carries out a command in the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Executor {
    /// The back end, on the engine's thread.
    BackEnd,
    /// The back end, on another thread, because the call is slow.
    Background {
        /// Whether all such calls are made one after the other, on one thread.
        is_serial: bool,
    },
    /// The engine itself, by hand-written code.
    Engine {
        /// Whether that code has the back end carry out the command, which has a method for it then.
        with_back_end: bool,
    },
}

/// What an argument does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Passed by value.
    Value,
    /// A handle that the client makes and the callee fills in.
    New,
    /// A handle that is no longer valid after the call.
    Drop,
    /// Pointer to one value that is read; may be null when `nullable`.
    In { nullable: bool },
    /// Pointer to as many values as `count` says; operations leave the count to the message.
    InList { count: Option<Count> },
    /// Pointer to one value that is written.
    Out { nullable: bool },
    /// Pointer to as many values as `count` says that are written.
    OutList { count: Count },
    /// Pointer to one value that is read and written.
    InOut,
    /// NUL-terminated text that is read.
    Text,
    /// An address in the client's memory that only hand-written code can interpret.
    Pointer { depth: usize },
    /// Bulk bytes of an operation: inline or by a transfer.
    Payload,
}

/// How many values a list has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Count {
    /// Always so many: `in f32[4]`.
    Fixed(usize),
    /// As many as another argument says, less a number: `in u64[tensorRank-1]`.
    Argument { argument: String, less: usize },
}

/// One argument.
#[derive(Clone, Debug)]
pub struct Argument {
    /// Its name in `cuda.h`.
    pub name: String,
    /// What it does.
    pub mode: Mode,
    /// The type that is passed or pointed to; `bytes` for untyped memory.
    pub base: String,
}

/// A variant for the per-thread default stream: its suffix and the CUDA version that brought it.
pub type PerThread = (String, u32);

/// One declared entry point or operation.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Exported symbol, or the name of an operation.
    pub name: String,
    /// How it is carried out.
    pub kind: Kind,
    /// Who carries it out in the worker.
    pub executor: Executor,
    /// Whether the client sends it from hand-written code, which keeps or adds something.
    pub wrapped: bool,
    /// Whether the function works without a current context.
    pub anywhere: bool,
    /// Whether the function's results depend on its arguments alone, so that the client may keep them.
    pub pure: bool,
    /// Its arguments in order.
    pub arguments: Vec<Argument>,
    /// The name that `cuGetProcAddress` knows it by.
    pub base: String,
    /// CUDA version that brought it, as `cuGetProcAddress` counts (11030 is 11.3).
    pub since: u32,
    /// Its variant for the per-thread default stream.
    pub per_thread: Option<PerThread>,
    /// The entry point that carries out an entry of kind [`Kind::Same`].
    pub target: Option<String>,
    /// Why it is not supported.
    pub reason: String,
    /// The header that declares it.
    pub header: String,
    /// What it is about: the part of the back end that executes it. Empty for what no back end gets.
    pub subject: String,
    /// Whether the function is an operation of ours and not an entry point of `cuda.h`.
    pub operation: bool,
    /// What the order of commands must know about it, if it travels as one.
    pub facts: Option<Facts>,
}

impl Entry {
    /// Whether the entry travels as a command.
    pub fn on_the_wire(&self) -> bool {
        matches!(self.kind, Kind::Posted | Kind::Called)
    }

    /// Whether the entry travels as a command without a reply.
    pub fn is_posted(&self) -> bool {
        self.kind == Kind::Posted
    }

    /// What the order of commands must know about an entry that travels as one.
    pub fn command_facts(&self) -> &Facts {
        self.facts.as_ref().expect("the list gives every command its order")
    }

    /// Whether a back end has a method for it.
    pub fn executed_by_back_end(&self) -> bool {
        self.on_the_wire() && self.executor != (Executor::Engine { with_back_end: false })
    }
}

/// How a command takes part in the order of its session; `causeway_api::order::Order` is its face.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// `free`: depends on nothing that can be deferred.
    Free,
    /// `inert`: as `free`, and leaves streams and contexts as idle as they were.
    Inert,
    /// `barrier`: comes after everything before it.
    Barrier,
    /// `in STREAM`: belongs into a stream.
    InStream {
        /// The argument with the stream.
        stream: String,
        /// `reads X` or `writes X`: an event, executable graph or function that the command shares with other
        /// streams.
        shared: Option<(Access, String)>,
    },
    /// `changes OBJECT`: changes a graph, or a function's or kernel's attributes, for what comes after it.
    Changes(String),
    /// `reads FUNCTION`: looks at the attributes of a function.
    Reads(String),
    /// `uses EVENT` or `uses EVENT EVENT`: looks at events, or destroys one.
    Uses(String, Option<String>),
    /// `watches STREAM`: looks at a stream and changes nothing.
    Watches(String),
    /// `watches context`: looks at the context that the command works in and changes nothing.
    WatchesContext,
}

/// What a command in a stream does with what it shares with other streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Comes after the writes before it.
    Read,
    /// Comes after every use before it.
    Write,
}

/// How a stream capture takes a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capture {
    /// The line names no stream that could be captured, so it says nothing.
    Unconcerned,
    /// `capture passes`: the command is carried out though its stream is captured.
    Passes,
    /// `capture node`: becomes a node of the graph.
    Node,
    /// `capture refused`: refused, and the capture is spoilt.
    Refused,
}

/// What the end of a line says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The command's order.
    pub order: Order,
    /// `ends CONTEXT`: the argument with the context that ends.
    pub ends: Option<String>,
    /// How a capture takes the command.
    pub capture: Capture,
}
