//! Residency: whether the session's memory is on the device, and who may use it now.
//!
//! Who uses the device [enters](Residency::enter) before, which costs one atomic step while the memory is there. Only
//! when it has no users can it be [closed](Residency::close), for the memory to leave. The first that enters then has
//! it brought back, and all others wait for that.

use crate::locks::{Monitor, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The gate's word: how many users there are, whether it is closed, and how many there have been.
const USER: u64 = 1;
const CLOSED: u64 = 1 << 31;
const ENTRY: u64 = 1 << 32;

/// Where the memory is now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum State {
    #[default]
    Device,
    /// On its way to the host.
    Leaving,
    Host,
    /// On its way back.
    Returning,
    Lost(Arc<str>),
}

/// Device memory that did not come back; a sentence for the client's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLost(pub Arc<str>);

/// The residency of one session's memory.
#[derive(Debug, Default)]
pub struct Residency {
    gate: AtomicU64,
    state: Monitor<rank::Leaf, State>,
}

/// A user of the device, until this is dropped.
#[derive(Debug)]
pub struct Entered<'a>(&'a Residency);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Release: what a user has done has been done for the thread that closes the gate.
        self.0.gate.fetch_sub(USER, Ordering::Release);
    }
}

/// Memory that leaves, without users. It stays when this is dropped without more.
#[derive(Debug)]
pub struct Leaving<'a>(Option<&'a Residency>);

impl Leaving<'_> {
    /// The memory is on the host.
    pub fn has_left(mut self) {
        if let Some(residency) = self.0.take() {
            residency.state.change(|state| *state = State::Host);
        }
    }

    /// The memory is lost, for this reason.
    pub fn lose(mut self, why: &str) {
        if let Some(residency) = self.0.take() {
            residency.state.change(|state| *state = State::Lost(why.into()));
        }
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(residency) = self.0.take() {
            residency.open();
        }
    }
}

impl Residency {
    /// Enters if the memory is there.
    pub fn enter_if_there(&self) -> Option<Entered<'_>> {
        // Acquire: the memory has been brought back before the gate was opened.
        if self.gate.fetch_add(ENTRY | USER, Ordering::Acquire) & CLOSED == 0 {
            return Some(Entered(self));
        }
        self.gate.fetch_sub(USER, Ordering::Relaxed);
        None
    }

    /// Enters. Where the memory is on the host `bring_back` brings it back first, here or in another thread that enters,
    /// or says why it cannot.
    ///
    /// # Errors
    /// When the memory is lost.
    pub fn enter(
        &self,
        mut bring_back: impl FnMut() -> Result<(), String>,
    ) -> Result<Entered<'_>, MemoryLost> {
        loop {
            if let Some(entered) = self.enter_if_there() {
                return Ok(entered);
            }
            let is_mine = self.state.wait(|state| match state {
                State::Device => Some(Ok(false)),
                State::Leaving | State::Returning => None,
                State::Host => {
                    *state = State::Returning;
                    Some(Ok(true))
                }
                State::Lost(why) => Some(Err(MemoryLost(Arc::clone(why)))),
            })?;
            if is_mine {
                match bring_back() {
                    Ok(()) => self.open(),
                    Err(why) => self.state.change(|state| *state = State::Lost(why.into())),
                }
            }
        }
    }

    /// Has the memory leave, if it has no users.
    pub fn close(&self) -> Option<Leaving<'_>> {
        let mut state = self.state.lock();
        let before = self.gate.load(Ordering::Relaxed);
        if *state != State::Device || before & (ENTRY - 1) != 0 {
            return None;
        }
        // Acquire: what users have done has been done here.
        let closed =
            self.gate.compare_exchange(before, before | CLOSED, Ordering::Acquire, Ordering::Relaxed);
        closed.ok()?;
        *state = State::Leaving;
        Some(Leaving(Some(self)))
    }

    fn open(&self) {
        // Release: the memory is there for all who enter.
        self.gate.fetch_and(!CLOSED, Ordering::Release);
        self.state.change(|state| *state = State::Device);
    }

    /// Whether the memory has to come back before it can be used.
    pub fn is_away(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Changes with every user that enters.
    pub fn entries(&self) -> u64 {
        self.gate.load(Ordering::Relaxed) / ENTRY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::time::{Duration, Instant};

    const NEVER: fn() -> Result<(), String> = || panic!("the memory is there");

    #[test]
    fn memory_leaves_only_when_nobody_is_inside_and_the_first_who_enters_brings_it_back() {
        let residency = Residency::default();
        let before = residency.entries();
        let entered = residency.enter(NEVER).unwrap();
        assert!(residency.close().is_none() && residency.entries() != before);
        drop(entered);
        // Whoever changes its mind leaves all as it was.
        let leaving = residency.close().unwrap();
        assert!(residency.close().is_none() && residency.is_away());
        drop(leaving);
        drop(residency.enter(NEVER).unwrap());
        residency.close().unwrap().has_left();
        assert!(residency.close().is_none() && residency.is_away());
        let mut times = 0;
        let entered = residency.enter(|| {
            times += 1;
            Ok(())
        });
        drop(entered.unwrap());
        assert!(times == 1 && !residency.is_away() && residency.close().is_some());
    }

    #[test]
    fn what_is_lost_is_lost_for_all_who_enter() {
        let residency = Residency::default();
        residency.close().unwrap().has_left();
        for _ in 0..2 {
            let lost = residency.enter(|| Err("no memory".to_owned())).unwrap_err();
            assert_eq!(&*lost.0, "no memory");
        }
        let residency = Residency::default();
        residency.close().unwrap().lose("half way");
        assert_eq!(&*residency.enter(NEVER).unwrap_err().0, "half way");
    }

    #[test]
    fn there_are_no_users_while_the_memory_is_away() {
        let (residency, is_away, returns) = (Residency::default(), AtomicBool::new(false), AtomicU32::new(0));
        let bring_back = || {
            assert!(is_away.swap(false, Ordering::SeqCst), "it is brought back once");
            returns.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let end = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while returns.load(Ordering::SeqCst) < 100 && Instant::now() < end {
                        let entered = residency.enter(bring_back).unwrap();
                        assert!(!is_away.load(Ordering::SeqCst));
                        drop(entered);
                        // So that there are moments without users.
                        std::thread::sleep(Duration::from_micros(50));
                    }
                });
            }
            scope.spawn(|| {
                while returns.load(Ordering::SeqCst) < 100 && Instant::now() < end {
                    if let Some(leaving) = residency.close() {
                        is_away.store(true, Ordering::SeqCst);
                        leaving.has_left();
                    }
                }
            });
        });
        assert!(returns.load(Ordering::SeqCst) >= 100);
    }
}
