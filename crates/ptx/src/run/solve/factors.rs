//! Triangular systems, and the factors of Cholesky, LU and QR, as LAPACK stores them.

use super::complex::{Complex, Dense, conjugate, minus, over, plus, scaled, square, times};

/// Solves a triangular system for each column of `b`, in place.
pub(super) fn substitute(
    at: impl Fn(usize, usize) -> Complex,
    order: usize,
    is_upper: bool,
    is_unit: bool,
    b: &mut Dense<'_>,
) {
    for column in 0..b.columns() {
        let x = b.column(column);
        for step in 0..order {
            let known = if is_upper { order - 1 - step } else { step };
            if !is_unit {
                x[known] = over(x[known], at(known, known));
            }
            let value = x[known];
            let rest = if is_upper { 0..known } else { known + 1..order };
            for row in rest {
                x[row] = minus(x[row], times(at(row, known), value));
            }
        }
    }
}

/// Multiplies each column of `b` by a triangle, in place.
pub(super) fn multiply_triangle(a: &Dense<'_>, is_upper: bool, is_unit: bool, b: &mut Dense<'_>) {
    let order = a.rows;
    for column in 0..b.columns() {
        let x = b.column(column);
        for step in 0..order {
            // What is still needed is replaced last.
            let row = if is_upper { step } else { order - 1 - step };
            let mut sum = if is_unit { x[row] } else { times(a.at(row, row), x[row]) };
            let others = if is_upper { row + 1..order } else { 0..row };
            for other in others {
                sum = plus(sum, times(a.at(row, other), x[other]));
            }
            x[row] = sum;
        }
    }
}

/// Replaces the lower triangle by its factor; gives the first column, from 1 on, where there is none.
pub(super) fn cholesky(a: &mut Dense<'_>, is_stopped: &dyn Fn() -> bool) -> usize {
    let order = a.rows;
    for column in 0..order {
        if is_stopped() {
            return 0;
        }
        for before in 0..column {
            let (left, here) = a.two_columns(before, column);
            let factor = conjugate(left[column]);
            for row in column..order {
                here[row] = minus(here[row], times(left[row], factor));
            }
        }
        let diagonal = a.at(column, column)[0];
        // Also what is not a number.
        if diagonal.is_nan() || diagonal <= 0.0 {
            return column + 1;
        }
        let root = diagonal.sqrt();
        let here = a.column(column);
        here[column] = [root, 0.0];
        here[column + 1..].iter_mut().for_each(|element| *element = scaled(*element, 1.0 / root));
    }
    0
}

/// Replaces a matrix by its factors; gives the first column, from 1 on, whose pivot is zero. Without `pivots` rows
/// stay where they are.
pub(super) fn lu(
    a: &mut Dense<'_>,
    mut pivots: Option<&mut Dense<'_>>,
    is_stopped: &dyn Fn() -> bool,
) -> usize {
    let (rows, columns) = (a.rows, a.columns());
    let mut info = 0;
    for column in 0..rows.min(columns) {
        if is_stopped() {
            return 0;
        }
        if let Some(pivots) = pivots.as_deref_mut() {
            let magnitude = |element: &Complex| element[0].abs() + element[1].abs();
            let mut pivot_row = column;
            for row in column + 1..rows {
                if magnitude(&a.at(row, column)) > magnitude(&a.at(pivot_row, column)) {
                    pivot_row = row;
                }
            }
            pivots.set(column, 0, [(pivot_row + 1) as f64, 0.0]);
            if pivot_row != column {
                a.swap_rows(column, pivot_row);
            }
        }
        let pivot = a.at(column, column);
        if square(pivot) == 0.0 {
            info = if info == 0 { column + 1 } else { info };
            continue;
        }
        a.column(column)[column + 1..].iter_mut().for_each(|element| *element = over(*element, pivot));
        for next in column + 1..columns {
            let (left, here) = a.two_columns(column, next);
            let factor = here[column];
            for row in column + 1..rows {
                here[row] = minus(here[row], times(left[row], factor));
            }
        }
    }
    info
}

/// Solves with the factors of a matrix, or of its transpose or conjugate.
pub(super) fn solve_lu(
    a: &Dense<'_>,
    pivots: Option<&Dense<'_>>,
    (transposes, conjugates): (bool, bool),
    b: &mut Dense<'_>,
) {
    let order = a.rows;
    // A pivot comes from the program's memory.
    let exchange = |b: &mut Dense<'_>, row: usize| {
        let other = pivots
            .map_or(row, |pivots| pivots.at(row, 0)[0] as usize - usize::from(pivots.at(row, 0)[0] >= 1.0));
        if other < order {
            b.swap_rows(row, other);
        }
    };
    let element = |row, column| if conjugates { conjugate(a.at(row, column)) } else { a.at(row, column) };
    if transposes {
        substitute(|row, column| element(column, row), order, false, false, b);
        substitute(|row, column| element(column, row), order, true, true, b);
        (0..order).rev().for_each(|row| exchange(b, row));
    } else {
        (0..order).for_each(|row| exchange(b, row));
        substitute(element, order, false, true, b);
        substitute(element, order, true, false, b);
    }
}

