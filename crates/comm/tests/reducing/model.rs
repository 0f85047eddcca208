//! Model of the reduction operations: on the processor, one element after another.

use causeway_comm::collective::element::{Element, Number, Operation};

use super::Random;

/// A number as it is calculated with.
#[derive(Debug, Clone, Copy)]
enum Value {
    Signed(i64),
    Unsigned(u64),
    Single(f32),
    Double(f64),
}

/// A random element whose results can be known exactly: products of numbers that are not whole stay powers of
/// two.
pub fn element(element: Element, operation: Operation, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0xa5; element.bytes() as usize];
    let parts = parts(element);
    for (at, (number, offset)) in parts.iter().enumerate() {
        let is_place = at == 1 && matches!(element, Element::Indexed { .. });
        let few = is_place || matches!(element, Element::Indexed { .. });
        let value = match number {
            Number::Signed(_) if few => Value::Signed(random.below(5) as i64 - 2),
            Number::Signed(_) => Value::Signed(random.next() as i64),
            Number::Unsigned(_) => Value::Unsigned(if random.below(4) == 0 { 0 } else { random.next() }),
            _ if operation == Operation::Prod => {
                float(*number, [1.0, -1.0, 1.0, -1.0][random.below(4) as usize])
            }
            _ => float(*number, random.below(9) as f64 - 4.0),
        };
        write(&mut bytes, *number, *offset, value);
    }
    bytes
}

fn float(number: Number, value: f64) -> Value {
    if number == Number::Double { Value::Double(value) } else { Value::Single(value as f32) }
}

/// Elements of several sources put together, in their order. Gaps are those of `before`.
pub fn together(element: Element, operation: Operation, sources: &[Vec<u8>], before: &[u8]) -> Vec<u8> {
    let size = element.bytes() as usize;
    let parts = parts(element);
    let mut result = before.to_vec();
    for at in (0..before.len()).step_by(size) {
        let read_all = |source: &Vec<u8>| -> Vec<Value> {
            parts.iter().map(|(number, offset)| read(&source[at..at + size], *number, *offset)).collect()
        };
        let all = sources.iter().map(read_all).reduce(|one, other| apply(element, operation, &one, &other));
        for (value, (number, offset)) in all.unwrap().into_iter().zip(&parts) {
            write(&mut result[at..at + size], *number, *offset, value);
        }
    }
    result
}

fn parts(element: Element) -> Vec<(Number, usize)> {
    match element {
        Element::One(number) => vec![(number, 0)],
        Element::Complex(number) => vec![(number, 0), (number, number.bytes() as usize)],
        Element::Indexed { number, index_at, .. } => vec![(number, 0), (Number::Signed(4), index_at.into())],
    }
}

fn apply(element: Element, operation: Operation, a: &[Value], b: &[Value]) -> Vec<Value> {
    match element {
        Element::One(number) => vec![fitting(number, one(operation, a[0], b[0]))],
        Element::Complex(_) if operation == Operation::Sum => {
            vec![one(Operation::Sum, a[0], b[0]), one(Operation::Sum, a[1], b[1])]
        }
        Element::Complex(_) => {
            let product = |x, y| one(Operation::Prod, x, y);
            vec![
                minus(product(a[0], b[0]), product(a[1], b[1])),
                one(Operation::Sum, product(a[0], b[1]), product(a[1], b[0])),
            ]
        }
        Element::Indexed { .. } => {
            let [(first, a_place), (second, b_place)] = [(a[0], a[1]), (b[0], b[1])];
            let order = compare(second, first);
            let order = if operation == Operation::MaxLoc { order.reverse() } else { order };
            let takes = order.is_lt() || order.is_eq() && compare(b_place, a_place).is_lt();
            if takes { b.to_vec() } else { a.to_vec() }
        }
    }
}

/// Whole numbers are as long as they are stored.
fn fitting(number: Number, value: Value) -> Value {
    match (number, value) {
        (Number::Signed(bytes), Value::Signed(value)) => {
            let unused = 64 - 8 * u32::from(bytes);
            Value::Signed(value << unused >> unused)
        }
        (Number::Unsigned(bytes), Value::Unsigned(value)) => {
            let unused = 64 - 8 * u32::from(bytes);
            Value::Unsigned(value << unused >> unused)
        }
        _ => value,
    }
}

