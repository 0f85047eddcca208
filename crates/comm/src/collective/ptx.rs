//! PTX writer: instructions that load, reduce and store elements of a type. Pure.
//!
//! Small whole numbers are widened to 32 bits, and halves to single precision: all sources are reduced there,
//! and rounded when they are stored.

use core::fmt::Write as _;

use super::element::{Element, Number, Operation};

/// What a number is calculated in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Word,
    Long,
    Single,
    Double,
}

impl Class {
    fn of(number: Number) -> Self {
        match number {
            Number::Signed(8) | Number::Unsigned(8) => Self::Long,
            Number::Signed(_) | Number::Unsigned(_) => Self::Word,
            Number::Half | Number::Bfloat16 | Number::Single => Self::Single,
            Number::Double => Self::Double,
        }
    }

    fn register(self) -> &'static str {
        match self {
            Self::Word => "r",
            Self::Long => "rd",
            Self::Single => "f",
            Self::Double => "d",
        }
    }

    /// How instructions name it.
    fn name(self, is_signed: bool) -> &'static str {
        match (self, is_signed) {
            (Self::Word, true) => "s32",
            (Self::Word, false) => "u32",
            (Self::Long, true) => "s64",
            (Self::Long, false) => "u64",
            (Self::Single, _) => "f32",
            (Self::Double, _) => "f64",
        }
    }

    fn bits(self) -> &'static str {
        if matches!(self, Self::Word | Self::Single) { "b32" } else { "b64" }
    }
}

/// A number in a register.
#[derive(Debug, Clone)]
pub(super) struct Value {
    register: String,
    number: Number,
}

impl Value {
    fn class(&self) -> Class {
        Class::of(self.number)
    }

    fn name(&self) -> &'static str {
        self.class().name(matches!(self.number, Number::Signed(_)))
    }
}

/// A kernel that is being written.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) body: String,
    /// How many registers there are, of all kinds together.
    pub(super) registers: usize,
}

impl Writer {
    pub(super) fn line(&mut self, text: &str) {
        // Writing into a string does not fail.
        let _ = writeln!(self.body, "    {text}");
    }

    /// A new register. All kinds are numbered together.
    pub(super) fn register(&mut self, kind: &str) -> String {
        self.registers += 1;
        format!("%{kind}{}", self.registers)
    }

    fn value(&mut self, number: Number) -> Value {
        Value { register: self.register(Class::of(number).register()), number }
    }

    /// Loads as many numbers as lie one behind the other from an address on: 1, 2 or 4.
    pub(super) fn load(&mut self, number: Number, address: &str, offset: u64, lanes: usize) -> Vec<Value> {
        let values: Vec<Value> = (0..lanes).map(|_| self.value(number)).collect();
        // What is not calculated in as it is stored goes through other registers.
        let raw: Vec<String> = match number {
            Number::Half => (0..lanes).map(|_| self.register("h")).collect(),
            Number::Bfloat16 => (0..lanes).map(|_| self.register("r")).collect(),
            _ => values.iter().map(|value| value.register.clone()).collect(),
        };
        let (vector, list) = vector(&raw);
        self.line(&format!("ld.global{vector}.{} {list}, [{address}+{offset}];", stored_as(number)));
        for (value, raw) in values.iter().zip(&raw) {
            let to = &value.register;
            match number {
                Number::Half => self.line(&format!("cvt.f32.f16 {to}, {raw};")),
                Number::Bfloat16 => {
                    self.line(&format!("shl.b32 {raw}, {raw}, 16;"));
                    self.line(&format!("mov.b32 {to}, {raw};"));
                }
                _ => {}
            }
        }
        values
    }

    /// Brings numbers into the form in which they are stored: registers for [`Self::store`].
    pub(super) fn finish(&mut self, values: &[Value]) -> Vec<String> {
        values.iter().map(|value| self.finish_one(value)).collect()
    }

    fn finish_one(&mut self, value: &Value) -> String {
        let from = &value.register;
        match value.number {
            Number::Half => {
                let half = self.register("h");
                self.line(&format!("cvt.rn.f16.f32 {half}, {from};"));
                half
            }
            Number::Bfloat16 => self.finish_bfloat16(from),
            _ => from.clone(),
        }
    }

    /// Rounds to the nearest, and to even ones in the middle; what is no number stays none. Devices before
    /// 8.0 have no instruction for it.
    fn finish_bfloat16(&mut self, from: &str) -> String {
        let (word, odd, is_none) = (self.register("r"), self.register("r"), self.register("p"));
        self.line(&format!("mov.b32 {word}, {from};"));
        self.line(&format!("shr.u32 {odd}, {word}, 16;"));
        self.line(&format!("and.b32 {odd}, {odd}, 1;"));
        self.line(&format!("add.u32 {word}, {word}, {odd};"));
        self.line(&format!("add.u32 {word}, {word}, 32767;"));
        self.line(&format!("shr.u32 {word}, {word}, 16;"));
        self.line(&format!("setp.nan.f32 {is_none}, {from}, {from};"));
        self.line(&format!("selp.b32 {word}, 32704, {word}, {is_none};"));
        word
    }

    /// Stores numbers of a kind one behind the other: 1, 2 or 4.
    pub(super) fn store(&mut self, number: Number, registers: &[String], address: &str, offset: u64) {
        let (vector, list) = vector(registers);
        let kind = match number {
            Number::Signed(bytes) => stored_as(Number::Unsigned(bytes)),
            other => stored_as(other),
        };
        self.line(&format!("st.global{vector}.{kind} [{address}+{offset}], {list};"));
    }

