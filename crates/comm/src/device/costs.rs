//! Costs of the initiators, corrected by what messages take. A pure model: times are arguments.
//!
//! The proxy times batches that it begins when nothing else is in flight; kernels time long copies of their
//! threads. Each measurement moves a cost by an eighth of the difference, and one that is far off by no more
//! than one that is four times as high or low: a thread that was not scheduled must not decide.

use crate::device::choice::{self, Copies, Curves, Initiator, InitiatorPolicy};
use crate::device::layout::{CLASSES, INITIATORS, SCOPES};

/// How much of the difference one measurement moves a cost by.
const WEIGHT: f64 = 0.125;

/// How many times as high, or as low, a measurement counts at most.
const MAX_RATIO: f64 = 4.0;

/// Bytes of a batch up to which its time is that of its way, and from which on it is that of its bytes.
const SHORT_BYTES: u64 = 4096;
const LONG_BYTES: u64 = 1 << 20;

/// Copies of a batch from which on its time says how long one keeps the next one waiting.
const MANY: u32 = 8;

/// A batch that was begun when nothing else was in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batch {
    /// Copies that the lane was asked for.
    pub copies: u32,
    /// Bytes of all.
    pub bytes: u64,
    /// From the first being asked for to the end of the last.
    pub nanoseconds: f64,
}

/// What the initiators cost, as far as is known by now.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    curves: [Curves; SCOPES],
    copies: Copies,
    /// Measurements of the proxy's copies, and of copies by threads by scope.
    proxy_measurements: u64,
    direct_measurements: [u64; SCOPES],
    /// Of ranks that a network card reaches; none where there are no such.
    network: Curves,
    network_measurements: [u64; INITIATORS],
    /// Changes with each measurement.
    version: u64,
}

fn moved(known: f64, measured: f64) -> f64 {
    let measured = measured.clamp(known / MAX_RATIO, known * MAX_RATIO);
    known + WEIGHT * (measured - known)
}

impl Costs {
    /// From estimates, and what copies of a lane cost, if that was measured before.
    pub fn new(estimates: &[Curves; SCOPES], copies: Option<Copies>) -> Self {
        let of_proxy = estimates[0].0.iter().find(|(initiator, _)| *initiator == Initiator::Proxy);
        let estimated = of_proxy.map(|(_, curve)| Copies::of_curve(curve));
        let without = Copies { latency: 1.0, post: 1.0, bandwidth: 1.0 };
        let curves = copies.map_or_else(|| estimates.clone(), |copies| copies.correct(estimates));
        let copies = copies.or(estimated).unwrap_or(without);
        Self {
            curves,
            copies,
            proxy_measurements: 0,
            direct_measurements: [0; SCOPES],
            network: Curves::default(),
            network_measurements: [0; INITIATORS],
            version: 0,
        }
    }

    /// A network card reaches ranks, for which the initiators cost this.
    pub fn set_network(&mut self, curves: Curves) {
        self.network = curves;
    }

    /// What they cost by now.
    pub fn network(&self) -> &Curves {
        &self.network
    }

    /// Measurements of each initiator's latency to ranks that a network card reaches.
    pub fn network_measurements(&self, initiator: Initiator) -> u64 {
        self.network_measurements[initiator.code()]
    }

    /// The table for ranks that a network card reaches.
    pub fn network_table(&self, policy: InitiatorPolicy) -> [u64; CLASSES] {
        choice::network_table(&self.network, policy)
    }

    /// Corrects what a short message costs by an initiator, to ranks that a network card reaches: so many that each
    /// were the only one took so long together.
    pub fn observe_network(&mut self, initiator: Initiator, count: u64, nanoseconds: f64) {
        let is_sound = nanoseconds.is_finite() && nanoseconds > 0.0 && count > 0;
        let of_initiator = self.network.0.iter_mut().find(|(other, _)| *other == initiator);
        let Some((_, curve)) = of_initiator.filter(|_| is_sound) else { return };
        curve.latency = moved(curve.latency, nanoseconds / count as f64);
        self.network_measurements[initiator.code()] += 1;
        self.version += 1;
    }

