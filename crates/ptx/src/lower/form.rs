//! The modifiers of an instruction, taken one by one, so that none goes unnoticed.

use super::{Lowered, Refusal, invalid, unsupported};
use crate::parse::syntax::{Instruction, Scalar};

/// Modifiers not looked at yet. Every lowering takes those it knows and then calls [`Form::finish`], which
/// refuses the rest.
pub(super) struct Form<'i> {
    rest: Vec<&'i str>,
}

/// Types of PTX that the software GPU does not have: no register is declared to be of one.
const TYPES_WITHOUT_REGISTERS: [&str; 17] = [
    "tf32", "e4m3", "e5m2", "e4m3x2", "e5m2x2", "e4m3x4", "e5m2x4", "e2m3x2", "e3m2x2", "e2m1x2", "ue8m0x2",
    "ue5m3x2", "s2f6x2", "u8x4", "s8x4", "b8x16", "b1024",
];

/// How a result is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    NearestEven,
    Zero,
    Down,
    Up,
}

impl<'i> Form<'i> {
    pub(super) fn of(instruction: &'i Instruction) -> Self {
        Self { rest: instruction.modifiers.iter().map(String::as_str).collect() }
    }

    /// Takes the modifier if it is there.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.choice(&[name]).is_some()
    }

    /// Takes the first modifier that is among `names`.
    pub(super) fn choice(&mut self, names: &[&str]) -> Option<&'i str> {
        let position = self.rest.iter().position(|modifier| names.contains(modifier))?;
        Some(self.rest.remove(position))
    }

    /// Takes all modifiers that are among `names`: hints without a meaning here.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        self.rest.retain(|modifier| !names.contains(modifier));
    }

    /// Takes the modifiers that start so: hints without a meaning here.
    pub(super) fn ignore_prefix(&mut self, prefix: &str) {
        self.rest.retain(|modifier| !modifier.starts_with(prefix));
    }

    /// Takes the first type.
    pub(super) fn scalar(&mut self) -> Result<Scalar, Refusal> {
        let Some(position) = self.rest.iter().position(|modifier| Scalar::named(modifier).is_some()) else {
            return match self.rest.iter().find(|modifier| TYPES_WITHOUT_REGISTERS.contains(modifier)) {
                Some(name) => unsupported(format!("the type `.{name}`")),
                None => invalid("a type is missing"),
            };
        };
        let name = self.rest.remove(position);
        match Scalar::named(name) {
            Some(Scalar::B128) => unsupported("128-bit operands"),
            Some(scalar) => Ok(scalar),
            None => invalid("a type is missing"),
        }
    }

    /// Takes the rounding of a floating-point result; to nearest even if none is given.
    pub(super) fn rounding(&mut self) -> Rounding {
        match self.choice(&["rn", "rz", "rm", "rp"]) {
            Some("rz") => Rounding::Zero,
            Some("rm") => Rounding::Down,
            Some("rp") => Rounding::Up,
            _ => Rounding::NearestEven,
        }
    }

    /// Takes the next modifier, whatever it is.
    pub(super) fn next(&mut self) -> Option<&'i str> {
        (!self.rest.is_empty()).then(|| self.rest.remove(0))
    }

    /// Refuses the modifiers that nobody took.
    pub(super) fn finish(self) -> Lowered {
        match self.rest.first() {
            None => Ok(()),
            Some(modifier) => unsupported(format!("the modifier `.{modifier}`")),
        }
    }
}
