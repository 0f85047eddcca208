//! Service of systemd: notifications to it by a server that it runs.

use std::time::Duration;

use causeway_server::broker::RunningBroker;
use sd_notify::NotifyState;

/// Whether this process is one.
pub fn is_service() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Notifies systemd; does nothing elsewhere.
pub fn report(states: &[NotifyState<'_>]) {
    // Whoever does not listen need not know.
    let _ = sd_notify::notify(states);
}

/// Interval of status notifications to systemd.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// How much longer systemd waits each time for a server that it has told to end, and that is drained.
const STOP_EXTENSION: Duration = Duration::from_secs(30);

/// Regular notification to systemd: how the server is, where that has changed, and, where it watches the
/// service, that it works, as long as it does.
pub struct Reports {
    status: String,
    is_watched: bool,
}

impl Reports {
    /// As the environment says, and how often.
    pub fn new() -> (Self, Duration) {
        let watchdog = sd_notify::watchdog_enabled();
        // Twice in the time that it has, as systemd recommends.
        let interval = watchdog.map_or(STATUS_INTERVAL, |within| STATUS_INTERVAL.min(within / 2));
        (Self { status: String::new(), is_watched: watchdog.is_some() }, interval)
    }

    /// Tells it; `is_ending` where systemd has asked for the server's end and waits for that, or may do so: the server is
    /// drained.
    pub fn report(&mut self, broker: &RunningBroker, is_ending: bool) {
        if is_ending {
            // Until the next time, and for the workers' end: systemd's limit is not made for sessions.
            report(&[NotifyState::ExtendTimeoutUsec(STOP_EXTENSION.as_micros() as u32)]);
        }
        if self.is_watched && broker.works() {
            report(&[NotifyState::Watchdog]);
        }
        let status = broker.state();
        if status != self.status {
            report(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }
}
