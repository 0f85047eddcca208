//! Entries of sparse matrices: from and to the formats in which they are stored, and what is computed with them.

use causeway_gemm::{SparseFormat, SparseMatrix};

use crate::run::solve::complex::{Complex, Dense, conjugate, minus, over, plus, times};

/// An element that is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Entry {
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) value: Complex,
}

/// The arrays of a matrix as they were read, or are to be written: row indices, column indices and values. An index
/// is the real part.
pub(super) type Arrays<'a> = [&'a [Complex]; 3];

/// An index below a bound.
fn index(number: Complex, base: u8, bound: u64) -> Option<usize> {
    let value = number[0] - f64::from(base);
    (value >= 0.0 && value < bound as f64).then_some(value as usize)
}

/// The entries, in the order in which they are stored; none if an index is out of range.
pub(super) fn entries(matrix: &SparseMatrix, arrays: Arrays<'_>) -> Option<Vec<Entry>> {
    let format = SparseFormat::from_number(matrix.format)?;
    let [rows, columns, values] = arrays;
    let value = |at: usize| {
        let value = values.get(at).copied().unwrap_or([1.0, 0.0]);
        if matrix.is_conjugate != 0 { conjugate(value) } else { value }
    };
    // An array that is not there is not used.
    let minor = |array: &[Complex], at: usize, bound| match array.get(at) {
        Some(number) => index(*number, matrix.base, bound),
        None => Some(0),
    };
    let (major, indices, bound) = match format {
        SparseFormat::Rows => (rows, columns, matrix.columns),
        SparseFormat::Columns => (columns, rows, matrix.rows),
        SparseFormat::Pairs | SparseFormat::PairsByColumns => {
            // Without an array, the number of the entry is meant.
            let either = |array: &[Complex], at: usize, bound: u64| match array.get(at) {
                Some(number) => index(*number, matrix.base, bound),
                None => ((at as u64) < bound).then_some(at),
            };
            let pair = |at| {
                let row = either(rows, at, matrix.rows)?;
                Some(Entry { row, column: either(columns, at, matrix.columns)?, value: value(at) })
            };
            return (0..matrix.entries as usize).map(pair).collect();
        }
    };
    let mut entries = Vec::with_capacity(matrix.entries as usize);
    for (line, ends) in major.windows(2).enumerate() {
        let [first, end] = [0, 1].map(|end| index(ends[end], matrix.base, matrix.entries + 1));
        for at in first?..end? {
            let other = minor(indices, at, bound)?;
            let (row, column) = if format == SparseFormat::Rows { (line, other) } else { (other, line) };
            entries.push(Entry { row, column, value: value(at) });
        }
        if entries.len() > matrix.entries as usize {
            return None;
        }
    }
    Some(entries)
}

/// Sorts entries as a format has them; equal ones keep their order.
pub(super) fn sort(entries: &mut [Entry], format: SparseFormat) {
    match format {
        SparseFormat::Rows | SparseFormat::Pairs => entries.sort_by_key(|entry| (entry.row, entry.column)),
        SparseFormat::Columns | SparseFormat::PairsByColumns => {
            entries.sort_by_key(|entry| (entry.column, entry.row));
        }
    }
}

/// The arrays of a matrix with these entries, which are sorted. `is_counts`: how many entries each line has, not where
/// it begins.
pub(super) fn arrays(matrix: &SparseMatrix, entries: &[Entry], is_counts: bool) -> Option<[Vec<Complex>; 3]> {
    let base = f64::from(matrix.base);
    let indices =
        |of: fn(&Entry) -> usize| entries.iter().map(|entry| [of(entry) as f64 + base, 0.0]).collect();
    let lines = |of: fn(&Entry) -> usize, count: u64| {
        let mut counts = vec![0_u64; count as usize];
        entries.iter().for_each(|entry| counts[of(entry)] += 1);
        if is_counts {
            return counts.into_iter().map(|count| [count as f64, 0.0]).collect();
        }
        let mut sum = 0;
        let ends = counts.into_iter().map(|count| {
            sum += count;
            [sum as f64 + base, 0.0]
        });
        std::iter::once([base, 0.0]).chain(ends).collect()
    };
    let (rows, columns) = match SparseFormat::from_number(matrix.format)? {
        SparseFormat::Rows => (lines(|entry| entry.row, matrix.rows), indices(|entry| entry.column)),
        SparseFormat::Columns => (indices(|entry| entry.row), lines(|entry| entry.column, matrix.columns)),
        _ => (indices(|entry| entry.row), indices(|entry| entry.column)),
    };
    Some([rows, columns, entries.iter().map(|entry| entry.value).collect()])
}

/// All elements but zeros.
pub(super) fn from_dense(dense: &Dense<'_>) -> Vec<Entry> {
    let rows = dense.rows.max(1);
    let entry = |(at, value): (usize, &Complex)| Entry { row: at % rows, column: at / rows, value: *value };
    dense.elements.iter().enumerate().map(entry).filter(|entry| entry.value != [0.0; 2]).collect()
}

/// `y = alpha * A * x + y`
pub(super) fn multiply_dense(entries: &[Entry], alpha: Complex, x: &Dense<'_>, y: &mut Dense<'_>) {
    for column in 0..y.columns() {
        let to = y.column(column);
        for entry in entries {
            let product = times(times(alpha, entry.value), x.at(entry.column, column));
            to[entry.row] = plus(to[entry.row], product);
        }
    }
}

