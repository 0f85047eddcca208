//! A worker that is ready before its client comes.
//!
//! Starting the driver takes longer than everything else at the start of a session, and does not depend on
//! the client unless that sets variables which the driver reads. So one worker has done it already; when a
//! client takes it, the next one is prepared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_sandbox::Purpose;
use causeway_sync::threads;

use super::gpu_state::GpuState;
use super::spawn::Spawner;
use crate::back_end::GpuChoice;
use crate::broker::spawn::Started;
use crate::locks::{Mutex, rank};
use crate::protocol::messages::{self, ControlError, ToBroker, ToWorker};

/// Keeps a worker ready.
pub struct PrestartedWorkers {
    spawner: Arc<Spawner>,
    gpu: GpuChoice,
    /// Whether one has been asked to start the GPU.
    is_requested: AtomicBool,
    ready: Mutex<rank::PrestartedWorker, Ready>,
    /// Whether the one that is ready could not start the GPU.
    failed: AtomicBool,
    /// When one was last prepared because another one had failed.
    tried: Mutex<rank::Leaf, Instant>,
}

/// How long a server waits with the next worker when one could not start the GPU.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

enum Ready {
    /// Workers are started when they are needed only, or the broker ends.
    Never,
    /// None is ready yet.
    NotYet,
    /// This one waits for a client.
    PrestartedWorker(Started),
}

impl PrestartedWorkers {
    /// Keeps one worker ready from now on, if `is_enabled`.
    pub fn new(spawner: Arc<Spawner>, gpu: GpuChoice, is_enabled: bool) -> Arc<Self> {
        let ready = Mutex::new(if is_enabled { Ready::NotYet } else { Ready::Never });
        let spares = Arc::new(Self {
            spawner,
            gpu,
            is_requested: AtomicBool::new(false),
            ready,
            failed: AtomicBool::new(false),
            tried: Mutex::new(Instant::now()),
        });
        spares.prepare();
        spares
    }

    /// Takes the worker that is ready, if there is one and it still runs.
    pub fn take(self: &Arc<Self>) -> Option<Started> {
        let mut spare = {
            let mut ready = self.ready.lock();
            match core::mem::replace(&mut *ready, Ready::NotYet) {
                Ready::PrestartedWorker(spare) => spare,
                other => {
                    *ready = other;
                    return None;
                }
            }
        };
        self.failed.store(false, Ordering::Relaxed);
        self.prepare();
        matches!(spare.child.try_wait(), Ok(None)).then_some(spare)
    }

    /// Hears from the worker that is ready how starting the GPU went. Where it went wrong, or the worker has ended,
    /// another one tries again, unless that has been a moment ago.
    pub fn look(self: &Arc<Self>, gpu: &GpuState) {
        let failed = {
            let mut ready = self.ready.lock();
            let Ready::PrestartedWorker(spare) = &mut *ready else { return };
            let mut failed = self.failed.load(Ordering::Relaxed);
            if spare.control.has_message(false) {
                failed = match messages::receive::<ToBroker>(&spare.control) {
                    Ok((ToBroker::Prepared { failure }, _)) => {
                        let failed = failure.is_some();
                        gpu.report(failure.map_or(Ok(()), Err));
                        failed
                    }
                    // It has ended, or says what nobody has asked.
                    _ => {
                        gpu.report(Err(
                            "the worker that started it has ended; see the server's log".to_owned()
                        ));
                        true
                    }
                };
            }
            self.failed.store(failed, Ordering::Relaxed);
            let mut tried = self.tried.lock();
            if !failed || tried.elapsed() < RETRY_INTERVAL {
                return;
            }
            *tried = Instant::now();
            match core::mem::replace(&mut *ready, Ready::NotYet) {
                Ready::PrestartedWorker(spare) => spare,
                _ => return,
            }
        };
        self.failed.store(false, Ordering::Relaxed);
        failed.discard();
        self.prepare();
    }

    /// Ends the worker that is ready, and prepares no other.
    pub fn end(&self) {
        if let Ready::PrestartedWorker(spare) = core::mem::replace(&mut *self.ready.lock(), Ready::Never) {
            spare.discard();
        }
    }

    fn prepare(self: &Arc<Self>) {
        if matches!(*self.ready.lock(), Ready::Never) {
            return;
        }
        let spares = Arc::clone(self);
        let started = threads::spawn("spare", move || match spares.start() {
            Ok(spare) => spares.offer(spare),
            Err(error) => tracing::warn!("cannot prestart a worker: {error}"),
        });
        if let Err(error) = started {
            tracing::warn!("cannot prestart a worker: {error}");
        }
    }

    fn start(&self) -> Result<Started, ControlError> {
        let spare = self.spawner.spawn(Purpose::Clients, Vec::new())?;
        let is_first = !self.is_requested.swap(true, Ordering::Relaxed);
        match messages::send(&spare.control, &ToWorker::Prepare { gpu: self.gpu, is_first }, None) {
            Ok(()) => Ok(spare),
            Err(error) => {
                spare.discard();
                Err(error)
            }
        }
    }

    /// Makes a worker the one that is ready, unless none is needed any more.
    fn offer(&self, spare: Started) {
        let mut ready = self.ready.lock();
        if matches!(*ready, Ready::NotYet) {
            *ready = Ready::PrestartedWorker(spare);
        } else {
            drop(ready);
            spare.discard();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::BrokerConfig;
    use crate::broker::totals::Totals;
    use std::time::{Duration, Instant};

    /// Keeps `cat` ready, which waits for its standard input to end.
    fn spares(is_enabled: bool) -> Arc<PrestartedWorkers> {
        let config = BrokerConfig {
            worker_program: "/bin/cat".into(),
            worker_arguments: Vec::new(),
            ..BrokerConfig::new(causeway_api::calls::COMMANDS)
        };
        let (spawner, _) =
            Spawner::start(&config, Arc::new(causeway_sandbox::Plan::off()), Arc::new(Totals::new()))
                .unwrap();
        PrestartedWorkers::new(Arc::new(spawner), GpuChoice::Cpu, is_enabled)
    }

    fn take_in_time(spares: &Arc<PrestartedWorkers>) -> Option<Started> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if let Some(spare) = spares.take() {
                return Some(spare);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    #[test]
    fn whoever_takes_the_worker_leaves_another_to_the_next() {
        let spares = spares(true);
        let (first, second) = (take_in_time(&spares).unwrap(), take_in_time(&spares).unwrap());
        assert_ne!(first.child.id(), second.child.id());
        first.discard();
        second.discard();
        spares.end();
        assert!(spares.take().is_none());
    }

    #[test]
    fn nothing_is_kept_ready_unless_wanted() {
        let spares = spares(false);
        std::thread::sleep(Duration::from_millis(20));
        assert!(spares.take().is_none());
    }
}
