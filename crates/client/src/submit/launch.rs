//! Launches: what a kernel gets, and what can be refused before the server sees it.

use crate::arguments::list;
use crate::log::refuse_use;
use crate::model::context;
use crate::remote::{mirrored, session};
use crate::statistics;
use crate::submit::module::{self, FunctionState};
use crate::submit::streams::DefaultStream;
use crate::submit::{capture, device_times, occupancy, send, streams};
use causeway_api::calls;
use causeway_api::handle::{Context, Function, Handle, Stream};
use causeway_api::sys::{
    CUdevice_attribute, CUfunction, CUfunction_attribute, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchConfig, CUresult, CUstream,
};
use causeway_api::types::{LaunchAttribute, LaunchShape, Parameter};
use core::cell::{Cell, RefCell};
use core::ffi::c_void;
use core::slice;

thread_local! {
    /// The parameters of the launch being made, kept so that launches allocate nothing.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

thread_local! {
    /// The last stream that the thread launched into, with the current context that it was found to belong to.
    static LAST_STREAM: Cell<(Handle<Stream>, Handle<Context>)> =
        const { Cell::new((Handle::NULL, Handle::NULL)) };
}

/// How the program passes parameters.
#[derive(Clone, Copy)]
pub struct Arguments {
    /// The address of each parameter, or null.
    pub addresses: *const *const c_void,
    /// A list of pairs that leads to a ready buffer, or null.
    pub extra: *const *const c_void,
}

/// Launches a function or kernel.
///
/// # Safety
/// `arguments` must be what `cuLaunchKernel` demands for this function.
pub unsafe fn launch(
    function: CUfunction,
    shape: LaunchShape,
    stream: (CUstream, DefaultStream),
    arguments: Arguments,
    attributes: Vec<LaunchAttribute>,
) -> Result<(), CUresult> {
    let (handle, state) = module::resolve_function(function)?;
    let stream = streams::resolve(stream.0, stream.1)?;
    let checked = check_contexts(stream, &state)
        .and_then(|()| check(&shape, &state))
        .and_then(|()| check_clusters(&shape, &state, &attributes))
        .and_then(|()| check_cooperative(&shape, handle, &state, &attributes, stream));
    capture::invalidate_if_error(stream, checked)?;
    let send = |params: &[u8]| {
        mirrored::note_parameters(params)?;
        statistics::note_launch();
        device_times::name(&state.info.name);
        send::post(&calls::launch { function: handle, shape, stream, attributes, params })?;
        if session::current()?.launches_wait { wait(stream) } else { Ok(()) }
    };
    // SAFETY: the caller passes arguments as `cuLaunchKernel` takes them for this function.
    unsafe { with_parameters(&state, arguments, CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, send) }
}

/// Gives the parameter buffer to `send`. A ready one may be shorter than the parameters, as the driver has it (580,
/// H100), but not empty; a longer one is refused with `too_long`.
///
/// # Safety
/// `arguments` must be what `cuLaunchKernel` demands for this function.
pub unsafe fn with_parameters<R>(
    state: &FunctionState,
    arguments: Arguments,
    too_long: CUresult,
    send: impl FnOnce(&[u8]) -> Result<R, CUresult>,
) -> Result<R, CUresult> {
    // SAFETY: the caller passes arguments as `cuLaunchKernel` takes them for this function.
    if let Some(ready) = unsafe { ready_buffer(arguments) }? {
        return check_length(ready.len(), state.parameter_bytes, too_long).and_then(|()| send(ready));
    }
    if state.info.parameters.is_empty() {
        return send(&[]);
    }
    if arguments.addresses.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the program passes one address for each parameter of the function.
    let addresses = unsafe { slice::from_raw_parts(arguments.addresses, state.info.parameters.len()) };
    if addresses.iter().any(|address| address.is_null()) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut buffer = BUFFER.try_with(RefCell::take).unwrap_or_default();
    // SAFETY: each address leads to a parameter of the size that the function declares.
    unsafe { gather(&state.info.parameters, addresses, state.parameter_bytes, &mut buffer) };
    let sent = send(&buffer);
    let _ = BUFFER.try_with(|cell| cell.replace(buffer));
    sent
}

/// Waits for what has just been launched, unless it went into a graph.
fn wait(stream: Handle<Stream>) -> Result<(), CUresult> {
    let stream = context::stream(stream)?;
    if capture::of(&stream) == 0 { stream.synchronize() } else { Ok(()) }
}

/// Refuses a launch that the device or the function cannot have.
pub fn check(shape: &LaunchShape, function: &FunctionState) -> Result<(), CUresult> {
    let context = context::current_state()?;
    let (number, device) = (context.device, context.device()?);
    let limits = device.limits;
    let fits = |sizes: [u32; 3], limit: [u32; 3]| {
        sizes.iter().zip(limit).all(|(size, limit)| (1..=limit).contains(size))
    };
    let threads = shape.block.iter().map(|size| u64::from(*size)).product::<u64>();
    if !fits(shape.grid, limits.grid)
        || !fits(shape.block, limits.block)
        || threads > u64::from(limits.threads)
    {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let max_threads =
        function.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, number);
    if max_threads.is_some_and(|limit| threads > limit.max(0) as u64) {
        // The program asked for less (`__launch_bounds__`), or there are not enough registers.
        let registers =
            function.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS, number).unwrap_or(0);
        let available = device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
        let needed = threads.saturating_mul(registers.max(0) as u64);
        return Err(match available {
            Some(available) if needed > available.max(0) as u64 => {
                CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
            }
            _ => CUresult::CUDA_ERROR_INVALID_VALUE,
        });
    }
    if !function.allows_shared(shape.shared_bytes, number) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

/// Refuses a launch whose stream or function belongs to another context than the current one. A kernel of a library
/// belongs to none, and runs in the stream's (`cuLaunchKernel` in `cuda.h`), if that one's server is the current one.
#[inline]
fn check_contexts(stream: Handle<Stream>, function: &FunctionState) -> Result<(), CUresult> {
    let current = context::current()?;
    // Launches usually go where the one before went.
    let is_own = stream.is_null() || LAST_STREAM.get() == (stream, current);
    if is_own && (function.context.is_null() || function.context == current) {
        return Ok(());
    }
    check_other_contexts(stream, function)
}

#[cold]
fn check_other_contexts(stream: Handle<Stream>, function: &FunctionState) -> Result<(), CUresult> {
    let current = context::current_state()?;
    let of_stream = context::stream(stream)?.context;
    if function.context.is_null() && of_stream.server() == current.handle.server() {
        // The runtime launches such kernels alone: its next launch into the stream is not to come here.
        if context::state(of_stream).is_ok_and(|owner| owner.is_usable_in(&current)) {
            LAST_STREAM.set((stream, current.handle));
        }
        return Ok(());
    }
    for owner in [of_stream, function.context].into_iter().filter(|owner| !owner.is_null()) {
        if !context::state(owner)?.is_usable_in(&current) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
    }
    LAST_STREAM.set((stream, current.handle));
    Ok(())
}

/// Refuses a cooperative launch whose blocks the device cannot hold at the same time. The server knows how much of
/// the device a green context may use, and checks nodes of graphs.
fn check_cooperative(
    shape: &LaunchShape,
    handle: Handle<Function>,
    function: &FunctionState,
    attributes: &[LaunchAttribute],
    stream: Handle<Stream>,
) -> Result<(), CUresult> {
    const COOPERATIVE: u32 = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE.0;
    let is_cooperative =
        |attribute: &LaunchAttribute| attribute.id == COOPERATIVE && attribute.value[..4] != [0; 4];
    if !attributes.iter().any(is_cooperative) {
        return Ok(());
    }
    let (context, stream) = (context::current_state()?, context::stream(stream)?);
    let processors =
        context.device()?.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    let Some(processors) = processors.filter(|_| capture::of(&stream) == 0) else { return Ok(()) };
    let threads = shape.block.iter().product::<u32>().cast_signed();
    let changeable = occupancy::changeable(function, context.device);
    let key = (context.handle, handle, threads, shape.shared_bytes as usize, 0, changeable);
    let limit = i64::from(occupancy::blocks(key)?) * i64::from(processors);
    let blocks = shape.grid.iter().fold(1_i64, |product, size| product.saturating_mul((*size).into()));
    if blocks > limit { Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) } else { Ok(()) }
}

