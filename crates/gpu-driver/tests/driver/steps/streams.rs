//! Streams, events, completions, gates and graphs.

use crate::code;
use crate::session::{Failure, Outcome, Session, check};
use causeway_api::calls;
use causeway_api::handle::{Function, Handle};
use causeway_api::image::Form;
use causeway_api::sys::CUresult;
use causeway_api::types::{GraphEdge, LaunchShape, Region};
use causeway_gpu::{Gate, Gpu};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// The functions that use the GPU for a while and count.
fn functions(session: &Session) -> Result<(Handle<Function>, Handle<Function>), Failure> {
    let module = session.module(Form::Single, code::BASICS.as_bytes())?;
    Ok((session.function(module, "spin")?.0, session.function(module, "increment")?.0))
}

const MILLISECOND: [u8; 8] = 1_000_000u64.to_le_bytes();

pub fn events(session: &Session) -> Outcome {
    let (spin, increment) = functions(session)?;
    let counter = session.allocate(4)?;
    session.write_u32(counter, 0)?;
    let (first, second) = (session.stream(1)?, session.stream(1)?);
    let (start, end) = (session.handle(), session.handle());
    for event in [start, end] {
        session.call(calls::event_create { event, flags: 0 })?;
    }
    session.call(calls::event_record { event: start, stream: first, flags: 0 })?;
    for _ in 0..20 {
        session.launch(spin, [1, 1], first, &MILLISECOND)?;
    }
    session.launch(increment, [1, 1], first, &counter.to_le_bytes())?;
    session.call(calls::event_record { event: end, stream: first, flags: 0 })?;
    session.call(calls::stream_wait_event { stream: second, event: end, flags: 0 })?;
    session.launch(increment, [1, 1], second, &counter.to_le_bytes())?;
    let (native, native_second) = (session.objects.native(end)?, session.objects.native(second)?);
    let busy =
        session.driver.event_query(native).is_err() && session.driver.stream_query(native_second).is_err();
    check(busy, || "20 ms of work are done at once".into())?;
    session.wait(|done| session.driver.after_event(native, done))?;
    session.driver.event_query(native)?;
    session.finish(second)?;
    session.driver.stream_query(native_second)?;
    let milliseconds = session.call(calls::event_elapsed { start, end })?;
    check(milliseconds >= 19.0, || format!("20 ms of work took {milliseconds} ms"))?;
    let count = session.read_u32(counter)?;
    check(count == 2, || format!("counted {count}"))?;
    // An event that was never recorded is done; one that is waited for may be destroyed.
    session.launch(spin, [1, 1], first, &MILLISECOND)?;
    session.call(calls::event_record { event: start, stream: first, flags: 0 })?;
    let native = session.objects.native(start)?;
    session.wait(|done| {
        session.driver.after_event(native, done)?;
        session.call(calls::event_destroy { event: start }).map_err(|_| CUresult::CUDA_ERROR_INVALID_HANDLE)
    })?;
    let never = session.handle();
    session.call(calls::event_create { event: never, flags: 2 })?;
    let native = session.objects.native(never)?;
    session.wait(|done| session.driver.after_event(native, done))?;
    for event in [end, never] {
        session.call(calls::event_destroy { event })?;
    }
    for stream in [first, second] {
        session.call(calls::stream_destroy { stream })?;
    }
    session.free(counter)?;
    Ok(format!("20 ms of work took {milliseconds:.2} ms"))
}

