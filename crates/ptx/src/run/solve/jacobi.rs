//! Eigenvalues and singular values by Jacobi's rotations: slow, simple, and exact to the last digits.

use super::complex::{Complex, Dense, conjugate, minus, plus, scaled, square, times};

/// Rounds over all pairs of columns, of which some ten are needed.
const MAX_ROUNDS: usize = 60;

/// Pairs whose product is smaller than this share of their sizes are at right angles.
const TOLERANCE: f64 = 1e-15;

/// The rotation that makes two columns orthogonal: `cosine`, and `sine` with the phase of the product.
struct Rotation {
    cosine: f64,
    sine: f64,
    phase: Complex,
}

impl Rotation {
    /// For the diagonal elements and the product between them.
    fn of(first: f64, second: f64, product: Complex) -> Self {
        let magnitude = square(product).sqrt();
        let ratio = (second - first) / (2.0 * magnitude);
        let tangent = ratio.signum() / (ratio.abs() + (1.0 + ratio * ratio).sqrt());
        let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
        Self { cosine, sine: tangent * cosine, phase: scaled(product, 1.0 / magnitude) }
    }

    /// Both elements of a row after the rotation of its columns.
    fn apply(&self, first: &mut Complex, second: &mut Complex) {
        let turned = times(conjugate(self.phase), *second);
        let (a, b) = (*first, turned);
        *first = minus(scaled(a, self.cosine), scaled(b, self.sine));
        *second = plus(scaled(a, self.sine), scaled(b, self.cosine));
    }

    fn apply_to_columns(&self, matrix: &mut Dense<'_>, first: usize, second: usize) {
        let (left, right) = matrix.two_columns(first, second);
        left.iter_mut().zip(right).for_each(|(a, b)| self.apply(a, b));
    }
}

/// Eigenvalues of the Hermitian matrix whose lower triangle is given, in ascending order, and if there is room for
/// them the vectors. Gives 0, or how many pairs are not at right angles.
pub(super) fn eigen(
    a: &mut Dense<'_>,
    values: &mut Dense<'_>,
    vectors: &mut Dense<'_>,
    is_stopped: &dyn Fn() -> bool,
) -> usize {
    let order = a.rows;
    for column in 0..order {
        a.set(column, column, [a.at(column, column)[0], 0.0]);
        for row in column + 1..order {
            a.set(column, row, conjugate(a.at(row, column)));
        }
    }
    let mut all = vec![Complex::default(); order * order];
    let mut turned = Dense { rows: order, elements: &mut all };
    turned.set_identity();
    let size = a.elements.iter().map(|element| square(*element)).sum::<f64>().sqrt();
    let mut left = 0;
    for _ in 0..MAX_ROUNDS {
        left = 0;
        for first in 0..order {
            for second in first + 1..order {
                let product = a.at(first, second);
                if square(product).sqrt() <= TOLERANCE * TOLERANCE.sqrt() * size || is_stopped() {
                    continue;
                }
                left += 1;
                let rotation = Rotation::of(a.at(first, first)[0], a.at(second, second)[0], product);
                rotation.apply_to_columns(a, first, second);
                // Rows are turned by the conjugates.
                for column in 0..order {
                    let (mut up, mut down) =
                        (conjugate(a.at(first, column)), conjugate(a.at(second, column)));
                    rotation.apply(&mut up, &mut down);
                    a.set(first, column, conjugate(up));
                    a.set(second, column, conjugate(down));
                }
                rotation.apply_to_columns(&mut turned, first, second);
            }
        }
        if left == 0 {
            break;
        }
    }
    let mut sorted: Vec<usize> = (0..order).collect();
    sorted.sort_by(|x, y| a.at(*x, *x)[0].total_cmp(&a.at(*y, *y)[0]));
    for (index, from) in sorted.into_iter().enumerate() {
        values.set(index, 0, a.at(from, from));
        if !vectors.elements.is_empty() {
            vectors.column(index).copy_from_slice(turned.column(from));
        }
    }
    left
}

