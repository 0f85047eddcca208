//! Linkers that the program has made, and their results, which are its until it destroys them.

use crate::locks::{Mutex, rank};
use crate::model::context;
use crate::model::handles;
use crate::model::handles::RawHandle as _;
use crate::remote::image::pending_images::send_inline;
use crate::remote::session;
use crate::submit::jit::Jit;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Handle, LinkState};
use causeway_api::sys::{CUjit_option, CUjitInputType, CUlinkState, CUresult};
use std::sync::Arc;

/// How much of a result is fetched at once, in bytes.
const PIECE: usize = 8 << 20;

struct State {
    handle: Handle<LinkState>,
    context: Handle<Context>,
    /// The options of the linker, by which it answers.
    jit: Mutex<rank::Linker, Jit>,
    /// The linked image. It is put here once and not moved, since the program has its address.
    result: Mutex<rank::LinkerResult, Option<Box<[u8]>>>,
}

impl handles::Object for State {
    type Kind = LinkState;
}

/// Makes a linker in the current context.
pub fn create(jit: Jit) -> Result<CUlinkState, CUresult> {
    let context = context::current()?;
    let state = handles::create::<LinkState>();
    send::call_in(context, &calls::link_create { state, options: jit.options.clone() })?;
    let linker = State { handle: state, context, jit: Mutex::new(jit), result: Mutex::new(None) };
    handles::insert(state, Arc::new(linker));
    Ok(state.as_raw())
}

/// Adds something to be linked.
pub fn add(
    raw: CUlinkState,
    kind: CUjitInputType,
    name: &str,
    jit: &Jit,
    bytes: &[u8],
) -> Result<(), CUresult> {
    let state = handles::get::<State>(Handle::from_raw(raw))?;
    if jit.options.report != 0 || jit.options.values.iter().any(|(option, _)| is_of_linker(*option)) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let data = send_inline(session::of(state.context)?, bytes)?;
    let options = jit.options.clone();
    let request = calls::link_add { state: state.handle, kind, name, options, data };
    send::call_in(state.context, &request).inspect_err(|_| state.write_results())
}

/// Whether an option is one of a whole linker, and not of what is added to it.
fn is_of_linker(option: u32) -> bool {
    [CUjit_option::CU_JIT_TARGET_FROM_CUCONTEXT, CUjit_option::CU_JIT_TARGET].contains(&CUjit_option(option))
}

/// Links everything; address and size of the result, which lives as long as the linker.
pub fn complete(raw: CUlinkState) -> Result<(*const u8, usize), CUresult> {
    let state = handles::get::<State>(Handle::from_raw(raw))?;
    let mut result = state.result.lock();
    if let Some(image) = result.as_ref() {
        return Ok((image.as_ptr(), image.len()));
    }
    let linked = send::call_in(state.context, &calls::link_complete { state: state.handle });
    state.write_results();
    let size = linked?;
    let mut image = Vec::with_capacity(size);
    while image.len() < size {
        let (start, length) = (image.len(), PIECE.min(size - image.len()));
        let request = calls::link_result { state: state.handle, start, length };
        let piece = send::call_in(state.context, &request)?;
        if piece.len() != length {
            return Err(CUresult::CUDA_ERROR_UNKNOWN);
        }
        image.extend(piece);
    }
    let image = result.insert(image.into_boxed_slice());
    Ok((image.as_ptr(), image.len()))
}

/// Destroys a linker and its result.
pub fn destroy(raw: CUlinkState) -> Result<(), CUresult> {
    let state = handles::remove::<State>(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(state.handle);
    send::post_in(state.context, &calls::link_destroy { state: state.handle })
}

impl State {
    /// Gives the program what the linker has said.
    fn write_results(&self) {
        // SAFETY: the manual demands that the options of a linker live as long as the linker.
        unsafe { self.jit.lock().write_results() };
    }
}