/// The product of two matrices, sorted by rows.
pub(super) fn product(
    mut left: Vec<Entry>,
    mut right: Vec<Entry>,
    columns: usize,
    alpha: Complex,
    is_stopped: &dyn Fn() -> bool,
) -> Vec<Entry> {
    sort(&mut left, SparseFormat::Rows);
    sort(&mut right, SparseFormat::Rows);
    let row_of = |row: usize| {
        let first = right.partition_point(|entry| entry.row < row);
        right[first..].iter().take_while(move |entry| entry.row == row)
    };
    let mut sums: Vec<Option<Complex>> = vec![None; columns];
    let (mut touched, mut result) = (Vec::new(), Vec::new());
    for line in left.chunk_by(|one, other| one.row == other.row) {
        if is_stopped() {
            break;
        }
        for entry in line {
            for other in row_of(entry.column) {
                let sum = &mut sums[other.column];
                if sum.is_none() {
                    touched.push(other.column);
                }
                *sum = Some(plus(sum.unwrap_or_default(), times(entry.value, other.value)));
            }
        }
        touched.sort_unstable();
        for column in touched.drain(..) {
            let value = times(alpha, sums[column].take().unwrap_or_default());
            result.push(Entry { row: line[0].row, column, value });
        }
    }
    result
}

/// The sum of two matrices: entries of the same element become one.
pub(super) fn sum(left: &[Entry], alpha: Complex, right: &[Entry], beta: Complex) -> Vec<Entry> {
    let scaled = |entry: &Entry, factor| Entry { value: times(factor, entry.value), ..*entry };
    let left = left.iter().map(|entry| scaled(entry, alpha));
    let mut all: Vec<Entry> = left.chain(right.iter().map(|entry| scaled(entry, beta))).collect();
    sort(&mut all, SparseFormat::Rows);
    all.dedup_by(|next, merged| {
        let is_same = (next.row, next.column) == (merged.row, merged.column);
        if is_same {
            merged.value = plus(merged.value, next.value);
        }
        is_same
    });
    all
}

/// Solves with the triangle of a matrix, in place.
pub(super) fn solve(mut entries: Vec<Entry>, is_upper: bool, is_unit: bool, y: &mut Dense<'_>) {
    sort(&mut entries, SparseFormat::Rows);
    let order = y.rows;
    let first: Vec<usize> = (0..=order).map(|row| entries.partition_point(|entry| entry.row < row)).collect();
    for column in 0..y.columns() {
        let x = y.column(column);
        for step in 0..order {
            let row = if is_upper { order - 1 - step } else { step };
            let (mut value, mut diagonal) = (x[row], [0.0, 0.0]);
            for entry in &entries[first[row]..first[row + 1]] {
                if entry.column == row {
                    diagonal = plus(diagonal, entry.value);
                } else if (entry.column > row) == is_upper {
                    value = minus(value, times(entry.value, x[entry.column]));
                }
            }
            x[row] = if is_unit { value } else { over(value, diagonal) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(values: &[f64]) -> Vec<Complex> {
        values.iter().map(|value| [*value, 0.0]).collect()
    }

    fn matrix(format: SparseFormat, entries: u64) -> SparseMatrix {
        SparseMatrix {
            rows: 2,
            columns: 3,
            entries,
            base: 1,
            format: format as u16,
            ..SparseMatrix::default()
        }
    }

    /// `[[0, 5, 7], [6, 0, 0]]`
    fn example() -> Vec<Entry> {
        let arrays = [real(&[1.0, 3.0, 4.0]), real(&[2.0, 3.0, 1.0]), real(&[5.0, 7.0, 6.0])];
        entries(&matrix(SparseFormat::Rows, 3), [&arrays[0], &arrays[1], &arrays[2]]).unwrap()
    }

    #[test]
    fn entries_survive_every_format() {
        for format in (0..4).map(|number| SparseFormat::from_number(number).unwrap()) {
            let mut sorted = example();
            sort(&mut sorted, format);
            let stored = arrays(&matrix(format, 3), &sorted, false).unwrap();
            let found = entries(&matrix(format, 3), [&stored[0], &stored[1], &stored[2]]);
            assert_eq!(found, Some(sorted), "{format:?}");
        }
        let counts = arrays(&matrix(SparseFormat::Rows, 3), &example(), true).unwrap();
        assert_eq!(counts[0], real(&[2.0, 1.0]));
    }

    #[test]
    fn indices_out_of_range_are_refused() {
        let values = real(&[1.0; 3]);
        for (offsets, indices) in [
            ([1.0, 3.0, 4.0], [2.0, 3.0, 4.0]),
            ([1.0, 3.0, 4.0], [2.0, 0.0, 1.0]),
            ([1.0, 3.0, 5.0], [2.0, 3.0, 1.0]),
            ([1.0, f64::NAN, 4.0], [2.0, 3.0, 1.0]),
        ] {
            let (offsets, indices) = (real(&offsets), real(&indices));
            assert_eq!(entries(&matrix(SparseFormat::Rows, 3), [&offsets, &indices, &values]), None);
        }
        // More entries than there are, since a line begins again before its end.
        let (offsets, indices) = (real(&[1.0, 4.0, 1.0, 4.0]), real(&[1.0, 2.0, 3.0]));
        assert_eq!(entries(&matrix(SparseFormat::Rows, 3), [&offsets, &indices, &values]), None);
    }

    #[test]
    fn products_and_sums_merge_entries() {
        let turned: Vec<Entry> = example()
            .into_iter()
            .map(|entry| Entry { row: entry.column, column: entry.row, ..entry })
            .collect();
        let found = product(example(), turned, 2, [1.0, 0.0], &|| false);
        let elements: Vec<_> = found.iter().map(|entry| (entry.row, entry.column, entry.value[0])).collect();
        assert_eq!(elements, [(0, 0, 74.0), (1, 1, 36.0)]);
        let found = sum(&example(), [2.0, 0.0], &example(), [-1.0, 0.0]);
        assert_eq!(found, example());
    }
}
