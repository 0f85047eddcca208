//! Complex numbers and matrices of them, stored by columns.

/// A number: real and imaginary part.
pub(super) type Complex = [f64; 2];

pub(super) fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

pub(super) fn plus(a: Complex, b: Complex) -> Complex {
    [a[0] + b[0], a[1] + b[1]]
}

pub(super) fn minus(a: Complex, b: Complex) -> Complex {
    [a[0] - b[0], a[1] - b[1]]
}

pub(super) fn conjugate(a: Complex) -> Complex {
    [a[0], -a[1]]
}

pub(super) fn scaled(a: Complex, factor: f64) -> Complex {
    [a[0] * factor, a[1] * factor]
}

/// The square of the magnitude.
pub(super) fn square(a: Complex) -> f64 {
    a[0] * a[0] + a[1] * a[1]
}

/// The quotient; of a real divisor as real numbers have it.
pub(super) fn over(a: Complex, b: Complex) -> Complex {
    if b[1] == 0.0 {
        return [a[0] / b[0], a[1] / b[0]];
    }
    let product = times(a, conjugate(b));
    [product[0] / square(b), product[1] / square(b)]
}

/// A matrix in memory of somebody else.
pub(super) struct Dense<'a> {
    pub(super) rows: usize,
    pub(super) elements: &'a mut [Complex],
}

impl Dense<'_> {
    pub(super) fn columns(&self) -> usize {
        self.elements.len().checked_div(self.rows).unwrap_or(0)
    }

    pub(super) fn at(&self, row: usize, column: usize) -> Complex {
        self.elements[column * self.rows + row]
    }

    pub(super) fn set(&mut self, row: usize, column: usize, value: Complex) {
        self.elements[column * self.rows + row] = value;
    }

    pub(super) fn column(&mut self, column: usize) -> &mut [Complex] {
        &mut self.elements[column * self.rows..][..self.rows]
    }

    /// Two different columns.
    pub(super) fn two_columns(&mut self, first: usize, second: usize) -> (&mut [Complex], &mut [Complex]) {
        debug_assert!(first < second);
        let (before, from) = self.elements.split_at_mut(second * self.rows);
        (&mut before[first * self.rows..][..self.rows], &mut from[..self.rows])
    }

    pub(super) fn swap_rows(&mut self, first: usize, second: usize) {
        for column in 0..self.columns() {
            self.elements.swap(column * self.rows + first, column * self.rows + second);
        }
    }

    pub(super) fn set_identity(&mut self) {
        self.elements.fill(Complex::default());
        for index in 0..self.rows.min(self.columns()) {
            self.set(index, index, [1.0, 0.0]);
        }
    }
}
