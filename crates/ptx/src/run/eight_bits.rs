//! Floating-point numbers of 8 bits: `e4m3` without infinities and with one NaN, `e5m2` as half precision has it.

/// Negative numbers become zero.
pub(crate) const RELU: i64 = 1;

/// A format, told by how many bits its fraction has.
struct Format {
    mantissa: u32,
    /// The bits of the largest finite number.
    largest: u32,
    /// The exponent of the smallest normal number.
    lowest: i32,
}

impl Format {
    fn of(mantissa: u32) -> Self {
        if mantissa == 3 {
            Self { mantissa, largest: 0x7e, lowest: -6 }
        } else {
            Self { mantissa: 2, largest: 0x7b, lowest: -14 }
        }
    }

    /// The nearest number, to even; a number too large becomes the largest one, and what is none `0x7f`.
    fn nearest(&self, value: f32, relu: bool) -> u32 {
        if value.is_nan() {
            return 0x7f;
        }
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        if relu && sign != 0 {
            return 0;
        }
        // Both steps are exact, but for the rounding to an integer: of what the last bit of the result counts.
        let magnitude = f64::from(value.abs());
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(self.lowest);
        if exponent > 16 {
            return sign | self.largest;
        }
        let units = (magnitude * 2_f64.powi(self.mantissa as i32 - exponent)).round_ties_even() as u32;
        // A normal number has its leading bit counted in the exponent; rounding up to the next power of two
        // carries into it.
        let bits = (((exponent - self.lowest) as u32) << self.mantissa) + units;
        sign | bits.min(self.largest)
    }

    /// The bits of the number as half precision, which has all of them.
    fn half(&self, bits: u32, relu: bool) -> u32 {
        let is_nan = if self.mantissa == 3 { bits & 0x7f == 0x7f } else { bits & 0x7f > 0x7c };
        if is_nan {
            return 0x7fff;
        }
        if relu && bits & 0x80 != 0 {
            return 0;
        }
        if self.mantissa == 2 {
            return bits << 8;
        }
        let (exponent, fraction) = (bits >> 3 & 15, bits & 7);
        let magnitude = match (exponent, fraction) {
            (0, 0) => 0,
            // Subnormal here, normal there: the leading bit of the fraction becomes the exponent's.
            (0, _) => {
                let leading = fraction.ilog2();
                ((leading + 15 - 9) << 10) | (fraction << (10 - leading) & 0x3ff)
            }
            _ => ((exponent + 15 - 7) << 10) | fraction << 7,
        };
        (bits & 0x80) << 8 | magnitude
    }
}

/// A pair from two numbers.
pub(crate) extern "C" fn from_singles(low: f32, high: f32, mantissa: u32, flags: u32) -> u32 {
    let (format, relu) = (Format::of(mantissa), i64::from(flags) & RELU != 0);
    format.nearest(high, relu) << 8 | format.nearest(low, relu)
}

/// The bits of one number as half precision, which has all of them.
pub(crate) fn to_half(bits: u32, mantissa: u32) -> u32 {
    Format::of(mantissa).half(bits & 0xff, false)
}

/// The two halves of a pair, as a pair of half-precision numbers.
pub(crate) extern "C" fn to_halves(pair: u32, mantissa: u32, flags: u32) -> u32 {
    let (format, relu) = (Format::of(mantissa), i64::from(flags) & RELU != 0);
    format.half(pair >> 8 & 0xff, relu) << 16 | format.half(pair & 0xff, relu)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the bits mean, by the definition of the format.
    fn value(bits: u32, mantissa: u32) -> f32 {
        let lowest = Format::of(mantissa).lowest;
        let (exponent, fraction) = (bits >> mantissa & (0x7f >> mantissa), bits & ((1 << mantissa) - 1));
        let one = 1 << mantissa;
        let (units, scale) =
            if exponent == 0 { (fraction, lowest) } else { (fraction + one, lowest + exponent as i32 - 1) };
        units as f32 * 2_f32.powi(scale - mantissa as i32)
    }

    #[test]
    fn every_number_comes_back_and_what_lies_between_two_goes_to_the_nearest() {
        for mantissa in [2, 3] {
            let format = Format::of(mantissa);
            for bits in 0..=format.largest {
                let exact = value(bits, mantissa);
                assert_eq!(format.nearest(exact, false), bits);
                assert_eq!(format.nearest(-exact, false), bits | 0x80);
                assert_eq!(format.nearest(-exact, true), 0);
                assert_eq!(half::f16::from_bits(format.half(bits, false) as u16).to_f32(), exact);
                assert_eq!(half::f16::from_bits(format.half(bits | 0x80, false) as u16).to_f32(), -exact);
                if bits < format.largest {
                    let middle = (exact + value(bits + 1, mantissa)) / 2.0;
                    assert_eq!(format.nearest(middle, false), bits + (bits & 1), "{mantissa} {bits:x}");
                    assert_eq!(format.nearest(middle.next_up(), false), bits + 1);
                    assert_eq!(format.nearest(middle.next_down(), false), bits);
                }
            }
            for large in [value(format.largest, mantissa) * 1.5, 1e30, f32::INFINITY] {
                assert_eq!(format.nearest(large, false), format.largest);
                assert_eq!(format.nearest(-large, false), format.largest | 0x80);
            }
            assert_eq!([format.nearest(f32::NAN, false), format.nearest(-f32::NAN, true)], [0x7f, 0x7f]);
            assert_eq!(format.half(0x7f, false), 0x7fff);
            assert_eq!(format.half(0xff, true), 0x7fff);
        }
        assert_eq!(Format::of(2).half(0xfc, false), 0xfc00, "an infinity");
    }
}
