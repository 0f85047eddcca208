//! Arrays that are parts of others: mipmap levels and planes.

use crate::model::{array, handles};
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Array, Context, Handle, MipmappedArray};
use causeway_api::sys::CUresult;

/// A level of a mipmapped array: always the same handle.
pub fn level(mipmapped: Handle<MipmappedArray>, level: u32) -> Result<Handle<Array>, CUresult> {
    let state = array::mipmapped(mipmapped)?;
    state.levels.get_or_make(&level, || {
        let array = handles::create();
        let request =
            calls::cuMipmappedArrayGetLevel { pLevelArray: array, hMipmappedArray: mipmapped, level };
        made_of_another(state.context, &request, array)
    })
}

/// Has the server make `array` a part of something else, and learns what it looks like.
pub fn made_of_another<C: calls::Call<Reply = ()>>(
    context: Handle<Context>,
    request: &C,
    array: Handle<Array>,
) -> Result<Handle<Array>, CUresult> {
    handles::or_drop(array, send::call_in(context, request))?;
    let query = calls::cuArray3DGetDescriptor_v2 { hArray: array };
    let descriptor = handles::or_drop(array, send::call_in(context, &query))?;
    array::add(array, context, descriptor, true);
    Ok(array)
}
