//! Arithmetic rounded in a direction other than to nearest.
//!
//! Single precision is computed in double precision, where the result and its error are known, and made odd
//! when it is inexact, so that rounding it once more gives what rounding once would (Boldo and Melquiond,
//! "When double rounding is odd"). Double precision is computed with integers of 128 bits.

/// Numbers that compiled code passes for the roundings.
pub(crate) const NEAREST: u32 = 0;
pub(crate) const ZERO: u32 = 1;
pub(crate) const DOWN: u32 = 2;
pub(crate) const UP: u32 = 3;

/// A binary format of floating-point numbers.
#[derive(Clone, Copy)]
struct Format {
    /// Bits of the fraction.
    fraction: u32,
    /// What is added to exponents; the largest finite number has this exponent.
    bias: i32,
}

const HALF: Format = Format { fraction: 10, bias: 15 };
const BRAIN: Format = Format { fraction: 7, bias: 127 };
const DOUBLE: Format = Format { fraction: 52, bias: 1023 };

/// A finite number: `magnitude` times two to the power of `exponent`, and a little more if it is `inexact`.
#[derive(Clone, Copy)]
struct Exact {
    is_negative: bool,
    magnitude: u128,
    exponent: i32,
    inexact: bool,
}

impl Exact {
    /// A finite number of double precision.
    fn of(value: f64) -> Self {
        let bits = value.to_bits();
        let (field, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        let magnitude = if field == 0 { fraction } else { fraction | 1 << 52 };
        Self {
            is_negative: value.is_sign_negative(),
            magnitude: u128::from(magnitude),
            exponent: field.max(1) - 1075,
            inexact: false,
        }
    }

    /// The same number with the highest bit of the magnitude where a sum of two still fits.
    fn normalized(mut self) -> Self {
        if self.magnitude != 0 {
            let shift = self.magnitude.leading_zeros() - 2;
            self.magnitude <<= shift;
            self.exponent -= shift as i32;
        }
        self
    }

    /// The bits of the number, rounded. A number that is `inexact` has more bits than the format.
    fn round(self, format: Format, mode: u32) -> u64 {
        let infinity = (2 * format.bias as u64 + 1) << format.fraction;
        let sign = u64::from(self.is_negative) * ((infinity + (1 << format.fraction)) & !infinity);
        if self.magnitude == 0 {
            return sign;
        }
        let highest = self.exponent + 127 - self.magnitude.leading_zeros() as i32;
        let quantum = highest.max(1 - format.bias) - format.fraction as i32;
        let shift = quantum - self.exponent;
        let (significand, rest, half) = match shift {
            ..=0 => (self.magnitude << -shift, 0, 0),
            1..=127 => {
                let significand = self.magnitude >> shift;
                (significand, self.magnitude - (significand << shift), 1 << (shift - 1))
            }
            // Less than half of the smallest number.
            _ => (0, 1, 2),
        };
        let is_up = match mode {
            NEAREST => rest > half || rest == half && half != 0 && (self.inexact || significand & 1 != 0),
            UP => !self.is_negative && (rest != 0 || self.inexact),
            DOWN => self.is_negative && (rest != 0 || self.inexact),
            _ => false,
        };
        let significand = significand as u64 + u64::from(is_up);
        // A fraction that overflows makes the exponent one greater, as it should.
        let field = (quantum + format.fraction as i32 + format.bias - 1).min(2 * format.bias + 1) as u64;
        let bits = (field << format.fraction) + significand;
        if bits < infinity {
            return sign | bits;
        }
        let is_infinite = match mode {
            NEAREST => true,
            UP => !self.is_negative,
            DOWN => self.is_negative,
            _ => false,
        };
        sign | if is_infinite { infinity } else { infinity - 1 }
    }

    fn to_double(self, mode: u32) -> f64 {
        f64::from_bits(self.round(DOUBLE, mode))
    }
}

/// The sum of two exact numbers, of which one may have 106 bits, that are not both zero.
fn sum(a: Exact, b: Exact, mode: u32) -> Exact {
    let (a, b) = (a.normalized(), b.normalized());
    let (greater, less) = match (a.magnitude, b.magnitude) {
        (_, 0) => (a, b),
        (0, _) => (b, a),
        _ if (a.exponent, a.magnitude) >= (b.exponent, b.magnitude) => (a, b),
        _ => (b, a),
    };
    let distance = greater.exponent.saturating_sub(less.exponent).clamp(0, 127);
    let shifted = less.magnitude >> distance;
    let inexact = shifted << distance != less.magnitude;
    let magnitude = if greater.is_negative == less.is_negative {
        greater.magnitude + shifted
    } else {
        greater.magnitude - shifted - u128::from(inexact)
    };
    // Terms that cancel give a positive zero, but a negative one when rounding down.
    let is_negative = if magnitude == 0 { mode == DOWN } else { greater.is_negative };
    Exact { is_negative, magnitude, exponent: greater.exponent, inexact }
}

/// A sum of `nearest` and a small `error`, made odd where that is not zero.
fn odd(nearest: f64, error: f64) -> f64 {
    if error == 0.0 || nearest.to_bits() & 1 != 0 || !nearest.is_finite() {
        return nearest;
    }
    let is_farther = (error > 0.0) == (nearest > 0.0);
    f64::from_bits(if is_farther { nearest.to_bits() + 1 } else { nearest.to_bits() - 1 })
}

/// The sum of two numbers that single-precision ones or their products are, made odd.
fn odd_sum(a: f64, b: f64, mode: u32) -> f64 {
    let sum = a + b;
    if sum == 0.0 {
        let is_negative =
            if mode == DOWN { a.is_sign_negative() || b.is_sign_negative() } else { sum.is_sign_negative() };
        return if is_negative { -0.0 } else { 0.0 };
    }
    // Knuth's two-sum.
    let b_part = sum - a;
    let a_part = sum - b_part;
    odd(sum, (a - a_part) + (b - b_part))
}

pub(crate) extern "C" fn add_single(a: f32, b: f32, mode: u32) -> f32 {
    double_to_single(odd_sum(f64::from(a), f64::from(b), mode), mode)
}

pub(crate) extern "C" fn subtract_single(a: f32, b: f32, mode: u32) -> f32 {
    add_single(a, -b, mode)
}

pub(crate) extern "C" fn multiply_single(a: f32, b: f32, mode: u32) -> f32 {
    double_to_single(f64::from(a) * f64::from(b), mode)
}

pub(crate) extern "C" fn divide_single(a: f32, b: f32, mode: u32) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let quotient = a / b;
    // a - quotient * b has the sign of (exact - quotient) times that of b.
    let remainder = if b.is_finite() { (-quotient).mul_add(b, a) } else { 0.0 };
    double_to_single(odd(quotient, remainder * b.signum()), mode)
}

