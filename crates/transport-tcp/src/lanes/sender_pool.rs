//! Sender thread pool: how many threads send, look for work, or sleep.
//!
//! Counted under the lock of the lanes, and exactly: a thread that is not known to be asleep is never woken.

/// The threads that send.
#[derive(Debug, Default)]
pub(super) struct SenderPool {
    threads: usize,
    /// Those that look for work, and find it by themselves.
    polling: usize,
    /// Those that sleep until they are woken.
    asleep: usize,
}

/// What has to be done for work that has come.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// So many threads have to be woken; they count as working already.
    pub wake: usize,
    /// Whether a thread has to be started; it counts as working already.
    pub start: bool,
}

impl SenderPool {
    /// Threads that are polling for work.
    pub fn polling(&self) -> usize {
        self.polling
    }

    /// A thread has no work and looks for some.
    pub fn poll(&mut self) {
        self.polling += 1;
    }

    /// A thread that looked has found work.
    pub fn found(&mut self) {
        self.polling -= 1;
    }

    /// A thread that looked goes to sleep, before anybody else can take the lock.
    pub fn sleep(&mut self) {
        self.polling -= 1;
        self.asleep += 1;
    }

    /// Calls up to `max` threads, so that no more than `required` work, of the `limit` that there may be.
    pub fn call(&mut self, max: usize, required: usize, limit: usize) -> Call {
        let working = self.threads - self.polling - self.asleep;
        let required = max.min(required.saturating_sub(working)).saturating_sub(self.polling);
        let wake = required.min(self.asleep);
        let start = required > 0 && self.asleep == 0 && self.threads < limit;
        self.asleep -= wake;
        self.threads += usize::from(start);
        Call { wake, start }
    }

    /// The thread that was to be started could not be; whether there are others.
    pub fn not_started(&mut self) -> bool {
        self.threads -= 1;
        self.threads > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn threads_are_started_while_all_have_work_and_woken_afterwards() {
        let mut pool = SenderPool::default();
        let started = Call { wake: 0, start: true };
        assert_eq!(pool.call(4, 2, 8), started);
        assert_eq!(pool.call(4, 2, 8), started);
        assert_eq!(pool.call(4, 2, 8), Call::default(), "two are wanted");
        assert_eq!(pool.call(4, 8, 2), Call::default(), "two are all there may be");
        pool.poll();
        assert_eq!(pool.call(1, 2, 8), Call::default(), "one looks, and comes by itself");
        pool.sleep();
        assert_eq!(pool.call(1, 2, 8), Call { wake: 1, start: false });
        assert_eq!(pool.call(1, 2, 8), Call::default(), "it is on its way");
        assert_eq!(pool.call(1, 3, 8), started);
        assert!(pool.not_started(), "the others go on");
        assert_eq!(pool.call(1, 3, 8), started, "and the next call tries again");
        assert!(
            pool.not_started() && pool.not_started() && !pool.not_started(),
            "without any there is nobody"
        );
    }

    proptest! {
        /// Whatever comes when: with work to do and nobody at it, somebody is woken or started.
        #[test]
        fn work_is_never_left_to_sleeping_threads(
            steps in prop::collection::vec((0_u8..4, 1_usize..5, 1_usize..9), 1..200),
        ) {
            let mut pool = SenderPool::default();
            for (step, max, required) in steps {
                let working = pool.threads - pool.polling - pool.asleep;
                match step {
                    0 if working > 0 => pool.poll(),
                    1 if pool.polling > 0 => pool.sleep(),
                    2 if pool.polling > 0 => pool.found(),
                    _ => {
                        let awake = working + pool.polling;
                        let call = pool.call(max, required, 8);
                        prop_assert!(awake > 0 || call.wake > 0 || call.start);
                        prop_assert!(call.wake <= max && (call.wake == 0 || !call.start));
                    }
                }
                prop_assert!(pool.polling + pool.asleep <= pool.threads && pool.threads <= 8);
            }
        }
    }
}
