//! Operands of instructions.

use super::builder::{Builder, PendingLabel};
use crate::parse::SyntaxError;
use crate::parse::lexer::TokenKind;
use crate::parse::parser::Parser;
use crate::parse::syntax::{Base, Name, Operand, Selected, Selector};

impl<'s> Builder<'s, '_> {
    /// The label or table that a branch names, which may come later.
    pub(super) fn branch_target(&mut self, name: &'s str, operand: usize, line: u32) -> Operand {
        if self.body.branch_tables.contains_key(name) {
            return Operand::Table(name.to_owned());
        }
        let pending = PendingLabel::Operand { statement: self.body.statements.len(), operand };
        let scope = *self.open.last().expect("a scope is open");
        self.pending_branches.push((pending, name, scope, line));
        Operand::Label(0)
    }

    /// One operand; `d|p` counts as one.
    pub(super) fn operand(&mut self, parser: &mut Parser<'s, '_>) -> Result<Operand, SyntaxError> {
        match parser.peek() {
            TokenKind::Punctuation('(') if !parser.at_expression() => {
                parser.advance();
                Ok(Operand::List(self.operands_until(parser, ')')?))
            }
            TokenKind::Punctuation('{') => {
                parser.advance();
                let vector = Operand::Vector(self.operands_until(parser, '}')?);
                self.perhaps_pair(parser, vector)
            }
            TokenKind::Punctuation('[') => self.address(parser),
            _ => {
                let first = self.simple_operand(parser)?;
                self.perhaps_pair(parser, first)
            }
        }
    }

    /// An operand with what follows it behind `|`, if anything does.
    fn perhaps_pair(&mut self, parser: &mut Parser<'s, '_>, first: Operand) -> Result<Operand, SyntaxError> {
        if parser.take('|') {
            let second = self.simple_operand(parser)?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    /// A list of operands up to a closing mark.
    pub(super) fn operands_until(
        &mut self,
        parser: &mut Parser<'s, '_>,
        end: char,
    ) -> Result<Vec<Operand>, SyntaxError> {
        let mut operands = Vec::new();
        while !parser.take(end) {
            if !operands.is_empty() {
                parser.expect(',')?;
            }
            operands.push(self.simple_operand(parser)?);
        }
        Ok(operands)
    }

    /// A number, a register or another name.
    fn simple_operand(&mut self, parser: &mut Parser<'s, '_>) -> Result<Operand, SyntaxError> {
        if parser.at_expression() {
            return Ok(Operand::Integer(parser.expression()?));
        }
        if parser.take('!') {
            return Ok(Operand::Not(self.register(parser)?));
        }
        let negative = parser.take('-');
        let operand = match parser.peek() {
            TokenKind::Single(bits) => Operand::Single(bits ^ (u32::from(negative) << 31)),
            TokenKind::Double(bits) => Operand::Double(bits ^ (u64::from(negative) << 63)),
            TokenKind::Word(word) if negative => {
                let selected = match self.find_register(parser, word)? {
                    Some(register) => Selected { register, negated: true, selector: None },
                    None => match self.find_selected(parser, word)? {
                        Some(selected) => Selected { negated: true, ..selected },
                        None => return Err(parser.unexpected("a number or register after `-`")),
                    },
                };
                Operand::Selected(selected)
            }
            TokenKind::Word("_") => Operand::Sink,
            TokenKind::Word(word) => {
                if let Some(register) = self.find_register(parser, word)? {
                    Operand::Register(register)
                } else if let Some(selected) = self.find_selected(parser, word)? {
                    Operand::Selected(selected)
                } else if self.body.prototypes.contains_key(word)
                    || self.body.branch_tables.contains_key(word)
                {
                    Operand::Table(word.to_owned())
                } else if let Some(special) = word.strip_prefix('%')
                    && matches!(self.find_name(word), Name::Module(_))
                {
                    Operand::Special(special.to_owned())
                } else {
                    parser.advance();
                    let name = self.find_name(word);
                    if parser.take('[') {
                        let index = parser.integer()?;
                        parser.expect(']')?;
                        return Ok(Operand::Element(name, index));
                    }
                    let offset = parser.addend()?;
                    return Ok(Operand::Symbol(name, offset));
                }
            }
            _ => return Err(parser.unexpected("an operand")),
        };
        parser.advance();
        Ok(operand)
    }

    /// The register that a word names together with a selector, if it does.
    fn find_selected(
        &mut self,
        parser: &Parser<'s, '_>,
        word: &'s str,
    ) -> Result<Option<Selected>, SyntaxError> {
        let Some((name, suffix)) = word.rsplit_once('.') else { return Ok(None) };
        let Some(selector) = Selector::named(suffix) else { return Ok(None) };
        let register = self.find_register(parser, name)?;
        Ok(register.map(|register| Selected { register, negated: false, selector: Some(selector) }))
    }

    /// `[register+4]` and its like.
    fn address(&mut self, parser: &mut Parser<'s, '_>) -> Result<Operand, SyntaxError> {
        parser.expect('[')?;
        let base = match parser.peek() {
            TokenKind::Word(word) => {
                parser.advance();
                match self.find_register(parser, word)? {
                    Some(register) => Base::Register(register),
                    None if word.starts_with('%') && matches!(self.find_name(word), Name::Module(_)) => {
                        return Err(parser.error(format!("`{word}` is not a register that was declared")));
                    }
                    None => Base::Symbol(self.find_name(word)),
                }
            }
            _ => {
                let absolute = parser.expression()?;
                parser.expect(']')?;
                return Ok(Operand::Address(Base::Absolute, absolute));
            }
        };
        let offset = parser.addend()?;
        if parser.take(',') {
            // The coordinates are a vector, or a single register.
            let mut items = Vec::new();
            loop {
                items.push(if parser.take('{') {
                    Operand::Vector(self.operands_until(parser, '}')?)
                } else {
                    self.simple_operand(parser)?
                });
                if parser.take(']') {
                    return Ok(Operand::Coordinates(base, items));
                }
                parser.expect(',')?;
            }
        }
        parser.expect(']')?;
        Ok(Operand::Address(base, offset))
    }
}