/// Replaces a matrix by R and the vectors of the reflections, and sets their factors.
pub(super) fn qr(a: &mut Dense<'_>, factors: &mut Dense<'_>, is_stopped: &dyn Fn() -> bool) {
    let (rows, columns) = (a.rows, a.columns());
    for column in 0..rows.min(columns) {
        if is_stopped() {
            return;
        }
        let here = &mut a.column(column)[column..];
        let first = here[0];
        let rest: f64 = here[1..].iter().map(|element| square(*element)).sum();
        if rest == 0.0 && first[1] == 0.0 {
            factors.set(column, 0, [0.0; 2]);
            continue;
        }
        let norm = (square(first) + rest).sqrt();
        let diagonal = if first[0] > 0.0 { -norm } else { norm };
        let factor = [(diagonal - first[0]) / diagonal, -first[1] / diagonal];
        let divisor = minus(first, [diagonal, 0.0]);
        here[1..].iter_mut().for_each(|element| *element = over(*element, divisor));
        here[0] = [diagonal, 0.0];
        factors.set(column, 0, factor);
        for next in column + 1..columns {
            let (vector, there) = a.two_columns(column, next);
            reflect(&vector[column..], conjugate(factor), &mut there[column..]);
        }
    }
}

/// Multiplies a column by `1 - factor * v * v^H`, where the first element of `v` counts as one.
fn reflect(v: &[Complex], factor: Complex, column: &mut [Complex]) {
    let Some(first) = column.first().copied() else { return };
    let product = v[1..]
        .iter()
        .zip(&column[1..])
        .fold(first, |sum, (v, element)| plus(sum, times(conjugate(*v), *element)));
    let product = times(product, factor);
    column[0] = minus(first, product);
    for (v, element) in v[1..].iter().zip(&mut column[1..]) {
        *element = minus(*element, times(*v, product));
    }
}

/// Multiplies `b` by Q, or by its conjugate transpose.
pub(super) fn multiply_q(a: &Dense<'_>, factors: &Dense<'_>, is_inverse: bool, b: &mut Dense<'_>) {
    let count = a.columns();
    for column in 0..b.columns() {
        for step in 0..count {
            let index = if is_inverse { step } else { count - 1 - step };
            let factor = factors.at(index, 0);
            let factor = if is_inverse { conjugate(factor) } else { factor };
            let vector = &a.elements[index * a.rows + index..][..a.rows - index];
            reflect(vector, factor, &mut b.column(column)[index..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some matrix, stored by columns.
    fn numbers(count: usize, seed: u64) -> Vec<Complex> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1_u32 << 31) - 0.5
        };
        (0..count).map(|_| [next(), next()]).collect()
    }

    fn max_difference(a: &[Complex], b: &[Complex]) -> f64 {
        a.iter().zip(b).map(|(a, b)| square(minus(*a, *b)).sqrt()).fold(0.0, f64::max)
    }

    fn product(a: &Dense<'_>, b: &Dense<'_>) -> Vec<Complex> {
        let mut all = Vec::new();
        for column in 0..b.columns() {
            for row in 0..a.rows {
                all.push(
                    (0..b.rows).fold([0.0; 2], |sum, k| plus(sum, times(a.at(row, k), b.at(k, column)))),
                );
            }
        }
        all
    }

    #[test]
    fn systems_are_solved_with_lu_in_all_forms() {
        let order = 7;
        let matrix = numbers(order * order, 1);
        for (transposes, conjugates) in [(false, false), (true, false), (true, true)] {
            let mut op = matrix.clone();
            for row in 0..order {
                for column in 0..order {
                    let element =
                        matrix[if transposes { row * order + column } else { column * order + row }];
                    op[column * order + row] = if conjugates { conjugate(element) } else { element };
                }
            }
            let mut x = numbers(order * 2, 2);
            let expected = x.clone();
            let mut b =
                product(&Dense { rows: order, elements: &mut op }, &Dense { rows: order, elements: &mut x });
            let (mut factors, mut pivots) = (matrix.clone(), vec![[0.0; 2]; order]);
            let mut factors = Dense { rows: order, elements: &mut factors };
            let mut pivots = Dense { rows: order, elements: &mut pivots };
            assert_eq!(lu(&mut factors, Some(&mut pivots), &|| false), 0);
            let mut solved = Dense { rows: order, elements: &mut b };
            solve_lu(&factors, Some(&pivots), (transposes, conjugates), &mut solved);
            assert!(max_difference(solved.elements, &expected) < 1e-12);
        }
        let mut zero = vec![[0.0; 2]; 4];
        assert_eq!(lu(&mut Dense { rows: 2, elements: &mut zero }, None, &|| false), 1);
    }

    #[test]
    fn factors_multiply_to_the_matrix() {
        let (rows, columns) = (6, 4);
        let matrix = numbers(rows * columns, 3);
        let (mut qr_elements, mut factors) = (matrix.clone(), vec![[0.0; 2]; columns]);
        let mut a = Dense { rows, elements: &mut qr_elements };
        let mut factors = Dense { rows: columns, elements: &mut factors };
        qr(&mut a, &mut factors, &|| false);
        // Q * R
        let mut r = vec![[0.0; 2]; rows * columns];
        for column in 0..columns {
            for row in 0..=column {
                r[column * rows + row] = a.at(row, column);
            }
        }
        let mut r = Dense { rows, elements: &mut r };
        multiply_q(&a, &factors, false, &mut r);
        assert!(max_difference(r.elements, &matrix) < 1e-13);
        multiply_q(&a, &factors, true, &mut r);
        assert!(square(minus(r.at(0, 0), a.at(0, 0))) < 1e-24 && square(r.at(5, 3)) < 1e-24);
    }
}
