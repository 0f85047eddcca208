//! How does a kernel read that reduces elements? PTX text for a type, an operation and a number of sources.
//! Pure.
//!
//! Small whole numbers are widened to 32 bits, and halves to single precision: all sources are put together
//! there, and rounded once.

use core::ffi::CStr;
use core::fmt::Write as _;

use super::element::{Element, Number, Operation};

/// The most sources of one kernel.
pub const MOST_SOURCES: usize = 8;

/// The name of a kernel's entry.
pub const ENTRY: &CStr = c"kernel";

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
struct Value {
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
struct Writer {
    body: String,
    registers: usize,
}

impl Writer {
    fn line(&mut self, text: &str) {
        // Writing into a string does not fail.
        let _ = writeln!(self.body, "    {text}");
    }

    /// A new register. All kinds are numbered together.
    fn register(&mut self, kind: &str) -> String {
        self.registers += 1;
        format!("%{kind}{}", self.registers)
    }

    fn value(&mut self, number: Number) -> Value {
        Value { register: self.register(Class::of(number).register()), number }
    }

    fn load(&mut self, number: Number, address: &str, offset: u64) -> Value {
        let value = self.value(number);
        let to = &value.register.clone();
        match number {
            Number::Signed(bytes) => {
                self.line(&format!("ld.global.s{} {to}, [{address}+{offset}];", 8 * bytes))
            }
            Number::Unsigned(bytes) => {
                self.line(&format!("ld.global.u{} {to}, [{address}+{offset}];", 8 * bytes))
            }
            Number::Half => {
                let half = self.register("h");
                self.line(&format!("ld.global.b16 {half}, [{address}+{offset}];"));
                self.line(&format!("cvt.f32.f16 {to}, {half};"));
            }
            Number::Bfloat16 => {
                let word = self.register("r");
                self.line(&format!("ld.global.u16 {word}, [{address}+{offset}];"));
                self.line(&format!("shl.b32 {word}, {word}, 16;"));
                self.line(&format!("mov.b32 {to}, {word};"));
            }
            Number::Single => self.line(&format!("ld.global.f32 {to}, [{address}+{offset}];")),
            Number::Double => self.line(&format!("ld.global.f64 {to}, [{address}+{offset}];")),
        }
        value
    }

    fn store(&mut self, value: &Value, address: &str, offset: u64) {
        let from = &value.register;
        match value.number {
            Number::Signed(bytes) | Number::Unsigned(bytes) => {
                self.line(&format!("st.global.u{} [{address}+{offset}], {from};", 8 * bytes));
            }
            Number::Half => {
                let half = self.register("h");
                self.line(&format!("cvt.rn.f16.f32 {half}, {from};"));
                self.line(&format!("st.global.b16 [{address}+{offset}], {half};"));
            }
            Number::Bfloat16 => self.store_bfloat16(from, address, offset),
            Number::Single => self.line(&format!("st.global.f32 [{address}+{offset}], {from};")),
            Number::Double => self.line(&format!("st.global.f64 [{address}+{offset}], {from};")),
        }
    }

