//! Checks of node descriptions (`CUDA_KERNEL_NODE_PARAMS` and others).

use crate::model::graph::work::{Filling, Kernel};
use crate::model::handles::RawHandle as _;
use crate::remote::mirrored;
use crate::submit::launch::{self, Arguments};
use crate::submit::module::{self, Owner};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUDA_MEMSET_NODE_PARAMS, CUfunction, CUresult};
use causeway_api::types::{LaunchAttribute, LaunchShape};

impl Kernel {
    /// A kernel with parameters that the program passes as to a launch.
    ///
    /// # Safety
    /// `arguments` must be what `cuLaunchKernel` demands for this function.
    pub unsafe fn new(
        function: CUfunction,
        context: Handle<Context>,
        shape: LaunchShape,
        attributes: Vec<LaunchAttribute>,
        arguments: Arguments,
    ) -> Result<Self, CUresult> {
        let (_, state) = module::resolve_function(function)?;
        launch::check(&shape, &state)?;
        // SAFETY: as this function demands.
        unsafe {
            launch::with_parameters(&state, arguments, CUresult::CUDA_ERROR_INVALID_VALUE, |params| {
                Self::with_buffer(function, context, shape, attributes, params)
            })
        }
    }

    /// A kernel with a ready parameter buffer.
    pub fn with_buffer(
        function: CUfunction,
        context: Handle<Context>,
        shape: LaunchShape,
        attributes: Vec<LaunchAttribute>,
        params: &[u8],
    ) -> Result<Self, CUresult> {
        let (function, state) = module::resolve_function(function)?;
        mirrored::note_parameters(params)?;
        // What a short buffer leaves out is zero, so that every parameter has its place.
        let mut params = params.to_vec();
        params.resize(state.parameter_bytes.max(params.len()), 0);
        let params = params.into_boxed_slice();
        let address = |offset: u32| params.as_ptr().wrapping_add(offset as usize).cast_mut().cast();
        let addresses = state.info.parameters.iter().map(|parameter| address(parameter.offset)).collect();
        let kernel = match state.owner {
            Owner::Module(_) => Handle::NULL,
            Owner::Library(_) => Handle::from_value(function.value()),
            Owner::Kernel(kernel, _) => kernel,
        };
        Ok(Self { function, kernel, context, shape, attributes, params, addresses })
    }

    /// The same kernel with other attributes.
    pub fn with_attributes(&self, attributes: Vec<LaunchAttribute>) -> Result<Self, CUresult> {
        let function = self.function.as_raw();
        Self::with_buffer(function, self.context, self.shape, attributes, &self.params)
    }
}

impl Filling {
    /// Checks a description.
    pub fn new(parameters: CUDA_MEMSET_NODE_PARAMS, context: Handle<Context>) -> Result<Self, CUresult> {
        let element = u64::from(parameters.elementSize);
        let is_even = matches!(element, 1 | 2 | 4) && parameters.dst.is_multiple_of(element);
        let row = (parameters.width as u64).saturating_mul(element);
        let pitch = parameters.pitch as u64;
        let fits = parameters.height <= 1 || (pitch >= row && pitch.is_multiple_of(element.max(1)));
        if !is_even || !fits || parameters.dst == 0 || parameters.width == 0 || parameters.height == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        mirrored::note_address(parameters.dst)?;
        Ok(Self { parameters, context })
    }
}