pub fn completions(session: &Session) -> Outcome {
    let (spin, increment) = functions(session)?;
    let counter = session.allocate(4)?;
    let (busy, quick) = (session.stream(1)?, session.stream(1)?);
    let order = Mutex::new(Vec::new());
    let (sender, results) = mpsc::channel();
    let done = |label: &'static str| -> causeway_gpu::Completion {
        let sender = sender.clone();
        Box::new(move |status| {
            let _ = sender.send((label, status));
        })
    };
    let natives = (session.objects.native(busy)?, session.objects.native(quick)?);
    for _ in 0..10 {
        session.launch(spin, [1, 1], busy, &MILLISECOND)?;
    }
    session.driver.after(natives.0, done("busy"))?;
    session.driver.after_context(done("context"))?;
    session.launch(increment, [1, 1], quick, &counter.to_le_bytes())?;
    session.driver.after(natives.1, done("quick"))?;
    for _ in 0..3 {
        let (label, status) =
            results.recv_timeout(Duration::from_secs(20)).map_err(|error| error.to_string())?;
        status?;
        order.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(label);
    }
    let order = order.into_inner().unwrap_or_default();
    check(order == ["quick", "busy", "context"], || format!("the order was {order:?}"))?;

    // How long the ways to wait take, for people.
    let time = |work: &dyn Fn() -> Result<(), Failure>| -> Result<Duration, Failure> {
        let mut times = Vec::new();
        for _ in 0..200 {
            let begin = Instant::now();
            work()?;
            times.push(begin.elapsed());
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    };
    let idle = time(&|| session.finish(quick))?;
    let idle_context = time(&|| session.finish_all())?;
    let launched = time(&|| {
        session.launch(increment, [1, 1], quick, &counter.to_le_bytes())?;
        session.finish(quick)
    })?;
    session.free(counter)?;
    for stream in [busy, quick] {
        session.call(calls::stream_destroy { stream })?;
    }
    Ok(format!("idle stream {idle:?}, idle context {idle_context:?}, launch and wait {launched:?}"))
}

pub fn gates(session: &Session) -> Outcome {
    let (_, increment) = functions(session)?;
    let counter = session.allocate(4)?;
    session.write_u32(counter, 0)?;
    let (held, free) = (session.stream(1)?, session.stream(1)?);
    let native = session.objects.native(held)?;
    for round in 1..=100u32 {
        let (sender, reached) = mpsc::channel();
        let gate = session.driver.gate(
            native,
            Box::new(move || {
                let _ = sender.send(());
            }),
        )?;
        session.launch(increment, [1, 1], held, &counter.to_le_bytes())?;
        reached.recv_timeout(Duration::from_secs(20)).map_err(|error| format!("round {round}: {error}"))?;
        session.launch(increment, [1, 1], free, &counter.to_le_bytes())?;
        session.finish(free)?;
        let native = session.objects.native(held)?;
        check(session.driver.stream_query(native).is_err(), || {
            format!("round {round}: the stream went through the gate")
        })?;
        if round % 2 == 0 {
            gate.open()
        } else {
            drop(gate)
        }
        session.finish(held)?;
        let count = session.read_u32(counter)?;
        check(count == 2 * round, || format!("round {round}: counted {count}"))?;
    }
    for stream in [held, free] {
        session.call(calls::stream_destroy { stream })?;
    }
    session.free(counter)?;
    Ok(String::new())
}

/// Launches behind a gate until one blocks, which the gate's opening after two seconds ends.
pub fn backlog(session: &Session) -> Outcome {
    const MAX_STREAMS: usize = 5000;
    const OPENS_AFTER: Duration = Duration::from_secs(2);
    let (_, increment) = functions(session)?;
    let counter = session.allocate(4)?;
    session.write_u32(counter, 0)?;
    let held = session.stream(1)?;
    let gate = session.driver.gate(session.objects.native(held)?, Box::new(|| {}))?;
    let opener = std::thread::spawn(move || {
        std::thread::sleep(OPENS_AFTER);
        Gate::open(gate);
    });
    let begin = Instant::now();
    let mut blocked_at = None;
    for number in 0..MAX_STREAMS {
        session.launch(increment, [1, 1], held, &counter.to_le_bytes())?;
        if blocked_at.is_none() && begin.elapsed() > OPENS_AFTER / 2 {
            blocked_at = Some(number);
        }
    }
    opener.join().map_err(|_| "the thread that opens the gate panicked".to_owned())?;
    session.finish(held)?;
    let count = session.read_u32(counter)?;
    check(count == MAX_STREAMS as u32, || format!("counted {count} of {MAX_STREAMS}"))?;
    let limit = session.driver.queue_limit().unwrap_or(MAX_STREAMS);
    session.call(calls::stream_destroy { stream: held })?;
    session.free(counter)?;
    match blocked_at {
        Some(number) if number < limit => {
            Err(format!("launch {number} blocked; the limit says {limit}").into())
        }
        Some(number) => Ok(format!("launch {number} blocked; the limit says {limit}")),
        None => Ok(format!("{MAX_STREAMS} launches did not block")),
    }
}