/// Refuses a launch whose clusters cannot be. Nodes of graphs get attributes when they are there, so that the server
/// checks them.
fn check_clusters(
    shape: &LaunchShape,
    function: &FunctionState,
    attributes: &[LaunchAttribute],
) -> Result<(), CUresult> {
    // Most launches have nothing to do with clusters.
    if attributes.is_empty() && !function.rules_clusters() {
        return Ok(());
    }
    let device = context::current_state()?.device;
    function.cluster_rules_here(device).resolve(shape.grid, attributes).map(drop)
}

/// Refuses a ready buffer of so many bytes for parameters of `needed` bytes.
fn check_length(length: usize, needed: usize, too_long: CUresult) -> Result<(), CUresult> {
    match length {
        0 if needed > 0 => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        _ if length > needed => Err(too_long),
        _ => Ok(()),
    }
}

/// The parameter buffer that `extra` leads to, if there is one.
///
/// # Safety
/// `arguments.extra` is null or a list as `cuLaunchKernel` describes it.
unsafe fn ready_buffer<'a>(arguments: Arguments) -> Result<Option<&'a [u8]>, CUresult> {
    const END: usize = 0;
    const POINTER: usize = 1;
    const SIZE: usize = 2;
    if arguments.extra.is_null() {
        return Ok(None);
    }
    if !arguments.addresses.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (mut buffer, mut size) = (core::ptr::null(), None);
    let mut next = arguments.extra;
    loop {
        // SAFETY: the list ends with END; every other name is followed by its value.
        let (name, value) = unsafe {
            let name = next.read() as usize;
            (name, if name == END { core::ptr::null() } else { next.add(1).read() })
        };
        match name {
            // Nothing but the end: there is no buffer, which a function without parameters needs not.
            END if next == arguments.extra => return Ok(Some(&[])),
            END => break,
            POINTER => buffer = value.cast::<u8>(),
            SIZE if value.is_null() => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            // SAFETY: the value of SIZE is the address of the size.
            SIZE => size = Some(unsafe { value.cast::<usize>().read() }),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        // SAFETY: not the end of the list yet.
        next = unsafe { next.add(2) };
    }
    match (buffer.is_null(), size) {
        (_, Some(0)) => Ok(Some(&[])),
        // SAFETY: the program says that its buffer has this size.
        (false, Some(size)) => Ok(Some(unsafe { slice::from_raw_parts(buffer, size) })),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Copies every parameter to its place in `buffer`, which gets `total` bytes; gaps are zero.
///
/// # Safety
/// Each of `addresses` must be readable for the size of the parameter at the same place.
unsafe fn gather(parameters: &[Parameter], addresses: &[*const c_void], total: usize, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.resize(total, 0);
    for (parameter, address) in parameters.iter().zip(addresses) {
        let slot = &mut buffer[parameter.offset as usize..][..parameter.size as usize];
        // SAFETY: the caller has each argument readable for its parameter's size; `slot` is our own memory.
        unsafe { slot.as_mut_ptr().copy_from_nonoverlapping(address.cast(), slot.len()) };
    }
}

/// The attributes of a launch as they travel.
fn attributes(list: &[CUlaunchAttribute]) -> Result<Vec<LaunchAttribute>, CUresult> {
    let mut attributes = Vec::with_capacity(list.len());
    for attribute in list {
        match attribute.id {
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE => {}
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
            | CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
            | CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => {
                return Err(refuse_use!("launch attribute {}, which holds a handle", attribute.id.0));
            }
            id if id.0 >= CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_MAX.0 => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            id => {
                // SAFETY: every byte of the union belongs to its `pad`, and any byte is a valid number.
                let value = unsafe { attribute.value.pad }.map(|byte| byte as u8);
                attributes.push(LaunchAttribute { id: id.0, value });
            }
        }
    }
    Ok(attributes)
}

/// Shape and attributes of a launch configuration; a null one is refused.
///
/// # Safety
/// The configuration's list must have as many entries as it says.
pub unsafe fn configuration(
    config: Option<&CUlaunchConfig>,
) -> Result<(LaunchShape, Vec<LaunchAttribute>), CUresult> {
    let config = config.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller's list has `numAttrs` attributes or is null.
    let attributes = attributes(unsafe { list(config.attrs, config.numAttrs as usize) }?)?;
    let shape = LaunchShape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared_bytes: config.sharedMemBytes,
    };
    Ok((shape, attributes))
}

/// The attribute that makes a launch cooperative.
pub fn cooperative() -> LaunchAttribute {
    let mut value = [0; 64];
    value[0] = 1;
    LaunchAttribute { id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE.0, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_land_at_their_offsets_and_gaps_are_zero() {
        let (first, second, third) = (7_u8, 0x1122_3344_5566_7788_u64, [1_u8; 24]);
        let layout = [(0, 1), (8, 8), (16, 24)].map(|(offset, size)| Parameter { offset, size });
        let addresses: [*const c_void; 3] =
            [(&raw const first).cast(), (&raw const second).cast(), third.as_ptr().cast()];
        let mut buffer = vec![0xff; 99];
        // SAFETY: each address leads to a value of the parameter's size.
        unsafe { gather(&layout, &addresses, 40, &mut buffer) };
        let expected = [&[7, 0, 0, 0, 0, 0, 0, 0][..], &second.to_le_bytes(), &third].concat();
        assert_eq!(buffer, expected);
    }

    #[test]
    fn a_ready_buffer_may_be_short_but_neither_empty_nor_long() {
        const TOO_LONG: CUresult = CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        let outcome = |length| check_length(length, 10, TOO_LONG);
        assert_eq!(
            [0, 1, 8, 10].map(outcome),
            [Err(CUresult::CUDA_ERROR_INVALID_VALUE), Ok(()), Ok(()), Ok(())]
        );
        assert_eq!([11, 12, 16].map(outcome), [Err(TOO_LONG); 3]);
        assert_eq!((check_length(0, 0, TOO_LONG), check_length(1, 0, TOO_LONG)), (Ok(()), Err(TOO_LONG)));
    }

    #[test]
    fn a_ready_buffer_is_found_and_a_broken_list_is_refused() {
        let bytes = [1_u8, 2, 3];
        let size = bytes.len();
        let list: [*const c_void; 5] = [
            core::ptr::without_provenance(1),
            bytes.as_ptr().cast(),
            core::ptr::without_provenance(2),
            (&raw const size).cast(),
            core::ptr::null(),
        ];
        let found = |extra: &[*const c_void]| {
            let arguments = Arguments { addresses: core::ptr::null(), extra: extra.as_ptr() };
            // SAFETY: the lists are as the call describes them.
            unsafe { ready_buffer(arguments) }
        };
        assert_eq!(found(&list), Ok(Some(&bytes[..])));
        assert_eq!(found(&list[4..]), Ok(Some(&[][..])));
        assert_eq!(found(&[list[0], list[1], list[4]]), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!(
            found(&[core::ptr::without_provenance(9), core::ptr::null()]),
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        );
    }
}
