//! Machine code for one kernel and everything it can call.

use std::sync::Arc;

use cranelift_codegen::Context;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};

use crate::layout::KernelLayout;
use crate::link::{FunctionId, Image};
use crate::lower::{self, Placement};
use crate::run::Entry;
use crate::signature::CallTarget;

/// A kernel that can run.
pub(crate) struct CompiledKernel {
    pub(crate) entry: Entry,
    module: Option<JITModule>,
    /// Compiled code refers to this table by its address.
    _call_table: Box<[CallTarget]>,
}

// SAFETY: after compilation the module is only kept to be freed, and machine code may run on any thread.
unsafe impl Send for CompiledKernel {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for CompiledKernel {}

/// The machine this process runs on, as Cranelift sees it.
pub(crate) fn native_target() -> Result<Arc<dyn TargetIsa>, String> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", "speed"),
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
    ) -> Result<Self, String> {
        let target = native_target()?;
        let config = target.frontend_config();
        let convention = config.default_call_conv;
        let builder = JITBuilder::with_isa(Arc::clone(&target), default_libcall_names());
        let mut module = JITModule::new(builder);
        // Functions are declared in their order, so that the numbers in calls are those of the module.
        let mut identifiers = Vec::with_capacity(image.functions.len());
        for linked in &image.functions {
            let signature = lower::signature(linked, convention);
            identifiers
                .push(module.declare_anonymous_function(&signature).map_err(|error| error.to_string())?);
        }
        let entries = if layout.calls_indirectly { image.functions.len() } else { 0 };
        let mut call_table = vec![CallTarget::NONE; entries].into_boxed_slice();
        let mut placed = variables.to_vec();
        for &(variable, offset) in &layout.shared_variables {
            placed[variable] = offset;
        }
        let placement = Placement {
            variables: &placed,
            own_shared: &layout.own_shared,
            space_base: space.0,
            space_bits: space.1,
            call_table: (call_table.as_ptr() as u64, entries as u64),
        };
        let mut builder_context = FunctionBuilderContext::new();
        let mut context = Context::new();
        for &function in &layout.functions {
            context.func = lower::translate(image, function, &placement, config, &mut builder_context)
                .map_err(|(instruction, refusal)| format!("`{}`: {refusal:?}", instruction.text))?;
            module
                .define_function(identifiers[function], &mut context)
                .map_err(|error| format!("`{}`: {error:?}", image.functions[function].function.name))?;
            module.clear_context(&mut context);
        }
        module.finalize_definitions().map_err(|error| error.to_string())?;
        if layout.calls_indirectly {
            for &function in layout.functions.iter().filter(|&&function| function != kernel) {
                call_table[function] = CallTarget {
                    code: module.get_finalized_function(identifiers[function]) as u64,
                    signature: image.functions[function].signature,
                };
            }
        }
        let code = module.get_finalized_function(identifiers[kernel]);
        // SAFETY: the function was translated with a kernel's signature, which is that of `Entry`.
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(code) };
        Ok(Self { entry, module: Some(module), _call_table: call_table })
    }
}

impl Drop for CompiledKernel {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: a kernel is dropped with its program, of which no launch runs any more.
            unsafe { module.free_memory() };
        }
    }
}
