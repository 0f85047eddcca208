//! Incomplete factors of sparse matrices: LU and Cholesky without fill, whose entries are those of the matrix.

use super::entries::Entry;
use crate::run::solve::complex::{Complex, conjugate, minus, over, square, times};

/// Small pivots of an incomplete LU factorization are replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Boost {
    /// A pivot whose size is not above it is small.
    pub(super) tolerance: f64,
    /// What stands in its place.
    pub(super) value: Complex,
}

/// The entries by rows, each row sorted by columns: indices of the list of entries.
fn rows(entries: &[Entry], order: usize) -> Vec<Vec<usize>> {
    let mut rows = vec![Vec::new(); order];
    entries.iter().enumerate().for_each(|(at, entry)| rows[entry.row].push(at));
    rows.iter_mut().for_each(|row: &mut Vec<usize>| row.sort_by_key(|at| entries[*at].column));
    rows
}

/// The entry of a row in a column.
fn find(entries: &[Entry], row: &[usize], column: usize) -> Option<usize> {
    row.binary_search_by_key(&column, |at| entries[*at].column).ok().map(|index| row[index])
}

/// The value on a row's diagonal: zero if it has no entry there.
fn pivot(entries: &[Entry], row: &[usize], number: usize) -> Complex {
    find(entries, row, number).map_or([0.0; 2], |at| entries[at].value)
}

/// The first row without an entry on the diagonal.
pub(super) fn missing_pivot(entries: &[Entry], order: usize) -> Option<usize> {
    let rows = rows(entries, order);
    (0..order).find(|row| find(entries, &rows[*row], *row).is_none())
}

/// Overwrites the entries of a square matrix with its incomplete factors L, which has ones on its diagonal, and U. Gives
/// the first row whose pivot is missing or zero.
pub(super) fn lu(
    entries: &mut [Entry],
    order: usize,
    boost: Option<Boost>,
    is_stopped: &dyn Fn() -> bool,
) -> Option<usize> {
    let rows = rows(entries, order);
    let mut singular = None;
    for (own, line) in rows.iter().enumerate() {
        if is_stopped() {
            return Some(own);
        }
        let diagonal = line.partition_point(|at| entries[*at].column < own);
        for at in line[..diagonal].iter().copied() {
            let column = entries[at].column;
            let factor = over(entries[at].value, pivot(entries, &rows[column], column));
            entries[at].value = factor;
            let first_right = rows[column].partition_point(|other| entries[*other].column <= column);
            for other in &rows[column][first_right..] {
                if let Some(changed) = find(entries, line, entries[*other].column) {
                    entries[changed].value =
                        minus(entries[changed].value, times(factor, entries[*other].value));
                }
            }
        }
        if let (Some(at), Some(boost)) = (find(entries, line, own), boost)
            && square(entries[at].value).sqrt() <= boost.tolerance
        {
            entries[at].value = boost.value;
        }
        if singular.is_none() && pivot(entries, line, own) == [0.0; 2] {
            singular = Some(own);
        }
    }
    singular
}

