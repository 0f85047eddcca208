//! Complex numbers and matrices of them, stored by columns.

/// A number: real and imaginary part.
pub(in crate::run) type Complex = [f64; 2];

pub(in crate::run) fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

pub(in crate::run) fn plus(a: Complex, b: Complex) -> Complex {
    [a[0] + b[0], a[1] + b[1]]
}

pub(in crate::run) fn minus(a: Complex, b: Complex) -> Complex {
    [a[0] - b[0], a[1] - b[1]]
}

pub(in crate::run) fn conjugate(a: Complex) -> Complex {
    [a[0], -a[1]]
}

pub(in crate::run) fn scaled(a: Complex, factor: f64) -> Complex {
    [a[0] * factor, a[1] * factor]
}

/// The square of the magnitude.
pub(in crate::run) fn square(a: Complex) -> f64 {
    a[0] * a[0] + a[1] * a[1]
}

/// The quotient; of a real divisor as real numbers have it.
pub(in crate::run) fn over(a: Complex, b: Complex) -> Complex {
    if b[1] == 0.0 {
        return [a[0] / b[0], a[1] / b[0]];
    }
    let product = times(a, conjugate(b));
    [product[0] / square(b), product[1] / square(b)]
}

/// A matrix in memory of somebody else.
pub(in crate::run) struct Dense<'a> {
    pub(in crate::run) rows: usize,
    pub(in crate::run) elements: &'a mut [Complex],
}

impl Dense<'_> {
    pub(in crate::run) fn columns(&self) -> usize {
        self.elements.len().checked_div(self.rows).unwrap_or(0)
    }

    pub(in crate::run) fn at(&self, row: usize, column: usize) -> Complex {
        self.elements[column * self.rows + row]
    }

    pub(in crate::run) fn set(&mut self, row: usize, column: usize, value: Complex) {
        self.elements[column * self.rows + row] = value;
    }

    pub(in crate::run) fn column(&mut self, column: usize) -> &mut [Complex] {
        &mut self.elements[column * self.rows..][..self.rows]
    }

    /// Two different columns.
    pub(in crate::run) fn two_columns(
        &mut self,
        first: usize,
        second: usize,
    ) -> (&mut [Complex], &mut [Complex]) {
        debug_assert!(first < second);
        let (before, from) = self.elements.split_at_mut(second * self.rows);
        (&mut before[first * self.rows..][..self.rows], &mut from[..self.rows])
    }

    pub(in crate::run) fn swap_rows(&mut self, first: usize, second: usize) {
        for column in 0..self.columns() {
            self.elements.swap(column * self.rows + first, column * self.rows + second);
        }
    }

    pub(in crate::run) fn set_identity(&mut self) {
        self.elements.fill(Complex::default());
        for index in 0..self.rows.min(self.columns()) {
            self.set(index, index, [1.0, 0.0]);
        }
    }
}
