//! A graph as text in the DOT language (`cuGraphDebugDotPrint`).

use crate::model::graph::GraphStore;
use crate::model::graph::work::Work;
use crate::model::handles::RawHandle as _;
use crate::submit::module;
use causeway_api::handle::{Graph, Handle};
use causeway_api::sys::{CUgraphDebugDot_flags, CUresult};
use core::fmt::Write;

/// Writes a graph and the graphs in it as text. Flags are `CUgraphDebugDot_flags`.
pub fn print(graphs: &GraphStore, graph: Handle<Graph>, flags: u32) -> Result<String, CUresult> {
    let mut text = String::from("digraph dot {\n");
    append(graphs, graph, flags, &mut 0, &mut text)?;
    text.push_str("}\n");
    Ok(text)
}

fn append(
    graphs: &GraphStore,
    graph: Handle<Graph>,
    flags: u32,
    count: &mut usize,
    text: &mut String,
) -> Result<(), CUresult> {
    let (name, state) = (*count, graphs.graph(graph)?);
    *count += 1;
    // Writing to a `String` does not fail.
    let _ = writeln!(text, "subgraph cluster_{name} {{\nlabel=\"graph_{name}\" graph[style=\"dashed\"];");
    let number = |node| state.nodes.iter().position(|other| *other == node).unwrap_or_default();
    for (index, node) in state.nodes.iter().enumerate() {
        let work = &graphs.node(*node)?.work;
        let label = label(work, node.value(), flags).replace('"', "'");
        let _ =
            writeln!(text, "\"graph_{name}_node_{index}\"[shape=\"record\" label=\"{{{index}|{label}}}\"];");
    }
    for (index, node) in state.nodes.iter().enumerate() {
        for edge in &graphs.node(*node)?.after {
            let to = number(edge.node);
            let _ = writeln!(text, "\"graph_{name}_node_{index}\" -> \"graph_{name}_node_{to}\";");
        }
    }
    text.push_str("}\n");
    for node in &state.nodes {
        graphs
            .node(*node)?
            .work
            .graphs()
            .into_iter()
            .try_for_each(|graph| append(graphs, graph, flags, count, text))?;
    }
    Ok(())
}

/// What a node does, as far as the flags ask for it.
fn label(work: &Work, handle: u64, flags: u32) -> String {
    type Flags = CUgraphDebugDot_flags;
    let has_flag =
        |flag: CUgraphDebugDot_flags| flags & (flag.0 | Flags::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE.0) != 0;
    let mut label = match work {
        Work::Empty => "EMPTY".to_owned(),
        Work::Kernel(kernel) => {
            let function = module::resolve_function(kernel.function.as_raw());
            let name = function.map_or_else(|_| "?".to_owned(), |(_, state)| state.info.name.clone());
            let mut label = format!("KERNEL|{name}");
            if has_flag(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS) {
                let (grid, block) = (kernel.shape.grid, kernel.shape.block);
                let shared = kernel.shape.shared_bytes;
                let _ = write!(label, "|grid {grid:?} block {block:?} shared {shared}");
            }
            label
        }
        Work::Copy(copying) => {
            let copy = &copying.parameters;
            let size = [copy.WidthInBytes, copy.Height, copy.Depth];
            let mut label = "MEMCPY".to_owned();
            if has_flag(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS) {
                let (to, from) = (copy.dstMemoryType.0, copy.srcMemoryType.0);
                let _ = write!(label, "|{size:?} bytes from memory type {from} to {to}");
            }
            label
        }
        Work::Fill(filling) => {
            let fill = filling.fill();
            let mut label = "MEMSET".to_owned();
            if has_flag(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS) {
                let (width, height) = (fill.width, fill.height);
                let _ = write!(label, "|{width} x {height} of {} at {:#x}", fill.value, fill.address);
            }
            label
        }
        Work::Host(_) => "HOST".to_owned(),
        Work::Child(_) => "GRAPH".to_owned(),
        Work::Record(_) => "EVENT_RECORD".to_owned(),
        Work::Wait(_) => "EVENT_WAIT".to_owned(),
        Work::Values(values) => format!("BATCH_MEM_OP|{} operations", values.operations.len()),
        Work::Allocate(allocation) => format!("MEM_ALLOC|{} bytes", allocation.size),
        Work::Free(_) => "MEM_FREE".to_owned(),
        Work::Conditional(conditional) => format!("CONDITIONAL|{} bodies", conditional.bodies.len()),
    };
    if has_flag(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES) {
        let _ = write!(label, "|{handle:#x}");
    }
    label
}