    /// An instruction with two sources and a result of their kind.
    fn apply(&mut self, instruction: &str, a: &Value, b: &Value) -> Value {
        let to = self.value(a.number);
        self.line(&format!("{instruction} {}, {}, {};", to.register, a.register, b.register));
        to
    }

    fn is_true(&mut self, value: &Value) -> String {
        let predicate = self.register("p");
        self.line(&format!("setp.ne.{} {predicate}, {}, 0;", value.name(), value.register));
        predicate
    }

    fn logical(&mut self, instruction: &str, a: &Value, b: &Value) -> Value {
        let (left, right, both) = (self.is_true(a), self.is_true(b), self.register("p"));
        self.line(&format!("{instruction}.pred {both}, {left}, {right};"));
        let to = self.value(a.number);
        self.line(&format!("selp.{} {}, 1, 0, {both};", to.class().bits(), to.register));
        to
    }

    fn add(&mut self, instruction: &str, a: &Value, b: &Value) -> Value {
        // Where the compiler may not make one instruction of a product and a sum.
        let rounding = if matches!(a.class(), Class::Single | Class::Double) { ".rn" } else { "" };
        self.apply(&format!("{instruction}{rounding}.{}", a.name()), a, b)
    }

    fn multiply(&mut self, a: &Value, b: &Value) -> Value {
        let mode = if matches!(a.class(), Class::Single | Class::Double) { "rn" } else { "lo" };
        self.apply(&format!("mul.{mode}.{}", a.name()), a, b)
    }

    /// Puts two elements together, whose numbers these are.
    pub(super) fn reduce(
        &mut self,
        element: Element,
        operation: Operation,
        a: &[Value],
        b: &[Value],
    ) -> Vec<Value> {
        match element {
            Element::One(_) => vec![self.number(operation, &a[0], &b[0])],
            Element::Complex(_) => self.complex(operation, a, b),
            Element::Indexed { .. } => self.placed(operation, a, b),
        }
    }

    fn number(&mut self, operation: Operation, a: &Value, b: &Value) -> Value {
        let bits = a.class().bits();
        match operation {
            Operation::Max | Operation::MaxLoc => self.apply(&format!("max.{}", a.name()), a, b),
            Operation::Min | Operation::MinLoc => self.apply(&format!("min.{}", a.name()), a, b),
            Operation::Sum => self.add("add", a, b),
            Operation::Prod => self.multiply(a, b),
            Operation::BitAnd => self.apply(&format!("and.{bits}"), a, b),
            Operation::BitOr => self.apply(&format!("or.{bits}"), a, b),
            Operation::BitXor => self.apply(&format!("xor.{bits}"), a, b),
            Operation::And => self.logical("and", a, b),
            Operation::Or => self.logical("or", a, b),
            Operation::Xor => self.logical("xor", a, b),
        }
    }

    fn complex(&mut self, operation: Operation, a: &[Value], b: &[Value]) -> Vec<Value> {
        if operation == Operation::Sum {
            return vec![self.add("add", &a[0], &b[0]), self.add("add", &a[1], &b[1])];
        }
        let (real, imaginary) = (self.multiply(&a[0], &b[0]), self.multiply(&a[1], &b[1]));
        let (left, right) = (self.multiply(&a[0], &b[1]), self.multiply(&a[1], &b[0]));
        vec![self.add("sub", &real, &imaginary), self.add("add", &left, &right)]
    }

    /// The number that comes first, and its place; the smaller place of two that are equal.
    fn placed(&mut self, operation: Operation, a: &[Value], b: &[Value]) -> Vec<Value> {
        let order = if operation == Operation::MinLoc { "lt" } else { "gt" };
        let names = [a[0].name(), a[1].name()];
        let [other, same, smaller, replaces] = [(); 4].map(|()| self.register("p"));
        let (number, index) = (self.value(a[0].number), self.value(a[1].number));
        let [a0, a1, b0, b1] = [&a[0], &a[1], &b[0], &b[1]].map(|value| &value.register);
        self.line(&format!("setp.{order}.{} {other}, {b0}, {a0};", names[0]));
        self.line(&format!("setp.eq.{} {same}, {b0}, {a0};", names[0]));
        self.line(&format!("setp.lt.{} {smaller}, {b1}, {a1};", names[1]));
        self.line(&format!("and.pred {same}, {same}, {smaller};"));
        self.line(&format!("or.pred {replaces}, {other}, {same};"));
        self.line(&format!("selp.{} {}, {b0}, {a0}, {replaces};", select_name(&number), number.register));
        self.line(&format!("selp.{} {}, {b1}, {a1}, {replaces};", select_name(&index), index.register));
        vec![number, index]
    }
}

/// How instructions that load and store name a number.
fn stored_as(number: Number) -> String {
    match number {
        Number::Signed(bytes) => format!("s{}", 8 * bytes),
        Number::Unsigned(bytes) => format!("u{}", 8 * bytes),
        Number::Half => "b16".to_owned(),
        Number::Bfloat16 => "u16".to_owned(),
        Number::Single => "f32".to_owned(),
        Number::Double => "f64".to_owned(),
    }
}

/// What says that so many registers are meant, and their list.
fn vector(registers: &[String]) -> (String, String) {
    match registers {
        [only] => (String::new(), only.clone()),
        several => (format!(".v{}", several.len()), format!("{{{}}}", several.join(", "))),
    }
}

/// `selp` takes floating-point registers by their own types.
fn select_name(value: &Value) -> &'static str {
    match value.class() {
        Class::Single => "f32",
        Class::Double => "f64",
        class => class.bits(),
    }
}
