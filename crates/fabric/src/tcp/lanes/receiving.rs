//! How do bytes come in over a lane, and what does its end mean?

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use causeway_wire::chunk::{CHUNK_HEADER_SIZE, ChunkHeader, LaneRecord};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Lanes;
use crate::awake;
use crate::connect::MOST_LANES;
use crate::link::{LinkError, Place, Shared, count, spawn_or_lose};
use crate::tcp::channel::{Incoming, shut_down};
use crate::tcp::socket::{LOOK_EVERY, PeerWatch};

/// Where bytes of a transfer that nobody wants are put, this many at a time.
const DROP_SIZE: usize = 64 << 10;

impl Lanes {
    /// Starts the thread that receives on a lane.
    pub(super) fn start_receiving(&self, link: &Arc<Shared>, lane: usize, mut incoming: Incoming) {
        let lanes = self.clone();
        spawn_or_lose(link, "lane", move |link| {
            let mut dropped = vec![0; DROP_SIZE];
            while link.check().is_ok() {
                match lanes.receive(link, lane, &mut incoming, &mut dropped) {
                    Ok(()) => {}
                    Err(Ending::Lane(cause)) => return lanes.lane_ended(link, lane, &incoming, cause),
                    Err(Ending::Link(cause)) => {
                        link.lose(cause);
                    }
                }
            }
        });
    }

    /// A lane carries nothing any more. The link goes on with the others.
    fn lane_ended(&self, link: &Arc<Shared>, lane: usize, incoming: &Incoming, cause: LinkError) {
        shut_down(incoming.socket());
        let mut line = self.0.line.lock();
        line.schedule.ended(lane);
        let live = line.schedule.live();
        self.call(link, line, 1);
        if live == 0 {
            link.lose(cause);
        } else if link.check().is_ok() {
            // The end of a session looks the same until its command connection ends.
            tracing::info!("a bulk lane has ended, {live} are left: {cause}");
        }
    }

    fn receive(
        &self,
        link: &Arc<Shared>,
        lane: usize,
        incoming: &mut Incoming,
        dropped: &mut [u8],
    ) -> Result<(), Ending> {
        wait_for_bytes(incoming, lane < awake::lanes())?;
        let mut header = [0; CHUNK_HEADER_SIZE];
        if !incoming.receive_header(&mut header).map_err(Ending::io)? {
            return Err(Ending::Lane(LinkError::PeerGone));
        }
        match LaneRecord::parse(&header)? {
            LaneRecord::Chunk(chunk) => {
                receive_chunk(link, incoming, &chunk, dropped)?;
                let is_news = self.0.line.lock().schedule.received(lane);
                let is_complete = link.transfers().landed(&chunk, None);
                if is_news || is_complete {
                    let mut line = self.0.line.lock();
                    if is_complete {
                        line.schedule.completed();
                    }
                    self.call(link, line, 1);
                }
                return Ok(());
            }
            LaneRecord::Number(number) => {
                if !self.0.line.lock().schedule.number(lane, number, MOST_LANES)? {
                    return Err(Ending::Lane(LinkError::PeerGone));
                }
            }
            LaneRecord::Received { lane, received } => {
                self.0.line.lock().schedule.acknowledged(lane, received)?;
            }
            LaneRecord::Ended { lane, received } => {
                let ended = self.0.line.lock().schedule.peer_report(lane, received, MOST_LANES)?;
                if let Some(ended) = ended {
                    shut_down(&self.0.open.read()[ended].socket);
                }
            }
        }
        // Memory may have become free, and chunks may have to be sent again.
        let line = self.settle(self.0.line.lock());
        self.call(link, line, 1);
        Ok(())
    }
}

/// What ends with an error: one lane, or the link.
enum Ending {
    Lane(LinkError),
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

/// Waits between records, and looks now and then whether the peer's machine takes what was sent on the lane: the thread
/// that sends on it cannot look while it waits for room. With `stays_awake` it does not sleep at first.
fn wait_for_bytes(incoming: &Incoming, stays_awake: bool) -> Result<(), Ending> {
    let is_there = || {
        let mut waiting = [PollFd::new(incoming.socket(), PollFlags::IN)];
        !matches!(poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    };
    if stays_awake && awake::look(awake::between_work(), is_there) {
        return Ok(());
    }
    let mut watch = PeerWatch::default();
    let timeout = Timespec { tv_sec: LOOK_EVERY.as_secs() as i64, tv_nsec: 0 };
    loop {
        let mut waiting = [PollFd::new(incoming.socket(), PollFlags::IN)];
        match poll(&mut waiting, Some(&timeout)) {
            Ok(0) if watch.look(incoming.socket().as_fd()) => {
                return Err(Ending::Lane(LinkError::PeerSilent));
            }
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Ending::io(error.into())),
        }
    }
}

/// Receives the bytes of a chunk, which have not [landed](crate::link::Transfers::landed) then.
fn receive_chunk(
    link: &Shared,
    incoming: &mut Incoming,
    chunk: &ChunkHeader,
    dropped: &mut [u8],
) -> Result<(), Ending> {
    let length = chunk.length as usize;
    let received = match link.transfers().claim(chunk, link.events())? {
        // SAFETY: the destination stays writable until its callback has run, which `landed` and `missed` alone can
        // cause while this chunk is claimed; the claim lies inside the destination and overlaps no other.
        Place::Memory(start, _) => unsafe { incoming.receive_exact_raw(start, length) },
        Place::Nowhere => receive_and_drop(incoming, length, dropped),
    };
    if let Err(error) = received {
        link.transfers().missed(chunk);
        return Err(Ending::io(error));
    }
    count(&link.counters().transfer_bytes_received, length);
    Ok(())
}

fn receive_and_drop(incoming: &mut Incoming, length: usize, dropped: &mut [u8]) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        // Whole records, as the sender cut them.
        let count = left.min(dropped.len());
        // SAFETY: `dropped` is a live, exclusively borrowed buffer of at least `count` bytes.
        unsafe { incoming.receive_exact_raw(dropped.as_mut_ptr(), count)? };
        left -= count;
    }
    Ok(())
}