pub(crate) extern "C" fn root_single(a: f32, mode: u32) -> f32 {
    let root = f64::from(a).sqrt();
    double_to_single(odd(root, (-root).mul_add(root, f64::from(a))), mode)
}

pub(crate) extern "C" fn reciprocal_single(a: f32, mode: u32) -> f32 {
    divide_single(1.0, a, mode)
}

/// `a * b + c`, rounded once.
pub(crate) extern "C" fn fused_single(a: f32, b: f32, c: f32, mode: u32) -> f32 {
    // The product is exact.
    double_to_single(odd_sum(f64::from(a) * f64::from(b), f64::from(c), mode), mode)
}

/// `a * b + c` of halves, made odd, so that rounding it once more gives what rounding once would.
pub(crate) extern "C" fn fused_odd(a: f64, b: f64, c: f64) -> f64 {
    odd_sum(a * b, c, NEAREST)
}

pub(crate) extern "C" fn add_double(a: f64, b: f64, mode: u32) -> f64 {
    fused_double(a, 1.0, b, mode)
}

pub(crate) extern "C" fn subtract_double(a: f64, b: f64, mode: u32) -> f64 {
    fused_double(a, 1.0, -b, mode)
}

pub(crate) extern "C" fn multiply_double(a: f64, b: f64, mode: u32) -> f64 {
    let product = a * b;
    if !a.is_finite() || !b.is_finite() {
        return product;
    }
    exact_product(a, b).to_double(mode)
}

