//! A line on the program's standard error about what was refused, where `CAUSEWAY_LOG` wants it.

use causeway_config::read::PROCESS;
use causeway_config::table::LOG;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says, once in a process, that something is not forwarded. Most programs only try, so it is no error.
pub fn refused(function: &str, result: &str, what: &str) {
    static IS_ENABLED: OnceLock<bool> = OnceLock::new();
    static LOGGED: AtomicBool = AtomicBool::new(false);
    let enabled = || matches!(PROCESS.text(&LOG).as_deref(), Some("info" | "debug" | "trace"));
    if *IS_ENABLED.get_or_init(enabled) && !LOGGED.swap(true, Ordering::Relaxed) {
        // A program without standard error learns it from the result.
        let _ = writeln!(
            std::io::stderr(),
            "causeway: {what} is not forwarded to the server: {function} answers {result}, as does everything else of this \
             kind; the program has to do without"
        );
    }
}
