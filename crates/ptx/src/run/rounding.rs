//! Arithmetic rounded in a direction other than to nearest.
//!
//! Each function computes the nearest result and the sign of its error, and steps to the neighbour when the
//! error lies on the wrong side. The error of a sum is exact by Knuth's two-sum, those of the other
//! operations by a fused multiplication and addition.

/// Numbers that compiled code passes for the roundings.
pub(crate) const NEAREST: u32 = 0;
pub(crate) const ZERO: u32 = 1;
pub(crate) const DOWN: u32 = 2;
pub(crate) const UP: u32 = 3;

macro_rules! directed {
    ($float:ident, $adjust:ident, $sum_error:ident, $add:ident, $subtract:ident, $multiply:ident, $divide:ident, $root:ident, $reciprocal:ident) => {
        /// Steps from the nearest result in the direction of `mode`, given the sign of (exact - nearest).
        fn $adjust(nearest: $float, error: $float, mode: u32) -> $float {
            if error == 0.0 || error.is_nan() || nearest.is_nan() {
                return nearest;
            }
            if nearest.is_infinite() {
                // The exact result is finite: overflow rounds to the largest number when the direction is
                // inwards.
                let inwards = match mode {
                    ZERO => true,
                    DOWN => nearest > 0.0,
                    UP => nearest < 0.0,
                    _ => false,
                };
                return if inwards { $float::MAX.copysign(nearest) } else { nearest };
            }
            let exact_is_greater = error > 0.0;
            match mode {
                DOWN if !exact_is_greater => nearest.next_down(),
                UP if exact_is_greater => nearest.next_up(),
                ZERO if nearest > 0.0 && !exact_is_greater => nearest.next_down(),
                ZERO if nearest < 0.0 && exact_is_greater => nearest.next_up(),
                _ => nearest,
            }
        }

        fn $sum_error(a: $float, b: $float, sum: $float) -> $float {
            if sum.is_infinite() && a.is_finite() && b.is_finite() {
                return -sum;
            }
            let b_part = sum - a;
            let a_part = sum - b_part;
            (a - a_part) + (b - b_part)
        }

        pub(crate) extern "C" fn $add(a: $float, b: $float, mode: u32) -> $float {
            let sum = a + b;
            if sum == 0.0 && mode == DOWN && a != 0.0 {
                // An exact zero of opposite terms is negative only when rounding down.
                return -0.0;
            }
            $adjust(sum, $sum_error(a, b, sum), mode)
        }

        pub(crate) extern "C" fn $subtract(a: $float, b: $float, mode: u32) -> $float {
            $add(a, -b, mode)
        }

        pub(crate) extern "C" fn $multiply(a: $float, b: $float, mode: u32) -> $float {
            let product = a * b;
            let error = if product.is_infinite() && a.is_finite() && b.is_finite() {
                -product
            } else if product == 0.0 && a != 0.0 && b != 0.0 {
                // The exact product is too small for any number but not zero.
                a.signum() * b.signum()
            } else {
                a.mul_add(b, -product)
            };
            if product == 0.0 && error != 0.0 {
                return match mode {
                    DOWN if error < 0.0 => -$float::from_bits(1),
                    UP if error > 0.0 => $float::from_bits(1),
                    _ => product,
                };
            }
            $adjust(product, error, mode)
        }

        pub(crate) extern "C" fn $divide(a: $float, b: $float, mode: u32) -> $float {
            let quotient = a / b;
            if b == 0.0 || b.is_infinite() || a.is_infinite() {
                return quotient;
            }
            if quotient.is_infinite() {
                return $adjust(quotient, -quotient, mode);
            }
            // a - quotient * b has the sign of (exact - quotient) times that of b.
            let remainder = (-quotient).mul_add(b, a);
            $adjust(quotient, remainder * b.signum(), mode)
        }

        pub(crate) extern "C" fn $root(a: $float, mode: u32) -> $float {
            let root = a.sqrt();
            if a == 0.0 || root.is_infinite() {
                return root;
            }
            $adjust(root, (-root).mul_add(root, a), mode)
        }

        pub(crate) extern "C" fn $reciprocal(a: $float, mode: u32) -> $float {
            $divide(1.0, a, mode)
        }
    };
}

directed!(
    f32,
    adjust_single,
    sum_error_single,
    add_single,
    subtract_single,
    multiply_single,
    divide_single,
    root_single,
    reciprocal_single
);
directed!(
    f64,
    adjust_double,
    sum_error_double,
    add_double,
    subtract_double,
    multiply_double,
    divide_double,
    root_double,
    reciprocal_double
);

/// `a * b + c`, rounded once.
pub(crate) extern "C" fn fused_single(a: f32, b: f32, c: f32, mode: u32) -> f32 {
    let nearest = a.mul_add(b, c);
    // The product of two single-precision numbers is exact in double precision; so is the error of the sum.
    let product = f64::from(a) * f64::from(b);
    let sum = product + f64::from(c);
    let error = sum_error_double(product, f64::from(c), sum);
    let difference =
        if nearest.is_infinite() && sum.is_finite() { -f64::from(nearest) } else { sum - f64::from(nearest) };
    let sign = if difference == 0.0 { error } else { difference };
    adjust_single(nearest, sign.signum() as f32 * f32::from(u8::from(sign != 0.0)), mode)
}