pub fn graphs(session: &Session) -> Outcome {
    let (_, increment) = functions(session)?;
    let (counter, copy) = (session.allocate(4)?, session.allocate(4)?);
    session.write_u32(counter, 0)?;
    session.write_u32(copy, 0)?;
    let stream = session.stream(0)?;
    let graph = session.handle();
    session.call(calls::graph_create { graph })?;
    let shape = LaunchShape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
    let after = |nodes: &[u32]| -> Vec<GraphEdge> {
        nodes.iter().map(|from| GraphEdge { from: *from, from_port: 0, to_port: 0, kind: 0 }).collect()
    };
    let params = counter.to_le_bytes();
    let kernel = |before: &[u32], params| calls::graph_add_kernel {
        graph,
        after: after(before),
        function: increment,
        is_kernel: false,
        shape,
        attributes: Vec::new(),
        params,
    };
    session.call(kernel(&[], &params))?;
    session.call(kernel(&[0], &params))?;
    session.call(calls::graph_add_empty { graph, after: after(&[1]) })?;
    let (destination, source) = (Region::linear(copy, 4).into(), Region::linear(counter, 4).into());
    session.call(calls::graph_add_copy { graph, after: after(&[2]), destination, source })?;
    let exec = session.handle();
    let instantiate = |nodes| calls::graph_instantiate { exec, graph, nodes, flags: 0 };
    check(session.call(instantiate(3)).is_err(), || "a graph with a node too many is taken".into())?;
    session.call(instantiate(4))?;
    for _ in 0..100 {
        session.call(calls::graph_launch { exec, stream })?;
    }
    session.finish(stream)?;
    let counts = (session.read_u32(counter)?, session.read_u32(copy)?);
    check(counts == (200, 200), || format!("counted {counts:?}"))?;
    // A kernel that counts elsewhere, and one that does nothing.
    let params = copy.to_le_bytes();
    session.call(calls::graph_exec_kernel {
        exec,
        graph,
        node: 1,
        function: increment,
        is_kernel: false,
        shape,
        params: &params,
    })?;
    session.call(calls::graph_exec_enable { exec, graph, node: 3, enabled: 0 })?;
    session.call(calls::graph_launch { exec, stream })?;
    session.finish(stream)?;
    let counts = (session.read_u32(counter)?, session.read_u32(copy)?);
    check(counts == (201, 201), || format!("counted {counts:?} after changes"))?;
    session.call(calls::graph_exec_destroy { exec })?;
    session.call(calls::graph_destroy { graph })?;
    session.finish_all()?;
    session.call(calls::stream_destroy { stream })?;
    session.free(counter)?;
    session.free(copy)?;
    Ok(String::new())
}

/// The last step: the context is of no use afterwards.
pub fn fault(session: &Session) -> Outcome {
    let (spin, increment) = functions(session)?;
    let stream = session.stream(1)?;
    session.launch(spin, [1, 1], stream, &MILLISECOND)?;
    session.launch(increment, [1, 1], stream, &16u64.to_le_bytes())?;
    let native = session.objects.native(stream)?;
    let (sender, result) = mpsc::channel();
    session.driver.after(
        native,
        Box::new(move |status| {
            let _ = sender.send(status);
        }),
    )?;
    let status = result.recv_timeout(Duration::from_secs(20)).map_err(|error| error.to_string())?;
    check(status == Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS), || format!("the completion got {status:?}"))?;
    check(session.allocate(4).is_err(), || "the context still works".into())?;
    let again = session.finish_all();
    check(again.is_err(), || "waiting for the context succeeds".into())?;
    session.driver.primary_context_reset(0)?;
    Ok(String::new())
}
