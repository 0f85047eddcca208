//! Requirements on communicating kernels, and whether they are satisfied. The limits are those for two ranks
//! on one data-centre GPU of 2022 and later.

use serde::Serialize;

use super::case::What;
use super::results::Run;
use crate::table::significant;

/// The way by which the host's thread has a copy engine move bytes, to windows on the GPU.
const TO_GPU: &str = "proxy";

/// The way by which it moves them itself, to windows in the host's memory.
const TO_HOST: &str = "proxy, host memory";

/// What must hold, and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// The target's number.
    pub target: usize,
    /// Of what.
    pub what: String,
    /// What is wanted.
    pub required: String,
    /// What was found.
    pub found: String,
    /// Whether what was found is what is wanted.
    pub is_satisfied: bool,
}

/// The verdicts on all targets, of what was measured.
pub fn verdicts(run: &Run) -> Vec<CheckResult> {
    (0..run.targets.len()).flat_map(|target| Checker { run, target }.all()).collect()
}

struct Checker<'a> {
    run: &'a Run,
    target: usize,
}

impl Checker<'_> {
    fn all(&self) -> Vec<CheckResult> {
        let mut all = Vec::new();
        let limits = [
            (What::Latency, TO_GPU, 8, 1, 3.5, "from a GPU by the proxy to a GPU, 8 B"),
            (What::Latency, TO_HOST, 8, 1, 3.5, "from a GPU by the proxy to the host's memory, 8 B"),
            (What::Latency, "direct", 8, 1, 2.0, "direct put of 8 B with signal, one way"),
            (What::Barrier, "direct", 8, 2, 4.0, "barrier of two"),
        ];
        for (what, way, bytes, count, limit, name) in limits {
            all.extend(self.run.median(self.target, what, way, bytes, count).map(|found| {
                let required = format!("at most {} us", significant(limit));
                self.check_result(name, required, format!("{} us", significant(found)), found <= limit)
            }));
        }
        all.extend(self.rate());
        all.extend(self.posts());
        all.extend(self.bulk());
        all.extend(self.stencils());
        all.extend(self.choice());
        all
    }

    fn check_result(
        &self,
        what: impl Into<String>,
        required: String,
        found: String,
        is_satisfied: bool,
    ) -> CheckResult {
        CheckResult { target: self.target, what: what.into(), required, found, is_satisfied }
    }

    /// The greatest median of some kinds by one way.
    fn best(&self, kinds: &[What], way: &str) -> Option<f64> {
        let meant = |what: &What| {
            self.run.of(*what).filter(move |record| record.target == self.target && record.case.way == way)
        };
        kinds.iter().flat_map(meant).map(|record| record.summary.median).max_by(f64::total_cmp)
    }

    fn rate(&self) -> Option<CheckResult> {
        let found = self.best(&[What::RateByThreads, What::RateByBlocks], "proxy, eight queues")?;
        let (name, required) =
            ("requests accepted and completed, eight queues", "at least 10 M/s".to_owned());
        Some(self.check_result(name, required, format!("{} M/s", significant(found)), found >= 10.0))
    }

    /// A post of one thread that is alone, with rings in either memory, and the posts of the whole GPU.
    fn posts(&self) -> Vec<CheckResult> {
        let alone = ["host", "GPU"].into_iter().filter_map(|memory| {
            let way = format!("threads, rings in {memory} memory");
            let found = self.run.median(self.target, What::VerbsPost, &way, 8, 1)?;
            let required = "at most 700 ns".to_owned();
            let name = format!("post to a network card, rings in {memory} memory");
            Some(self.check_result(name, required, format!("{} ns", significant(found)), found <= 700.0))
        });
        let of_all = ["host", "GPU"].into_iter().filter_map(|memory| {
            self.best(&[What::VerbsRate], &format!("queue pair a block, rings in {memory} memory"))
        });
        let of_all = of_all.max_by(f64::total_cmp).map(|found| {
            let (name, required) = ("posts to network cards of the whole GPU", "at least 50 M/s".to_owned());
            self.check_result(name, required, format!("{} M/s", significant(found)), found >= 50.0)
        });
        alone.chain(of_all).collect()
    }

    fn bulk(&self) -> Option<CheckResult> {
        let share =
            self.best(&[What::Bandwidth], "direct")? / self.best(&[What::Bandwidth], "device copy")?;
        let required = "at least 0.9 of a device copy".to_owned();
        Some(self.check_result("bulk put, direct", required, format!("{share:.2}"), share >= 0.9))
    }

    fn stencils(&self) -> Vec<CheckResult> {
        let mut all = Vec::new();
        let own = self.run.of(What::Stencil).filter(|record| record.target == self.target);
        for by_kernel in own.filter(|record| record.case.way == "by the kernel") {
            let (found, case) = (by_kernel.summary.median, &by_kernel.case);
            let other = |way| self.run.median(self.target, What::Stencil, way, case.bytes, case.count);
            let name = format!("stencil of {} points", case.count);
            if let Some(alone) = other("compute alone") {
                let (ratio, required) = (found / alone, "at most 1.05 x compute alone".to_owned());
                all.push(self.check_result(name.clone(), required, format!("{ratio:.3}"), ratio <= 1.05));
            }
            for way in ["kernel, synchronise, send", "two kernels by turns"] {
                if let Some(baseline) = other(way) {
                    let ratio = found / baseline;
                    let required = format!("ahead of {way}");
                    all.push(self.check_result(
                        name.clone(),
                        required,
                        format!("{ratio:.3} of it"),
                        ratio < 1.0,
                    ));
                }
            }
        }
        all
    }

    /// The chosen initiator beside the best fixed one, over sizes and messages in flight.
    fn choice(&self) -> Option<CheckResult> {
        let (mut cases, mut behind) = (0, Vec::new());
        let own = self.run.of(What::Flight).filter(|record| record.target == self.target);
        for chosen in own.filter(|record| record.case.way == "chosen") {
            let (found, case) = (chosen.summary.median, &chosen.case);
            let fixed = |way| self.run.median(self.target, What::Flight, way, case.bytes, case.count);
            let Some(best) = ["direct", "proxy"].into_iter().filter_map(fixed).min_by(f64::total_cmp) else {
                continue;
            };
            cases += 1;
            if found > (best * 1.05).max(best + 0.3) {
                let [found, best] = [found, best].map(significant);
                behind.push(format!("{} B, {} in flight: {found} us, best {best}", case.bytes, case.count));
            }
        }
        let found = match behind.as_slice() {
            [] => format!("all {cases}"),
            some => format!("{} of {cases}; {}", cases - some.len(), some.join("; ")),
        };
        let required = "within 5 % or 0.3 us of the best fixed initiator".to_owned();
        (cases > 0).then(|| self.check_result("chosen initiator", required, found, behind.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::case::Case;
    use crate::device::results::tests::{result, run_of};
    use crate::jobs::Line;

    /// What is met of figures, by what it is about.
    fn met(lines: Vec<Line<Case>>) -> Vec<(String, bool)> {
        verdicts(&run_of(lines))
            .into_iter()
            .map(|check_result| (check_result.what, check_result.is_satisfied))
            .collect()
    }

    #[test]
    fn each_limit_is_met_on_one_side_and_missed_on_the_other() {
        let at = |scale: f64| {
            met(vec![
                result(What::Latency, TO_GPU, 8, 1, 3.5 * scale),
                result(What::Latency, TO_HOST, 8, 1, 3.5 * scale),
                result(What::Latency, "direct", 8, 1, 2.0 * scale),
                result(What::Barrier, "direct", 8, 2, 4.0 * scale),
                result(What::RateByThreads, "proxy, eight queues", 8, 32, 1.0),
                result(What::RateByBlocks, "proxy, eight queues", 8, 8, 10.0 / scale),
                result(What::VerbsPost, "threads, rings in host memory", 8, 1, 700.0 * scale),
                result(What::VerbsPost, "threads, rings in GPU memory", 8, 1, 700.0 * scale),
                result(What::VerbsRate, "queue pair a block, rings in GPU memory", 8, 4096, 50.0 / scale),
                result(What::Bandwidth, "direct", 1 << 28, 1, 10.0),
                result(What::Bandwidth, "direct", 1 << 28, 132, 900.0 / scale),
                result(What::Bandwidth, "device copy", 1 << 28, 1, 1000.0),
            ])
        };
        assert_eq!((at(0.99).len(), at(1.01).len()), (9, 9));
        assert!(at(0.99).iter().all(|(_, is_satisfied)| *is_satisfied), "{:?}", at(0.99));
        assert!(at(1.01).iter().all(|(_, is_satisfied)| !*is_satisfied), "{:?}", at(1.01));
        assert!(met(Vec::new()).is_empty(), "what was not measured is not judged");
    }

    #[test]
    fn a_verdict_is_about_the_windows_that_it_names() {
        let of = |to_gpu, to_host| {
            let found = met(vec![
                result(What::Latency, TO_GPU, 8, 1, to_gpu),
                result(What::Latency, TO_HOST, 8, 1, to_host),
            ]);
            found
                .iter()
                .map(|(what, is_satisfied)| (what.contains("to a GPU"), *is_satisfied))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(5.0, 2.0), [(true, false), (false, true)]);
        assert_eq!(of(2.0, 5.0), [(true, true), (false, false)]);
    }

    #[test]
    fn a_stencil_is_compared_with_what_is_measured_beside_it() {
        let step = |way, time| result(What::Stencil, way, 4096, 1 << 20, time);
        let of = |time| {
            met(vec![
                step("by the kernel", time),
                step("compute alone", 100.0),
                step("kernel, synchronise, send", 104.0),
                step("two kernels by turns", 110.0),
            ])
        };
        let are_met = |time| of(time).into_iter().map(|(_, is_satisfied)| is_satisfied).collect::<Vec<_>>();
        assert_eq!(are_met(103.0), [true, true, true]);
        assert_eq!(are_met(104.5), [true, false, true]);
        assert_eq!(are_met(111.0), [false, false, false]);
    }

    #[test]
    fn the_choice_may_be_behind_by_a_twentieth_or_three_tenths_of_a_microsecond() {
        let of = |bytes, direct, proxy, chosen| {
            ["direct", "proxy", "chosen"]
                .into_iter()
                .zip([direct, proxy, chosen])
                .map(|(way, time)| result(What::Flight, way, bytes, 8, time))
                .collect::<Vec<_>>()
        };
        let judged = |cases: &[Vec<Line<Case>>]| {
            let check_result = verdicts(&run_of(cases.concat())).remove(0);
            (check_result.is_satisfied, check_result.found)
        };
        let (small, large) = (of(8, 1.0, 3.0, 1.29), of(1 << 20, 200.0, 100.0, 104.9));
        assert_eq!(judged(&[small.clone(), large.clone()]), (true, "all 2".to_owned()));
        let (is_satisfied, found) = judged(&[small, of(1 << 20, 200.0, 100.0, 105.1)]);
        assert!(!is_satisfied && found.starts_with("1 of 2; 1048576 B, 8 in flight"), "{found}");
    }
}
