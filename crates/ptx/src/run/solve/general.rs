//! Eigenvalues and eigenvectors of matrices that need not be Hermitian: shifted QR steps on the Hessenberg form.

use super::complex::{Complex, Dense, conjugate, minus, over, plus, scaled, square, times};

/// QR steps for one eigenvalue, of which two or three are needed.
const MAX_STEPS: usize = 90;

fn magnitude(value: Complex) -> f64 {
    value[0].hypot(value[1])
}

fn square_root(value: Complex) -> Complex {
    let size = magnitude(value);
    // Half the sum does not cancel; the other part follows from the product.
    let larger = ((size + value[0].abs()) / 2.0).sqrt();
    if larger == 0.0 {
        return [0.0; 2];
    }
    let smaller = value[1].abs() / (2.0 * larger);
    let [real, imaginary] = if value[0] >= 0.0 { [larger, smaller] } else { [smaller, larger] };
    [real, imaginary.copysign(value[1])]
}

/// Makes all below the first subdiagonal zero by reflections, and multiplies `vectors` by them from the right.
fn reduce(a: &mut Dense<'_>, vectors: &mut Dense<'_>) {
    let order = a.rows;
    for column in 0..order.saturating_sub(2) {
        let mut normal: Vec<Complex> = a.column(column)[column + 1..].to_vec();
        if normal[1..].iter().all(|element| *element == [0.0; 2]) {
            continue;
        }
        let size = normal.iter().map(|element| square(*element)).sum::<f64>().sqrt();
        let first = magnitude(normal[0]);
        let phase = if first == 0.0 { [1.0, 0.0] } else { scaled(normal[0], 1.0 / first) };
        normal[0] = plus(normal[0], scaled(phase, size));
        let factor = 2.0 / normal.iter().map(|element| square(*element)).sum::<f64>();
        for other in column..order {
            let part = &mut a.column(other)[column + 1..];
            let product =
                part.iter().zip(&normal).fold([0.0; 2], |sum, (x, v)| plus(sum, times(conjugate(*v), *x)));
            let product = scaled(product, factor);
            part.iter_mut().zip(&normal).for_each(|(x, v)| *x = minus(*x, times(*v, product)));
        }
        reflect_columns(a, column + 1, &normal, factor);
        reflect_columns(vectors, column + 1, &normal, factor);
    }
}

/// Multiplies a matrix from the right by the reflection of the columns from `first` on.
fn reflect_columns(matrix: &mut Dense<'_>, first: usize, normal: &[Complex], factor: f64) {
    for row in 0..matrix.rows {
        let product = normal
            .iter()
            .enumerate()
            .fold([0.0; 2], |sum, (at, v)| plus(sum, times(matrix.at(row, first + at), *v)));
        let product = scaled(product, factor);
        for (at, v) in normal.iter().enumerate() {
            let changed = minus(matrix.at(row, first + at), times(product, conjugate(*v)));
            matrix.set(row, first + at, changed);
        }
    }
}

/// The eigenvalue of the last two rows and columns of a block that is nearest to its last element.
fn shift(a: &Dense<'_>, end: usize) -> Complex {
    let (first, last) = (a.at(end - 1, end - 1), a.at(end, end));
    let product = times(a.at(end - 1, end), a.at(end, end - 1));
    let half = scaled(minus(first, last), 0.5);
    let root = square_root(plus(times(half, half), product));
    let (sum, difference) = (plus(half, root), minus(half, root));
    let divisor = if square(sum) > square(difference) { sum } else { difference };
    if divisor == [0.0; 2] { last } else { minus(last, over(product, divisor)) }
}

