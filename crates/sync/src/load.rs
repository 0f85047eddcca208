//! CPU load of this machine: whether its processors are overcommitted.
//!
//! A limit of time is about the other end of a connection, and not meant for a machine on which nobody gets to run.

/// How many threads that want to run there must be to each processor. Beside each other, two are ordinary.
const MANY: usize = 3;

/// Whether many more threads want to run than there are processors. False where the system does not say.
pub fn is_high() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    load.ok().and_then(|load| runnable(&load)).is_some_and(|runnable| runnable >= MANY * processors)
}

/// How many threads run or could, of what `/proc/loadavg` says: three averages, `runnable/all`, the newest process.
fn runnable(load: &str) -> Option<usize> {
    load.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runnable_threads_are_read() {
        assert_eq!(runnable("18.55 17.49 12.11 26/1045 14001\n"), Some(26));
        assert_eq!(runnable("18.55 17.49 12.11"), None);
        assert_eq!(runnable("0 0 0 x/5 1"), None);
    }
}
