//! Waits for work of a server, which also say whether the program's memory has to be looked after.
//!
//! Where memory of the program has mirrors, the server compares them when the work is done, and its answer says
//! whether kernels may have changed any. So a wait costs one round trip, and a second one only where there is
//! something to fetch.

use causeway_api::calls::Call;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;

use crate::model::completion::Watermark;
use crate::remote::{mirrored, session};
use crate::submit::send;

/// Waits by `plain`, or by `compared` where there are mirrors. Gives whether the program has what kernels wrote to its
/// memory before.
pub fn wait_alone(
    context: Handle<Context>,
    plain: &impl Call<Reply = ()>,
    compared: &impl Call<Reply = bool>,
) -> Result<bool, CUresult> {
    if is_compared(context, compared)? {
        Ok(!send::call_in(context, compared)? && mirrored::is_all_here(context.server()))
    } else {
        send::call_in(context, plain)?;
        Ok(false)
    }
}

/// The same, until what `watermark` is about has done its work up to `sequence`.
pub fn wait(
    context: Handle<Context>,
    watermark: &Watermark,
    sequence: u64,
    plain: &impl Call<Reply = ()>,
    compared: &impl Call<Reply = bool>,
) -> Result<(), CUresult> {
    watermark.note_done(sequence, wait_alone(context, plain, compared)?);
    Ok(())
}

/// The same for all work of a context: if no other context has any, then nothing is to be fetched until the next
/// command.
pub fn wait_for_context(
    context: Handle<Context>,
    watermark: &Watermark,
    sequence: u64,
    plain: &impl Call<Reply = ()>,
    compared: &impl Call<Reply = bool>,
) -> Result<(), CUresult> {
    let covered = mirrored::work_of(context);
    wait(context, watermark, sequence, plain, compared)?;
    if let Some(covered) = covered
        && watermark.has_fetched(sequence)
    {
        mirrored::note_fetched(context.server(), covered);
    }
    Ok(())
}

fn is_compared<C: Call>(context: Handle<Context>, _: &C) -> Result<bool, CUresult> {
    Ok(mirrored::is_any() && session::of(context)?.knows(C::OPCODE))
}