/// A QR step with this shift on the block of rows and columns from `first` to `end`.
fn step(a: &mut Dense<'_>, vectors: &mut Dense<'_>, [first, end]: [usize; 2], shift: Complex) {
    let order = a.rows;
    (first..=end).for_each(|at| a.set(at, at, minus(a.at(at, at), shift)));
    let mut rotations = Vec::with_capacity(end - first);
    for row in first..end {
        let (up, down) = (a.at(row, row), a.at(row + 1, row));
        let size = magnitude(up).hypot(magnitude(down));
        let (cosine, sine) = if size == 0.0 {
            ([1.0, 0.0], [0.0; 2])
        } else {
            (scaled(up, 1.0 / size), scaled(down, 1.0 / size))
        };
        for column in row..order {
            let (up, down) = (a.at(row, column), a.at(row + 1, column));
            a.set(row, column, plus(times(conjugate(cosine), up), times(conjugate(sine), down)));
            a.set(row + 1, column, minus(times(cosine, down), times(sine, up)));
        }
        rotations.push((cosine, sine));
    }
    for (column, (cosine, sine)) in (first..end).zip(rotations) {
        let turn = |matrix: &mut Dense<'_>, rows: usize| {
            let (left, right) = matrix.two_columns(column, column + 1);
            for (x, y) in left.iter_mut().zip(right).take(rows) {
                let (before, next) = (*x, *y);
                *x = plus(times(before, cosine), times(next, sine));
                *y = minus(times(next, conjugate(cosine)), times(before, conjugate(sine)));
            }
        };
        turn(a, (column + 2).min(end + 1));
        turn(vectors, order);
    }
    (first..=end).for_each(|at| a.set(at, at, plus(a.at(at, at), shift)));
}

/// Makes the matrix an upper triangle with the eigenvalues on its diagonal. Gives 0, or how many are not found.
fn triangle(a: &mut Dense<'_>, vectors: &mut Dense<'_>, is_stopped: &dyn Fn() -> bool) -> usize {
    reduce(a, vectors);
    let (mut end, mut steps) = (a.rows.saturating_sub(1), 0);
    let size = a.elements.iter().map(|element| square(*element)).sum::<f64>().sqrt();
    while end > 0 {
        let is_small = |at: &usize| {
            let diagonal = magnitude(a.at(*at - 1, *at - 1)) + magnitude(a.at(*at, *at));
            let scale = if diagonal == 0.0 { size } else { diagonal };
            magnitude(a.at(*at, *at - 1)) <= f64::EPSILON * scale
        };
        let first = (1..=end).rev().find(is_small).unwrap_or(0);
        if first > 0 {
            a.set(first, first - 1, [0.0; 2]);
        }
        if first == end {
            (end, steps) = (end - 1, 0);
            continue;
        }
        steps += 1;
        if steps > MAX_STEPS || is_stopped() {
            return end + 1;
        }
        // Another shift now and then, since the usual one can repeat itself.
        let shift = if steps % 10 == 0 {
            plus(a.at(end, end), [magnitude(a.at(end, end - 1)), 0.0])
        } else {
            shift(a, end)
        };
        step(a, vectors, [first, end], shift);
    }
    0
}

/// The eigenvectors of an upper triangle, multiplied by the matrix that made it one, of length one and with a real
/// largest element.
fn eigenvectors(a: &Dense<'_>, turned: &Dense<'_>, vectors: &mut Dense<'_>) {
    let order = a.rows;
    let size = a.elements.iter().map(|element| magnitude(*element)).fold(f64::MIN_POSITIVE, f64::max);
    for index in 0..order {
        let mut own = vec![[0.0; 2]; index + 1];
        own[index] = [1.0, 0.0];
        for row in (0..index).rev() {
            let sum = (row + 1..=index).fold([0.0; 2], |sum, at| plus(sum, times(a.at(row, at), own[at])));
            // Where eigenvalues are equal, a small difference is as good as none.
            let difference = minus(a.at(index, index), a.at(row, row));
            let is_equal = magnitude(difference) < f64::EPSILON * size;
            own[row] = over(sum, if is_equal { [f64::EPSILON * size, 0.0] } else { difference });
            if magnitude(own[row]) > 1e100 {
                own.iter_mut().for_each(|element| *element = scaled(*element, 1e-100));
            }
        }
        let to = vectors.column(index);
        for (row, element) in to.iter_mut().enumerate() {
            *element = own
                .iter()
                .enumerate()
                .fold([0.0; 2], |sum, (at, x)| plus(sum, times(turned.at(row, at), *x)));
        }
        normalize(to);
    }
}

