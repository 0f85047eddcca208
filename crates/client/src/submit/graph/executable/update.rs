//! Update of an executable graph: node by node, or as a whole after another graph of the same shape.

use super::state::{Executable, Node, State, difference, is_same};
use crate::model::graph::graphs;
use crate::model::graph::order::NodeOrder;
use crate::model::graph::work::Work;
use crate::submit::graph::build::{self, Address};
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Graph, GraphNode, Handle};
use causeway_api::sys::{CUgraphExecUpdateResult, CUresult};
use core::ops::Range;

/// Why an executable graph was not changed.
#[derive(Clone, Copy, Debug)]
pub struct Mismatch {
    /// What CUDA calls the reason.
    pub result: CUgraphExecUpdateResult,
    /// The node of the new graph where it was found.
    pub node: Option<Handle<GraphNode>>,
}

impl Executable {
    /// Gives a node other work of the same kind, for the launches to come.
    pub fn set(&self, node: Handle<GraphNode>, work: Work) -> Result<(), CUresult> {
        let index = *self.indices.get(&node).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.state.lock().nodes[index].change(self.owner, work)
    }

    /// Gives the nodes of a child node the work of another graph's nodes.
    pub fn set_child(&self, node: Handle<GraphNode>, graph: Handle<Graph>) -> Result<(), CUresult> {
        let range = self.children.get(&node).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let order = NodeOrder::of(&graphs(), graph)?;
        let first = range.start;
        // What comes before the whole of the child is outside of both.
        let state = &mut *self.state.lock();
        self.take_over(state, range, first, &order).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Gives all nodes the work of another graph's nodes, if that has the same shape.
    pub fn update(&self, graph: Handle<Graph>) -> Result<(), Mismatch> {
        let general = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR;
        let order = NodeOrder::of(&graphs(), graph).map_err(|_| Mismatch { result: general, node: None })?;
        let state = &mut *self.state.lock();
        let range = 0..state.nodes.len();
        self.take_over(state, range, 0, &order)
    }

    /// Compares the nodes in `range` with those of `order`, and takes their work over when nothing else
    /// differs.
    fn take_over(
        &self,
        state: &mut State,
        range: Range<usize>,
        first: usize,
        order: &NodeOrder,
    ) -> Result<(), Mismatch> {
        type Result = CUgraphExecUpdateResult;
        let mismatch = |result, node: Option<Handle<GraphNode>>| Err(Mismatch { result, node });
        if range.len() != order.nodes.len() {
            return mismatch(Result::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, None);
        }
        for (old, new) in state.nodes[range.clone()].iter().zip(&order.nodes) {
            if old.work.kind() != new.work.kind() {
                return mismatch(Result::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, Some(new.node));
            }
            let inner = old.before.iter().filter(|(index, _)| *index >= first);
            let mut ends: Vec<_> = inner.map(|(index, data)| (index - first, *data)).collect();
            let mut new_ends = new.before.clone();
            ends.sort_unstable_by_key(|(index, _)| *index);
            new_ends.sort_unstable_by_key(|(index, _)| *index);
            if ends != new_ends {
                return mismatch(Result::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, Some(new.node));
            }
            if let Some(result) = difference(&old.work, &new.work) {
                return mismatch(result, Some(new.node));
            }
        }
        for (old, new) in state.nodes[range].iter_mut().zip(&order.nodes) {
            if is_same(&old.work, &new.work) {
                continue;
            }
            let parameters = Result::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
            old.change(self.owner, new.work.clone())
                .map_err(|_| Mismatch { result: parameters, node: Some(new.node) })?;
        }
        Ok(())
    }

    /// Has the launches to come carry a node out, or leave it out.
    pub fn enable(&self, node: Handle<GraphNode>, is_enabled: bool) -> Result<(), CUresult> {
        let index = *self.indices.get(&node).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let node = &mut self.state.lock().nodes[index];
        node.require_switch()?;
        if let Some(Address { exec, graph, number }) = node.on_server {
            let enabled = u32::from(is_enabled);
            let request = calls::graph_exec_enable { exec, graph, node: number, enabled };
            send::post_in(self.owner, &request)?;
        }
        node.is_enabled = is_enabled;
        Ok(())
    }

    /// Whether launches carry a node out.
    pub fn is_enabled(&self, node: Handle<GraphNode>) -> Result<bool, CUresult> {
        let index = *self.indices.get(&node).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let node = &self.state.lock().nodes[index];
        node.require_switch()?;
        Ok(node.is_enabled)
    }
}

impl Node {
    fn change(&mut self, owner: Handle<Context>, work: Work) -> Result<(), CUresult> {
        if let Some(result) = difference(&self.work, &work) {
            return Err(match result {
                CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED => {
                    CUresult::CUDA_ERROR_NOT_SUPPORTED
                }
                _ => CUresult::CUDA_ERROR_INVALID_VALUE,
            });
        }
        if let Some(address) = self.on_server {
            build::change(address, owner, &work)?;
        }
        self.work = work;
        Ok(())
    }

    /// Refuses what can be neither on nor off.
    fn require_switch(&self) -> Result<(), CUresult> {
        match self.work {
            Work::Kernel(_) | Work::Copy(_) | Work::Fill(_) => Ok(()),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}
