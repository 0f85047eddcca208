//! The product of two matrices whose elements the lanes of a warp hold, added to a third one.
//!
//! PTX leaves open in which order a dot product is summed and how precise the sums in between are. Here
//! products of numbers of up to 19 bits are added in double precision and rounded once, to the nearest, so that
//! the result is at least as near to the exact one as a GPU's. Numbers of double precision are multiplied and
//! added in the order of `k`, each time rounded, as IEEE's fused operation does.

use half::{bf16, f16};

use super::fragment::{Fragment, Registers};
use super::types::{Accumulator, Combination, Element, Multiplication};
use crate::run::eight_bits;
use crate::run::functions::{double_to_single_odd, single_to_half};

/// What every number that is none has as bits, in results of PTX.
const NAN_F16: u64 = 0x7fff;
const NAN_F32: u64 = 0x7fff_ffff;

/// The fragments of one lane.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Operands {
    pub(crate) a: Registers,
    pub(crate) b: Registers,
    pub(crate) c: Registers,
}

/// The fragments of `d` of all lanes.
pub(crate) fn multiply(multiplication: &Multiplication, lanes: &[Operands; 32]) -> [Registers; 32] {
    if multiplication.d == Accumulator::S32 {
        multiply_integers(multiplication, lanes)
    } else {
        multiply_floats(multiplication, lanes)
    }
}

fn multiply_floats(multiplication: &Multiplication, lanes: &[Operands; 32]) -> [Registers; 32] {
    let [a, b, c, d] = Fragment::of(multiplication);
    let left = gathered(&a, lanes, |lane| &lane.a, |bits| float(multiplication.a, bits));
    let right = gathered(&b, lanes, |lane| &lane.b, |bits| float(multiplication.b, bits));
    let mut sums = gathered(&c, lanes, |lane| &lane.c, |bits| accumulated(multiplication.c, bits));
    let fused = multiplication.d == Accumulator::F64;
    let (columns, depth) = (b.columns as usize, a.columns as usize);
    for (row, sums) in left.chunks_exact(depth).zip(sums.chunks_exact_mut(columns)) {
        for (&factor, others) in row.iter().zip(right.chunks_exact(columns)) {
            for (sum, &other) in sums.iter_mut().zip(others) {
                *sum = if fused { factor.mul_add(other, *sum) } else { *sum + factor * other };
            }
        }
    }
    scattered(&d, |element| rounded(multiplication.d, sums[element]))
}

fn multiply_integers(multiplication: &Multiplication, lanes: &[Operands; 32]) -> [Registers; 32] {
    let [a, b, c, d] = Fragment::of(multiplication);
    let left = gathered(&a, lanes, |lane| &lane.a, |bits| integer(multiplication.a, bits));
    let right = gathered(&b, lanes, |lane| &lane.b, |bits| integer(multiplication.b, bits));
    let mut sums = gathered(&c, lanes, |lane| &lane.c, |bits| i64::from(bits as u32 as i32));
    let (columns, depth) = (b.columns as usize, a.columns as usize);
    for (row, sums) in left.chunks_exact(depth).zip(sums.chunks_exact_mut(columns)) {
        for (&factor, others) in row.iter().zip(right.chunks_exact(columns)) {
            for (sum, &other) in sums.iter_mut().zip(others) {
                *sum += match multiplication.combination {
                    Combination::Product => factor * other,
                    Combination::Xor => factor ^ other,
                    Combination::And => factor & other,
                };
            }
        }
    }
    scattered(&d, |element| {
        let sum = sums[element];
        let sum = if multiplication.saturates != 0 {
            sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX))
        } else {
            sum
        };
        u64::from(sum as u32)
    })
}

/// A matrix row by row, from the fragments of a warp.
fn gathered<T: Copy + Default>(
    fragment: &Fragment,
    lanes: &[Operands; 32],
    registers: impl Fn(&Operands) -> &Registers,
    value: impl Fn(u64) -> T,
) -> Vec<T> {
    let mut matrix = vec![T::default(); (fragment.rows * fragment.columns) as usize];
    fragment.for_each(|lane, index, element| {
        matrix[element] = value(fragment.element(registers(&lanes[lane]), index));
    });
    matrix
}

