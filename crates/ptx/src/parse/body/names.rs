//! What names mean in a body: registers, variables, parameters, and the scopes that they live in.

use super::builder::{Builder, Scope};
use crate::parse::SyntaxError;
use crate::parse::parser::Parser;
use crate::parse::syntax::{Name, Register, Scalar};

/// Registers one body may use; real kernels stay below a hundred thousand.
const MAX_REGISTERS: usize = 1 << 20;
/// Ranges of registers that one scope may declare, since each name is looked up in all; compilers declare one
/// for each type.
const MAX_RANGES: usize = 1024;
/// Nesting of `{ }`; compilers nest two or three deep.
const DEEPEST_SCOPE: usize = 64;

impl<'s> Builder<'s, '_> {
    /// Begins a `{ }`.
    pub(super) fn open_scope(&mut self, parser: &Parser<'s, '_>) -> Result<(), SyntaxError> {
        if self.open.len() >= DEEPEST_SCOPE {
            return Err(parser.error(format!("scopes are nested more than {DEEPEST_SCOPE} deep")));
        }
        self.scopes.push(Scope { parent: self.open.last().copied(), ..Scope::default() });
        self.open.push(self.scopes.len() - 1);
        Ok(())
    }

    /// The scope in which names are declared now.
    pub(super) fn innermost(&mut self) -> &mut Scope<'s> {
        let index = *self.open.last().expect("a scope is open while statements are read");
        &mut self.scopes[index]
    }

    /// `.reg .type name, name<count>, ... ;`
    pub(super) fn registers(&mut self, parser: &mut Parser<'s, '_>) -> Result<(), SyntaxError> {
        parser.advance();
        let word = parser.name("a type")?;
        let scalar = word
            .strip_prefix('.')
            .and_then(Scalar::named)
            .ok_or_else(|| parser.error(format!("registers of type `{word}` are not supported")))?;
        loop {
            let name = parser.name("the name of a register")?;
            if parser.take('<') {
                if self.innermost().ranges.len() >= MAX_RANGES {
                    return Err(
                        parser.error(format!("a scope declares more than {MAX_RANGES} ranges of registers"))
                    );
                }
                let count = parser.integer()?;
                parser.expect('>')?;
                self.innermost().ranges.push((name, scalar, count.max(0) as u64));
            } else {
                let register = self.new_register(parser, scalar)?;
                self.innermost().registers.insert(name, register);
            }
            if !parser.take(',') {
                return parser.expect(';');
            }
        }
    }

    fn new_register(&mut self, parser: &Parser<'s, '_>, scalar: Scalar) -> Result<Register, SyntaxError> {
        if self.body.registers.len() >= MAX_REGISTERS {
            return Err(parser.error(format!("a function uses more than {MAX_REGISTERS} registers")));
        }
        self.body.registers.push(scalar);
        Ok(self.body.registers.len() - 1)
    }

    /// The register that a word names, if it names one.
    pub(super) fn find_register(
        &mut self,
        parser: &Parser<'s, '_>,
        name: &'s str,
    ) -> Result<Option<Register>, SyntaxError> {
        let digits = name.trim_end_matches(|character: char| character.is_ascii_digit()).len();
        for position in (0..self.open.len()).rev() {
            let scope = &self.scopes[self.open[position]];
            if let Some(&register) = scope.registers.get(name) {
                return Ok(Some(register));
            }
            // The digits that number a register may follow digits of its name: `%f1<3>` makes %f10, %f11,
            // %f12.
            let range = scope.ranges.iter().find(|(prefix, _, count)| {
                prefix.len() >= digits
                    && name.len() > prefix.len()
                    && name.starts_with(prefix)
                    && name[prefix.len()..].parse::<u64>().is_ok_and(|index| index < *count)
            });
            if let Some(&(_, scalar, _)) = range {
                let scope = self.open[position];
                let register = self.new_register(parser, scalar)?;
                self.scopes[scope].registers.insert(name, register);
                return Ok(Some(register));
            }
        }
        Ok(None)
    }

    /// The register that must be next.
    pub(super) fn register(&mut self, parser: &mut Parser<'s, '_>) -> Result<Register, SyntaxError> {
        let name = parser.name("a register")?;
        self.find_register(parser, name)?
            .ok_or_else(|| parser.error(format!("`{name}` is not a register that was declared")))
    }

    /// What a word names, other than a register or label.
    pub(super) fn find_name(&self, word: &str) -> Name {
        for &scope in self.open.iter().rev() {
            if let Some(&variable) = self.scopes[scope].variables.get(word) {
                return Name::Own(variable);
            }
        }
        if let Some(index) = self.function.parameters.iter().position(|parameter| parameter.name == word) {
            return Name::Parameter(index);
        }
        if let Some(index) = self.function.returns.iter().position(|value| value.name == word) {
            return Name::Return(index);
        }
        Name::Module(word.to_owned())
    }
}
