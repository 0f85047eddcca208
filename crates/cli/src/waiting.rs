//! Notice of a wait: a line on standard error where a server has said nothing for some seconds.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};

/// After which time it is told that something is waited for, and after which it is told again: behind the 5 s that a server
/// has for its first bytes, so that another program at its port is an error alone.
const NOTICE_INTERVAL: Duration = Duration::from_secs(6);

/// Does what waits for a server, and says so on standard error while that lasts.
pub fn with_notice<T>(server: &impl Display, work: impl FnOnce() -> T) -> T {
    let server = server.to_string();
    notify_while(NOTICE_INTERVAL, work, || {
        // Without a standard error it cannot be said.
        let _ = writeln!(io::stderr(), "causeway: still waiting for a response from {server} ...");
    })
}

fn notify_while<T>(interval: Duration, work: impl FnOnce() -> T, mut notify: impl FnMut() + Send) -> T {
    let (end, ended) = bounded::<()>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(interval) {
                notify();
            }
        });
        let result = work();
        drop(end);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_of_until_it_ends() {
        let (sender, notices) = bounded(100);
        let waited = notify_while(
            Duration::from_millis(1),
            || [notices.recv().unwrap(), notices.recv().unwrap()],
            || {
                // Nobody reads those that are too many.
                let _ = sender.try_send("waiting");
            },
        );
        assert_eq!(waited, ["waiting"; 2]);
        let quick = notify_while(Duration::from_secs(1000), || 7, || panic!("it has ended at once"));
        assert_eq!(quick, 7);
    }
}
