//! Operations as calls of the driver.

use super::Run;
use super::copies::Way;
use super::host_code::{self, HostCall};
use crate::driver::{self, Error, Handle};
use crate::program::{Await, Call, Region, Step, Work};
use core::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

impl Run<'_> {
    pub(super) fn call(&self, op: usize, call: &Call) -> Result<(), Error> {
        let driver = &self.machine.driver;
        match *call {
            Call::Enqueue { stream, ref work } => {
                let device = self.enter_stream(stream)?;
                let reads = self.reads(|action| {
                    action.op == op && matches!(action.effect, crate::order::Effect::Work(_))
                });
                self.work(op, work, device, Way::Stream(self.stream(stream)), reads)
            }
            Call::Blocking { device, ref work } => {
                self.enter(device)?;
                self.work(op, work, device, Way::Blocking, Vec::new())
            }
            Call::Host(ref work) => {
                let call = self.host_call(op, work, self.reads(|action| action.op == op));
                // SAFETY: the program is free of races.
                unsafe { call.call() };
                Ok(())
            }
            Call::Record { event, stream } => {
                self.enter_stream(stream)?;
                // SAFETY: both are alive.
                unsafe { driver.cuEventRecord(self.events[event], self.stream(stream)) }
            }
            Call::WaitEvent { stream, event } => {
                self.enter_stream(stream)?;
                // SAFETY: both are alive.
                unsafe { driver.cuStreamWaitEvent(self.stream(stream), self.events[event], 0) }
            }
            Call::Await(what) => self.wait(what),
            Call::Capture { graph } => self.capture(op, graph),
            Call::Launch { graph, stream } => {
                self.enter_stream(stream)?;
                let executable = self.executables[graph].load(Ordering::Acquire);
                // SAFETY: both are alive.
                unsafe { driver.cuGraphLaunch(executable, self.stream(stream)) }
            }
            Call::Allocate { buffer, stream, value } => {
                let handle = self.stream(stream);
                self.make(buffer, Some(handle))?;
                let made = &self.program.buffers[buffer];
                if !made.kind.is_device() {
                    self.write_all(buffer, value);
                    return Ok(());
                }
                let (to, words, rest) = (self.places[buffer].device(), made.size / 4, made.size % 4);
                // SAFETY: the buffer has that many words.
                unsafe { driver.cuMemsetD32Async(to, value, words, handle) }?;
                for byte in 0..rest {
                    let value = value.to_le_bytes()[byte];
                    // SAFETY: the last bytes of the buffer.
                    unsafe { driver.cuMemsetD8Async(to + (words * 4 + byte) as u64, value, 1, handle) }?;
                }
                Ok(())
            }
            Call::Release { buffer, stream } => self.release(buffer, Some(self.stream(stream))),
            Call::DestroyStream { stream } => {
                self.enter_stream(stream)?;
                self.destroy_stream(stream)
            }
            Call::WaitValue { stream, word } => {
                self.enter_stream(stream)?;
                let address = self.words + word as u64 * 4;
                // SAFETY: the word is there until the program's end.
                unsafe { driver.cuStreamWaitValue32_v2(self.stream(stream), address, 1, driver::WAIT_EQUAL) }
            }
            Call::WriteValue { stream, word } => {
                self.enter_stream(stream)?;
                let address = self.words + word as u64 * 4;
                // SAFETY: the word is there until the program's end.
                unsafe { driver.cuStreamWriteValue32_v2(self.stream(stream), address, 1, 0) }
            }
            Call::Barrier => Ok(()),
        }
    }

    fn enter_stream(&self, stream: usize) -> Result<usize, Error> {
        let device = self.program.streams[stream].device;
        self.enter(device)?;
        Ok(device)
    }

    fn wait(&self, what: Await) -> Result<(), Error> {
        let driver = &self.machine.driver;
        match what {
            Await::Stream(stream) => {
                self.enter_stream(stream)?;
                // SAFETY: the stream is alive.
                unsafe { driver.cuStreamSynchronize(self.stream(stream)) }
            }
            Await::StreamQueries(stream) => {
                self.enter_stream(stream)?;
                // SAFETY: the stream is alive.
                until_ready(|| unsafe { driver.cuStreamQuery(self.stream(stream)) })
            }
            Await::Event(event) => {
                self.enter(self.program.events[event])?;
                // SAFETY: the event is alive.
                unsafe { driver.cuEventSynchronize(self.events[event]) }
            }
            Await::EventQueries(event) => {
                self.enter(self.program.events[event])?;
                // SAFETY: the event is alive.
                until_ready(|| unsafe { driver.cuEventQuery(self.events[event]) })
            }
            Await::Context(device) => {
                self.enter(device)?;
                self.machine.synchronize()
            }
        }
    }

    /// What the model says that the reads among some actions find, one after the other.
    fn reads(&self, is_one: impl Fn(&crate::order::Action) -> bool) -> Vec<Arc<[u8]>> {
        let actions = self.order.actions().iter().zip(&self.expected.reads);
        actions.filter(|(action, _)| is_one(action)).filter_map(|(_, read)| read.clone()).collect()
    }

    fn host_call(&self, op: usize, work: &Work, expected: Vec<Arc<[u8]>>) -> HostCall {
        let region = work.source().or(work.target());
        let start = region.map_or(null_mut(), |region| {
            // SAFETY: regions lie in their buffers.
            unsafe { self.places[region.buffer].host().add(region.offset) }
        });
        let findings = Arc::clone(&self.findings);
        HostCall { op, work: work.clone(), start, expected, round: AtomicU32::new(0), findings }
    }

    /// Captures a graph, again where another thread has spoilt the capture by waiting for the context.
    fn capture(&self, op: usize, graph: usize) -> Result<(), Error> {
        let machine = self.machine;
        let plan = &self.program.graphs[graph];
        self.enter(plan.device)?;
        loop {
            let lanes: Vec<Handle> = (0..plan.lanes)
                .map(|_| machine.create_stream(driver::NON_BLOCKING))
                .collect::<Result<_, _>>()?;
            let outcome = self.capture_in(&lanes, op, graph);
            let is_spoilt = outcome.as_ref().is_err_and(|error| {
                let mut none = null_mut();
                // SAFETY: the stream is alive, and there is room for the result. A capture that has ended
                // already has said it.
                let ended = unsafe { machine.driver.cuStreamEndCapture(lanes[0], &raw mut none) };
                let spoilt = driver::CAPTURE_INVALIDATED;
                error.code == spoilt || ended.is_err_and(|error| error.code == spoilt)
            });
            lanes.into_iter().try_for_each(|lane| machine.destroy_stream(lane))?;
            if !is_spoilt {
                return outcome;
            }
        }
    }

    fn capture_in(&self, lanes: &[Handle], op: usize, graph: usize) -> Result<(), Error> {
        let (machine, driver) = (self.machine, &self.machine.driver);
        let plan = &self.program.graphs[graph];
        let join = |from: usize, to: usize| {
            let event = machine.create_event()?;
            // SAFETY: all are alive.
            unsafe {
                driver.cuEventRecord(event, lanes[from])?;
                driver.cuStreamWaitEvent(lanes[to], event, 0)?;
            }
            machine.destroy_event(event)
        };
        // SAFETY: the stream is alive and not captured.
        unsafe { driver.cuStreamBeginCapture_v2(lanes[0], driver::CAPTURE_THREAD_LOCAL) }?;
        for lane in 1..plan.lanes {
            join(0, lane)?;
        }
        for (part, step) in plan.steps.iter().enumerate() {
            match step {
                Step::Work { lane, work } => {
                    let is_one = |action: &crate::order::Action| {
                        let is_launch = |call: &Call| matches!(call, Call::Launch { graph: other, .. } if *other == graph);
                        action.part == part && is_launch(&self.program.ops[action.op].call)
                    };
                    self.work(op, work, plan.device, Way::Stream(lanes[*lane]), self.reads(is_one))?;
                }
                Step::Join { from, to } => join(*from, *to)?,
            }
        }
        for lane in 1..plan.lanes {
            join(lane, 0)?;
        }
        let (mut captured, mut executable) = (null_mut(), null_mut());
        // SAFETY: there is room for the results, and the graph is alive.
        unsafe {
            driver.cuStreamEndCapture(lanes[0], &raw mut captured)?;
            driver.cuGraphInstantiateWithFlags(&raw mut executable, captured, 0)?;
            driver.cuGraphDestroy(captured)?;
        }
        self.executables[graph].store(executable, Ordering::Release);
        Ok(())
    }

    fn work(
        &self,
        op: usize,
        work: &Work,
        device: usize,
        way: Way,
        reads: Vec<Arc<[u8]>>,
    ) -> Result<(), Error> {
        let kernels = &self.machine.kernels[device];
        let stream = match way {
            Way::Stream(stream) => stream,
            Way::Blocking => null_mut(),
        };
        let words = |region: &Region| (region.width / 4) as u32;
        match work {
            Work::Copy { to, from, form } => self.copy(to, from, *form, way),
            Work::Fill { to, value, element } => self.fill(to, *value, *element, way),
            Work::Generate { to, key, delay } => self.machine.launch_generate(
                kernels.generate,
                self.device(to),
                words(to),
                *key,
                *delay,
                stream,
            ),
            Work::Add { to, constant, delay } => {
                let both = (self.device(to), self.device(to));
                self.machine.launch_move(kernels.copy, both, words(to), *constant, *delay, stream)
            }
            Work::Move { to, from, constant, delay } => {
                let both = (self.device(to), self.device(from));
                self.machine.launch_move(kernels.copy, both, words(to), *constant, *delay, stream)
            }
            Work::HostRead { .. } | Work::HostWrite { .. } => {
                let call = Box::new(self.host_call(op, work, reads));
                let data: *const HostCall = &raw const *call;
                if let Ok(mut calls) = self.host_calls.lock() {
                    calls.push(call);
                }
                // SAFETY: the data live until all streams have come to their ends.
                unsafe {
                    self.machine.driver.cuLaunchHostFunc(stream, host_code::in_stream, data.cast_mut().cast())
                }
            }
        }
    }
}

fn until_ready(query: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
    loop {
        match query() {
            Err(Error { code: driver::NOT_READY, .. }) => std::thread::yield_now(),
            other => return other,
        }
    }
}
