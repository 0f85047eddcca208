//! The values that steer conditional nodes, and what a value chooses.

use super::handles;
use causeway_api::sys::{CUgraphConditionalNodeType, CUresult};
use causeway_gpu::CuResult;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// A value that kernels set by its handle.
pub(super) struct Condition {
    value: AtomicU32,
    /// What the value is at the beginning of each launch of its graph, if that is said.
    default: Option<u32>,
}

impl Condition {
    /// Gives it the value with which a launch of its graph begins.
    pub(super) fn begin(&self) {
        if let Some(value) = self.default {
            self.value.store(value, Ordering::Release);
        }
    }

    /// The value now.
    pub(super) fn value(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }
}

/// All values by their handles. Those of graphs and executable graphs that are gone are not there any more.
#[derive(Default)]
pub(super) struct Conditions {
    known: Mutex<HashMap<u64, Weak<Condition>>>,
}

impl Conditions {
    /// Makes a value; gives its handle too.
    pub(super) fn create(&self, default: Option<u32>) -> (u64, Arc<Condition>) {
        let handle = handles::next();
        let condition = Arc::new(Condition { value: AtomicU32::new(default.unwrap_or(0)), default });
        let mut known = self.known.lock();
        known.retain(|_, condition| condition.strong_count() > 0);
        known.insert(handle, Arc::downgrade(&condition));
        (handle, condition)
    }

    /// The value of a handle.
    pub(super) fn get(&self, handle: u64) -> Option<Arc<Condition>> {
        self.known.lock().get(&handle).and_then(Weak::upgrade)
    }

    /// Sets the value of a handle; false when there is none.
    pub(super) fn set(&self, handle: u64, value: u32) -> bool {
        self.get(handle).map(|condition| condition.value.store(value, Ordering::Release)).is_some()
    }
}

/// How a value chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The first graph for every value but 0, the second one, if there is one, for 0.
    If,
    /// The graph again and again, until the value is 0.
    While,
    /// The graph of this number, if there is one.
    Switch,
}

impl Choice {
    /// The choice that a conditional node of this kind makes among so many graphs.
    pub(super) fn new(kind: u32, graphs: u32) -> CuResult<Self> {
        type Kind = CUgraphConditionalNodeType;
        match (CUgraphConditionalNodeType(kind), graphs) {
            (Kind::CU_GRAPH_COND_TYPE_IF, 1..=2) => Ok(Self::If),
            (Kind::CU_GRAPH_COND_TYPE_WHILE, 1) => Ok(Self::While),
            (Kind::CU_GRAPH_COND_TYPE_SWITCH, 1..) => Ok(Self::Switch),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// The number of the graph that a value chooses.
    pub(super) fn of(self, value: u32) -> usize {
        match self {
            Self::If | Self::While => usize::from(value == 0),
            Self::Switch => value as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_chooses_as_cuda_says() {
        let chosen = |kind: u32, graphs: u32| {
            let choice = Choice::new(kind, graphs).unwrap();
            [0, 1, 2, 7].map(|value| Some(choice.of(value)).filter(|index| *index < graphs as usize))
        };
        assert_eq!(chosen(0, 1), [None, Some(0), Some(0), Some(0)]);
        assert_eq!(chosen(0, 2), [Some(1), Some(0), Some(0), Some(0)]);
        assert_eq!(chosen(1, 1), [None, Some(0), Some(0), Some(0)]);
        assert_eq!(chosen(2, 3), [Some(0), Some(1), Some(2), None]);
        for (kind, graphs) in [(0, 0), (0, 3), (1, 0), (1, 2), (2, 0), (3, 1)] {
            assert!(Choice::new(kind, graphs).is_err(), "{kind} of {graphs}");
        }
    }

    #[test]
    fn a_value_is_known_as_long_as_somebody_has_it_and_begins_as_it_was_made() {
        let conditions = Conditions::default();
        let (handle, condition) = conditions.create(Some(3));
        let (free, kept) = conditions.create(None);
        assert!(conditions.set(handle, 9) && conditions.set(free, 8) && !conditions.set(handle + 2, 1));
        assert_eq!((condition.value(), kept.value()), (9, 8));
        condition.begin();
        kept.begin();
        assert_eq!((condition.value(), kept.value()), (3, 8));
        drop(condition);
        assert!(!conditions.set(handle, 1) && conditions.set(free, 1));
    }
}
