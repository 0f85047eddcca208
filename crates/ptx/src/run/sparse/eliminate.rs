//! Elimination with rows that stay sparse: solutions of square systems of equations.

use super::entries::Entry;
use crate::run::solve::complex::{Complex, Dense, minus, over, plus, square, times};

/// A row that is not a pivot's yet, or was one: its entries from its first column on, and the number of its right side.
struct Row {
    entries: Vec<(usize, Complex)>,
    right: usize,
}

/// `row - factor * pivot` without the first column, which both have.
fn combined(row: &[(usize, Complex)], factor: Complex, pivot: &[(usize, Complex)]) -> Vec<(usize, Complex)> {
    let (mut row, mut pivot) = (row[1..].iter().copied().peekable(), pivot[1..].iter().copied().peekable());
    let mut sum = Vec::with_capacity(row.len() + pivot.len());
    loop {
        let next = match (row.peek(), pivot.peek()) {
            (None, None) => return sum,
            (Some((own, _)), Some((other, _))) => own.cmp(other),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
        };
        let own = if next.is_le() { row.next() } else { None };
        let other = if next.is_ge() { pivot.next() } else { None };
        let value =
            minus(own.map_or([0.0; 2], |own| own.1), other.map_or([0.0; 2], |other| times(factor, other.1)));
        let column = own.or(other).map_or(0, |(column, _)| column);
        // What cancels does not stay, as an entry or as the first one of a row.
        if value != [0.0; 2] {
            sum.push((column, value));
        }
    }
}

/// Solves a square system in place, of the largest pivot in each column. Gives the first column whose pivot is not
/// above the tolerance: its unknowns are not finite, or as wrong as the pivot is small.
pub(super) fn solve(
    mut entries: Vec<Entry>,
    tolerance: f64,
    y: &mut Dense<'_>,
    is_stopped: &dyn Fn() -> bool,
) -> Option<usize> {
    let order = y.rows;
    entries.retain(|entry| entry.value != [0.0; 2]);
    super::entries::sort(&mut entries, causeway_gemm::SparseFormat::Rows);
    // Active rows by their first column: only these have an entry in it.
    let mut active: Vec<Vec<Row>> = (0..order).map(|_| Vec::new()).collect();
    for line in entries.chunk_by(|one, other| one.row == other.row) {
        let mut own: Vec<(usize, Complex)> = Vec::with_capacity(line.len());
        for entry in line {
            match own.last_mut() {
                Some((column, value)) if *column == entry.column => *value = plus(*value, entry.value),
                _ => own.push((entry.column, entry.value)),
            }
        }
        active[own[0].0].push(Row { entries: own, right: line[0].row });
    }
    let mut pivots: Vec<Option<Row>> = Vec::with_capacity(order);
    let mut singular = None;
    for column in 0..order {
        let mut rows = std::mem::take(&mut active[column]);
        let size = |row: &Row| square(row.entries[0].1);
        let best = (0..rows.len()).max_by(|one, other| size(&rows[*one]).total_cmp(&size(&rows[*other])));
        let pivot = best.map(|at| rows.swap_remove(at));
        if singular.is_none() && pivot.as_ref().is_none_or(|pivot| size(pivot).sqrt() <= tolerance) {
            singular = Some(column);
        }
        if let Some(pivot) = &pivot {
            for row in rows {
                let factor = over(row.entries[0].1, pivot.entries[0].1);
                for side in 0..y.columns() {
                    let own = minus(y.at(row.right, side), times(factor, y.at(pivot.right, side)));
                    y.set(row.right, side, own);
                }
                let left = combined(&row.entries, factor, &pivot.entries);
                if let Some((first, _)) = left.first() {
                    active[*first].push(Row { entries: left, right: row.right });
                }
            }
        }
        pivots.push(pivot);
        if is_stopped() {
            return Some(column);
        }
    }
    let mut unknowns = vec![[f64::NAN; 2]; order * y.columns()];
    for side in 0..y.columns() {
        let own = &mut unknowns[side * order..][..order];
        for column in (0..order).rev() {
            if let Some(pivot) = &pivots[column] {
                let sum = pivot.entries[1..]
                    .iter()
                    .fold(y.at(pivot.right, side), |sum, (at, value)| minus(sum, times(*value, own[*at])));
                own[column] = over(sum, pivot.entries[0].1);
            }
        }
    }
    y.elements.copy_from_slice(&unknowns);
    singular
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solution(
        elements: &[(usize, usize, f64)],
        right: &[f64],
        tolerance: f64,
    ) -> (Vec<f64>, Option<usize>) {
        let entry = |(row, column, value): &(usize, usize, f64)| Entry {
            row: *row,
            column: *column,
            value: [*value, 0.0],
        };
        let mut y: Vec<Complex> = right.iter().map(|value| [*value, 0.0]).collect();
        let mut to = Dense { rows: right.len(), elements: &mut y };
        let singular = solve(elements.iter().map(entry).collect(), tolerance, &mut to, &|| false);
        (y.iter().map(|value| value[0]).collect(), singular)
    }

    #[test]
    fn unknowns_solve_the_system() {
        // Without a diagonal at the start, with rows that fill up, and an entry given in two parts.
        let elements =
            [(0, 1, 2.0), (1, 0, 1.0), (1, 2, 3.0), (2, 0, 4.0), (2, 1, 1.0), (2, 2, 0.5), (2, 2, 0.5)];
        let (unknowns, singular) = solution(&elements, &[4.0, 10.0, 9.0], 1e-12);
        assert_eq!(singular, None);
        for (found, expected) in unknowns.iter().zip([1.0, 2.0, 3.0]) {
            assert!((found - expected).abs() < 1e-14, "{unknowns:?}");
        }
    }

    #[test]
    fn the_column_without_a_pivot_is_named() {
        let dependent = [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 4.0)];
        assert_eq!(solution(&dependent, &[1.0, 2.0], 0.0).1, Some(1));
        let small = [(0, 0, 1e-9), (1, 1, 1.0)];
        assert_eq!(solution(&small, &[1e-9, 1.0], 1e-12), (vec![1.0, 1.0], None));
        assert_eq!(solution(&small, &[1e-9, 1.0], 1e-6), (vec![1.0, 1.0], Some(0)));
    }
}
