//! Stream capture: commands of streams become nodes of a graph instead of being carried out.

use super::context::ContextId;
use super::graph::{Graph, Node};
use super::handles;
use super::operation::Operation;
use super::scheduler::{Scheduler, State};
use super::stream::{Capturing, StreamId, StreamKind};
use crate::CuResult;
use causeway_api::sys::{CUresult, CUstreamCaptureMode};
use std::sync::Arc;

/// Nodes that a graph may have.
const MOST_NODES: usize = 1 << 20;

/// A capture under way.
pub(super) struct Capture {
    pub(super) context: ContextId,
    /// The stream that began it and has to end it.
    origin: StreamId,
    nodes: Vec<Node>,
    /// A call that no capture allows has been made; the capture only waits for its end.
    invalid: bool,
}

impl Scheduler {
    /// Begins a capture of a stream. The modes differ in which calls of which host threads are forbidden
    /// meanwhile; this back end does not need to forbid any.
    pub(super) fn begin_capture(&self, stream: StreamId, mode: CUstreamCaptureMode) -> CuResult<()> {
        if mode.0 > CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED.0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = self.state.lock();
        let origin = state.usable(stream)?;
        if origin.kind == StreamKind::Legacy {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if origin.capturing.is_some() {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        }
        let capture = handles::next();
        let context = origin.context.id;
        state
            .captures
            .insert(capture, Capture { context, origin: stream, nodes: Vec::new(), invalid: false });
        state.set_capturing(stream, Some(Capturing { capture, tips: Vec::new() }));
        Ok(())
    }

    /// Ends a capture; gives the graph.
    pub(super) fn end_capture(&self, stream: StreamId) -> CuResult<Graph> {
        let mut state = self.state.lock();
        let ending = state.usable(stream)?;
        let Some(Capturing { capture, tips }) = &ending.capturing else {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        };
        let (number, tips) = (*capture, tips.clone());
        let Some(capture) = state.captures.get(&number) else {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        };
        if capture.origin != stream {
            return Err(state.invalidate(stream, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
        }
        let joined = capture.ancestors(&tips);
        let branches = state.streams.values().filter_map(|stream| stream.capturing.as_ref());
        let mut ends = branches.filter(|branch| branch.capture == number).flat_map(|branch| &branch.tips);
        let all_joined = ends.all(|&tip| joined[tip]);
        match state.drop_capture(number) {
            Some(capture) if capture.invalid => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            Some(_) if !all_joined => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
            Some(capture) => Ok(Graph { nodes: capture.nodes }),
            None => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        }
    }
}

impl Capture {
    /// Which nodes are `tips` or come before them. Edges only go from earlier nodes to later ones.
    fn ancestors(&self, tips: &[usize]) -> Vec<bool> {
        let mut found = vec![false; self.nodes.len()];
        for &tip in tips {
            found[tip] = true;
        }
        for index in (0..self.nodes.len()).rev() {
            if found[index] {
                for &earlier in &self.nodes[index].after {
                    found[earlier] = true;
                }
            }
        }
        found
    }
}

impl State {
    /// Adds an operation of a capturing stream to its graph.
    pub(super) fn capture_operation(&mut self, stream: StreamId, operation: Operation) -> CuResult<()> {
        if !operation.can_be_captured() {
            self.refuse_capturing(stream)?;
        }
        let Some(after) = self.tips(stream)? else { return Err(CUresult::CUDA_ERROR_INVALID_HANDLE) };
        let Some(capture) = self.captures.get_mut(&after.0) else {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        };
        if capture.nodes.len() >= MOST_NODES {
            return Err(self.invalidate(stream, CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        let node = capture.nodes.len();
        capture.nodes.push(Node { operation: Arc::new(operation), after: after.1 });
        self.set_capturing(stream, Some(Capturing { capture: after.0, tips: vec![node] }));
        Ok(())
    }

    /// The capture that a stream is in, with the nodes that its next one comes after.
    pub(super) fn tips(&self, stream: StreamId) -> CuResult<Option<(u64, Vec<usize>)>> {
        let Some(capturing) = &self.usable(stream)?.capturing else { return Ok(None) };
        match self.captures.get(&capturing.capture) {
            Some(capture) if !capture.invalid => Ok(Some((capturing.capture, capturing.tips.clone()))),
            _ => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        }
    }

    /// Has `stream` wait for captured nodes, and with that take part in the capture.
    pub(super) fn join_capture(&mut self, id: StreamId, capture: u64, tips: &[usize]) -> CuResult<()> {
        if !self.captures.contains_key(&capture) {
            return Err(CUresult::CUDA_ERROR_CAPTURED_EVENT);
        }
        let stream = self.usable(id)?;
        let mut joined = match &stream.capturing {
            Some(capturing) if capturing.capture != capture => {
                return Err(self.invalidate(id, CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE));
            }
            Some(capturing) => capturing.tips.clone(),
            None if stream.kind == StreamKind::Legacy => {
                self.mark_invalid(capture);
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
            None => Vec::new(),
        };
        if self.captures.get(&capture).is_some_and(|capture| capture.invalid) {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        joined.extend(tips.iter().filter(|tip| !joined.contains(tip)).copied().collect::<Vec<_>>());
        self.set_capturing(id, Some(Capturing { capture, tips: joined }));
        Ok(())
    }

    /// Makes a capturing stream's capture invalid because of a call that no capture allows.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` when the stream is capturing; what [`State::usable`] says.
    pub(super) fn refuse_capturing(&mut self, stream: StreamId) -> CuResult<()> {
        match self.tips(stream)? {
            None => Ok(()),
            Some(_) => Err(self.invalidate(stream, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)),
        }
    }

    /// The same for a call that concerns all streams of a context.
    pub(super) fn refuse_capturing_in(&mut self, context: ContextId) -> CuResult<()> {
        let captures: Vec<_> = self
            .captures
            .iter()
            .filter(|(_, capture)| capture.context == context)
            .map(|(id, _)| *id)
            .collect();
        for capture in &captures {
            self.mark_invalid(*capture);
        }
        if captures.is_empty() { Ok(()) } else { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// Refuses work in a legacy default stream while a stream that it waits for is captured.
    pub(super) fn refuse_implicit_capture(&mut self, stream: StreamId) -> CuResult<()> {
        if self.captures.is_empty() {
            return Ok(());
        }
        let Some(legacy) = self.streams.get(&stream).filter(|stream| stream.kind == StreamKind::Legacy)
        else {
            return Ok(());
        };
        let blocking =
            self.streams_of(legacy.context.id).filter(|(_, other)| other.kind == StreamKind::Blocking);
        let captures: Vec<_> =
            blocking.filter_map(|(_, other)| Some(other.capturing.as_ref()?.capture)).collect();
        for capture in &captures {
            self.mark_invalid(*capture);
        }
        if captures.is_empty() { Ok(()) } else { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) }
    }

    /// Makes the capture of a stream invalid because of `error`, which is given back.
    pub(super) fn invalidate(&mut self, stream: StreamId, error: CUresult) -> CUresult {
        let capture = self.streams.get(&stream).and_then(|stream| stream.capturing.as_ref());
        if let Some(capture) = capture.map(|capturing| capturing.capture) {
            self.mark_invalid(capture);
        }
        error
    }

    fn mark_invalid(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalid = true;
        }
    }

    /// Takes a capture out and its streams with it.
    pub(super) fn drop_capture(&mut self, capture: u64) -> Option<Capture> {
        for stream in self.streams.values_mut() {
            if stream.capturing.as_ref().is_some_and(|capturing| capturing.capture == capture) {
                stream.capturing = None;
            }
        }
        self.captures.remove(&capture)
    }

    fn set_capturing(&mut self, stream: StreamId, capturing: Option<Capturing>) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.capturing = capturing;
        }
    }
}
