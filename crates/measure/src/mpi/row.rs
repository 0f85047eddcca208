//! Rows of the measuring program's output. A line for each figure: `row`, what is measured, the kind of
//! memory, the bytes of a message, the figure, its unit, and the ways that the messages went with their
//! shares in percent, such as `vmm 90, staged 10`; tabs stand between them. Launchers may print other lines.
//! What can be measured is the program's affair: whatever it names is shown by that name.

use core::fmt;

use serde::Serialize;

use crate::job::BadRow;
use crate::jobs::Line;

/// What figures of several sizes are of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct What {
    /// What was measured, such as `latency` or `allreduce_by_host`.
    pub quantity: String,
    /// The unit of its figures.
    pub unit: String,
    /// The kind of memory in which messages lie.
    pub memory: String,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}, memory: {}", self.quantity.replace('_', " "), self.unit, self.memory)
    }
}

/// What one figure is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Case {
    /// What was measured.
    #[serde(flatten)]
    pub what: What,
    /// Bytes of a message.
    pub bytes: u64,
}

/// What a line says, if it says anything.
///
/// # Errors
/// When it begins like a row and is none.
pub fn read(line: &str) -> Result<Option<Line<Case>>, BadRow> {
    let Some(rest) = line.strip_prefix("row\t") else { return Ok(None) };
    figure(rest).map(Some).ok_or_else(|| BadRow(line.to_owned()))
}

fn figure(rest: &str) -> Option<Line<Case>> {
    let fields: Vec<_> = rest.split('\t').collect();
    let &[quantity, memory, bytes, figure, unit, paths] = fields.as_slice() else { return None };
    let is_name = |word: &&str| word.starts_with(|first: char| first.is_ascii_alphabetic());
    let [quantity, memory] = [quantity, memory].map(|word| Some(word).filter(is_name).map(str::to_owned));
    let unit = ["us", "GB/s", "M/s"].contains(&unit).then(|| unit.to_owned())?;
    let figure = figure.parse().ok().filter(|figure: &f64| figure.is_finite() && *figure > 0.0)?;
    let case = Case { what: What { quantity: quantity?, unit, memory: memory? }, bytes: bytes.parse().ok()? };
    Some(Line::Figure(case, figure, paths.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_among_other_lines() {
        let row = read("row\tcopy_latency\tgpu\t65536\t12.5\tus\tvmm 90, staged 10");
        let Ok(Some(Line::Figure(case, figure, paths))) = row else { panic!("{row:?}") };
        assert_eq!(case.what.to_string(), "copy latency in us, memory: gpu");
        assert_eq!((case.bytes, figure, paths.as_str()), (65536, 12.5, "vmm 90, staged 10"));
        assert_eq!(read("mpirun: a row of words"), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_no_figure() {
        for fields in [
            "row\tlatency\tgpu\t65536\t12.5\tus",
            "row\tlatency\tgpu\t65536\t12.5\tms\tmpi 100",
            "row\t\tgpu\t65536\t12.5\tus\tmpi 100",
            "row\tlatency\t65536\tgpu\t12.5\tus\tmpi 100",
            "row\tlatency\tgpu\t-1\t12.5\tus\tmpi 100",
            "row\tlatency\tgpu\t1\tnan\tus\tmpi 100",
            "row\tlatency\tgpu\t1\t0\tus\tmpi 100",
        ] {
            assert_eq!(read(fields), Err(BadRow(fields.to_owned())));
        }
    }
}