/// The fragments of a warp, from the bits of each element.
fn scattered(fragment: &Fragment, bits: impl Fn(usize) -> u64) -> [Registers; 32] {
    let mut lanes = [Registers::default(); 32];
    fragment.for_each(|lane, index, element| fragment.set_element(&mut lanes[lane], index, bits(element)));
    lanes
}

fn float(element: Element, bits: u64) -> f64 {
    match element {
        Element::F16 => f16::from_bits(bits as u16).to_f64(),
        Element::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        // What lies below the ten bits of the fraction does not count.
        Element::Tf32 => f64::from(f32::from_bits(bits as u32 & 0xffff_e000)),
        Element::E4m3 => f16::from_bits(eight_bits::to_half(bits as u32, 3) as u16).to_f64(),
        Element::E5m2 => f16::from_bits(eight_bits::to_half(bits as u32, 2) as u16).to_f64(),
        _ => f64::from_bits(bits),
    }
}

fn integer(element: Element, bits: u64) -> i64 {
    match element {
        Element::S8 => i64::from(bits as u8 as i8),
        Element::S4 => i64::from((bits as u8) << 4 >> 4 ^ 8) - 8,
        _ => bits as i64,
    }
}

fn accumulated(accumulator: Accumulator, bits: u64) -> f64 {
    match accumulator {
        Accumulator::F16 => f16::from_bits(bits as u16).to_f64(),
        Accumulator::F32 => f64::from(f32::from_bits(bits as u32)),
        Accumulator::F64 | Accumulator::S32 => f64::from_bits(bits),
    }
}

