//! Machine code for a kernel and all that it can call.
//!
//! What depends on the kernel is compiled with it: itself, and functions that know where its shared memory or
//! its table of calls lies. All other functions are compiled once for the program ([`CommonCode`]): in a
//! large one many kernels call the same ones.

use std::collections::HashMap;
use std::sync::Arc;

use cranelift_codegen::Context;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};
use parking_lot::Mutex;

use crate::layout::{KernelLayout, Lockstep};
use crate::link::{FunctionId, Image};
use crate::lower::{self, Placement};
use crate::parse::syntax::Space;
use crate::run::Entry;
use crate::signature::CallTarget;

/// Statements of a function from which on code is generated quickly instead of well: the time and memory that
/// it takes otherwise grow faster than the function.
const LARGE_FUNCTION: usize = 12_000;

/// Bytes of a function's frame from which on that is no good: the quick allocator has a place on the stack for nearly
/// every value, and a thread has 80 KiB. Where the good one needs that much, too, a thread has more.
const LARGE_FRAME: u32 = 32 << 10;

/// A kernel that can run.
pub(crate) struct CompiledKernel {
    pub(crate) entry: Entry,
    /// Bytes of the frame in which a thread that waits leaves what it knows; `None` where it needs a stack for that.
    pub(crate) frame_size: Option<usize>,
    /// Bytes of stack for the large frames of the kernel and of all that it calls, if each is there once.
    pub(crate) large_frames: usize,
    _code: Code,
    /// Compiled code refers to this table by its address.
    _call_table: Box<[CallTarget]>,
}

/// Machine code, which is freed with it.
struct Code(Option<JITModule>);

// SAFETY: after compilation the module is only kept to be freed, and machine code may run on any thread.
unsafe impl Send for Code {}
// SAFETY: nothing is changed through a shared reference, and machine code may run on any thread.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.0.take() {
            // SAFETY: code is dropped with its program, of which no launch runs any more.
            unsafe { module.free_memory() };
        }
    }
}

/// The functions of a program that do not depend on the kernel that calls them, compiled when the first kernel
/// that reaches them is.
#[derive(Default)]
pub(crate) struct CommonCode(Mutex<Common>);

#[derive(Default)]
struct Common {
    /// For each function whether it depends on the kernel; empty before the first kernel is compiled.
    depends: Vec<bool>,
    /// Where the code of those is that have some.
    addresses: HashMap<FunctionId, u64>,
    /// Bytes of their frames that are large.
    large_frames: HashMap<FunctionId, usize>,
    modules: Vec<Code>,
}

/// How fast code is to be generated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Optimization {
    /// Good code.
    Full,
    /// Code that is there soon.
    Little,
}

/// The machine this process runs on, as Cranelift sees it.
pub(crate) fn native_target(optimization: Optimization) -> Result<Arc<dyn TargetIsa>, String> {
    let mut flags = settings::builder();
    let (level, allocation) = match optimization {
        Optimization::Full => ("speed", "backtracking"),
        Optimization::Little => ("none", "single_pass"),
    };
    for (name, value) in [
        ("opt_level", level),
        ("regalloc_algorithm", allocation),
        // The program is anyone's: what the translator makes of it is not trusted to be well typed.
        ("enable_verifier", "true"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        // Stack limits are checked explicitly, and nothing unwinds through compiled code.
        ("enable_probestack", "false"),
        ("unwind_info", "false"),
    ] {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    let builder = cranelift_native::builder()?;
    builder.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())
}

impl CompiledKernel {
    /// Generates code. `variables` are the addresses of the program's variables; shared ones are taken from
    /// `layout`.
    pub(crate) fn compile(
        image: &Image,
        kernel: FunctionId,
        layout: &KernelLayout,
        variables: &[u64],
        space: (u64, u32),
        common: &CommonCode,
    ) -> Result<Self, String> {
        let entries = if layout.calls_indirectly { image.functions.len() } else { 0 };
        let mut call_table = vec![CallTarget::NONE; entries].into_boxed_slice();
        let mut placed = variables.to_vec();
        for &(variable, offset) in &layout.shared_variables {
            placed[variable] = offset;
        }
        let may_wait = layout.waits || layout.lockstep != Lockstep::Never;
        let points = (may_wait && layout.only_kernel_waits)
            .then(|| lower::suspend_points(&image.functions[kernel].function))
            .flatten();
        let placement = Placement {
            variables: &placed,
            own_shared: &layout.own_shared,
            space_base: space.0,
            space_bits: space.1,
            call_table: (call_table.as_ptr() as u64, entries as u64),
            runs_blocks: !may_wait,
            suspend_points: points.as_ref(),
        };
        let (known, common_frames) = common.compile(image, layout, &placement)?;
        let own: Vec<FunctionId> =
            layout.functions.iter().copied().filter(|function| !known.contains_key(function)).collect();
        let Generated { module, identifiers, frames } = compile(image, &own, &known, &placement)?;
        let large_frames = common_frames + frames.values().filter_map(|&frame| large(frame)).sum::<usize>();
        let address = |function: FunctionId| match known.get(&function) {
            Some(&address) => address,
            None => module.get_finalized_function(identifiers[function]) as u64,
        };
        if layout.calls_indirectly {
            for &function in layout.functions.iter().filter(|&&function| function != kernel) {
                call_table[function] =
                    CallTarget { code: address(function), signature: image.functions[function].signature };
            }
        }
        let code = module.get_finalized_function(identifiers[kernel]);
        // SAFETY: the function was translated with a kernel's signature, which is that of `Entry`.
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(code) };
        let frame_size = points.as_ref().map(|points| points.frame_size);
        Ok(Self { entry, frame_size, large_frames, _code: Code(Some(module)), _call_table: call_table })
    }
}