/// Singular values in descending order, and if there is room for them the vectors: A = `left` * values * `right`.
/// Gives 0, or how many pairs are not at right angles.
pub(super) fn singular(
    a: &Dense<'_>,
    values: &mut Dense<'_>,
    left: &mut Dense<'_>,
    right: &mut Dense<'_>,
    is_stopped: &dyn Fn() -> bool,
) -> usize {
    let (rows, columns) = (a.rows, a.columns());
    // At least as many rows as columns: otherwise of the conjugate transpose.
    let is_wide = columns > rows;
    let (long, few) = (rows.max(columns), rows.min(columns));
    let mut work = Vec::with_capacity(long * few);
    for column in 0..few {
        for row in 0..long {
            work.push(if is_wide { conjugate(a.at(column, row)) } else { a.at(row, column) });
        }
    }
    let mut work = Dense { rows: long, elements: &mut work };
    let mut all = vec![Complex::default(); few * few];
    let mut turned = Dense { rows: few, elements: &mut all };
    turned.set_identity();
    let mut unfinished = 0;
    for _ in 0..MAX_ROUNDS {
        unfinished = 0;
        for first in 0..few {
            for second in first + 1..few {
                let (x, y) = work.two_columns(first, second);
                let sizes = [&*x, &*y].map(|v| v.iter().map(|element| square(*element)).sum::<f64>());
                let product =
                    x.iter().zip(&*y).fold([0.0; 2], |sum, (x, y)| plus(sum, times(conjugate(*x), *y)));
                let bound = TOLERANCE * (sizes[0] * sizes[1]).sqrt();
                if square(product).sqrt() <= bound.max(f64::MIN_POSITIVE) || is_stopped() {
                    continue;
                }
                unfinished += 1;
                let rotation = Rotation::of(sizes[0], sizes[1], product);
                rotation.apply_to_columns(&mut work, first, second);
                rotation.apply_to_columns(&mut turned, first, second);
            }
        }
        if unfinished == 0 {
            break;
        }
    }
    let mut sizes = Vec::with_capacity(few);
    for column in 0..few {
        sizes.push(work.column(column).iter().map(|element| square(*element)).sum::<f64>().sqrt());
    }
    let mut sorted: Vec<usize> = (0..few).collect();
    sorted.sort_by(|x, y| sizes[*y].total_cmp(&sizes[*x]));
    let min_size = sizes.iter().copied().fold(0.0, f64::max) * 1e-14;
    let mut basis: Vec<Vec<Complex>> = Vec::with_capacity(long);
    for (index, from) in sorted.iter().enumerate() {
        values.set(index, 0, [sizes[*from], 0.0]);
        if left.elements.is_empty() {
            continue;
        }
        let own: Vec<Complex> = if sizes[*from] > min_size {
            work.column(*from).iter().map(|element| scaled(*element, 1.0 / sizes[*from])).collect()
        } else {
            orthogonal_to(&basis, long)
        };
        basis.push(own);
    }
    if left.elements.is_empty() {
        return unfinished;
    }
    let count = if is_wide { right.rows } else { left.columns() };
    while basis.len() < count {
        basis.push(orthogonal_to(&basis, long));
    }
    // `basis` spans the longer side, `turned` the shorter one.
    for (index, own) in basis.iter().enumerate() {
        if is_wide {
            own.iter().enumerate().for_each(|(row, element)| right.set(index, row, conjugate(*element)));
        } else {
            left.column(index).copy_from_slice(own);
        }
    }
    for (index, from) in sorted.into_iter().enumerate() {
        let own = turned.column(from);
        if is_wide {
            left.column(index).copy_from_slice(own);
        } else {
            own.iter().enumerate().for_each(|(row, element)| right.set(index, row, conjugate(*element)));
        }
    }
    unfinished
}