fn rounded(accumulator: Accumulator, sum: f64) -> u64 {
    match accumulator {
        Accumulator::F16 if sum.is_nan() => NAN_F16,
        // By way of single precision, rounded to odd, so that rounding twice gives what rounding once would.
        Accumulator::F16 => u64::from(single_to_half(double_to_single_odd(sum))),
        Accumulator::F32 if sum.is_nan() => NAN_F32,
        Accumulator::F32 => u64::from((sum as f32).to_bits()),
        Accumulator::F64 | Accumulator::S32 => sum.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::matrix::{FragmentLayout, Shape};

    fn multiplication(
        element: Element,
        accumulator: Accumulator,
        (m, n, k): (u32, u32, u32),
    ) -> Multiplication {
        Multiplication {
            layout: FragmentLayout::Mma,
            shape: Shape { m, n, k },
            a: element,
            b: element,
            c: accumulator,
            d: accumulator,
            combination: Combination::Product,
            saturates: 0,
        }
    }

    /// The bits of one element of each number, for numbers that all types have.
    fn bits(element: Element, number: i32) -> u64 {
        match element {
            Element::F16 => u64::from(f16::from_f32(number as f32).to_bits()),
            Element::Bf16 => u64::from(bf16::from_f32(number as f32).to_bits()),
            Element::Tf32 => u64::from((number as f32).to_bits()),
            Element::F64 => f64::from(number).to_bits(),
            Element::E4m3 => u64::from(eight_bits::from_singles(number as f32, 0.0, 3, 0) & 0xff),
            Element::E5m2 => u64::from(eight_bits::from_singles(number as f32, 0.0, 2, 0) & 0xff),
            _ => (number as u64) & ((1 << element.bits()) - 1),
        }
    }

    /// Small integers, whose sums every type holds exactly, against the definition.
    #[test]
    fn every_type_and_shape_gives_what_the_definition_does() {
        use Accumulator::{F16, F32, F64, S32};
        for (element, accumulator, shape) in [
            (Element::F16, F32, (16, 8, 16)),
            (Element::F16, F16, (16, 8, 8)),
            (Element::Bf16, F32, (16, 8, 16)),
            (Element::Tf32, F32, (16, 8, 8)),
            (Element::F64, F64, (16, 8, 8)),
            (Element::E4m3, F32, (16, 8, 32)),
            (Element::E5m2, F16, (16, 8, 32)),
            (Element::S8, S32, (16, 8, 32)),
            (Element::U8, S32, (8, 8, 16)),
            (Element::S4, S32, (16, 8, 64)),
            (Element::U4, S32, (16, 8, 32)),
        ] {
            let multiplication = multiplication(element, accumulator, shape);
            assert!(multiplication.exists(), "{multiplication:?}");
            let lowest = if matches!(element, Element::U8 | Element::U4) { 0 } else { -3 };
            let [a, b, c, d] = Fragment::of(&multiplication);
            let number = |seed: usize, element: usize| (element * 7 + seed * 5) as i32 % 5 + lowest;
            let mut lanes = [Operands::default(); 32];
            a.for_each(|lane, index, at| {
                a.set_element(&mut lanes[lane].a, index, bits(element, number(1, at)))
            });
            b.for_each(|lane, index, at| {
                b.set_element(&mut lanes[lane].b, index, bits(element, number(2, at)))
            });
            let start = |at: usize| match accumulator {
                F16 => u64::from(f16::from_f32(number(3, at) as f32).to_bits()),
                F32 => u64::from((number(3, at) as f32).to_bits()),
                F64 => f64::from(number(3, at)).to_bits(),
                S32 => u64::from(number(3, at) as u32),
            };
            c.for_each(|lane, index, at| c.set_element(&mut lanes[lane].c, index, start(at)));
            let results = multiply(&multiplication, &lanes);
            d.for_each(|lane, index, at| {
                let (row, column) = (at / d.columns as usize, at % d.columns as usize);
                let products = (0..a.columns as usize).map(|k| {
                    number(1, row * a.columns as usize + k) * number(2, k * d.columns as usize + column)
                });
                let expected = products.sum::<i32>() + number(3, at);
                let found = d.element(&results[lane], index);
                let found =
                    if accumulator == S32 { found as i32 } else { accumulated(accumulator, found) as i32 };
                assert_eq!(found, expected, "{element:?} {shape:?} at ({row}, {column})");
            });
        }
    }

    #[test]
    fn bits_are_counted_and_integers_wrap_or_saturate() {
        let bits = Multiplication {
            combination: Combination::And,
            ..multiplication(Element::B1, Accumulator::S32, (16, 8, 256))
        };
        let mut lanes = [Operands::default(); 32];
        for lane in &mut lanes {
            lane.a = [0xffff_ffff; 8];
            lane.b = [0x0f0f_0f0f; 8];
            lane.c = [1; 8];
        }
        assert_eq!(multiply(&bits, &lanes)[5][..4], [129; 4]);
        let xor = Multiplication { combination: Combination::Xor, ..bits };
        assert_eq!(multiply(&xor, &lanes)[31][..4], [129; 4]);
        let mut bytes = multiplication(Element::S8, Accumulator::S32, (16, 8, 16));
        for lane in &mut lanes {
            (lane.a, lane.b, lane.c) = ([0x7f7f_7f7f; 8], [0x7f7f_7f7f; 8], [0x7fff_ffff; 8]);
        }
        assert_eq!(multiply(&bytes, &lanes)[0][0], u64::from(0x7fff_ffff_u32 + 16 * 127 * 127));
        bytes.saturates = 1;
        assert_eq!(multiply(&bytes, &lanes)[0][0], 0x7fff_ffff);
    }

    #[test]
    fn infinities_and_what_is_no_number_come_through() {
        let halves = multiplication(Element::F16, Accumulator::F32, (16, 8, 8));
        let mut lanes = [Operands::default(); 32];
        // Element (0, 0) of `a` is infinite; `b` has ones in column 0 and zeros elsewhere.
        lanes[0].a[0] = 0x7c00;
        lanes[..4].iter_mut().for_each(|lane| lane.b[0] = 0x3c00_3c00);
        let results = multiply(&halves, &lanes);
        assert_eq!(results[0][0], u64::from(f32::INFINITY.to_bits()));
        assert_eq!(results[0][1], NAN_F32, "infinity times zero");
        assert_eq!(results[4][0], 0);
    }
}
