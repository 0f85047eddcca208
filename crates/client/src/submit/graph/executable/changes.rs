//! Allowed changes of an executable graph, as CUDA has them.

use crate::model::graph::work::{Copying, Work};
use crate::submit::copy;
use causeway_api::sys::CUgraphExecUpdateResult;

/// What keeps `new` from taking the place of `old` in an executable graph, if anything does.
pub fn difference(old: &Work, new: &Work) -> Option<CUgraphExecUpdateResult> {
    type Result = CUgraphExecUpdateResult;
    let parameters = Some(Result::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    match (old, new) {
        (Work::Kernel(old), Work::Kernel(new)) if old.attributes != new.attributes => {
            Some(Result::CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED)
        }
        (Work::Copy(old), Work::Copy(new)) => {
            let [old_endpoints, new_endpoints] =
                [old, new].map(|copying| copy::endpoints(&copying.parameters).ok().flatten());
            let kinds_differ = || match (&old_endpoints, &new_endpoints) {
                (Some((to, from)), Some((new_to, new_from))) => {
                    !to.is_like(new_to) || !from.is_like(new_from)
                }
                (None, None) => false,
                _ => true,
            };
            if old_endpoints == new_endpoints {
                None
            } else if kinds_differ() || !old.is_linear() || !new.is_linear() {
                parameters
            } else {
                None
            }
        }
        (Work::Fill(old), Work::Fill(new)) => {
            let is_fixed = !old.is_linear() || !new.is_linear();
            if is_fixed && old.fill() != new.fill() { parameters } else { None }
        }
        (Work::Values(old), Work::Values(new)) if old.operations.len() != new.operations.len() => parameters,
        (Work::Allocate(old), Work::Allocate(new)) if old.address != new.address => parameters,
        (Work::Free(old), Work::Free(new)) if old != new => parameters,
        (Work::Conditional(_), _) => Some(Result::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED),
        (old, new) if old.kind() != new.kind() => Some(Result::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED),
        _ => None,
    }
}

/// Whether nothing has to be said to the server for `new` to take the place of `old`.
pub fn is_same(old: &Work, new: &Work) -> bool {
    match (old, new) {
        (Work::Kernel(old), Work::Kernel(new)) => {
            (old.function, old.shape, &old.params) == (new.function, new.shape, &new.params)
        }
        (Work::Fill(old), Work::Fill(new)) => old.fill() == new.fill(),
        (Work::Copy(old), Work::Copy(new)) => {
            let endpoints = |copying: &Copying| copy::endpoints(&copying.parameters);
            endpoints(old) == endpoints(new)
        }
        (Work::Record(old), Work::Record(new)) | (Work::Wait(old), Work::Wait(new)) => old == new,
        (Work::Values(old), Work::Values(new)) => old.operations() == new.operations(),
        (Work::Child(_), Work::Child(_)) => true,
        _ => false,
    }
}
