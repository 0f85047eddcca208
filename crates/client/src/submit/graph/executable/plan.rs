//! Partition of an executable graph into server segments and client steps, decided before anything of it is sent.

use crate::log::refuse_use;
use crate::model::graph::OnServer;
use crate::model::graph::order::Phase;
use causeway_api::sys::CUresult;

/// What counts of a node when its graph is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// When it is carried out.
    pub phase: Phase,
    /// Whether the server has nothing to do for it.
    pub is_idle: bool,
    /// Whether the node is a conditional node of a child graph.
    pub is_conditional_in_child: bool,
}

/// What a launch does in one go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Share {
    /// The client carries out the node at this place.
    Client(usize),
    /// The server carries out a graph of the nodes at these places.
    Segment(Vec<usize>),
}

/// Why a graph cannot be made executable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Its conditional nodes stand in a graph of the server, which can be used once and not be divided.
    Divided,
    /// A child graph has conditional nodes.
    ConditionalInChild,
}

impl Refusal {
    /// Says so on standard error, and what the program gets.
    pub(super) fn refuse(self) -> CUresult {
        match self {
            Self::Divided => refuse_use!(
                "conditional nodes in a graph that is instantiated twice, or that copies and host functions divide"
            ),
            Self::ConditionalInChild => refuse_use!("conditional nodes in child graphs"),
        }
    }
}

/// The shares of a launch in their order. `existing` is the server's graph in which the conditional nodes
/// stand already. Segments with which the server has nothing to do are left out.
pub(super) fn shares(nodes: &[Facts], existing: Option<&OnServer>) -> Result<Vec<Share>, Refusal> {
    let last = nodes.iter().map(|node| match node.phase {
        Phase::Client(segment) | Phase::Segment(segment) => segment,
    });
    let mut shares = Vec::new();
    let mut segments = 0;
    for segment in 0..=last.max().unwrap_or(0) {
        let of = |chosen: Phase| (0..nodes.len()).filter(move |index| nodes[*index].phase == chosen);
        shares.extend(of(Phase::Client(segment)).map(Share::Client));
        let indices: Vec<_> = of(Phase::Segment(segment)).collect();
        if indices.iter().all(|index| nodes[*index].is_idle) {
            continue;
        }
        if existing.is_some_and(|graph| graph.is_complete || segments > 0) {
            return Err(Refusal::Divided);
        }
        if indices.iter().any(|index| nodes[*index].is_conditional_in_child) {
            return Err(Refusal::ConditionalInChild);
        }
        segments += 1;
        shares.push(Share::Segment(indices));
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Phase::{Client, Segment};
    use causeway_api::handle::Handle;

    fn busy(phase: Phase) -> Facts {
        Facts { phase, is_idle: false, is_conditional_in_child: false }
    }

    fn idle(phase: Phase) -> Facts {
        Facts { is_idle: true, ..busy(phase) }
    }

    fn existing(is_complete: bool) -> OnServer {
        OnServer { graph: Handle::NULL, context: Handle::NULL, nodes: 1, is_complete }
    }

    #[test]
    fn what_the_client_does_stands_between_the_segments() {
        let nodes = [busy(Segment(0)), busy(Client(0)), busy(Client(1)), idle(Segment(0)), busy(Segment(1))];
        let expected =
            [Share::Client(1), Share::Segment(vec![0, 3]), Share::Client(2), Share::Segment(vec![4])];
        assert_eq!(shares(&nodes, None).unwrap(), expected);
        assert_eq!(shares(&[], None).unwrap(), []);
    }

    #[test]
    fn segments_without_work_are_left_out() {
        let nodes = [idle(Segment(0)), busy(Client(1)), idle(Segment(1)), busy(Client(2))];
        assert_eq!(shares(&nodes, None).unwrap(), [Share::Client(1), Share::Client(3)]);
        assert_eq!(shares(&nodes, Some(&existing(true))).unwrap().len(), 2);
    }

    #[test]
    fn a_graph_with_conditional_nodes_is_used_once_and_whole() {
        let whole = [busy(Segment(0)), busy(Client(1)), idle(Segment(1))];
        assert!(shares(&whole, Some(&existing(false))).is_ok());
        assert_eq!(shares(&whole, Some(&existing(true))), Err(Refusal::Divided));
        let divided = [busy(Segment(0)), busy(Client(1)), busy(Segment(1))];
        assert_eq!(shares(&divided, Some(&existing(false))), Err(Refusal::Divided));
        assert!(shares(&divided, None).is_ok());
    }

    #[test]
    fn child_graphs_have_no_conditional_nodes() {
        let node = Facts { is_conditional_in_child: true, ..busy(Segment(0)) };
        assert_eq!(shares(&[node], None), Err(Refusal::ConditionalInChild));
    }
}