impl CommonCode {
    /// Where the code of those functions of a kernel is that do not depend on it, and the bytes of their large frames;
    /// code is generated where there is none yet.
    fn compile(
        &self,
        image: &Image,
        layout: &KernelLayout,
        placement: &Placement<'_>,
    ) -> Result<(HashMap<FunctionId, u64>, usize), String> {
        let common = &mut *self.0.lock();
        if common.depends.is_empty() {
            common.depends = functions_that_depend(image);
        }
        let requested: Vec<FunctionId> =
            layout.functions.iter().copied().filter(|&function| !common.depends[function]).collect();
        let missing: Vec<FunctionId> =
            requested.iter().copied().filter(|function| !common.addresses.contains_key(function)).collect();
        if !missing.is_empty() {
            let Generated { module, identifiers, frames } =
                compile(image, &missing, &common.addresses, placement)?;
            common.large_frames.extend(frames.iter().filter_map(|(&id, &frame)| Some((id, large(frame)?))));
            for function in missing {
                let address = module.get_finalized_function(identifiers[function]) as u64;
                common.addresses.insert(function, address);
            }
            common.modules.push(Code(Some(module)));
        }
        let large_frames = requested.iter().filter_map(|function| common.large_frames.get(function)).sum();
        let known = requested.into_iter().map(|function| (function, common.addresses[&function])).collect();
        Ok((known, large_frames))
    }
}

/// For each function whether its code depends on the kernel that reaches it: on where variables in shared
/// memory lie, or on the table of calls through pointers. Kernels are never common.
fn functions_that_depend(image: &Image) -> Vec<bool> {
    let is_shared = |id: &usize| image.variables[*id].space == Space::Shared;
    let mut callers = vec![Vec::new(); image.functions.len()];
    let mut depends = vec![false; image.functions.len()];
    let mut pending = Vec::new();
    for (id, linked) in image.functions.iter().enumerate() {
        linked.references.iter().for_each(|&callee| callers[callee].push(id));
        let own = linked.function.body.iter().flat_map(|body| &body.variables);
        let has_shared = own.into_iter().any(|variable| variable.space == Space::Shared);
        if has_shared
            || linked.function.is_kernel
            || linked.calls_indirectly
            || linked.variables.iter().any(is_shared)
        {
            depends[id] = true;
            pending.push(id);
        }
    }
    while let Some(id) = pending.pop() {
        for &caller in &callers[id] {
            if !std::mem::replace(&mut depends[caller], true) {
                pending.push(caller);
            }
        }
    }
    depends
}

/// The bytes of a frame if it is a large one.
fn large(frame: u32) -> Option<usize> {
    (frame >= LARGE_FRAME).then_some(frame as usize)
}

/// Generates code for these functions, which call each other and those of which the address is known.
fn compile(
    image: &Image,
    functions: &[FunctionId],
    known: &HashMap<FunctionId, u64>,
    placement: &Placement<'_>,
) -> Result<Generated, String> {
    let statements =
        |id: &FunctionId| image.functions[*id].function.body.as_ref().map_or(0, |body| body.statements.len());
    let is_large = functions.iter().map(statements).max().is_some_and(|most| most >= LARGE_FUNCTION);
    if is_large {
        let quick = compile_with(Optimization::Little, image, functions, known, placement)?;
        if quick.frames.values().all(|&frame| large(frame).is_none()) {
            return Ok(quick);
        }
        drop(Code(Some(quick.module)));
    }
    compile_with(Optimization::Full, image, functions, known, placement)
}

/// Code of functions.
struct Generated {
    module: JITModule,
    /// The number that each function of the program has in the module.
    identifiers: Vec<FuncId>,
    /// Bytes of each function's frame.
    frames: HashMap<FunctionId, u32>,
}

