//! Receive loop of bulk lanes, and what the end of a lane means.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use causeway_wire::chunk::{CHUNK_HEADER_SIZE, ChunkHeader, LaneRecord};

use super::delayed_acks::DelayedAcks;
use super::ready::{Held, NOW};
use super::{Lane, LaneState, Lanes, MAX_LANES_EVER, NotStarted};
use crate::commands::Offered;
use causeway_connection::channel::{Incoming, Socket, shut_down};
use causeway_connection::socket::{LOOK_EVERY, PeerWatch};
use causeway_memory::nontemporal;
use causeway_pipeline::MAX_LANES;
use causeway_sync::delays;
use causeway_sync::spin;
use causeway_transport::{
    ChunkDestination, Direction, LinkError, Memory as _, ReceivedChunk, Shared, count, spawn_or_lose,
};

/// Bytes that come through other memory than that where they belong, so many at a time: they stay in the
/// caches of one core.
const ASIDE: usize = 512 << 10;

impl Lanes {
    /// Takes in a lane to receive on, and a thread more: each may be held up by one of them.
    pub(super) fn receive_on(&self, link: &Arc<Shared>, lane: usize, incoming: Incoming) {
        if let Err(error) = self.0.ready.add(lane, incoming) {
            link.lose(LinkError::local(&error));
            return;
        }
        let mut not_started = self.0.not_started.lock();
        match &mut *not_started {
            NotStarted::Waiting(lanes) => lanes.push(lane),
            NotStarted::Started => {
                drop(not_started);
                self.start_receiving(link, lane);
            }
        }
    }

    /// Starts a thread that receives. It also sees to it that a lane is noticed whose peer is gone.
    pub(super) fn start_receiving(&self, link: &Arc<Shared>, watched: usize) {
        let lanes = self.clone();
        spawn_or_lose(link, "lane", move |link| {
            if let Err(error) = lanes.receive_for_ever(link, watched) {
                link.lose(LinkError::local(&error));
            }
        });
    }

    fn receive_for_ever(&self, link: &Arc<Shared>, watched: usize) -> io::Result<()> {
        let ready = &self.0.ready;
        let mut thread = ReceivingThread::new(watched);
        let (mut held, mut has_carried) = (None, false);
        let spin_time =
            if watched < spin::receivers() { spin::between_copies(self.0.is_within_a_host) } else { NOW };
        self.0.receiving.fetch_add(1, Ordering::AcqRel);
        while link.check().is_ok() {
            if held.is_none() && self.is_resumable() && !self.0.open.read().contains_key(&watched) {
                // A lane that takes its place has a thread of its own.
                break;
            }
            // Whoever has heard of acknowledgements alone leaves its core to those who copy.
            held = match ready.look(held.take(), if has_carried { spin_time } else { NOW })? {
                None => {
                    has_carried = false;
                    self.sleep(link)?
                }
                found => found,
            };
            self.look_after(&mut thread);
            let Some(mut current) = held.take() else { continue };
            match self.receive(link, &mut current, &mut thread) {
                Ok(Received::Chunk { landed, is_ack_due, bytes }) => {
                    has_carried = true;
                    // Whoever hears of a transfer's end may take its time, in which others can go on with the
                    // lane.
                    if landed.has_ended() && current.has_bytes() {
                        ready.release(current)?;
                    } else {
                        held = Some(current);
                    }
                    self.landed(link, landed, is_ack_due);
                    let socket = held.as_ref().map(|held| held.incoming.socket());
                    self.pace_received(link, bytes, socket, &mut thread);
                }
                Ok(Received::Word) => {
                    held = Some(current);
                    // Memory may have become free, and chunks may have to be sent again.
                    let state = self.complete(self.0.state.lock());
                    self.call(link, state, 1);
                }
                Err(Ending::Lane(cause)) => self.lane_ended(link, &current, cause),
                Err(Ending::Commands { received }) => self.replaces_commands(link, current, received),
                Err(Ending::Link(cause)) => {
                    link.lose(cause);
                }
            }
        }
        self.stop_receiving(link);
        Ok(())
    }

