//! What does the measuring program say? A line for each figure: `row`, what is measured, the kind of memory, the bytes of a message, the
//! figure, its unit, and the ways that the messages went with their shares in percent, such as `vmm 90, staged 10`; tabs stand between
//! them. Launchers may print other lines.

use thiserror::Error;

use super::case::Case;

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What of.
    pub case: Case,
    /// In the quantity's unit.
    pub figure: f64,
    /// By which ways the messages went.
    pub ways: String,
}

/// A row that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the measuring program printed a row that makes no sense here: {0:?}; both must be of one version")]
pub struct BadRow(pub String);

impl Row {
    /// The row of a line, if it is one.
    ///
    /// # Errors
    /// When it begins like one and is none.
    pub fn of(line: &str) -> Result<Option<Self>, BadRow> {
        let Some(rest) = line.strip_prefix("row\t") else { return Ok(None) };
        Self::parse(rest).map(Some).ok_or_else(|| BadRow(line.to_owned()))
    }

    fn parse(rest: &str) -> Option<Self> {
        let words: Vec<_> = rest.split('\t').collect();
        let &[quantity, memory, bytes, figure, unit, ways] = words.as_slice() else { return None };
        let case = Case {
            quantity: quantity.parse().ok()?,
            memory: memory.parse().ok()?,
            bytes: bytes.parse().ok()?,
        };
        let figure: f64 = figure.parse().ok()?;
        let is_sound = figure.is_finite() && figure > 0.0 && unit == case.quantity.unit();
        is_sound.then(|| Self { case, figure, ways: ways.trim().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::case::{Memory, Quantity};

    #[test]
    fn rows_are_read_among_other_lines() {
        let line = "row\tlatency\tgpu\t65536\t12.5\tus\tvmm 90, staged 10";
        let case = Case { quantity: Quantity::Latency, memory: Memory::Gpu, bytes: 65536 };
        assert_eq!(Row::of(line), Ok(Some(Row { case, figure: 12.5, ways: "vmm 90, staged 10".into() })));
        assert_eq!(Row::of("mpirun: a row of words"), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_no_figure() {
        for words in [
            "row\tlatency\tgpu\t65536\t12.5\tus",
            "row\tlatency\tgpu\t65536\t12.5\tms\tmpi 100",
            "row\tspeed\tgpu\t65536\t12.5\tus\tmpi 100",
            "row\tlatency\tpaper\t65536\t12.5\tus\tmpi 100",
            "row\tlatency\tgpu\t-1\t12.5\tus\tmpi 100",
            "row\tlatency\tgpu\t1\tnan\tus\tmpi 100",
            "row\tlatency\tgpu\t1\t0\tus\tmpi 100",
        ] {
            assert_eq!(Row::of(words), Err(BadRow(words.to_owned())));
        }
    }
}