fn exact_product(a: f64, b: f64) -> Exact {
    let (a, b) = (Exact::of(a), Exact::of(b));
    Exact {
        is_negative: a.is_negative != b.is_negative,
        magnitude: a.magnitude * b.magnitude,
        exponent: a.exponent + b.exponent,
        inexact: false,
    }
}

pub(crate) extern "C" fn divide_double(a: f64, b: f64, mode: u32) -> f64 {
    if a == 0.0 || b == 0.0 || !a.is_finite() || !b.is_finite() {
        return a / b;
    }
    let (a, b) = (Exact::of(a).normalized(), Exact::of(b));
    Exact {
        is_negative: a.is_negative != b.is_negative,
        magnitude: a.magnitude / b.magnitude,
        exponent: a.exponent - b.exponent,
        inexact: !a.magnitude.is_multiple_of(b.magnitude),
    }
    .to_double(mode)
}

pub(crate) extern "C" fn root_double(a: f64, mode: u32) -> f64 {
    if a == 0.0 || !a.is_finite() || a < 0.0 {
        return a.sqrt();
    }
    let mut a = Exact::of(a).normalized();
    if a.exponent & 1 != 0 {
        (a.magnitude, a.exponent) = (a.magnitude >> 1, a.exponent + 1);
    }
    let root = a.magnitude.isqrt();
    Exact {
        is_negative: false,
        magnitude: root,
        exponent: a.exponent / 2,
        inexact: root * root != a.magnitude,
    }
    .to_double(mode)
}

pub(crate) extern "C" fn reciprocal_double(a: f64, mode: u32) -> f64 {
    divide_double(1.0, a, mode)
}

/// `a * b + c`, rounded once.
pub(crate) extern "C" fn fused_double(a: f64, b: f64, c: f64, mode: u32) -> f64 {
    if !a.is_finite() || !b.is_finite() || !c.is_finite() {
        return a.mul_add(b, c);
    }
    let (product, term) = (exact_product(a, b), Exact::of(c));
    if product.magnitude == 0 && term.magnitude == 0 {
        let is_negative = match mode {
            DOWN => product.is_negative || term.is_negative,
            _ => product.is_negative && term.is_negative,
        };
        return if is_negative { -0.0 } else { 0.0 };
    }
    sum(product, term, mode).to_double(mode)
}

/// A double-precision number rounded to single precision.
pub(crate) extern "C" fn double_to_single(value: f64, mode: u32) -> f32 {
    let nearest = value as f32;
    let is_outward = match mode {
        UP => value > 0.0,
        DOWN => value < 0.0,
        NEAREST => return nearest,
        _ => false,
    };
    let (magnitude, exact) = (f64::from(nearest).abs(), value.abs());
    f32::from_bits(match (is_outward, magnitude < exact, magnitude > exact) {
        (true, true, _) => nearest.to_bits() + 1,
        (false, _, true) => nearest.to_bits() - 1,
        _ => nearest.to_bits(),
    })
}

/// A double-precision number rounded to half precision, or to `bfloat16` when `brain` is not zero; the upper
/// bits of the result are zero.
pub(crate) extern "C" fn double_to_half(value: f64, brain: u32, mode: u32) -> u32 {
    let format = if brain != 0 { BRAIN } else { HALF };
    if value.is_nan() {
        return 0x7fff;
    }
    if value.is_infinite() {
        return if brain != 0 { 0x7f80 } else { 0x7c00 } | u32::from(value < 0.0) << 15;
    }
    Exact::of(value).round(format, mode) as u32
}

/// An integer (signed when `signed` is not zero).
fn exact_integer(value: u64, signed: u32) -> Exact {
    let is_negative = signed != 0 && (value as i64) < 0;
    let magnitude = if is_negative { (value as i64).unsigned_abs() } else { value };
    Exact { is_negative, magnitude: u128::from(magnitude), exponent: 0, inexact: false }
}

/// An integer (signed when `signed` is not zero) rounded to single precision.
pub(crate) extern "C" fn integer_to_single(value: u64, signed: u32, mode: u32) -> f32 {
    const SINGLE: Format = Format { fraction: 23, bias: 127 };
    f32::from_bits(exact_integer(value, signed).round(SINGLE, mode) as u32)
}

