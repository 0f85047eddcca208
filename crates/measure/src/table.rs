//! Tables for a terminal.

use core::fmt::Write as _;

use crate::machine::Machine;
use crate::sizes::Size;

/// What is shown where there is no figure.
pub const NOTHING: &str = "-";

/// A number with three digits that matter, or all of those before the point.
pub fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits_before = value.abs().log10().floor() as i32 + 1;
    let decimals = (3 - digits_before).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

/// The first line above tables: what measured, when and where.
pub fn heading(version: &str, date: &str, machine: &Machine) -> String {
    let Machine { host, processor, processors, kernel, .. } = machine;
    format!("causeway {version}, {date}, {host}: {processor}, {processors} processors, {kernel}\n")
}

/// Lines with columns as wide as they must be: the first to the left, the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column {
            0 | 1 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out
}

/// A share as percent.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// What stands in a table where targets are beside each other and sizes below: a column with the size, one
/// with the number of samples, and for each target the columns whose heads are given, which `cells` fills.
/// Empty without any figure.
pub fn by_size(
    sizes: &[u64],
    heads: &[Vec<String>],
    cells: impl Fn(u64, usize) -> Option<(usize, Vec<String>)>,
) -> String {
    let head = ["size", "n"].map(str::to_owned).into_iter().chain(heads.iter().flatten().cloned());
    let mut lines = vec![head.collect::<Vec<_>>()];
    for &size in sizes {
        let found: Vec<_> = (0..heads.len()).map(|target| cells(size, target)).collect();
        let Some(count) = found.iter().flatten().map(|(count, _)| *count).max() else { continue };
        let mut line = vec![Size(size).to_string(), count.to_string()];
        for (found, heads) in found.into_iter().zip(heads) {
            line.extend(found.map_or_else(|| vec![NOTHING.to_owned(); heads.len()], |(_, cells)| cells));
        }
        lines.push(line);
    }
    if lines.len() > 1 { aligned(&lines) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_matter() {
        let texts = [0.0, 0.000_123_46, 0.012_34, 1.0, 9.999, 55.53, 1234.5, -3.217].map(significant);
        assert_eq!(texts, ["0", "0.000123", "0.0123", "1.00", "10.00", "55.5", "1234", "-3.22"]);
    }

    #[test]
    fn columns_are_aligned() {
        let rows =
            [vec!["a".to_owned(), "b".into(), "1".into()], vec!["long".into(), "b".into(), "100".into()]];
        assert_eq!(aligned(&rows), "a     b    1\nlong  b  100\n");
    }

    #[test]
    fn targets_stand_beside_each_other_and_what_has_no_figure_is_a_dash() {
        let heads = ["one", "two"].map(|name| vec![name.to_owned(), "by".to_owned()]);
        let cells = |size: u64, target| {
            (size != 4 && (size, target) != (8, 1)).then(|| (3, vec![size.to_string(), "x".to_owned()]))
        };
        let text = by_size(&[2, 4, 8], &heads, cells);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["size", "n", "one", "by", "two", "by"]);
        assert_eq!(lines[1..], [["2", "B", "3", "2", "x", "2", "x"], ["8", "B", "3", "8", "x", "-", "-"]]);
        assert_eq!(by_size(&[4], &heads, cells), "");
    }
}
