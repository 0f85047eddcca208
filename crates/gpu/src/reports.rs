//! What compilers and linkers said, kept until the client asks for it.

use causeway_api::types::JitReport;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Reports that nobody has asked for; the oldest goes when there are more.
const MAX_REPORTS: usize = 64;

/// The reports of a session by the numbers that the client chose.
#[derive(Default)]
pub struct Reports(Mutex<VecDeque<(u64, JitReport)>>);

impl Reports {
    /// Keeps a report in place of an older one of the same number; 0 says that nobody will ask for it.
    pub fn put(&self, number: u64, report: JitReport) {
        if number == 0 {
            return;
        }
        let mut reports = self.0.lock();
        reports.retain(|(kept, _)| *kept != number);
        reports.push_back((number, report));
        if reports.len() > MAX_REPORTS {
            reports.pop_front();
        }
    }

    /// Takes a report out; an empty one when there is none.
    pub fn take(&self, number: u64) -> JitReport {
        let mut reports = self.0.lock();
        let index = reports.iter().position(|(kept, _)| *kept == number);
        index.and_then(|index| reports.remove(index)).map(|(_, report)| report).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_given_once_and_old_ones_go() {
        let reports = Reports::default();
        let report = |errors: &str| JitReport { errors: errors.into(), ..JitReport::default() };
        for number in 0..=MAX_REPORTS as u64 + 1 {
            reports.put(number, report("old"));
        }
        reports.put(9, report("new"));
        assert_eq!(reports.take(9), report("new"));
        assert_eq!(reports.take(9), JitReport::default());
        assert_eq!((reports.take(0), reports.take(1)), (JitReport::default(), JitReport::default()));
        assert_eq!(reports.take(2), report("old"));
    }
}
