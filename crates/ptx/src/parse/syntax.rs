//! The syntax tree of PTX.

use std::collections::HashMap;

/// A scalar type of PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub(crate) enum Scalar {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U16x2,
    U32,
    U64,
    S8,
    S16,
    S16x2,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F32x2,
    F64,
}

impl Scalar {
    /// The type named by a modifier without its dot.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "pred" => Self::Pred,
            "b8" => Self::B8,
            "b16" => Self::B16,
            "b32" => Self::B32,
            "b64" => Self::B64,
            "b128" => Self::B128,
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u16x2" => Self::U16x2,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "s8" => Self::S8,
            "s16" => Self::S16,
            "s16x2" => Self::S16x2,
            "s32" => Self::S32,
            "s64" => Self::S64,
            "f16" => Self::F16,
            "f16x2" => Self::F16x2,
            "bf16" => Self::Bf16,
            "bf16x2" => Self::Bf16x2,
            "f32" => Self::F32,
            "f32x2" => Self::F32x2,
            "f64" => Self::F64,
            _ => return None,
        })
    }

    /// Bytes in memory.
    pub(crate) fn size(self) -> u32 {
        match self {
            Self::Pred | Self::B8 | Self::U8 | Self::S8 => 1,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 2,
            Self::B32
            | Self::U32
            | Self::S32
            | Self::F32
            | Self::F16x2
            | Self::Bf16x2
            | Self::U16x2
            | Self::S16x2 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F32x2 | Self::F64 => 8,
            Self::B128 => 16,
        }
    }

    /// Whether values are extended with their sign.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// Whether the type is one of the floating-point types, packed ones included.
    pub(crate) fn is_float(self) -> bool {
        matches!(
            self,
            Self::F16 | Self::F16x2 | Self::Bf16 | Self::Bf16x2 | Self::F32 | Self::F32x2 | Self::F64
        )
    }
}

/// A state space that variables live in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Space {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// Who sees a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// Only its own source.
    Internal,
    /// Every source; defined once.
    Visible,
    /// Every source; the first of several definitions counts. `.common` is treated alike.
    Weak,
    /// Defined elsewhere.
    Extern,
}

/// One PTX source.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// Major * 10 + minor.
    pub(crate) version: u32,
    /// The number in `sm_75`.
    pub(crate) target: u32,
    pub(crate) variables: Vec<Variable>,
    pub(crate) functions: Vec<Function>,
    /// `.alias new, old`.
    pub(crate) aliases: Vec<(String, String)>,
}

/// A variable or parameter.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) line: u32,
    pub(crate) linkage: Linkage,
    pub(crate) space: Space,
    pub(crate) align: u32,
    /// Bytes; 0 for an array without bounds.
    pub(crate) size: u64,
    /// Bytes of its type: of one element, where it is an array.
    pub(crate) element: u32,
    /// The leading bytes; the rest is zero.
    pub(crate) initial: Vec<u8>,
    /// Places in the variable that hold addresses.
    pub(crate) pointers: Vec<Pointer>,
    pub(crate) managed: bool,
    /// What it stands for, where only the driver knows its contents.
    pub(crate) opaque: Option<Opaque>,
}

/// The type of a variable that stands for an object of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opaque {
    Texture,
    Sampler,
    Surface,
}

impl Variable {
    /// What its address is a multiple of, outside of local memory: 16 where it fills a vector of so many bytes, since
    /// programs read such vectors where ptxas happens to place an array so.
    pub(crate) fn placed_align(&self) -> u64 {
        u64::from(self.align.max(if self.size >= 16 { 16 } else { 1 }))
    }

    /// One of which no more is known than where it is declared.
    pub(crate) fn new(space: Space, linkage: Linkage, line: u32) -> Self {
        Self {
            name: String::new(),
            line,
            linkage,
            space,
            align: 0,
            size: 0,
            element: 0,
            initial: Vec::new(),
            pointers: Vec::new(),
            managed: false,
            opaque: None,
        }
    }
}

/// An address inside a variable's initial value.
#[derive(Debug, Clone)]
pub(crate) struct Pointer {
    pub(crate) offset: u64,
    /// Bytes stored.
    pub(crate) width: u32,
    /// How far the address is shifted right before it is stored (byte-wise initialisers such as
    /// `0xFF00(symbol)`).
    pub(crate) shift: u32,
    pub(crate) symbol: String,
    pub(crate) addend: i64,
}

/// A kernel (`.entry`) or device function (`.func`).
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) linkage: Linkage,
    pub(crate) is_kernel: bool,
    pub(crate) returns: Vec<Variable>,
    pub(crate) parameters: Vec<Variable>,
    /// From `.maxntid` or `.reqntid`: the product of the three numbers.
    pub(crate) max_threads: Option<u32>,
    /// From `.reqntid`: the threads of a block along x, y and z.
    pub(crate) block: Option<[u32; 3]>,
    /// From `.reqnctapercluster`: the blocks of a cluster along x, y and z.
    pub(crate) cluster: Option<[u32; 3]>,
    /// From `.explicitcluster`: a launch has to say how large clusters are.
    pub(crate) explicit_cluster: bool,
    /// From `.maxclusterrank`: the most blocks that a cluster may have.
    pub(crate) max_cluster_blocks: Option<u32>,
    /// A directive that the software GPU does not have, and its line.
    pub(crate) lacking: Option<(u32, String)>,
    pub(crate) body: Option<Body>,
}