/// Overwrites the entries of the lower triangle of a Hermitian matrix with its incomplete factor L; the others stay as
/// they are. Gives the first row whose pivot is missing or not positive.
pub(super) fn cholesky(entries: &mut [Entry], order: usize, is_stopped: &dyn Fn() -> bool) -> Option<usize> {
    let rows = rows(entries, order);
    let mut singular = None;
    for (own, line) in rows.iter().enumerate() {
        if is_stopped() {
            return Some(own);
        }
        let end = line.partition_point(|at| entries[*at].column <= own);
        for (index, at) in line[..end].iter().copied().enumerate() {
            let column = entries[at].column;
            let mut sum = entries[at].value;
            for earlier in &line[..index] {
                if let Some(other) = find(entries, &rows[column], entries[*earlier].column) {
                    sum = minus(sum, times(entries[*earlier].value, conjugate(entries[other].value)));
                }
            }
            entries[at].value = if column == own {
                [sum[0].sqrt(), 0.0]
            } else {
                over(sum, pivot(entries, &rows[column], column))
            };
        }
        let [pivot, _] = pivot(entries, line, own);
        if singular.is_none() && (pivot.is_nan() || pivot <= 0.0) {
            singular = Some(own);
        }
    }
    singular
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::solve::complex::plus;

    fn entries(elements: &[(usize, usize, f64, f64)]) -> Vec<Entry> {
        elements
            .iter()
            .map(|(row, column, real, imaginary)| Entry {
                row: *row,
                column: *column,
                value: [*real, *imaginary],
            })
            .collect()
    }

    fn at(entries: &[Entry], row: usize, column: usize) -> Complex {
        entries
            .iter()
            .find(|entry| (entry.row, entry.column) == (row, column))
            .map_or([0.0; 2], |entry| entry.value)
    }

    /// Rows in no order within themselves; (2, 1) would fill (2, 3) of the factors, and is left out.
    const ELEMENTS: [(usize, usize, f64, f64); 9] = [
        (0, 2, 1.0, 0.5),
        (0, 0, 4.0, 0.0),
        (1, 1, 5.0, 0.0),
        (1, 3, 2.0, -1.0),
        (2, 0, 1.0, -0.5),
        (2, 1, 1.0, 0.0),
        (2, 2, 6.0, 0.0),
        (3, 1, 2.0, 1.0),
        (3, 3, 7.0, 0.0),
    ];

    #[test]
    fn the_product_of_the_factors_is_the_matrix_where_it_has_entries() {
        let given = entries(&ELEMENTS);
        let mut factors = given.clone();
        assert_eq!(lu(&mut factors, 4, None, &|| false), None);
        for entry in &given {
            let product = (0..4).fold([0.0; 2], |sum, k| {
                let left = match k.cmp(&entry.row) {
                    std::cmp::Ordering::Less => at(&factors, entry.row, k),
                    std::cmp::Ordering::Equal => [1.0, 0.0],
                    std::cmp::Ordering::Greater => [0.0; 2],
                };
                let right = if k <= entry.column { at(&factors, k, entry.column) } else { [0.0; 2] };
                plus(sum, times(left, right))
            });
            assert!(square(minus(product, entry.value)) < 1e-28, "{entry:?}");
        }
        let mut factor = given.clone();
        assert_eq!(cholesky(&mut factor, 4, &|| false), None);
        for entry in given.iter().filter(|entry| entry.row >= entry.column) {
            let product = (0..=entry.column).fold([0.0; 2], |sum, k| {
                plus(sum, times(at(&factor, entry.row, k), conjugate(at(&factor, entry.column, k))))
            });
            assert!(square(minus(product, entry.value)) < 1e-28, "{entry:?}");
        }
        let upper = |entry: &&Entry| entry.row < entry.column;
        assert!(given.iter().filter(upper).eq(factor.iter().filter(upper)), "the upper triangle stays");
    }

    #[test]
    fn the_first_row_without_a_pivot_is_named() {
        let mut none = entries(&[(0, 0, 1.0, 0.0), (1, 0, 2.0, 0.0), (1, 1, 6.0, 0.0), (0, 1, 3.0, 0.0)]);
        let boost = Some(Boost { tolerance: 1e-6, value: [0.5, 0.0] });
        let mut boosted = none.clone();
        assert_eq!(lu(&mut none, 2, None, &|| false), Some(1));
        assert_eq!((lu(&mut boosted, 2, boost, &|| false), boosted[2].value), (None, [0.5, 0.0]));
        let mut missing = entries(&[(0, 0, 1.0, 0.0), (1, 0, 2.0, 0.0)]);
        assert_eq!((missing_pivot(&missing, 2), missing_pivot(&boosted, 2)), (Some(1), None));
        assert_eq!(lu(&mut missing, 2, boost, &|| false), Some(1));
        let mut negative = entries(&[(0, 0, 1.0, 0.0), (1, 0, 2.0, 0.0), (1, 1, 3.0, 0.0)]);
        assert_eq!(cholesky(&mut negative, 2, &|| false), Some(1));
    }
}
