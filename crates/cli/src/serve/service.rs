//! Service of systemd: what it is told by a server that it runs.

use sd_notify::NotifyState;

/// Whether this process is one.
pub fn is_service() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Tells systemd; elsewhere nobody is told.
pub fn tell(states: &[NotifyState<'_>]) {
    // Whoever does not listen need not know.
    let _ = sd_notify::notify(states);
}