    /// A thread does not receive any more, at least for a while. Whoever is the last one tells the peer what came.
    fn stop_receiving(&self, link: &Arc<Shared>) {
        // Whoever has taken note of a delayed acknowledgement is awake, and becomes the last one or leaves it
        // to others.
        if self.0.receiving.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut state = self.0.state.lock();
            if state.acknowledge_if(DelayedAcks::take) {
                self.call(link, state, 1);
            }
        }
    }

    /// Sleeps until a lane has bytes.
    fn sleep(&self, link: &Arc<Shared>) -> io::Result<Option<Held>> {
        self.stop_receiving(link);
        let found = self.0.ready.wait(LOOK_EVERY);
        self.0.receiving.fetch_add(1, Ordering::AcqRel);
        found
    }

    /// Waits after what has come, if transfers are held back, or until the lane that the thread holds is shut down.
    fn pace_received(
        &self,
        link: &Shared,
        bytes: usize,
        held: Option<&Socket>,
        thread: &mut ReceivingThread,
    ) {
        self.pace(link, Direction::Received, bytes, || {
            self.look_after(thread);
            held.is_some_and(is_shut_down)
        });
    }

    /// Ends a lane whose peer's machine does not take what was sent on it, once in a while: a thread that sends on it
    /// cannot look while it waits for room.
    fn look_after(&self, thread: &mut ReceivingThread) {
        if thread.looked.elapsed() < LOOK_EVERY {
            return;
        }
        thread.looked = Instant::now();
        let Some(lane) = self.0.open.read().get(&thread.watched).map(Arc::clone) else { return };
        if thread.watch.look(lane.socket.as_fd()) {
            lane.give_up(LinkError::PeerSilent);
        }
    }

    /// A lane carries nothing any more. The link goes on with the others.
    fn lane_ended(&self, link: &Arc<Shared>, held: &Held, cause: LinkError) {
        shut_down(held.incoming.socket());
        self.0.ready.forget(held);
        let Some(lane) = self.forget(link, held.lane) else { return };
        let cause = lane.failure.get().cloned().unwrap_or(cause);
        let mut state = self.0.state.lock();
        state.schedule.ended(held.lane);
        let live = state.schedule.live();
        self.call(link, state, 1);
        if live == 0 && self.is_resumable() {
            // There are new lanes once there is a new connection.
            self.0.commands.break_off();
        } else if live == 0 {
            link.lose(cause);
        } else if link.check().is_ok() {
            // The end of a session looks the same until its command connection ends.
            tracing::info!("a bulk lane has ended, {live} remain: {cause}");
        }
    }

    /// Takes a lane out that carries nothing any more.
    fn forget(&self, link: &Shared, lane: usize) -> Option<Arc<Lane>> {
        let lane = self.0.open.write().remove(&lane)?;
        lane.descriptors.iter().for_each(|descriptor| link.forget_descriptor(*descriptor));
        Some(lane)
    }

    /// What came as a lane is the connection that takes the place of the one for commands.
    fn replaces_commands(&self, link: &Shared, held: Held, received: u64) {
        self.0.ready.forget(&held);
        let Some(lane) = self.forget(link, held.lane) else { return };
        self.0.state.lock().schedule.ended(held.lane);
        let Some(outgoing) = lane.outgoing.lock().take() else { return };
        let (incoming, descriptors) = (held.incoming, lane.descriptors.clone());
        self.0.commands.offer(Offered { outgoing, incoming, received, descriptors });
    }

    fn receive(
        &self,
        link: &Arc<Shared>,
        held: &mut Held,
        thread: &mut ReceivingThread,
    ) -> Result<Received, Ending> {
        let Held { lane, incoming } = held;
        let mut header = [0; CHUNK_HEADER_SIZE];
        if !incoming.receive_header(&mut header).map_err(Ending::io)? {
            return Err(Ending::Lane(LinkError::PeerDisconnected));
        }
        match LaneRecord::parse(&header)? {
            LaneRecord::Chunk(chunk) => {
                if !core::mem::replace(&mut thread.has_received, true) {
                    // For what earlier links have carried.
                    self.pace_received(link, 0, Some(incoming.socket()), thread);
                }
                receive_chunk(link, incoming, &chunk, self.0.is_within_a_host, &mut thread.aside)?;
                // Counted while the lane is ours, so that its count is whole when it ends.
                let mut state = self.0.state.lock();
                let is_ack_due = state.schedule.received(*lane)
                    | state.acknowledge_if(|delayed_acks| delayed_acks.is_due(Instant::now));
                drop(state);
                delays::inject();
                let (landed, bytes) = (link.transfers().land(&chunk, None), chunk.length as usize);
                return Ok(Received::Chunk { landed, is_ack_due, bytes });
            }
            LaneRecord::Number(number) => {
                if !self.0.state.lock().schedule.number(*lane, number, self.numbers())? {
                    return Err(Ending::Lane(LinkError::PeerDisconnected));
                }
            }
            LaneRecord::Received { lane, received } => {
                self.0.state.lock().schedule.acknowledged(lane, received)?;
            }
            LaneRecord::Ended { lane, received } => {
                let ended = self.0.state.lock().schedule.peer_report(lane, received, self.numbers())?;
                let ended = ended.and_then(|ended| self.0.open.read().get(&ended).map(Arc::clone));
                ended.iter().for_each(|lane| shut_down(&lane.socket));
            }
            LaneRecord::Commands { received } => {
                if self.0.state.lock().schedule.is_numbered(*lane) || !self.is_resumable() {
                    return Err(Ending::Lane(LinkError::PeerDisconnected));
                }
                return Err(Ending::Commands { received });
            }
        }
        Ok(Received::Word)
    }

    /// How many numbers lanes may have: those of a resumable link are never given again.
    fn numbers(&self) -> u32 {
        if self.is_resumable() { MAX_LANES_EVER as u32 } else { MAX_LANES }
    }

    /// A chunk has come: whoever waits for its transfer hears of it, and the peer if it is to know.
    fn landed(&self, link: &Arc<Shared>, landed: ReceivedChunk, is_ack_due: bool) {
        let is_alone = landed.is_alone();
        delays::inject();
        let is_complete = landed.notify();
        if is_ack_due || is_complete {
            let mut state = self.0.state.lock();
            let is_acknowledged = is_complete
                && state.acknowledge_if(|delayed_acks| delayed_acks.completed(is_alone, Instant::now()));
            if is_ack_due || is_acknowledged {
                self.call(link, state, 1);
            }
        }
    }
}