/// An integer (signed when `signed` is not zero) rounded to double precision.
pub(crate) extern "C" fn integer_to_double(value: u64, signed: u32, mode: u32) -> f64 {
    exact_integer(value, signed).to_double(mode)
}

/// An integer (signed when `signed` is not zero) rounded to half precision, or to `bfloat16` when `brain` is
/// not zero; the upper bits of the result are zero.
pub(crate) extern "C" fn integer_to_half(value: u64, signed: u32, brain: u32, mode: u32) -> u32 {
    exact_integer(value, signed).round(if brain != 0 { BRAIN } else { HALF }, mode) as u32
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

    /// Results of an H200 (driver 580, 29 November 2026), where the nearest result or its error is no help.
    #[test]
    fn tiny_huge_and_cancelled_results_round_as_on_a_gpu() {
        let single = f32::from_bits;
        assert_eq!(multiply_single(single(0xbf7f_ffff), single(1), ZERO).to_bits(), 0x8000_0000);
        assert_eq!(multiply_single(single(0xbf7f_ffff), single(1), DOWN).to_bits(), 0x8000_0001);
        assert_eq!(fused_single(1.0, 1.0, -1.0, DOWN).to_bits(), 0x8000_0000);
        assert_eq!(fused_double(1.0, 1.0, -1.0, DOWN).to_bits(), 1 << 63);
        assert_eq!(fused_double(1.0, 1.0, -1.0, ZERO).to_bits(), 0);
        assert_eq!(add_double(-0.0, -0.0, UP).to_bits(), 1 << 63);
        assert_eq!(add_double(0.0, 0.0, DOWN).to_bits(), 0);
    }

    #[test]
    fn double_precision_brackets_the_nearest_result_over_all_exponents() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let value = f64::from_bits(state);
            if value.is_finite() { value } else { 1.0 }
        };
        for _ in 0..20_000 {
            let (a, b, c) = (next(), next(), next());
            let near = f64::from_bits(a.to_bits() ^ (b.to_bits() & 0x000f_ffff_ffff_ffff));
            for (name, nearest, of) in [
                ("add", a + near, &(|mode| add_double(a, near, mode)) as &dyn Fn(u32) -> f64),
                ("mul", a * b, &|mode| multiply_double(a, b, mode)),
                ("div", a / b, &|mode| divide_double(a, b, mode)),
                ("sqrt", a.abs().sqrt(), &|mode| root_double(a.abs(), mode)),
                ("fma", a.mul_add(b, c), &|mode| fused_double(a, b, c, mode)),
                ("fma", a.mul_add(1.5, -a), &|mode| fused_double(a, 1.5, -a, mode)),
            ] {
                let (down, up, zero) = (of(DOWN), of(UP), of(ZERO));
                assert_eq!(of(NEAREST).to_bits(), nearest.to_bits(), "{name} of {a:e}, {b:e}, {c:e}");
                assert!(down <= nearest && nearest <= up, "{name} of {a:e}, {b:e}, {c:e}");
                assert!(down == up || down.next_up() == up, "{name} of {a:e}, {b:e}, {c:e}");
                assert_eq!(zero, if nearest < 0.0 || down < 0.0 { up } else { down }, "{name}");
            }
        }
    }

    #[test]
    fn halves_round_in_the_direction_asked_for() {
        assert_eq!(double_to_half(1.0 + 1e-9, 0, UP), 0x3c01);
        assert_eq!(double_to_half(-1.0 - 1e-9, 1, DOWN), 0xbf81);
        assert_eq!(double_to_half(-1e-300, 0, DOWN), 0x8001);
        assert_eq!(double_to_half(1e300, 0, ZERO), 0x7bff);
        assert_eq!(double_to_half(1e300, 1, UP), 0x7f80);
        assert_eq!(integer_to_half(65_535, 0, 0, ZERO), 0x7bff);
        assert_eq!(integer_to_half(257_u64.wrapping_neg(), 1, 1, DOWN), 0xc381);
        // Rounded to double precision first this would be a tie.
        assert_eq!(integer_to_half(0x8080_0000_0000_0001, 0, 1, NEAREST), 0x5f01);
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
