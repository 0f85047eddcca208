//! What something costs by its size: a few measured points, and what lies between them.

use thiserror::Error;

/// The most points of a curve: a size for each power of two.
const MOST_POINTS: usize = 64;

/// Why points make no curve.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CurveError {
    /// None, or too many.
    #[error("a curve has {0} points: it takes 1 to {MOST_POINTS}")]
    Count(usize),
    /// Sizes do not rise.
    #[error("a curve has {after} bytes behind {before}: sizes must rise")]
    Order {
        /// A size.
        before: u64,
        /// The one behind it.
        after: u64,
    },
    /// A cost that cannot be.
    #[error("a curve has a cost at {0} bytes that is no positive number")]
    Cost(u64),
}

/// Nanoseconds by bytes. Between two points the cost is on the line between them, below the first it is the
/// first one's, and above the last one it grows as between the last two, or in proportion where there is one
/// alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    points: Vec<(u64, f64)>,
}

impl Curve {
    /// Of points in rising order of their sizes.
    ///
    /// # Errors
    /// When they are none, too many, in another order, or have a cost that is not positive.
    pub fn new(points: impl Into<Vec<(u64, f64)>>) -> Result<Self, CurveError> {
        let points = points.into();
        if points.is_empty() || points.len() > MOST_POINTS {
            return Err(CurveError::Count(points.len()));
        }
        if let Some([before, after]) = points.array_windows().find(|[before, after]| before.0 >= after.0) {
            return Err(CurveError::Order { before: before.0, after: after.0 });
        }
        match points.iter().find(|(_, cost)| !cost.is_finite() || *cost <= 0.0) {
            Some((bytes, _)) => Err(CurveError::Cost(*bytes)),
            None => Ok(Self { points }),
        }
    }

    /// The cost of so many bytes; always positive.
    pub fn at(&self, bytes: u64) -> f64 {
        let behind = self.points.partition_point(|(size, _)| *size < bytes);
        let (first, last) = (self.points[0], self.points[self.points.len() - 1]);
        if behind == 0 {
            return first.1;
        }
        let (from, to) = match self.points.get(behind) {
            Some(to) => (self.points[behind - 1], *to),
            None if self.points.len() > 1 => (self.points[self.points.len() - 2], last),
            None => ((0, 0.0), last),
        };
        let slope = (to.1 - from.1) / (to.0 - from.0).max(1) as f64;
        let cost = from.1 + slope * (bytes - from.0) as f64;
        // Measured points may fall; beyond the last one that is chance.
        if behind == self.points.len() { cost.max(last.1) } else { cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn costs_lie_on_lines() {
        let curve = Curve::new([(8, 100.0), (1000, 1092.0), (2000, 3092.0)]).unwrap();
        let costs = [0, 8, 9, 1000, 1500, 2000, 3000].map(|bytes| curve.at(bytes));
        assert_eq!(costs, [100.0, 100.0, 101.0, 1092.0, 2092.0, 3092.0, 5092.0]);
        assert_eq!(Curve::new([(100, 50.0)]).unwrap().at(300), 150.0);
        assert_eq!(Curve::new([(1, 50.0), (2, 40.0)]).unwrap().at(300), 40.0);
    }

    #[test]
    fn points_that_make_no_sense_are_refused() {
        assert_eq!(Curve::new([]), Err(CurveError::Count(0)));
        assert_eq!(Curve::new(vec![(1, 1.0); 65]), Err(CurveError::Count(65)));
        assert_eq!(Curve::new([(2, 1.0), (2, 1.0)]), Err(CurveError::Order { before: 2, after: 2 }));
        for cost in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Curve::new([(7, cost)]), Err(CurveError::Cost(7)));
        }
    }

    proptest! {
        #[test]
        fn costs_are_positive(
            points in proptest::collection::btree_map(any::<u64>(), 0.001..1e12_f64, 1..64),
            bytes: u64,
        ) {
            let curve = Curve::new(points.into_iter().collect::<Vec<_>>()).unwrap();
            prop_assert!(curve.at(bytes) > 0.0 && curve.at(bytes).is_finite());
        }
    }
}