/// Makes a vector's length one and its largest element real.
fn normalize(vector: &mut [Complex]) {
    let length = vector.iter().map(|element| square(*element)).sum::<f64>().sqrt();
    let main = vector.iter().copied().fold([0.0; 2], |a, b| if square(b) > square(a) { b } else { a });
    if length > 0.0 {
        let factor = scaled(conjugate(main), 1.0 / (magnitude(main) * length));
        vector.iter_mut().for_each(|element| *element = times(*element, factor));
    }
}

/// Orders eigenvalues of a real matrix as pairs of conjugates, the one with the positive imaginary part first, and
/// real ones: what rounding made of them becomes exactly that. Gives from which ones they come.
fn pairs(values: &mut Vec<Complex>) -> Vec<usize> {
    let size = values.iter().map(|value| magnitude(*value)).fold(0.0, f64::max);
    let mut is_used = vec![false; values.len()];
    let (mut paired, mut from) = (Vec::new(), Vec::new());
    for index in 0..values.len() {
        if is_used[index] {
            continue;
        }
        is_used[index] = true;
        let own = values[index];
        let distance = |at: &usize| square(minus(values[*at], conjugate(own)));
        let other = (index + 1..values.len())
            .filter(|at| !is_used[*at] && values[*at][1] * own[1] < 0.0)
            .min_by(|one, other| distance(one).total_cmp(&distance(other)));
        match other {
            Some(other) if own[1].abs() > 1e-14 * size && distance(&other).sqrt() < own[1].abs() => {
                is_used[other] = true;
                let upper = [own[0], own[1].abs()];
                paired.extend([upper, conjugate(upper)]);
                from.extend([if own[1] > 0.0 { index } else { other }; 2]);
            }
            _ => {
                paired.push([own[0], 0.0]);
                from.push(index);
            }
        }
    }
    *values = paired;
    from
}

/// Where eigenvalues and vectors go.
pub(super) struct Results<'a, 'b> {
    pub(super) values: &'a mut Dense<'b>,
    /// Imaginary parts, if there is room for them.
    pub(super) imaginary: &'a mut Dense<'b>,
    /// Vectors, if there is room for them.
    pub(super) vectors: &'a mut Dense<'b>,
    /// Whether the matrix is real.
    pub(super) is_real: bool,
    /// Whether vectors are, too: then those of a pair of conjugates are real and imaginary part of the first one.
    pub(super) has_real_vectors: bool,
}

