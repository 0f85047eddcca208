//! Rows of the measuring program's output. A line for each figure: `row`, what is measured, the way, the
//! bytes of a message, the count, the figure, its unit; and `skipped`, what, and the reason. Tabs stand
//! between them.

use super::case::{Case, What};
use crate::job::BadRow;
use crate::jobs::Line;

/// What a line says, if it says anything.
///
/// # Errors
/// When it begins like a row and is none.
pub fn read(line: &str) -> Result<Option<Line<Case>>, BadRow> {
    let fields: Vec<_> = line.split('\t').collect();
    match fields.as_slice() {
        ["row", rest @ ..] => figure(rest).map(Some).ok_or_else(|| BadRow(line.to_owned())),
        ["skipped", what, why] => Ok(Some(Line::Skipped(format!("{what}: {why}")))),
        _ => Ok(None),
    }
}

fn figure(fields: &[&str]) -> Option<Line<Case>> {
    let &[what, way, bytes, count, figure, unit] = fields else { return None };
    let case = Case {
        what: What::named(what)?,
        way: way.to_owned(),
        bytes: bytes.parse().ok()?,
        count: count.parse().ok()?,
    };
    let figure: f64 = figure.parse().ok()?;
    // The counter of energy may not move in a short run.
    let is_sound = figure.is_finite() && figure >= 0.0 && unit == case.what.unit();
    is_sound.then(|| Line::Figure(case, figure, String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_what_is_skipped_are_read_among_other_lines() {
        let line = "row\tflight\tproxy, host memory\t4096\t8\t12.5\tus";
        let case = Case { what: What::Flight, way: "proxy, host memory".into(), bytes: 4096, count: 8 };
        assert_eq!(read(line), Ok(Some(Line::Figure(case, 12.5, String::new()))));
        let skipped = Line::Skipped("energy: no NVML".to_owned());
        assert_eq!(read("skipped\tenergy\tno NVML"), Ok(Some(skipped)));
        assert_eq!(read("a row of words"), Ok(None));
        assert!(What::ALL.into_iter().all(|what| What::named(&what.name()) == Some(what)));
    }

    #[test]
    fn what_makes_no_sense_is_no_figure() {
        for fields in [
            "row\tflight\tproxy\t4096\t8\t12.5",
            "row\tflight\tproxy\t4096\t8\t12.5\tns",
            "row\tspeed\tproxy\t4096\t8\t12.5\tus",
            "row\tflight\tproxy\t-1\t8\t12.5\tus",
            "row\tflight\tproxy\t1\tx\t12.5\tus",
            "row\tflight\tproxy\t1\t1\tnan\tus",
            "row\tflight\tproxy\t1\t1\t-2\tus",
        ] {
            assert_eq!(read(fields), Err(BadRow(fields.to_owned())));
        }
    }
}
