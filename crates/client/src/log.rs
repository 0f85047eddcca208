//! Lines on the program's standard error, each beginning with `causeway:`.
//!
//! The level comes from `CAUSEWAY_LOG`. A line is written with one `write`, without locks, so that logging is
//! safe in a forked child and during exit, and so that lines of several threads do not mix.

use causeway_config::read::PROCESS;
use causeway_config::table::LOG;
use causeway_wire::text::{MAX_LINE_BYTES, printable};
use core::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// How much is logged; a level includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Level {
    /// Nothing at all.
    Off,
    /// What keeps the program from working as asked; the default.
    Error,
    /// Also the connection and failed calls.
    Info,
    /// Also decisions of the library.
    Debug,
    /// Also every call with its result.
    Trace,
}

impl Level {
    /// The level of this name.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "off" => Some(Self::Off),
            "error" => Some(Self::Error),
            "info" => Some(Self::Info),
            "debug" => Some(Self::Debug),
            "trace" => Some(Self::Trace),
            _ => None,
        }
    }
}

const UNREAD: u8 = u8::MAX;
static LEVEL: AtomicU8 = AtomicU8::new(UNREAD);

/// Whether lines of `level` are wanted.
#[inline]
pub fn is_enabled(level: Level) -> bool {
    let mut enabled = LEVEL.load(Ordering::Relaxed);
    if enabled == UNREAD {
        enabled = read_level();
    }
    enabled >= level as u8
}

#[cold]
fn read_level() -> u8 {
    // One that makes no sense keeps the session from being opened, which is then said.
    let level = PROCESS.text(&LOG).as_deref().and_then(Level::parse);
    let enabled = level.unwrap_or(Level::Error) as u8;
    LEVEL.store(enabled, Ordering::Relaxed);
    enabled
}

/// Writes one line if lines of `level` are wanted.
pub fn write(level: Level, text: fmt::Arguments<'_>) {
    if !is_enabled(level) {
        return;
    }
    // What a server says of itself may be in it.
    let line = format!("causeway: {}\n", printable(&text.to_string(), MAX_LINE_BYTES));
    // SAFETY: the buffer is valid for its length. A failed write has nowhere to be reported.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

macro_rules! error {
    ($($text:tt)*) => { $crate::log::write($crate::log::Level::Error, format_args!($($text)*)) };
}
macro_rules! info {
    ($($text:tt)*) => { $crate::log::write($crate::log::Level::Info, format_args!($($text)*)) };
}
macro_rules! debug {
    ($($text:tt)*) => { $crate::log::write($crate::log::Level::Debug, format_args!($($text)*)) };
}
pub(crate) use {debug, error, info};

/// Refuses one use of a supported entry point, and says so the first time it happens.
macro_rules! refuse_use {
    ($($text:tt)*) => { $crate::log::refuse_at!($crate::log::Level::Error, $($text)*) };
}

/// Refuses what programs try out and have another way for, since most machines refuse it natively, too: that
/// is news only for who asks for more than errors.
macro_rules! refuse_probe {
    ($($text:tt)*) => { $crate::log::refuse_at!($crate::log::Level::Info, $($text)*) };
}

macro_rules! refuse_at {
    ($level:expr, $($text:tt)*) => {{
        static LOGGED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if !LOGGED.swap(true, std::sync::atomic::Ordering::Relaxed) {
            $crate::log::write($level, format_args!("not supported: {}", format_args!($($text)*)));
        }
        causeway_api::sys::CUresult::CUDA_ERROR_NOT_SUPPORTED
    }};
}
pub(crate) use {refuse_at, refuse_probe, refuse_use};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_known_by_name_and_ordered() {
        assert_eq!(Level::parse(" debug "), Some(Level::Debug));
        assert_eq!(Level::parse("loud"), None);
        assert!(Level::Trace > Level::Error && Level::Off < Level::Error);
    }
}
