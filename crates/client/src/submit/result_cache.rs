//! Answers of the server that hold for ever: those of calls whose results depend on their arguments alone.
//!
//! Programs ask some of these before every launch (Triton has its tensor maps encoded anew each time).

use crate::locks::{Mutex, rank};
use crate::submit::send;
use causeway_api::calls::{Call, Opcode};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_wire::codec::{Decoder, Encode};
use send::call_in;
use std::collections::HashMap;
use std::sync::LazyLock;

/// So many answers are kept; one more, and they are collected anew. A tensor map with its question takes 300
/// bytes.
const MAX_CACHED_RESULTS: usize = 8192;

/// A call, the context it was made in, and its arguments as they travel.
type CallKey = (Opcode, u64, Vec<u8>);

static RESULTS: LazyLock<Mutex<rank::CachedResults, HashMap<CallKey, Vec<u8>>>> =
    LazyLock::new(Mutex::default);

/// Answers a call in a context, which may be a null one, from what was answered before, or asks the server.
/// Refusals are not kept.
pub fn call_cached<C: Call>(context: Handle<Context>, request: &C) -> Result<C::Reply, CUresult> {
    let mut arguments = Vec::with_capacity(256);
    request.encode(&mut arguments);
    let key = (C::OPCODE, context.value(), arguments);
    if let Some(result) = RESULTS.lock().get(&key)
        && let Ok(result) = Decoder::new(result).value()
    {
        return Ok(result);
    }
    let result = call_in(context, request)?;
    let mut bytes = Vec::new();
    result.encode(&mut bytes);
    let mut results = RESULTS.lock();
    if results.len() >= MAX_CACHED_RESULTS {
        results.clear();
    }
    results.insert(key, bytes);
    Ok(result)
}