/// A vector of length one at right angles to others, which are fewer than its elements.
fn orthogonal_to(others: &[Vec<Complex>], len: usize) -> Vec<Complex> {
    let mut best = (0.0, vec![Complex::default(); len]);
    for unit in 0..len {
        let mut vector = vec![Complex::default(); len];
        vector[unit] = [1.0, 0.0];
        // Twice, since the first time rounds.
        for other in others.iter().chain(others) {
            let product =
                other.iter().zip(&vector).fold([0.0; 2], |sum, (o, v)| plus(sum, times(conjugate(*o), *v)));
            vector.iter_mut().zip(other).for_each(|(v, o)| *v = minus(*v, times(*o, product)));
        }
        let size = vector.iter().map(|element| square(*element)).sum::<f64>().sqrt();
        if size > best.0 {
            best = (size, vector);
        }
        if size > 0.5 {
            break;
        }
    }
    let (size, mut vector) = best;
    vector.iter_mut().for_each(|element| *element = scaled(*element, 1.0 / size));
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hermitian(order: usize) -> Vec<Complex> {
        let mut all = vec![[0.0; 2]; order * order];
        for column in 0..order {
            for row in 0..=column {
                let value =
                    [(row * 7 % 5) as f64 - column as f64 * 0.3, if row == column { 0.0 } else { 0.25 }];
                all[column * order + row] = value;
                all[row * order + column] = conjugate(value);
            }
        }
        all
    }

    #[test]
    fn eigenvectors_are_scaled_by_their_values() {
        let order = 6;
        let (matrix, mut a) = (hermitian(order), hermitian(order));
        let (mut values, mut vectors) = (vec![[0.0; 2]; order], vec![[0.0; 2]; order * order]);
        let [mut a, mut values, mut vectors] =
            [&mut a, &mut values, &mut vectors].map(|elements| Dense { rows: order, elements });
        assert_eq!(eigen(&mut a, &mut values, &mut vectors, &|| false), 0);
        for index in 0..order {
            for row in 0..order {
                let got = (0..order)
                    .fold([0.0; 2], |sum, k| plus(sum, times(matrix[k * order + row], vectors.at(k, index))));
                let expected = times(values.at(index, 0), vectors.at(row, index));
                assert!(square(minus(got, expected)) < 1e-24);
            }
            assert!(index == 0 || values.at(index - 1, 0)[0] <= values.at(index, 0)[0]);
        }
    }

    #[test]
    fn singular_vectors_and_values_multiply_to_the_matrix() {
        // The last one has a rank of one.
        for (rows, columns, rank) in [(5, 3, 3), (3, 5, 3), (4, 4, 4), (4, 3, 1)] {
            let mut matrix: Vec<Complex> = (0..rows * columns)
                .map(|index| {
                    let (row, column) = (index % rows, index / rows);
                    if rank == 1 {
                        [(row + 1) as f64 * (column + 1) as f64, 0.0]
                    } else {
                        [((row * 5 + column * 3) % 7) as f64 - 2.5, (row * column) as f64 * 0.1]
                    }
                })
                .collect();
            let few = rows.min(columns);
            let mut values = vec![[0.0; 2]; few];
            let (mut left, mut right) = (vec![[0.0; 2]; rows * rows], vec![[0.0; 2]; columns * columns]);
            let a = Dense { rows, elements: &mut matrix };
            let mut values = Dense { rows: few, elements: &mut values };
            let mut left = Dense { rows, elements: &mut left };
            let mut right = Dense { rows: columns, elements: &mut right };
            assert_eq!(singular(&a, &mut values, &mut left, &mut right, &|| false), 0);
            for row in 0..rows {
                for column in 0..columns {
                    let got = (0..few).fold([0.0; 2], |sum, k| {
                        let term = times(times(left.at(row, k), values.at(k, 0)), right.at(k, column));
                        plus(sum, term)
                    });
                    assert!(square(minus(got, a.at(row, column))) < 1e-22, "{rows} x {columns}");
                }
            }
            for one in 0..rows {
                for other in 0..rows {
                    let product = (0..rows).fold([0.0; 2], |sum, row| {
                        plus(sum, times(conjugate(left.at(row, one)), left.at(row, other)))
                    });
                    let expected = [f64::from(u8::from(one == other)), 0.0];
                    assert!(square(minus(product, expected)) < 1e-24, "{rows} x {columns}");
                }
            }
        }
    }
}
