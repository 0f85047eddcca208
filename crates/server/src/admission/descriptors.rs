//! File descriptor limit of this process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More are of no use to the broker, and some programs walk through all that they could have.
const MAX_DESCRIPTORS: u64 = 1 << 20;

/// Raises the limit of this process, and of those that it starts, as far as the system lets it, and returns
/// it.
///
/// The usual soft limit of 1024 is kept low for programs that call `select`; nothing here does.
pub fn raise_limit() -> io::Result<usize> {
    let found = getrlimit(Resource::Nofile);
    // No limit at all is a limit that is not given.
    let reachable = found.maximum.unwrap_or(MAX_DESCRIPTORS).min(MAX_DESCRIPTORS);
    let now = found.current.unwrap_or(MAX_DESCRIPTORS);
    if now < reachable {
        setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), maximum: found.maximum })?;
    }
    Ok(usize::try_from(now.max(reachable).min(MAX_DESCRIPTORS)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_system_allows() {
        let limit = raise_limit().unwrap();
        let found = getrlimit(Resource::Nofile);
        assert!(found.current.is_none_or(|current| current >= limit as u64));
        assert_eq!(limit as u64, found.maximum.unwrap_or(MAX_DESCRIPTORS).min(MAX_DESCRIPTORS));
    }
}