/// Eigenvalues, and the vectors that the matrix multiplies by them. Gives 0, or how many are not found.
pub(super) fn eigen(a: &mut Dense<'_>, results: Results<'_, '_>, is_stopped: &dyn Fn() -> bool) -> usize {
    let order = a.rows;
    let mut all = vec![Complex::default(); order * order];
    let mut turned = Dense { rows: order, elements: &mut all };
    turned.set_identity();
    let missing = triangle(a, &mut turned, is_stopped);
    let mut values: Vec<Complex> = (0..order).map(|at| a.at(at, at)).collect();
    let from = if results.is_real { pairs(&mut values) } else { (0..order).collect() };
    for (index, value) in values.iter().enumerate() {
        results.values.set(index, 0, *value);
        if let Some(to) = results.imaginary.elements.get_mut(index) {
            *to = [value[1], 0.0];
        }
    }
    if results.vectors.elements.is_empty() {
        return missing;
    }
    let mut own = vec![Complex::default(); order * order];
    let mut own = Dense { rows: order, elements: &mut own };
    eigenvectors(a, &turned, &mut own);
    for (index, (value, from)) in values.iter().zip(from).enumerate() {
        let to = results.vectors.column(index);
        to.copy_from_slice(own.column(from));
        if !results.is_real {
            continue;
        }
        for element in to {
            *element = match (value[1] == 0.0, results.has_real_vectors) {
                (true, _) => [element[0], 0.0],
                (false, true) => [element[usize::from(value[1] < 0.0)], 0.0],
                (false, false) => {
                    if value[1] < 0.0 {
                        conjugate(*element)
                    } else {
                        *element
                    }
                }
            };
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eigenvalues and vectors of a matrix.
    fn decompose(matrix: &[Complex], is_real: bool, has_real_vectors: bool) -> (Vec<Complex>, Vec<Complex>) {
        let order = matrix.len().isqrt();
        let mut a = matrix.to_vec();
        let (mut values, mut vectors) = (vec![[0.0; 2]; order], vec![[0.0; 2]; order * order]);
        let results = Results {
            values: &mut Dense { rows: order, elements: &mut values },
            imaginary: &mut Dense { rows: 1, elements: &mut [] },
            vectors: &mut Dense { rows: order, elements: &mut vectors },
            is_real,
            has_real_vectors,
        };
        assert_eq!(eigen(&mut Dense { rows: order, elements: &mut a }, results, &|| false), 0);
        (values, vectors)
    }

    /// How much the matrix's product with a vector differs from the value's.
    fn error(matrix: &[Complex], value: Complex, vector: &[Complex]) -> f64 {
        let order = vector.len();
        let length = vector.iter().map(|element| square(*element)).sum::<f64>();
        assert!((length - 1.0).abs() < 1e-12, "a vector of length {length}");
        let product =
            |row| (0..order).fold([0.0; 2], |sum, at| plus(sum, times(matrix[at * order + row], vector[at])));
        (0..order).map(|row| magnitude(minus(product(row), times(value, vector[row])))).fold(0.0, f64::max)
    }

    /// Numbers that follow no pattern.
    fn random(count: usize, is_real: bool) -> Vec<Complex> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / f64::from(1 << 23) - 1.0
        };
        (0..count).map(|_| [next(), if is_real { 0.0 } else { next() }]).collect()
    }

    #[test]
    fn vectors_are_multiplied_by_their_values() {
        for order in [1, 2, 3, 5, 20] {
            for is_real in [false, true] {
                let matrix = random(order * order, is_real);
                let (values, vectors) = decompose(&matrix, is_real, false);
                for (value, vector) in values.iter().zip(vectors.chunks(order)) {
                    let error = error(&matrix, *value, vector);
                    assert!(error < 1e-11, "order {order}, real {is_real}: {error}");
                }
            }
        }
    }

    #[test]
    fn conjugates_follow_each_other_and_share_two_real_vectors() {
        let order = 9;
        let matrix = random(order * order, true);
        let (values, vectors) = decompose(&matrix, true, true);
        let (mut index, mut pairs) = (0, 0);
        while index < order {
            let vector = &vectors[index * order..][..order];
            if values[index][1] == 0.0 {
                assert!(error(&matrix, values[index], vector) < 1e-11);
                index += 1;
                continue;
            }
            assert!(values[index][1] > 0.0 && values[index + 1] == conjugate(values[index]));
            let imaginary = &vectors[(index + 1) * order..][..order];
            let whole: Vec<Complex> = vector.iter().zip(imaginary).map(|(x, y)| [x[0], y[0]]).collect();
            assert!(error(&matrix, values[index], &whole) < 1e-11);
            (index, pairs) = (index + 2, pairs + 1);
        }
        assert!(pairs > 0, "the matrix has real eigenvalues only");
    }

    #[test]
    fn equal_values_stay_real() {
        // Cyclic, which the usual shift does not change; the identity; a value without enough vectors.
        let cyclic = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
        let identity = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let single = [[2.0, 0.0, 0.0], [1.0, 2.0, 0.0], [0.0, 1.0, 2.0]];
        for (columns, real_values) in [(cyclic, 1), (identity, 3), (single, 3)] {
            let matrix: Vec<Complex> = columns.into_iter().flatten().map(|value| [value, 0.0]).collect();
            let (values, vectors) = decompose(&matrix, true, false);
            assert_eq!(values.iter().filter(|value| value[1] == 0.0).count(), real_values, "{values:?}");
            for (value, vector) in values.iter().zip(vectors.chunks(3)) {
                assert!(error(&matrix, *value, vector) < 1e-11);
            }
        }
    }
}
