//! Proxy threads of a team. The threads of its proxies, and what they share.

use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::failure::{Failure, Refused};
use crate::device::layout::HostControl;
use crate::device::peers::Peers;
use crate::device::proxy::Proxy;
use crate::device::remote::link::Links;
use crate::device::remote::serving::Service;
use crate::locks::{Mutex, rank};

/// What the proxies' threads share.
pub struct Core {
    /// Whether the proxies' threads are to end.
    pub stop: AtomicBool,
    /// The first rank of this process, and the words of it and those after it: addresses of [`HostControl`].
    pub first: u32,
    pub host_control: Vec<u64>,
    /// Ranks of other processes.
    pub peers: Option<Peers>,
    /// Links to ranks whose memory is not mapped here, where there are some.
    pub links: Option<Arc<Links>>,
    /// Whether the thread of the links is to end, behind those of the proxies.
    pub stop_links: AtomicBool,
    /// Why it has ended.
    pub ended: Mutex<rank::Leaf, Option<Failure>>,
}

impl Core {
    fn host_control(&self, member: usize) -> &HostControl {
        // SAFETY: the memory is freed when all threads have ended, and holds the words from its start.
        unsafe { &*(self.host_control[member] as *const HostControl) }
    }

    /// Ends all waits; the first reason counts.
    pub fn end(&self, failure: Failure) {
        let mut ended = self.ended.lock();
        if ended.is_none() {
            *ended = Some(failure);
            // Kernels of other processes end their waits as well.
            self.peers.iter().for_each(Peers::shut);
        }
        drop(ended);
        // Its thread ends the streams.
        self.links.iter().for_each(|links| links.wake());
        for member in 0..self.host_control.len() {
            self.host_control(member).abort.store(1, Ordering::Release);
        }
    }

    /// Whether the team has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.lock().is_some()
    }

    /// Looks whether a kernel has found something wrong.
    pub fn look(&self) {
        for member in 0..self.host_control.len() {
            if let Some(refused) = Refused::read(&self.host_control(member).error) {
                return self.end(Failure::Refused { rank: self.first + member as u32, refused });
            }
        }
    }

    /// Looks whether another process has ended, which takes a call of the system for each.
    fn look_at_peers(&self) {
        if let Some(rank) = self.peers.as_ref().and_then(Peers::ended)
            && !self.stop.load(Ordering::Acquire)
        {
            self.end(Failure::Peer(rank));
        }
    }
}

/// Ends the team where a proxy's thread ends for any other reason than that it shall.
struct Guard<'a> {
    core: &'a Core,
    /// Whether it shall.
    stop: &'a AtomicBool,
    rank: u32,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.stop.load(Ordering::Acquire) && !self.core.has_ended() {
            self.core.end(Failure::Proxy(self.rank));
        }
    }
}

/// How long a proxy polls before it takes naps.
const AWAKE: Duration = Duration::from_millis(50);

/// How long a nap is: what the first message after a pause waits at most.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// How often in a row a proxy has found nothing to do, and since when.
#[derive(Debug, Default)]
struct Rest {
    rounds: u32,
    since: Option<Instant>,
    is_long: bool,
}

impl Rest {
    /// Turns from one look at the clock to the next: a look takes as long as the turn itself.
    const LOOK: u32 = 64;

    /// One turn more; whether the proxy may take naps.
    fn is_long(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        if !self.is_long && self.rounds.is_multiple_of(Self::LOOK) {
            self.is_long = self.since.get_or_insert_with(Instant::now).elapsed() > AWAKE;
        }
        self.is_long
    }
}

/// A proxy's thread. When it shall end it waits so long for peers that have not answered yet.
pub fn serve(core: &Core, mut proxies: Vec<Proxy>, rank: u32, is_crowded: bool, limit: Duration) {
    let _guard = Guard { core, stop: &core.stop, rank };
    proxies.iter_mut().for_each(Proxy::enter);
    let (mut round, mut rest, mut stopping) = (0_u32, Rest::default(), None);
    loop {
        let mut did = false;
        for proxy in &mut proxies {
            // A panic ends the team, not the program.
            match catch_unwind(AssertUnwindSafe(|| proxy.step())) {
                Ok(Ok(work)) => did |= work,
                Ok(Err(failure)) => return core.end(failure),
                Err(_) => return,
            }
        }
        round = round.wrapping_add(1);
        if round % 64 == 0 {
            core.look();
        }
        if round % 4096 == 0 {
            core.look_at_peers();
        }
        if did {
            rest = Rest::default();
            continue;
        }
        let is_idle = proxies.iter().all(Proxy::is_idle);
        if core.stop.load(Ordering::Acquire) {
            if is_idle || core.has_ended() {
                return;
            }
            // A peer that is there and answers nothing holds up the end of the team no longer than a kernel.
            if stopping.get_or_insert_with(Instant::now).elapsed() > limit {
                return core.end(Failure::Proxy(rank));
            }
        }
        if is_idle && rest.is_long() {
            core.look();
            std::thread::sleep(POLL_INTERVAL);
            if round % 256 == 0 {
                core.look_at_peers();
            }
        } else if is_crowded {
            std::thread::yield_now();
        } else {
            core::hint::spin_loop();
        }
    }
}

/// The thread of the links.
pub fn serve_links(core: &Core, mut service: Service, rank: u32) {
    let guard = Guard { core, stop: &core.stop_links, rank };
    service.enter();
    while !core.has_ended() {
        match catch_unwind(AssertUnwindSafe(|| service.step())) {
            Ok(Ok(_)) if core.stop_links.load(Ordering::Acquire) => {
                if catch_unwind(AssertUnwindSafe(|| service.leave())).is_err() {
                    service.shut();
                }
                return;
            }
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => service.rest(),
            Ok(Err(failure)) => core.end(failure),
            // Ends the team.
            Err(_) => break,
        }
    }
    drop(guard);
    service.shut();
}