fn compile_with(
    optimization: Optimization,
    image: &Image,
    functions: &[FunctionId],
    known: &HashMap<FunctionId, u64>,
    placement: &Placement<'_>,
) -> Result<Generated, String> {
    let target = native_target(optimization)?;
    let config = target.frontend_config();
    let mut builder = JITBuilder::with_isa(Arc::clone(&target), default_libcall_names());
    let name = |function: FunctionId| format!("function {function}");
    for (&function, &address) in known {
        builder.symbol(name(function), address as *const u8);
    }
    let mut module = JITModule::new(builder);
    // Functions are declared in their order, so that the numbers in calls are those of the module.
    let mut identifiers = Vec::with_capacity(image.functions.len());
    for (id, linked) in image.functions.iter().enumerate() {
        let signature = lower::signature(linked, config.default_call_conv);
        let declared = if known.contains_key(&id) {
            module.declare_function(&name(id), Linkage::Import, &signature)
        } else {
            module.declare_anonymous_function(&signature)
        };
        identifiers.push(declared.map_err(|error| error.to_string())?);
    }
    let mut builder_context = FunctionBuilderContext::new();
    let mut context = Context::new();
    let mut frames = HashMap::new();
    for &function in functions {
        context.func = lower::translate(image, function, placement, config, &mut builder_context)
            .map_err(|(instruction, refusal)| format!("`{}`: {refusal:?}", instruction.text))?;
        module
            .define_function(identifiers[function], &mut context)
            .map_err(|error| format!("`{}`: {error:?}", image.functions[function].function.name))?;
        let layout = context.compiled_code().and_then(|code| code.buffer.frame_layout());
        frames.insert(function, layout.map_or(0, |layout| layout.frame_to_fp_offset));
        module.clear_context(&mut context);
    }
    module.finalize_definitions().map_err(|error| error.to_string())?;
    Ok(Generated { module, identifiers, frames })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::AddressSpace;
    use crate::{CompileOptions, Program};

    #[test]
    fn functions_that_know_nothing_of_their_kernel_are_compiled_once() {
        let program = Program::compile(
            &[".version 8.0\n.target sm_75\n.address_size 64
            .shared .b32 word;
            .func leaf() { ret; }
            .func round() { call leaf; call round; ret; }
            .func shares() { .reg .b32 r; ld.shared.u32 r, [word]; call leaf; ret; }
            .func outer() { call shares; ret; }
            .func own() { .shared .b32 s; .reg .b32 r; ld.shared.u32 r, [s]; ret; }
            .func points() { .reg .b64 f; mov.u64 f, leaf; call f, (); ret; }
            .visible .entry a() { call round; call outer; ret; }
            .visible .entry b() { call round; call own; call points; ret; }"],
            &CompileOptions::default(),
        )
        .unwrap();
        let image = program.image();
        let depends = functions_that_depend(image);
        let names: Vec<&str> = (0..)
            .zip(&image.functions)
            .filter(|(id, _)| !depends[*id])
            .map(|(_, it)| &*it.function.name)
            .collect();
        assert_eq!(names, ["leaf", "round"]);
        let space = AddressSpace::new(1 << 20).unwrap();
        let common = CommonCode::default();
        let variables = vec![0; image.variables.len()];
        let kernels = [0, 1].map(|index| {
            let layout = program.layout(index);
            let place = (space.base(), space.reserved().trailing_zeros());
            CompiledKernel::compile(image, layout.function, layout, &variables, place, &common).unwrap()
        });
        let state = common.0.lock();
        assert_eq!((state.modules.len(), state.addresses.len()), (1, 2), "the second kernel needed no more");
        drop((state, kernels));
    }

    #[test]
    fn threads_have_frames_where_the_kernel_alone_waits() {
        let program = Program::compile(
            &[".version 8.0\n.target sm_80\n.address_size 64
            .func plain() { ret; }
            .func waits() { bar.sync 0; ret; }
            .func (.param .b32 r) value() { st.param.b32 [r], 1; ret; }
            .visible .entry a() { bar.sync 0; call plain; ret; }
            .visible .entry b() { bar.sync 0; call waits; ret; }
            .visible .entry c() { .reg .b32 %r; { .param .b32 v; call (v), value; ld.param.b32 %r, [v]; } bar.sync 0; ret; }
            .visible .entry d() { .reg .b32 %r; .param .b32 v; call (v), value; bar.sync 0; ld.param.b32 %r, [v]; ret; }
            .visible .entry e() { .reg .b32 %r; .reg .b64 %a; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r}, [%a]; ret; }
            .visible .entry f() { ret; }"],
            &CompileOptions::default(),
        )
        .unwrap();
        let space = AddressSpace::new(1 << 20).unwrap();
        let place = (space.base(), space.reserved().trailing_zeros());
        let has_frames = [0, 1, 2, 3, 4, 5].map(|index| {
            let layout = program.layout(index);
            let common = CommonCode::default();
            CompiledKernel::compile(program.image(), layout.function, layout, &[], place, &common)
                .unwrap()
                .frame_size
                .is_some()
        });
        assert_eq!(has_frames, [true, false, true, false, false, false]);
    }
}
