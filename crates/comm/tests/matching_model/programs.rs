//! Which programs and messages are tried.

use causeway_comm::matching::DESCRIPTOR_BYTES;

use crate::state::{Call, Memory, Message};

/// All messages that a sender may send in these tests.
fn kinds(source: i32) -> Vec<Message> {
    let mut kinds = Vec::new();
    for tag in [1, 2] {
        for (memory, bytes) in [
            (Memory::Host, 8),
            (Memory::Host, DESCRIPTOR_BYTES as u64),
            (Memory::Gpu, 8),
            (Memory::Gpu, 1000),
            (Memory::ForeignDescriptor, DESCRIPTOR_BYTES as u64),
        ] {
            kinds.push(Message { source, tag, memory, bytes });
        }
    }
    kinds
}

/// Calls of every kind; `Cancel` is of the first receive.
fn calls() -> Vec<Call> {
    let mut calls = vec![Call::Cancel(0)];
    for (source, tag) in [(None, None), (Some(0), None), (None, Some(2)), (Some(0), Some(2))] {
        for room in [8, 2000] {
            calls.push(Call::Irecv { source, tag, room });
        }
        calls.push(Call::ProbeAndReceive { source, tag });
        calls.push(Call::Iprobe { source, tag });
    }
    calls
}

/// Every program of three calls in which what is cancelled was posted before.
pub fn programs() -> impl Iterator<Item = [Call; 3]> {
    let all = calls();
    let posts = |call: &Call| matches!(call, Call::Irecv { .. });
    let firsts = all.clone().into_iter().filter(|call| !matches!(call, Call::Cancel(_)));
    firsts
        .flat_map(move |first| {
            let all = all.clone();
            all.clone()
                .into_iter()
                .flat_map(move |second| all.clone().into_iter().map(move |third| [first, second, third]))
        })
        .filter(move |program| {
            posts(&program[0]) || program.iter().all(|call| !matches!(call, Call::Cancel(_)))
        })
}

/// Worlds of one sender with two messages, and of two senders with three.
pub fn message_lists(sample: usize) -> Vec<Vec<Message>> {
    let (of_first, of_second) = (kinds(0), kinds(1));
    let mut lists = Vec::new();
    for first in &of_first {
        for second in &of_first {
            lists.push(vec![*first, *second]);
            lists.extend(of_second.iter().map(|other| vec![*first, *second, *other]));
        }
    }
    // All lists over the programs, each with some of them: a stride that is prime to both.
    lists.into_iter().enumerate().filter(|(at, _)| at % 37 == sample % 37).map(|(_, list)| list).collect()
}

/// One thread that probes, and one that receives. Each of them looks once, so that no receive of one takes
/// away what the other has been told of.
pub fn threads() -> Vec<([Call; 2], [Call; 2])> {
    let mut pairs = Vec::new();
    for (source, tag) in [(None, None), (Some(0), None), (None, Some(2))] {
        let receive = Call::Irecv { source, tag, room: 2000 };
        for probed in [None, Some(2)] {
            let probe = Call::Iprobe { source: Some(0), tag: probed };
            pairs.push(([probe, probe], [receive, receive]));
        }
    }
    pairs
}
