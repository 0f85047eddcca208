//! A source: its version and target, and the declarations in it.

use super::SyntaxError;
use super::lexer::{TokenKind, tokens};
use super::parser::Parser;
use super::syntax::{Linkage, Module, Statement};

/// Parses one source.
pub(crate) fn parse(source: &str) -> Result<Module, SyntaxError> {
    let tokens = tokens(source)?;
    let mut parser = Parser { source, tokens: &tokens, position: 0 };
    parser.module()
}

impl Parser<'_, '_> {
    /// All directives of a source.
    fn module(&mut self) -> Result<Module, SyntaxError> {
        let mut module = Module::default();
        let mut maps_doubles = false;
        loop {
            match self.peek() {
                TokenKind::End => break,
                TokenKind::Word(".version") => {
                    self.position += 1;
                    module.version = match self.advance() {
                        TokenKind::Double(bits) => (f64::from_bits(bits) * 10.0).round() as u32,
                        TokenKind::Integer(major) => (major as u32).saturating_mul(10),
                        _ => return Err(self.error("`.version` names a number such as 9.0")),
                    };
                }
                TokenKind::Word(".target") => module.target = self.target(&mut maps_doubles)?,
                TokenKind::Word(".address_size") => {
                    self.position += 1;
                    let bits = self.integer()?;
                    if bits != 64 {
                        return Err(self.error(format!(
                            "`.address_size {bits}`: the software GPU runs programs with 64-bit addresses only"
                        )));
                    }
                }
                TokenKind::Word(".loc" | ".file" | ".section" | ".pragma") => self.skip_directive()?,
                TokenKind::Word(".alias") => {
                    self.position += 1;
                    let new = self.name("the name of the alias")?.to_owned();
                    self.expect(',')?;
                    let old = self.name("the name of a function")?.to_owned();
                    self.expect(';')?;
                    module.aliases.push((new, old));
                }
                TokenKind::Word(word) if word.starts_with('.') => self.declaration(&mut module)?,
                _ => return Err(self.unexpected("a directive such as `.visible` or `.global`")),
            }
        }
        // Without `.address_size` addresses have 64 bits, which every target has that the software GPU can
        // be.
        let missing = match (module.version, module.target) {
            (0, _) => "there is no `.version`: this is not PTX",
            (_, 0) => "there is no `.target`",
            _ if maps_doubles => return without_doubles(module),
            _ => return Ok(module),
        };
        Err(SyntaxError { line: 1, message: missing.to_owned() })
    }

    /// `.target sm_90a, ...`, with the word next; gives the number, and notes whether doubles are to be computed in
    /// single precision.
    fn target(&mut self, maps_doubles: &mut bool) -> Result<u32, SyntaxError> {
        self.position += 1;
        let mut target = 0;
        loop {
            let word = self.name("a target such as `sm_75`")?;
            if let Some(number) = word.strip_prefix("sm_").or(word.strip_prefix("compute_")) {
                let digits = number.trim_end_matches(['a', 'f']);
                target = digits.parse().map_err(|_| self.error(format!("`{word}` is not a known target")))?;
            } else if word == "map_f64_to_f32" {
                *maps_doubles = true;
            } else if !matches!(word, "debug" | "texmode_unified" | "texmode_independent") {
                return Err(self.error(format!("`{word}` is not a target the software GPU can be")));
            }
            if !self.take(',') {
                return Ok(target);
            }
        }
    }

    /// A function or variables, behind any words about their linkage.
    fn declaration(&mut self, module: &mut Module) -> Result<(), SyntaxError> {
        let mut linkage = Linkage::Internal;
        loop {
            let word = match self.peek() {
                TokenKind::Word(word) => word,
                _ => return Err(self.unexpected("a declaration")),
            };
            match word {
                ".visible" => linkage = Linkage::Visible,
                ".weak" | ".common" => linkage = Linkage::Weak,
                ".extern" => linkage = Linkage::Extern,
                ".entry" | ".func" => {
                    self.position += 1;
                    let function = self.function(linkage, word == ".entry")?;
                    module.functions.push(function);
                    return Ok(());
                }
                ".global" | ".const" | ".shared" | ".local" => {
                    let variables = self.variables(linkage)?;
                    module.variables.extend(variables);
                    return Ok(());
                }
                _ => {
                    return Err(
                        self.error(format!("the directive `{word}` is not supported by the software GPU"))
                    );
                }
            }
            self.position += 1;
        }
    }
}

/// A module of the target `map_f64_to_f32`, if it computes nothing in double precision, so that the word changes nothing.
fn without_doubles(module: Module) -> Result<Module, SyntaxError> {
    let statements = module
        .functions
        .iter()
        .filter_map(|function| function.body.as_ref())
        .flat_map(|body| &body.statements);
    for statement in statements {
        if let Statement::Instruction(instruction) = statement
            && instruction.modifiers.iter().any(|modifier| modifier == "f64")
        {
            let message = format!(
                "`{}`: the target `map_f64_to_f32` has doubles computed in single precision, which the software GPU does \
                 not do: leave the word out, or compile for `sm_13` or later",
                instruction.text
            );
            return Err(SyntaxError { line: instruction.line, message });
        }
    }
    Ok(module)
}