fn compare(a: Value, b: Value) -> core::cmp::Ordering {
    match (a, b) {
        (Value::Signed(a), Value::Signed(b)) => a.cmp(&b),
        (Value::Unsigned(a), Value::Unsigned(b)) => a.cmp(&b),
        (Value::Single(a), Value::Single(b)) => a.partial_cmp(&b).unwrap(),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(&b).unwrap(),
        _ => unreachable!("numbers of one kind"),
    }
}

fn minus(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Single(a), Value::Single(b)) => Value::Single(a - b),
        (Value::Double(a), Value::Double(b)) => Value::Double(a - b),
        _ => unreachable!("numbers of one kind that are not whole"),
    }
}

fn one(operation: Operation, a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Signed(x), Value::Signed(y)) => {
            Value::Signed(whole(operation, x as u64, y as u64, x < y) as i64)
        }
        (Value::Unsigned(x), Value::Unsigned(y)) => Value::Unsigned(whole(operation, x, y, x < y)),
        (Value::Single(x), Value::Single(y)) => Value::Single(match operation {
            Operation::Sum => x + y,
            Operation::Prod => x * y,
            Operation::Max => x.max(y),
            _ => x.min(y),
        }),
        (Value::Double(x), Value::Double(y)) => Value::Double(match operation {
            Operation::Sum => x + y,
            Operation::Prod => x * y,
            Operation::Max => x.max(y),
            _ => x.min(y),
        }),
        _ => unreachable!("numbers of one kind"),
    }
}

fn whole(operation: Operation, x: u64, y: u64, is_less: bool) -> u64 {
    match operation {
        Operation::Max | Operation::MaxLoc => {
            if is_less {
                y
            } else {
                x
            }
        }
        Operation::Min | Operation::MinLoc => {
            if is_less {
                x
            } else {
                y
            }
        }
        Operation::Sum => x.wrapping_add(y),
        Operation::Prod => x.wrapping_mul(y),
        Operation::And => u64::from(x != 0 && y != 0),
        Operation::BitAnd => x & y,
        Operation::Or => u64::from(x != 0 || y != 0),
        Operation::BitOr => x | y,
        Operation::Xor => u64::from((x != 0) != (y != 0)),
        Operation::BitXor => x ^ y,
    }
}

fn read(bytes: &[u8], number: Number, offset: usize) -> Value {
    let mut word = [0; 8];
    let length = number.bytes() as usize;
    word[..length].copy_from_slice(&bytes[offset..offset + length]);
    let bits = u64::from_le_bytes(word);
    match number {
        Number::Signed(_) => fitting(number, Value::Signed(bits as i64)),
        Number::Unsigned(_) => Value::Unsigned(bits),
        Number::Half => Value::Single(half(bits as u16)),
        Number::Bfloat16 => Value::Single(f32::from_bits((bits as u32) << 16)),
        Number::Single => Value::Single(f32::from_bits(bits as u32)),
        Number::Double => Value::Double(f64::from_bits(bits)),
    }
}

fn write(bytes: &mut [u8], number: Number, offset: usize, value: Value) {
    let bits = match (number, value) {
        (_, Value::Signed(value)) => value as u64,
        (_, Value::Unsigned(value)) => value,
        (Number::Half, Value::Single(value)) => of_half(value).into(),
        // What is exact needs no rounding.
        (Number::Bfloat16, Value::Single(value)) => u64::from(value.to_bits() >> 16),
        (_, Value::Single(value)) => value.to_bits().into(),
        (_, Value::Double(value)) => value.to_bits(),
    };
    let length = number.bytes() as usize;
    bytes[offset..offset + length].copy_from_slice(&bits.to_le_bytes()[..length]);
}

/// A normal number of half precision, or zero.
fn half(bits: u16) -> f32 {
    let (sign, exponent, rest) = (bits >> 15, i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let size = if exponent == 0 { 0.0 } else { (1.0 + rest / 1024.0) * 2_f32.powi(exponent - 15) };
    if sign == 1 { -size } else { size }
}

fn of_half(value: f32) -> u16 {
    let sign = u16::from(value.is_sign_negative()) << 15;
    if value == 0.0 {
        return sign;
    }
    let bits = value.abs().to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 15;
    assert!((1..31).contains(&exponent) && bits & 0x1fff == 0, "{value} is no normal half");
    sign | (exponent as u16) << 10 | (bits >> 13 & 1023) as u16
}
