//! Lines on the program's standard error, each beginning with `causeway:`, as `CAUSEWAY_LOG` says.
//!
//! The levels are those of the driver library. Only trouble with the server is an error here; `trace` names
//! every call with what it answered.

use causeway_config::read::PROCESS;
use causeway_config::table::LOG;
use causeway_wire::text::{MAX_LINE_BYTES, printable};
use core::fmt;
use std::sync::OnceLock;

/// How important a line is; the levels of `CAUSEWAY_LOG` include those before them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Off,
    Error,
    Info,
    Trace,
}

/// Whether lines of `level` are wanted.
pub fn is_enabled(level: Level) -> bool {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    let enabled = LEVEL.get_or_init(|| match PROCESS.text(&LOG).as_deref() {
        Some("off") => Level::Off,
        Some("info" | "debug") => Level::Info,
        Some("trace") => Level::Trace,
        _ => Level::Error,
    });
    *enabled >= level
}

/// Writes one line, if lines of `level` are wanted.
pub fn write(level: Level, text: fmt::Arguments<'_>) {
    if !is_enabled(level) {
        return;
    }
    // What a server says of itself may be in it.
    let line = format!("causeway: {}\n", printable(&text.to_string(), MAX_LINE_BYTES));
    // SAFETY: the buffer is valid for its length. A failed write has nowhere to be reported.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}
