//! Logging: where log lines go, and how they look.
//!
//! | module | contents |
//! | --- | --- |
//! | `lines` | Log lines: an event as one line that nothing in it can break |
//! | `limit` | Log limit: a flood of lines becomes a bounded log that counts what is missing |
//! | `rate` | Rate limit of log lines of one kind |

mod limit;
mod lines;
mod rate;

use std::ffi::OsString;
use std::fs::File;
use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;

pub use limit::AtEnd;
use limit::Limit;
use lines::JsonLines;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The least important lines that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Only what failed.
    Error,
    /// Also what a server's owner should look at.
    Warn,
    /// Also the beginning and end of each session.
    Info,
    /// Also what developers want to know.
    Debug,
    /// Everything.
    Trace,
}

/// The options about logging.
#[derive(Debug, Clone, Copy, Args)]
pub struct Options {
    /// Format of log lines on standard error.
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub log: Format,
    /// Log level.
    #[arg(long, value_enum, default_value_t = Level::Info, value_name = "LEVEL")]
    pub log_level: Level,
}

impl Options {
    /// The arguments of a worker that logs likewise.
    pub fn of_worker(&self) -> Vec<OsString> {
        let name = |value: Option<clap::builder::PossibleValue>| {
            OsString::from(value.expect("no value is skipped").get_name())
        };
        vec![
            "worker".into(),
            "--log".into(),
            name(self.log.to_possible_value()),
            "--log-level".into(),
            name(self.log_level.to_possible_value()),
        ]
    }
}

/// Sends log lines to standard error from now on, and panics with them. What comes too often is left out and counted;
/// when the result is dropped, what has not been told of it is.
///
/// The lines go through a descriptor of their own: in a worker the driver's words on standard error are the client's.
pub fn start(options: &Options) -> AtEnd {
    let level = match options.log_level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    // Libraries speak up only when something is wrong: the code generator would print every function that
    // it makes.
    let filter = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("causeway", level);
    // https://no-color.org
    let has_colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let ansi = has_colors && std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_target(false).with_ansi(ansi);
    let writer = match std::io::stderr().as_fd().try_clone_to_owned() {
        Ok(descriptor) => BoxMakeWriter::new(Arc::new(File::from(descriptor))),
        Err(_) => BoxMakeWriter::new(std::io::stderr),
    };
    let lines = match options.log {
        Format::Text => lines.fmt_fields(lines::fields()).with_writer(writer).boxed(),
        Format::Json => lines.json().with_writer(JsonLines(writer)).boxed(),
    };
    let limit = Limit::default();
    let at_end = limit.at_end();
    tracing_subscriber::registry().with(lines).with(filter).with(limit).init();
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    at_end
}

/// The same, unless it is done already.
pub fn start_once(options: &Options) -> Option<AtEnd> {
    static IS_STARTED: AtomicBool = AtomicBool::new(false);
    (!IS_STARTED.swap(true, Ordering::Relaxed)).then(|| start(options))
}