/// `a * b + c`, rounded once.
pub(crate) extern "C" fn fused_double(a: f64, b: f64, c: f64, mode: u32) -> f64 {
    let nearest = a.mul_add(b, c);
    if nearest.is_infinite() && a.is_finite() && b.is_finite() && c.is_finite() {
        return adjust_double(nearest, -nearest, mode);
    }
    // exact - nearest = (c - nearest) + a * b. Its parts are summed exactly as long as nothing over- or
    // underflows.
    let product = a * b;
    let product_error = a.mul_add(b, -product);
    let sum = product + c;
    let sum_error = sum_error_double(product, c, sum);
    let difference = sum - nearest;
    let error = difference + (sum_error + product_error);
    adjust_double(nearest, error, mode)
}

/// A double-precision number rounded to single precision.
pub(crate) extern "C" fn double_to_single(value: f64, mode: u32) -> f32 {
    let nearest = value as f32;
    let difference = value - f64::from(nearest);
    if nearest == 0.0 && value != 0.0 {
        return match mode {
            DOWN if value < 0.0 => -f32::from_bits(1),
            UP if value > 0.0 => f32::from_bits(1),
            _ => nearest,
        };
    }
    let sign = if difference > 0.0 {
        1.0
    } else if difference < 0.0 {
        -1.0
    } else {
        0.0
    };
    adjust_single(nearest, if value.is_infinite() { 0.0 } else { sign }, mode)
}

fn integer_value(value: u64, signed: u32) -> i128 {
    if signed != 0 { i128::from(value as i64) } else { i128::from(value) }
}

/// An integer (signed when `signed` is not zero) rounded to single precision.
pub(crate) extern "C" fn integer_to_single(value: u64, signed: u32, mode: u32) -> f32 {
    let value = integer_value(value, signed);
    let nearest = value as f32;
    adjust_single(nearest, (value - nearest as i128).signum() as f32, mode)
}

/// An integer (signed when `signed` is not zero) rounded to double precision.
pub(crate) extern "C" fn integer_to_double(value: u64, signed: u32, mode: u32) -> f64 {
    let value = integer_value(value, signed);
    let nearest = value as f64;
    adjust_double(nearest, (value - nearest as i128).signum() as f64, mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_round_in_the_direction_asked_for() {
        let tiny = 1e-30_f32;
        assert_eq!(add_single(1.0, tiny, UP), 1_f32.next_up());
        assert_eq!(add_single(1.0, tiny, DOWN), 1.0);
        assert_eq!(add_single(1.0, -tiny, ZERO), 1_f32.next_down());
        assert_eq!(add_single(-1.0, tiny, ZERO), (-1_f32).next_up());
        assert_eq!(subtract_double(1.0, 1e-300, DOWN), 1_f64.next_down());
        assert_eq!(add_single(f32::MAX, f32::MAX, ZERO), f32::MAX);
        assert_eq!(add_single(f32::MAX, f32::MAX, UP), f32::INFINITY);
        assert!(add_single(1.0, -1.0, DOWN).is_sign_negative());
    }

    #[test]
    fn products_quotients_and_roots_bracket_the_exact_result() {
        for (a, b) in [(1.1_f32, 3.3), (7.0, 3.0), (1e20, 1.7), (2.0, 3.0)] {
            let exact = f64::from(a) * f64::from(b);
            assert!(f64::from(multiply_single(a, b, DOWN)) <= exact);
            assert!(f64::from(multiply_single(a, b, UP)) >= exact);
            let below = divide_single(a, b, DOWN);
            let above = divide_single(a, b, UP);
            assert!(f64::from(below) * f64::from(b) <= f64::from(a));
            assert!(f64::from(above) * f64::from(b) >= f64::from(a));
            let root = root_single(a, DOWN);
            assert!(f64::from(root) * f64::from(root) <= f64::from(a));
        }
        assert_eq!(fused_single(1.0, 1.0, 1e-30, UP), 1_f32.next_up());
        assert_eq!(fused_single(2.0, 3.0, 1.0, UP), 7.0);
        assert_eq!(fused_double(1.0, 1.0, -1e-300, DOWN), 1_f64.next_down());
    }

    #[test]
    fn integers_round_in_the_direction_asked_for() {
        let value = (1_u64 << 24) + 1;
        assert_eq!(integer_to_single(value, 0, DOWN), 16_777_216.0);
        assert_eq!(integer_to_single(value, 0, UP), 16_777_218.0);
        assert_eq!(integer_to_single(value.wrapping_neg(), 1, ZERO), -16_777_216.0);
        assert_eq!(double_to_single(1.0 + 1e-12, UP), 1_f32.next_up());
        assert_eq!(double_to_single(1.0 + 1e-12, ZERO), 1.0);
    }
}
