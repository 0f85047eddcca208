//! Errors of pools.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The most GPUs of a lease.
pub const MAX_GPUS: usize = 1024;

/// Why no GPU of a pool can be had.
#[derive(Debug, Error)]
pub enum PoolError {
    /// The name makes no sense.
    #[error(
        "`{0}` is no pool: pool:NAME or pool:NAME:GPUS, where a name has letters, digits, `-`, `_` and `.`, or is the path of \
         the pool's folder, and GPUS is a number from 1 to {MAX_GPUS}"
    )]
    Name(String),
    /// There is no such pool.
    #[error(
        "there is no pool `{name}`: write the addresses of its servers, a line for each, to {}{}", path.display(),
        there_are(.others)
    )]
    Unknown {
        /// Its name.
        name: String,
        /// Where its servers would be listed.
        path: PathBuf,
        /// Those that there are.
        others: Vec<String>,
    },
    /// A file of it cannot be used.
    #[error("pool `{name}`: {} cannot be used: {cause}", path.display())]
    File {
        /// Its name.
        name: String,
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Its list of servers makes no sense.
    #[error("pool `{name}`: {text}")]
    List {
        /// Its name.
        name: String,
        /// What is wrong.
        text: String,
    },
    /// None of its servers can be used.
    #[error("no server of the pool `{name}` can be used: {}", reasons.join("; "))]
    Silent {
        /// Its name.
        name: String,
        /// Why, for each.
        reasons: Vec<String>,
    },
    /// Others have the GPUs.
    #[error(
        "the pool `{name}` has {free} of {all} GPUs free, and {requested} are requested{}{}", held_by(.holders),
        silent(.reasons)
    )]
    NotFree {
        /// Its name.
        name: String,
        /// How many are free.
        free: usize,
        /// How many there are.
        all: usize,
        /// How many are requested.
        requested: usize,
        /// Who has the others.
        holders: Vec<String>,
        /// The servers that cannot be used, and why.
        reasons: Vec<String>,
    },
    /// A pool stands beside something else.
    #[error("`{0}` names more than one pool: a pool must be the only thing that --on or CAUSEWAY_ON names")]
    NotAlone(String),
}

fn there_are(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) }
}

fn held_by(holders: &[String]) -> String {
    if holders.is_empty() { String::new() } else { format!(": {}", holders.join(", ")) }
}

fn silent(reasons: &[String]) -> String {
    if reasons.is_empty() { String::new() } else { format!("; not usable: {}", reasons.join("; ")) }
}