impl LaneState {
    /// Acknowledges all received chunks, if it is time; whether it is.
    fn acknowledge_if(&mut self, is_time: impl FnOnce(&mut DelayedAcks) -> bool) -> bool {
        let is_time = is_time(&mut self.delayed_acks);
        if is_time {
            self.schedule.acknowledge();
        }
        is_time
    }
}

/// A thread that receives.
struct ReceivingThread {
    /// The lane that it sees to.
    watched: usize,
    watch: PeerWatch,
    looked: Instant,
    /// Whether it has received a piece of a transfer.
    has_received: bool,
    aside: Vec<u8>,
}

impl ReceivingThread {
    fn new(watched: usize) -> Self {
        let (watch, looked) = (PeerWatch::default(), Instant::now());
        Self { watched, watch, looked, has_received: false, aside: vec![0; ASIDE] }
    }
}

/// Whether nothing can come over a connection any more but what is here already.
fn is_shut_down(socket: &Socket) -> bool {
    let mut looked_at = [PollFd::new(socket, PollFlags::empty())];
    // Where it cannot be looked at, the next receive says why.
    !matches!(poll(&mut looked_at, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

/// What came over a lane.
enum Received {
    /// A chunk with its bytes, and whether the peer has to hear of the chunks that have come.
    Chunk { landed: ReceivedChunk, is_ack_due: bool, bytes: usize },
    /// What the lanes have to tell each other.
    Word,
}

/// What ends with an error: one lane, or the link; or the lane was none.
enum Ending {
    Lane(LinkError),
    Commands { received: u64 },
    Link(LinkError),
}

impl Ending {
    fn io(error: io::Error) -> Self {
        Self::Lane(LinkError::from_io(error))
    }
}

impl<E: Into<LinkError>> From<E> for Ending {
    fn from(error: E) -> Self {
        Self::Link(error.into())
    }
}

/// Receives the bytes of a chunk, which have not [landed](causeway_transport::Transfers::landed) then.
fn receive_chunk(
    link: &Shared,
    incoming: &mut Incoming,
    chunk: &ChunkHeader,
    is_within_a_host: bool,
    aside: &mut [u8],
) -> Result<(), Ending> {
    let length = chunk.length as usize;
    delays::inject();
    let received = match link.transfers().claim(chunk, link.events())? {
        // What comes within a host comes faster than a device reads it from caches; on few cores it does not.
        ChunkDestination::Memory { to, nontemporal: true, .. }
            if is_within_a_host && spin::has_many_cores() =>
        {
            let start = to.get();
            receive_aside(incoming, length, aside, |done, bytes| {
                // SAFETY: the destination stays writable until its callback has run, which `landed` and
                // `missed` alone can cause while this chunk is claimed; the bytes lie inside the claim, which
                // overlaps no other.
                unsafe { nontemporal::copy(start.add(done), bytes.as_ptr(), bytes.len()) };
            })
        }
        // SAFETY: the destination stays writable until its callback has run, which `land` and `missed` alone
        // can cause while this chunk is claimed; the claim lies inside the destination and overlaps no other.
        ChunkDestination::Memory { to, .. } => unsafe { incoming.receive_exact_raw(to.get(), length) },
        ChunkDestination::Nowhere => receive_aside(incoming, length, aside, |_, _| ()),
    };
    if let Err(error) = received {
        link.transfers().missed(chunk);
        return Err(Ending::io(error));
    }
    count(&link.counters().transfer_bytes_received, length);
    Ok(())
}

/// Receives bytes through other memory; `take` gets some at a time, and how many came before them.
fn receive_aside(
    incoming: &mut Incoming,
    length: usize,
    aside: &mut [u8],
    mut take: impl FnMut(usize, &[u8]),
) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        // Whole records, as the sender cut them.
        let count = (length - done).min(aside.len());
        // SAFETY: `aside` is a live, exclusively borrowed buffer of at least `count` bytes.
        unsafe { incoming.receive_exact_raw(aside.as_mut_ptr(), count)? };
        take(done, &aside[..count]);
        done += count;
    }
    Ok(())
}