    /// Rounds to the nearest, and to even ones in the middle; what is no number stays none. Devices before
    /// 8.0 have no instruction for it.
    fn store_bfloat16(&mut self, from: &str, address: &str, offset: u64) {
        let (word, odd, is_none) = (self.register("r"), self.register("r"), self.register("p"));
        self.line(&format!("mov.b32 {word}, {from};"));
        self.line(&format!("shr.u32 {odd}, {word}, 16;"));
        self.line(&format!("and.b32 {odd}, {odd}, 1;"));
        self.line(&format!("add.u32 {word}, {word}, {odd};"));
        self.line(&format!("add.u32 {word}, {word}, 32767;"));
        self.line(&format!("shr.u32 {word}, {word}, 16;"));
        self.line(&format!("setp.nan.f32 {is_none}, {from}, {from};"));
        self.line(&format!("selp.b32 {word}, 32704, {word}, {is_none};"));
        self.line(&format!("st.global.u16 [{address}+{offset}], {word};"));
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

    fn number(&mut self, operation: Operation, a: &Value, b: &Value) -> Value {
        let bits = a.class().bits();
        match operation {
            Operation::Max | Operation::MaxPlace => self.apply(&format!("max.{}", a.name()), a, b),
            Operation::Min | Operation::MinPlace => self.apply(&format!("min.{}", a.name()), a, b),
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
        let order = if operation == Operation::MinPlace { "lt" } else { "gt" };
        let names = [a[0].name(), a[1].name()];
        let [other, same, smaller, takes] = [(); 4].map(|()| self.register("p"));
        let (number, place) = (self.value(a[0].number), self.value(a[1].number));
        let [a0, a1, b0, b1] = [&a[0], &a[1], &b[0], &b[1]].map(|value| &value.register);
        self.line(&format!("setp.{order}.{} {other}, {b0}, {a0};", names[0]));
        self.line(&format!("setp.eq.{} {same}, {b0}, {a0};", names[0]));
        self.line(&format!("setp.lt.{} {smaller}, {b1}, {a1};", names[1]));
        self.line(&format!("and.pred {same}, {same}, {smaller};"));
        self.line(&format!("or.pred {takes}, {other}, {same};"));
        self.line(&format!("selp.{} {}, {b0}, {a0}, {takes};", select_name(&number), number.register));
        self.line(&format!("selp.{} {}, {b1}, {a1}, {takes};", select_name(&place), place.register));
        vec![number, place]
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

/// The numbers of an element, and where they lie in it.
fn parts(element: Element) -> Vec<(Number, u64)> {
    match element {
        Element::One(number) => vec![(number, 0)],
        Element::Complex(number) => vec![(number, 0), (number, number.bytes())],
        Element::Placed { number, place_at, .. } => {
            vec![(number, 0), (Number::Signed(4), u64::from(place_at))]
        }
    }
}

/// A kernel whose parameters are where the results go, the count of elements, and the sources, all of 8
/// bytes. Each thread takes every so-manieth element. The sources are put together in their order. None where
/// the operation is not defined for the element, or there are too many sources or less than two.
pub fn reduction(element: Element, operation: Operation, sources: usize) -> Option<String> {
    if !element.takes(operation) || !(2..=MOST_SOURCES).contains(&sources) {
        return None;
    }
    let parts = parts(element);
    let mut writer = Writer::default();
    let mut whole: Vec<Value> = Vec::new();
    for source in 0..sources {
        let address = writer.register("rd");
        writer.line(&format!("add.s64 {address}, %source{source}, %offset;"));
        let loaded: Vec<Value> =
            parts.iter().map(|(number, offset)| writer.load(*number, &address, *offset)).collect();
        whole = match element {
            _ if source == 0 => loaded,
            Element::One(_) => vec![writer.number(operation, &whole[0], &loaded[0])],
            Element::Complex(_) => writer.complex(operation, &whole, &loaded),
            Element::Placed { .. } => writer.placed(operation, &whole, &loaded),
        };
    }
    for (value, (_, offset)) in whole.iter().zip(&parts) {
        writer.store(value, "%target", *offset);
    }
    Some(around(&writer, sources, element.bytes()))
}

/// The loop over the elements, with what is done with each of them.
fn around(writer: &Writer, sources: usize, bytes: u64) -> String {
    let Writer { body, registers } = writer;
    let parameters: String = (0..sources).map(|at| format!(", .param .u64 source{at}")).collect();
    let loads: String = (0..sources)
        .map(|at| {
            format!(
                "    ld.param.u64 %source{at}, [source{at}];\n    cvta.to.global.u64 %source{at}, %source{at};\n"
            )
        })
        .collect();
    let most = registers + 1;
    format!(
        "\
.version 6.0
.target sm_52
.address_size 64
.visible .entry kernel(.param .u64 to, .param .u64 count{parameters})
{{
    .reg .pred %p<{most}>;
    .reg .b16 %h<{most}>;
    .reg .b32 %r<{most}>;
    .reg .b64 %rd<{most}>;
    .reg .f32 %f<{most}>;
    .reg .f64 %d<{most}>;
    .reg .b64 %source<{sources}>;
    .reg .b64 %to, %target, %count, %at, %step, %offset, %thread;
    .reg .b32 %block, %blocks, %threads, %own;
    .reg .pred %ends;
    ld.param.u64 %to, [to];
    cvta.to.global.u64 %to, %to;
    ld.param.u64 %count, [count];
{loads}    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %own, %tid.x;
    mul.wide.u32 %at, %block, %threads;
    cvt.u64.u32 %thread, %own;
    add.s64 %at, %at, %thread;
    mul.wide.u32 %step, %blocks, %threads;
next:
    setp.ge.u64 %ends, %at, %count;
    @%ends bra end;
    mul.lo.s64 %offset, %at, {bytes};
    add.s64 %target, %to, %offset;
{body}    add.s64 %at, %at, %step;
    bra next;
end:
    ret;
}}
"
    )
}
