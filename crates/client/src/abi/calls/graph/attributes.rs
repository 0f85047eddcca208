//! Attributes of kernel nodes.

use super::described::{INVALID, required};
use super::nodes::{set, work_of};
use crate::abi::outcome::Outcome;
use crate::arguments::write_out;
use crate::model::graph::work::{Kernel, Work, is_node_attribute};
use causeway_api::sys::{
    CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue, CUlaunchAttributeID, CUresult,
};
use causeway_api::types::LaunchAttribute;
use std::sync::Arc;

/// The kernel of a node.
fn kernel_of(hNode: CUgraphNode) -> Result<Arc<Kernel>, CUresult> {
    match work_of(hNode)? {
        Work::Kernel(kernel) => Ok(kernel),
        _ => Err(INVALID),
    }
}

pub unsafe fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode) -> Outcome {
    let attributes = kernel_of(src)?.attributes.clone();
    set(dst, Work::Kernel(kernel_of(dst)?.with_attributes(attributes)?.into()))
}

pub unsafe fn cuGraphKernelNodeGetAttribute(
    hNode: CUgraphNode,
    attr: CUkernelNodeAttrID,
    value_out: *mut CUkernelNodeAttrValue,
) -> Outcome {
    require_known(attr)?;
    let kernel = kernel_of(hNode)?;
    let mut value = CUkernelNodeAttrValue::default();
    if let Some(found) = kernel.attributes.iter().find(|attribute| attribute.id == attr.0) {
        value.pad = found.value.map(|byte| byte as core::ffi::c_char);
    }
    // SAFETY: room for the result, or null.
    unsafe { write_out(value_out, value) }
}

pub unsafe fn cuGraphKernelNodeSetAttribute(
    hNode: CUgraphNode,
    attr: CUkernelNodeAttrID,
    value: *const CUkernelNodeAttrValue,
) -> Outcome {
    require_known(attr)?;
    // SAFETY: a value, or null. Every byte of the union belongs to its `pad`.
    let value = unsafe { required(value)?.pad }.map(|byte| byte as u8);
    let kernel = kernel_of(hNode)?;
    let mut attributes = kernel.attributes.clone();
    attributes.retain(|attribute| attribute.id != attr.0);
    attributes.push(LaunchAttribute { id: attr.0, value });
    set(hNode, Work::Kernel(kernel.with_attributes(attributes)?.into()))
}

/// Refuses what is no attribute of a kernel node, or holds a handle.
fn require_known(attribute: CUkernelNodeAttrID) -> Outcome {
    if attribute == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
        return Err(crate::log::refuse_use!("kernel nodes that kernels change"));
    }
    if is_node_attribute(attribute.0) { Ok(()) } else { Err(INVALID) }
}