impl Function {
    /// Whether its last parameter, without bounds, holds whatever a caller passes.
    pub(crate) fn is_variadic(&self) -> bool {
        !self.is_kernel && self.parameters.last().is_some_and(|last| last.size == 0)
    }
}

/// Index of a register in [`Body::registers`].
pub(crate) type Register = usize;
/// Number of a label in a body.
pub(crate) type Label = usize;

/// The code of a function, with scopes resolved: registers, labels and variables of its own are numbers.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) registers: Vec<Scalar>,
    /// `.shared`, `.local` and `.param` variables declared inside.
    pub(crate) variables: Vec<Variable>,
    pub(crate) statements: Vec<Statement>,
    pub(crate) labels: usize,
    /// The tables of `.branchtargets`, found by name.
    pub(crate) branch_tables: HashMap<String, Vec<Label>>,
    /// `.callprototype`: what an indirect call passes, found by name; nothing for the list of `.calltargets`.
    pub(crate) prototypes: HashMap<String, Option<Prototype>>,
}

/// How many values an indirect call passes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prototype {
    pub(crate) returns: usize,
    pub(crate) parameters: usize,
}

#[derive(Debug)]
pub(crate) enum Statement {
    Label(Label),
    Instruction(Instruction),
}

/// One instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) line: u32,
    /// `@p` or `@!p`.
    pub(crate) guard: Option<Guard>,
    /// The first word: `ld`.
    pub(crate) opcode: String,
    /// The other words: `global`, `v4`, `f32`.
    pub(crate) modifiers: Vec<String>,
    pub(crate) operands: Vec<Operand>,
    /// The instruction as written, without its line breaks.
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    pub(crate) register: Register,
    pub(crate) negated: bool,
}

/// The name of a variable or function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Name {
    /// A variable of the body.
    Own(usize),
    /// A parameter of the function.
    Parameter(usize),
    /// A value the function returns.
    Return(usize),
    /// A symbol of the source.
    Module(String),
}

/// What only operands of video instructions are: negated, or parts of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selected {
    pub(crate) register: Register,
    pub(crate) negated: bool,
    pub(crate) selector: Option<Selector>,
}

/// Which bytes or halves of one word or two are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selector {
    /// Of a part: 8 or 16.
    pub(crate) bits: u8,
    /// The numbers of the parts as hexadecimal digits, the last one lowest.
    pub(crate) parts: u16,
    /// How many there are, up to 4.
    pub(crate) count: u8,
}

impl Selector {
    /// What stands behind the name of a register and a dot: `h1`, `b3210`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (bits, limit, digits) = match name.as_bytes() {
            [b'b', digits @ ..] => (8, 8, digits),
            [b'h', digits @ ..] => (16, 4, digits),
            _ => return None,
        };
        if !(1..=4).contains(&digits.len()) {
            return None;
        }
        let mut parts = 0;
        for digit in digits {
            let part = digit.checked_sub(b'0').filter(|part| *part < limit)?;
            parts = parts << 4 | u16::from(part);
        }
        Some(Self { bits, parts, count: digits.len() as u8 })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    Register(Register),
    /// `!%p`.
    Not(Register),
    /// `%tid.x` and the like, without `%`.
    Special(String),
    Integer(i64),
    Single(u32),
    Double(u64),
    /// A symbol's address.
    Symbol(Name, i64),
    /// `name[index]`: the address of an element of an array for `mov`, the element for a load or store.
    Element(Name, i64),
    /// `[base + offset]`.
    Address(Base, i64),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `d|p`.
    Pair(Box<Operand>, Box<Operand>),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
    /// A label, as a branch names it.
    Label(Label),
    /// The name of a `.branchtargets` or `.callprototype` table.
    Table(String),
    /// `-%r1.h0`, `%r2.b7654`.
    Selected(Selected),
    /// `_`.
    Sink,
    /// `[base, {x, y}]`: a place in a texture, surface or tensor. What stands between the base and the last item
    /// is a sampler.
    Coordinates(Base, Vec<Operand>),
}

impl Operand {
    /// Visits the registers that it names.
    pub fn for_each_register(&self, visit: &mut impl FnMut(Register)) {
        match self {
            Self::Register(register)
            | Self::Not(register)
            | Self::Address(Base::Register(register), _)
            | Self::Selected(Selected { register, .. }) => visit(*register),
            Self::Vector(items) | Self::List(items) => {
                items.iter().for_each(|item| item.for_each_register(visit));
            }
            Self::Coordinates(base, items) => {
                if let Base::Register(register) = base {
                    visit(*register);
                }
                items.iter().for_each(|item| item.for_each_register(visit));
            }
            Self::Pair(first, second) => {
                first.for_each_register(visit);
                second.for_each_register(visit);
            }
            Self::Special(_)
            | Self::Integer(_)
            | Self::Single(_)
            | Self::Double(_)
            | Self::Symbol(..)
            | Self::Element(..)
            | Self::Address(..)
            | Self::Label(_)
            | Self::Table(_)
            | Self::Sink => {}
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Base {
    Register(Register),
    Symbol(Name),
    Absolute,
}