    /// The curves by now.
    pub fn curves(&self) -> &[Curves; SCOPES] {
        &self.curves
    }

    /// What copies of a lane cost by now, if a batch was measured.
    pub fn corrected_copies(&self) -> Option<Copies> {
        (self.proxy_measurements > 0).then_some(self.copies)
    }

    /// Measurements so far, of the proxy's copies and of threads' copies by scope.
    pub fn measurements(&self) -> (u64, [u64; SCOPES]) {
        (self.proxy_measurements, self.direct_measurements)
    }

    /// A number that changes when the costs do.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The table that kernels read.
    pub fn table(&self, policy: InitiatorPolicy) -> [[u64; CLASSES]; SCOPES] {
        choice::table(&self.curves, policy)
    }

    /// Corrects what the proxy costs by a batch.
    pub fn observe_batch(&mut self, batch: Batch) {
        let Batch { copies, bytes, nanoseconds } = batch;
        if !(nanoseconds.is_finite() && nanoseconds > 0.0) || copies == 0 {
            return;
        }
        let known = self.copies;
        if bytes >= LONG_BYTES {
            // Without the way there; a batch that is faster than its way says little of its bytes.
            let moving = (nanoseconds - known.latency).max(nanoseconds / MAX_RATIO);
            self.copies.bandwidth = moved(known.bandwidth, bytes as f64 / moving);
        } else if bytes > SHORT_BYTES * u64::from(copies) {
            return;
        } else if copies == 1 {
            self.copies.latency = moved(known.latency, nanoseconds);
        } else if copies >= MANY {
            let waiting = (nanoseconds - known.latency) / f64::from(copies - 1);
            // A lane that takes them all at once costs no more than asking.
            self.copies.post = moved(known.post.max(1.0), waiting.max(1.0));
        } else {
            return;
        }
        self.curves = self.copies.correct(&self.curves);
        self.proxy_measurements += 1;
        self.version += 1;
    }

    /// Corrects what copies by threads of a scope cost: of so many bytes that took so long.
    pub fn observe_direct(&mut self, scope: usize, bytes: u64, nanoseconds: u64) {
        let Some(curves) = self.curves.get_mut(scope).filter(|_| bytes > 0 && nanoseconds > 0) else {
            return;
        };
        let mut of_direct = curves.0.iter_mut().filter(|(initiator, _)| *initiator == Initiator::Direct);
        let Some((_, curve)) = of_direct.next() else { return };
        curve.bandwidth = moved(curve.bandwidth, bytes as f64 / nanoseconds as f64);
        self.direct_measurements[scope] += 1;
        self.version += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        let copies = Copies { latency: 6_000.0, post: 1_000.0, bandwidth: 500.0 };
        Costs::new(&choice::default_curves(), Some(copies))
    }

    /// The first class of messages of a block alone that the proxy is cheaper for.
    fn crossing(costs: &Costs) -> usize {
        let block = &costs.curves()[2];
        let is_by_proxy = |class: &usize| {
            block.choose(choice::bytes_of(*class), 0.0).unwrap().initiator == Initiator::Proxy
        };
        (0..CLASSES).find(is_by_proxy).unwrap()
    }

    #[test]
    fn a_proxy_that_takes_longer_than_was_thought_is_taken_for_longer_messages_alone() {
        let mut slower = costs();
        for _ in 0..64 {
            slower.observe_batch(Batch { copies: 1, bytes: 8, nanoseconds: 60_000.0 });
        }
        assert!(crossing(&slower) > crossing(&costs()));
        let copies = slower.corrected_copies().unwrap();
        assert!((copies.latency - 60_000.0).abs() < 600.0, "{copies:?}");
        assert_eq!((copies.post, copies.bandwidth), (1_000.0, 500.0), "of which nothing was measured");
        let changed = slower.table(InitiatorPolicy::Auto) != costs().table(InitiatorPolicy::Auto);
        assert!(changed && slower.version() == 64);
    }

