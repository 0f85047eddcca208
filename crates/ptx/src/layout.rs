//! What a kernel's code and memory are made of: the functions that it reaches, shared and local memory.

use std::collections::HashMap;

use crate::compile_error::CompileError;
use crate::limits::WARP_SIZE;
use crate::link::{FunctionId, Image, Reachable, VariableId};
use crate::lower::{WarpUse, frame_layout, polls_memory, waits_for_others};
use crate::parse::syntax::Space;

/// Local memory that calls may use when their depth cannot be known in advance (recursion, calls through
/// pointers).
pub(crate) const LOCAL_FOR_RECURSION: u64 = 32 << 10;

/// The functions of a kernel, and where its memory lies.
#[derive(Debug)]
pub(crate) struct KernelLayout {
    pub(crate) function: FunctionId,
    /// The kernel and all it can call.
    pub(crate) functions: Vec<FunctionId>,
    /// For each of the functions, where its own shared variables start.
    pub(crate) own_shared: HashMap<FunctionId, u64>,
    /// Offsets of the shared variables that sources declare.
    pub(crate) shared_variables: Vec<(VariableId, u64)>,
    pub(crate) static_shared: u64,
    /// Bytes of local memory a thread gets.
    pub(crate) local: u64,
    /// Whether that is a guess: the depth of calls is only known when they are made.
    pub(crate) is_unbounded: bool,
    /// Whether threads of a block may wait for each other.
    pub(crate) waits: bool,
    /// Whether no function waits but the kernel itself.
    pub(crate) only_kernel_waits: bool,
    /// In blocks of how many threads lanes may exchange values that nothing but their lockstep orders.
    pub(crate) lockstep: Lockstep,
    /// Whether they may wait for what threads of other blocks, kernels, or the program do.
    pub(crate) polls: bool,
    pub(crate) calls_indirectly: bool,
}

/// The launches of a kernel in which the lanes of a warp must go in lockstep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lockstep {
    Never,
    /// Those with blocks of no more than one warp.
    OneWarp,
    Always,
}

impl Lockstep {
    /// Whether that is so with blocks of so many threads.
    pub(crate) fn applies(self, threads: u64) -> bool {
        match self {
            Self::Never => false,
            Self::OneWarp => (2..=u64::from(WARP_SIZE)).contains(&threads),
            Self::Always => threads > 1,
        }
    }
}

/// Lays out the memory of a kernel and of all that it can call.
///
/// `warp_uses` holds what is known of each function, which kernels may share.
pub(crate) fn layout(
    image: &Image,
    function: FunctionId,
    warp_uses: &mut HashMap<FunctionId, WarpUse>,
) -> Result<KernelLayout, CompileError> {
    let reachable_functions = image.reachable_functions(function);
    let shared = SharedLayout::new(image, &reachable_functions);
    let name = &image.functions[function].function.name;
    let limit = u64::from(crate::limits::MAX_SHARED_PER_BLOCK);
    if shared.bytes > limit {
        let reason =
            format!("needs {} bytes of shared memory, and a block has at most {limit}", shared.bytes);
        return Err(CompileError::TooLarge { kernel: name.clone(), reason });
    }
    let (depth, bounded) = local_depth(image, function, &mut vec![None; image.functions.len()]);
    let recursion = if bounded && !reachable_functions.calls_indirectly { 0 } else { LOCAL_FOR_RECURSION };
    let waits =
        reachable_functions.functions.iter().any(|&id| waits_for_others(&image.functions[id].function));
    let (mut exchanges, mut computes, mut only_kernel_waits) = (false, false, true);
    for &id in &reachable_functions.functions {
        let warp_use = *warp_uses.entry(id).or_insert_with(|| WarpUse::of(&image.functions[id].function));
        exchanges |= warp_use.exchanges;
        computes |= warp_use.computes;
        let may_wait = warp_use.exchanges || waits && waits_for_others(&image.functions[id].function);
        only_kernel_waits &= id == function || !may_wait;
    }
    let lockstep = match (exchanges, computes) {
        (false, _) => Lockstep::Never,
        (true, true) => Lockstep::Always,
        (true, false) => Lockstep::OneWarp,
    };
    let polls = reachable_functions.functions.iter().any(|&id| polls_memory(&image.functions[id].function));
    Ok(KernelLayout {
        function,
        functions: reachable_functions.functions,
        own_shared: shared.own,
        shared_variables: shared.variables,
        static_shared: shared.bytes,
        local: aligned(depth.saturating_add(recursion), 16),
        is_unbounded: recursion > 0,
        waits,
        only_kernel_waits,
        lockstep,
        polls,
        calls_indirectly: reachable_functions.calls_indirectly,
    })
}

