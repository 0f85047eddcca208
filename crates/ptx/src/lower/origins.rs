//! Origins of addresses: which parameter, variable or memory the pointer in a register comes from.

use std::collections::HashMap;

use crate::parse::syntax::{
    Base, Body, Instruction, Name, Operand, Register, Scalar, Selected, Space, Statement,
};

/// Origins, a bit each.
type Origins = u128;

/// Memory that belongs to one thread.
const LOCAL: Origins = 1 << 127;
/// Pointers that are loaded, or of which nothing is known.
const UNKNOWN: Origins = 1 << 126;
/// Those that have no bit of their own share the last one.
const LAST_BIT: usize = 125;

/// How often the instructions of a body are read. Compilers define nearly all registers in front of their uses, so that a
/// few times are enough; code made to need more of them is not followed to the end.
const MAX_PASSES: usize = 16;

/// What the registers of a body are computed from. Order and branches do not count: a register has what any of its
/// definitions gives it.
pub(super) struct RegisterOrigins {
    /// The pointers that a register is one of, with anything added.
    origins: Vec<Origins>,
    /// Whether its value may differ from lane to lane.
    varies: Vec<bool>,
    /// Whether it is computed from the number of the thread without a load.
    from_index: Vec<bool>,
    bits: HashMap<Symbol, usize>,
}

/// What has a bit of its own: a parameter with an offset, or a variable.
#[derive(PartialEq, Eq, Hash)]
enum Symbol {
    Parameter(usize, i64),
    Own(usize),
    Module(String),
}

/// Where an access goes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    origins: Origins,
    /// Base and offset, if every lane may have an element of its own there.
    element: Option<(Register, i64)>,
}

impl Target {
    /// Whether a thread may find at one what another one has written at the other. At one address in the same register
    /// a thread finds its own element.
    pub(super) fn may_alias(&self, other: &Self) -> bool {
        self.origins & other.origins & !LOCAL != 0
            && (self.element.is_none() || self.element != other.element)
    }
}

impl RegisterOrigins {
    pub(super) fn of(body: &Body) -> Self {
        let count = body.registers.len();
        let mut origins = Self {
            origins: vec![0; count],
            varies: vec![false; count],
            from_index: vec![false; count],
            bits: HashMap::new(),
        };
        for _ in 0..MAX_PASSES {
            let changed = body.statements.iter().fold(false, |changed, statement| match statement {
                Statement::Instruction(instruction) => origins.add(body, instruction) | changed,
                Statement::Label(_) => changed,
            });
            if !changed {
                break;
            }
        }
        origins
    }

    /// Whether the value is computed from the number of the thread, or is that number.
    pub(super) fn is_from_index(&self, operand: &Operand) -> bool {
        match operand {
            Operand::Register(register) | Operand::Selected(Selected { register, .. }) => {
                self.from_index[*register]
            }
            Operand::Special(name) => is_thread_index(name),
            _ => false,
        }
    }

    /// Where an access goes with this operand in brackets; `None` if that is not memory of several threads.
    pub(super) fn target(&mut self, body: &Body, operand: &Operand) -> Option<Target> {
        let (origins, element) = match operand {
            Operand::Address(Base::Register(register), offset) => {
                let origins = self.origins[*register];
                let element = self.varies[*register].then_some((*register, *offset));
                (if origins == 0 { UNKNOWN } else { origins }, element)
            }
            Operand::Address(Base::Symbol(name), _) | Operand::Element(name, _) => {
                (self.symbol(body, name), None)
            }
            _ => (UNKNOWN, None),
        };
        (origins & !LOCAL != 0).then_some(Target { origins, element })
    }

    /// Adds what an instruction's results are computed from. Whether that was not known.
    fn add(&mut self, body: &Body, instruction: &Instruction) -> bool {
        let [target, sources @ ..] = instruction.operands.as_slice() else { return false };
        let opcode = instruction.opcode.as_str();
        let has = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
        let (mut origins, mut varies, mut from_index) = (0, false, false);
        match opcode {
            "ld" if has("param") => {
                let is_pointer =
                    [Scalar::B64, Scalar::U64, Scalar::S64].map(|scalar| has_type(instruction, scalar));
                origins = match sources.first() {
                    Some(Operand::Address(Base::Symbol(Name::Parameter(index)), offset))
                        if is_pointer.contains(&true) =>
                    {
                        self.bit(Symbol::Parameter(*index, *offset))
                    }
                    _ => UNKNOWN,
                };
                // Of a function, it may be anything.
                varies =
                    !matches!(sources.first(), Some(Operand::Address(Base::Symbol(Name::Parameter(_)), _)));
            }
            // Stores and branches define nothing.
            "st" | "red" | "bra" | "brx" | "call" | "ret" | "bar" | "barrier" => return false,
            "ld" | "ldu" | "atom" | "shfl" | "tex" | "tld4" | "suld" => (origins, varies) = (UNKNOWN, true),
            _ => {
                let sources = sources.iter().flat_map(|source| match source {
                    Operand::Vector(items) => items.as_slice(),
                    other => std::slice::from_ref(other),
                });
                for (index, source) in sources.enumerate() {
                    from_index |= self.is_from_index(source);
                    varies |= self.is_from_index(source)
                        || matches!(
                            source,
                            Operand::Register(register) | Operand::Selected(Selected { register, .. })
                                if self.varies[*register]
                        );
                    let keeps = match opcode {
                        "mov" | "cvta" | "cvt" | "add" | "addc" | "selp" | "or" | "mapa" => true,
                        "sub" | "and" => index == 0,
                        "mad" => index == 2,
                        _ => false,
                    };
                    origins |= match source {
                        _ if !keeps => 0,
                        Operand::Register(register) => self.origins[*register],
                        Operand::Symbol(name, _) | Operand::Element(name, _) => self.symbol(body, name),
                        _ => 0,
                    };
                }
            }
        }
        let mut changed = false;
        let mut define = |register: Register| {
            changed |= origins & !self.origins[register] != 0
                || varies && !self.varies[register]
                || from_index && !self.from_index[register];
            self.origins[register] |= origins;
            self.varies[register] |= varies;
            self.from_index[register] |= from_index;
        };
        defined_registers(target, &mut define);
        changed
    }

    fn symbol(&mut self, body: &Body, name: &Name) -> Origins {
        match name {
            Name::Own(index) if body.variables[*index].space != Space::Shared => LOCAL,
            Name::Own(index) => self.bit(Symbol::Own(*index)),
            Name::Parameter(_) | Name::Return(_) => LOCAL,
            Name::Module(name) => self.bit(Symbol::Module(name.clone())),
        }
    }

    fn bit(&mut self, symbol: Symbol) -> Origins {
        let next = self.bits.len();
        1 << (*self.bits.entry(symbol).or_insert(next)).min(LAST_BIT)
    }
}

fn has_type(instruction: &Instruction, scalar: Scalar) -> bool {
    instruction.modifiers.iter().any(|modifier| Scalar::named(modifier) == Some(scalar))
}

fn defined_registers(operand: &Operand, define: &mut dyn FnMut(Register)) {
    match operand {
        Operand::Register(register) | Operand::Selected(Selected { register, .. }) => define(*register),
        Operand::Vector(items) => items.iter().for_each(|item| defined_registers(item, define)),
        Operand::Pair(first, second) => {
            defined_registers(first, define);
            defined_registers(second, define);
        }
        _ => {}
    }
}

/// Whether a special register differs from lane to lane.
fn is_thread_index(name: &str) -> bool {
    name == "laneid" || name.starts_with("tid") || name.starts_with("lanemask")
}
