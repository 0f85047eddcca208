//! Delays by chance wherever one thread or process hands over to another, so that tests meet the orders that a busy machine gives once a day.
//!
//! `CAUSEWAY_TEST_DELAYS=PER_MILLE:MICROSECONDS` has so many hand-overs in a thousand wait, each up to so long. It means something
//! in builds with debug assertions alone: in a release [`inject`] is empty, and the variable is not read.

/// Waits by chance, in a test that asks for it. To be called where nothing is locked that others need to go on.
#[inline(always)]
pub fn inject() {
    #[cfg(debug_assertions)]
    debug::inject();
}

#[cfg(debug_assertions)]
mod debug {
    use causeway_config::read::PROCESS;
    use causeway_config::table::TEST_DELAYS;
    use core::cell::Cell;
    use std::hash::{BuildHasher as _, RandomState};
    use std::sync::LazyLock;
    use std::time::Duration;

    /// How often, of a thousand times, and the longest delay in microseconds.
    type Delays = (u64, u64);

    static DELAYS: LazyLock<Option<Delays>> =
        LazyLock::new(|| PROCESS.text(&TEST_DELAYS).and_then(|text| parse(&text)));

    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0) | 1);
    }

    fn parse(text: &str) -> Option<Delays> {
        let (per_mille, microseconds) = text.split_once(':')?;
        Some((per_mille.parse().ok()?, microseconds.parse().ok()?))
    }

    pub fn inject() {
        let Some((per_mille, max_delay)) = *DELAYS else { return };
        // A thread that is ending has no state any more.
        let random = STATE.try_with(|state| {
            // Xorshift: Marsaglia, Journal of Statistical Software 8 (14), 2003.
            let mut next = state.get();
            next ^= next << 13;
            next ^= next >> 7;
            next ^= next << 17;
            state.set(next);
            next
        });
        let Ok(random) = random else { return };
        if random % 1000 < per_mille {
            std::thread::sleep(Duration::from_micros((random >> 32) % max_delay.max(1)));
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_makes_no_sense_delays_nothing() {
            assert_eq!(parse("50:2000"), Some((50, 2000)));
            assert!(["", "50", "50:", ":1", "a:b", "1:2:3"].iter().all(|text| parse(text).is_none()));
            inject();
        }
    }
}