    #[test]
    fn threads_that_copy_faster_are_taken_for_longer_messages() {
        let mut faster = costs();
        for _ in 0..64 {
            faster.observe_direct(2, 1 << 20, (1 << 20) / 300);
        }
        assert!(crossing(&faster) > crossing(&costs()));
        assert_eq!(faster.curves()[..2], costs().curves()[..2], "of other scopes nothing was measured");
        assert_eq!(faster.measurements(), (0, [0, 0, 64]));
        assert_eq!(faster.corrected_copies(), None);
    }

    #[test]
    fn each_cost_is_moved_by_the_batches_that_show_it() {
        let after = |batch: Batch| {
            let mut costs = costs();
            (0..200).for_each(|_| costs.observe_batch(batch));
            costs.corrected_copies()
        };
        let long =
            after(Batch { copies: 1, bytes: 4 << 20, nanoseconds: 6_000.0 + f64::from(4 << 20) / 50.0 });
        assert!((long.unwrap().bandwidth - 50.0).abs() < 1.0, "{long:?}");
        let many = after(Batch { copies: 33, bytes: 264, nanoseconds: 6_000.0 + 32.0 * 200.0 });
        assert!((many.unwrap().post - 200.0).abs() < 2.0, "{many:?}");
        // Neither the way nor the bytes, none at all, a few, and a clock that stands still.
        for (copies, bytes, nanoseconds) in
            [(1, 100_000, 9_000.0), (0, 0, 9_000.0), (3, 24, 9_000.0), (1, 8, 0.0), (1, 8, f64::NAN)]
        {
            assert_eq!(after(Batch { copies, bytes, nanoseconds }), None, "{copies} {bytes} {nanoseconds}");
        }
    }

    #[test]
    fn ranks_that_a_card_reaches_are_asked_by_whoever_turns_out_faster() {
        let mut costs = costs();
        costs.observe_network(Initiator::Verbs, 1, 100.0);
        assert_eq!(costs.network_measurements(Initiator::Verbs), 0, "there are no such ranks");
        costs.set_network(choice::network_curves(25.0));
        let alone = |costs: &Costs| costs.network_table(InitiatorPolicy::Auto)[3] & 0xff;
        assert_eq!(alone(&costs), Initiator::Proxy.code() as u64);
        for _ in 0..64 {
            costs.observe_network(Initiator::Verbs, 2, 2.0 * 3_000.0);
            costs.observe_network(Initiator::Verbs, 0, 1.0);
            costs.observe_network(Initiator::Verbs, 1, f64::NAN);
        }
        assert_eq!(alone(&costs), Initiator::Verbs.code() as u64);
        assert_eq!(costs.network_measurements(Initiator::Verbs), 64);
        (0..64).for_each(|_| costs.observe_network(Initiator::Proxy, 1, 1_000.0));
        assert_eq!(alone(&costs), Initiator::Proxy.code() as u64);
    }

    #[test]
    fn a_measurement_that_was_disturbed_does_not_decide() {
        let mut disturbed = costs();
        disturbed.observe_batch(Batch { copies: 1, bytes: 8, nanoseconds: 1e9 });
        let copies = disturbed.corrected_copies().unwrap();
        assert!(copies.latency < 6_000.0 * 1.5, "{copies:?}");
        let mut none = costs();
        none.observe_direct(2, 0, 5);
        none.observe_direct(2, 5, 0);
        none.observe_direct(SCOPES, 5, 5);
        assert_eq!(none, costs());
    }

    #[test]
    fn without_a_calibration_the_estimate_is_corrected() {
        let mut estimated = Costs::new(&choice::default_curves(), None);
        assert_eq!(estimated.curves(), &choice::default_curves());
        estimated.observe_batch(Batch { copies: 1, bytes: 8, nanoseconds: 6_500.0 });
        let (before, after) = (choice::default_curves()[0].0[1].1, estimated.curves()[0].0[1].1);
        assert!((after.latency - before.latency).abs() < 1.0, "what was estimated was measured: {after:?}");
        let mut empty = Costs::new(&[Curves::default(), Curves::default(), Curves::default()], None);
        empty.observe_batch(Batch { copies: 1, bytes: 8, nanoseconds: 6_500.0 });
        empty.observe_direct(0, 1 << 20, 1000);
        assert_eq!(empty.curves()[0], Curves::default());
    }
}