/// Where the static shared variables of a kernel, and of all that it can call, lie in a block's shared
/// memory.
struct SharedLayout {
    /// For each function, where its own variables start.
    own: HashMap<FunctionId, u64>,
    /// Offsets of the variables that sources declare; those without bounds begin where the others end.
    variables: Vec<(VariableId, u64)>,
    bytes: u64,
}

impl SharedLayout {
    fn new(image: &Image, reachable_functions: &Reachable) -> Self {
        let mut own = HashMap::new();
        let mut end = 0_u64;
        for &id in &reachable_functions.functions {
            let Some(body) = &image.functions[id].function.body else { continue };
            let align = body
                .variables
                .iter()
                .filter(|variable| variable.space == Space::Shared)
                .map(|variable| u64::from(variable.align))
                .max()
                .unwrap_or(1)
                .max(16);
            end = aligned(end, align);
            own.insert(id, end);
            end = end.saturating_add(frame_layout(&image.functions[id].function, body).shared);
        }
        let mut variables = Vec::new();
        let mut dynamic = Vec::new();
        for &id in &reachable_functions.variables {
            let variable = &image.variables[id];
            if variable.space != Space::Shared {
                continue;
            }
            if variable.size == 0 {
                dynamic.push(id);
                continue;
            }
            end = aligned(end, variable.placed_align());
            variables.push((id, end));
            end = end.saturating_add(variable.size);
        }
        let dynamic_align = dynamic.iter().map(|&id| u64::from(image.variables[id].align)).max().unwrap_or(1);
        let bytes = aligned(end, dynamic_align);
        variables.extend(dynamic.into_iter().map(|id| (id, bytes)));
        Self { own, variables, bytes }
    }
}

/// The first multiple of `align` from `end` on; the sizes in a text may add up to anything.
fn aligned(end: u64, align: u64) -> u64 {
    end.checked_next_multiple_of(align.max(1)).unwrap_or(u64::MAX)
}

/// Bytes of local memory on the deepest chain of calls from a function, and whether there is a deepest one.
fn local_depth(image: &Image, root: FunctionId, known: &mut [Option<u64>]) -> (u64, bool) {
    // Depth first with a stack of its own, since chains of calls in hostile text may be long.
    let own = |id: FunctionId| {
        let function = &image.functions[id].function;
        function.body.as_ref().map_or(0, |body| frame_layout(function, body).size)
    };
    let grows = |id: FunctionId| {
        let function = &image.functions[id].function;
        function.body.as_ref().is_some_and(|body| frame_layout(function, body).grows)
    };
    let mut bounded = true;
    let mut on_path = vec![false; image.functions.len()];
    let mut path = vec![(root, 0_usize)];
    on_path[root] = true;
    while let Some((id, next)) = path.last_mut() {
        let references = &image.functions[*id].references;
        if let Some(&callee) = references.get(*next) {
            *next += 1;
            if on_path[callee] {
                bounded = false;
            } else if known[callee].is_none() {
                on_path[callee] = true;
                path.push((callee, 0));
            }
        } else {
            let id = *id;
            bounded &= !grows(id);
            let deepest = references.iter().filter_map(|&callee| known[callee]).max().unwrap_or(0);
            known[id] = Some(own(id).saturating_add(deepest));
            on_path[id] = false;
            path.pop();
        }
    }
    (known[root].unwrap_or(0), bounded)
}
