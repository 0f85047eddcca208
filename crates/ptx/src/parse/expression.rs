//! Constant expressions: integers joined by the operators of C.
//!
//! A number is of 64 bits, with a sign unless it ends with `U`, does not fit otherwise or is cast. An
//! operator whose operands differ in that takes both without a sign, which matters where its result depends
//! on it: comparisons, division and remainder. A shift is as its left operand is.

use super::SyntaxError;
use super::lexer::TokenKind;
use super::parser::Parser;

/// Nesting of an expression; compilers write none at all.
const MAX_DEPTH: u32 = 32;

/// A binary operator: its marks, and how tightly it binds.
const OPERATORS: [(&str, u32); 17] = [
    ("||", 1),
    ("&&", 2),
    ("==", 6),
    ("!=", 6),
    ("<=", 7),
    (">=", 7),
    ("<<", 8),
    (">>", 8),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("<", 7),
    (">", 7),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
];
const LOOSEST: u32 = 1;
const TIGHTEST: u32 = 10;

/// The value of an expression.
#[derive(Debug, Clone, Copy)]
struct Constant {
    bits: u64,
    is_unsigned: bool,
}

impl Constant {
    fn signed(value: i64) -> Self {
        Self { bits: value.cast_unsigned(), is_unsigned: false }
    }

    fn is_true(self) -> bool {
        self.bits != 0
    }

    /// What two operands are compared by: wider than both, so that either kind fits.
    fn wide(self, is_unsigned: bool) -> i128 {
        if is_unsigned { i128::from(self.bits) } else { i128::from(self.bits.cast_signed()) }
    }
}

impl Parser<'_, '_> {
    /// Whether a constant expression of integers begins with the next token.
    pub(super) fn at_expression(&self) -> bool {
        let mut position = self.position;
        // What stands in front of the first number.
        while let Some(token) = self.tokens.get(position) {
            match token.kind {
                TokenKind::Punctuation('(' | '-' | '+' | '~' | '!') => position += 1,
                TokenKind::Word(".s64" | ".u64") => return true,
                TokenKind::Integer(_) => return true,
                TokenKind::Word("WARP_SZ") => return true,
                _ => return false,
            }
        }
        false
    }

    /// A constant expression of integers; of one without a sign the bits.
    pub(super) fn expression(&mut self) -> Result<i64, SyntaxError> {
        Ok(self.conditional(0)?.bits.cast_signed())
    }

    fn conditional(&mut self, depth: u32) -> Result<Constant, SyntaxError> {
        let condition = self.binary(LOOSEST, depth)?;
        if !self.take('?') {
            return Ok(condition);
        }
        self.check_depth(depth)?;
        let then = self.conditional(depth + 1)?;
        self.expect(':')?;
        let otherwise = self.conditional(depth + 1)?;
        let is_unsigned = then.is_unsigned || otherwise.is_unsigned;
        let bits = if condition.is_true() { then.bits } else { otherwise.bits };
        Ok(Constant { bits, is_unsigned })
    }

    fn check_depth(&self, depth: u32) -> Result<(), SyntaxError> {
        if depth < MAX_DEPTH {
            return Ok(());
        }
        Err(self.error(format!("a constant expression is nested more than {MAX_DEPTH} deep")))
    }

    /// The operator that comes next, if it binds at least so tightly.
    fn operator(&self, loosest: u32) -> Option<(&'static str, u32)> {
        let mark = |ahead: usize| match self.tokens.get(self.position + ahead).map(|token| token.kind) {
            Some(TokenKind::Punctuation(character)) => Some(character),
            _ => None,
        };
        let is_next =
            |text: &str| text.chars().enumerate().all(|(ahead, expected)| mark(ahead) == Some(expected));
        OPERATORS.into_iter().find(|(text, _)| is_next(text)).filter(|(_, binds)| *binds >= loosest)
    }

    fn binary(&mut self, loosest: u32, depth: u32) -> Result<Constant, SyntaxError> {
        self.check_depth(depth)?;
        let mut left = self.unary(depth)?;
        loop {
            if let Some(divisor) = self.modulo(loosest, depth) {
                left =
                    divisor.and_then(|divisor| self.quotient(left, divisor, |left, right| left % right))?;
                continue;
            }
            let Some((operator, binds)) = self.operator(loosest) else { return Ok(left) };
            self.position += operator.len();
            let right = self.binary(binds + 1, depth + 1)?;
            let is_unsigned = left.is_unsigned || right.is_unsigned;
            let (wide_left, wide_right) = (left.wide(is_unsigned), right.wide(is_unsigned));
            let truth = |is_true: bool| Constant::signed(i64::from(is_true));
            let joined = |bits: u64| Constant { bits, is_unsigned };
            // More than 64 is as much as 64, and so is what is less than 0.
            let amount = u32::try_from(right.bits).unwrap_or(u64::BITS);
            left = match operator {
                "||" => truth(left.is_true() || right.is_true()),
                "&&" => truth(left.is_true() && right.is_true()),
                "==" => truth(left.bits == right.bits),
                "!=" => truth(left.bits != right.bits),
                "<=" => truth(wide_left <= wide_right),
                ">=" => truth(wide_left >= wide_right),
                "<" => truth(wide_left < wide_right),
                ">" => truth(wide_left > wide_right),
                "<<" => Constant { bits: left.bits.checked_shl(amount).unwrap_or(0), ..left },
                ">>" if left.is_unsigned => {
                    Constant { bits: left.bits.checked_shr(amount).unwrap_or(0), ..left }
                }
                ">>" => Constant::signed(left.bits.cast_signed() >> amount.min(u64::BITS - 1)),
                "|" => joined(left.bits | right.bits),
                "^" => joined(left.bits ^ right.bits),
                "&" => joined(left.bits & right.bits),
                "+" => joined(left.bits.wrapping_add(right.bits)),
                "-" => joined(left.bits.wrapping_sub(right.bits)),
                "*" => joined(left.bits.wrapping_mul(right.bits)),
                _ => self.quotient(left, right, |left, right| left / right)?,
            };
        }
    }

    /// A quotient or a remainder.
    fn quotient(
        &self,
        left: Constant,
        right: Constant,
        of: impl FnOnce(i128, i128) -> i128,
    ) -> Result<Constant, SyntaxError> {
        if !right.is_true() {
            return Err(self.error("a constant expression divides by zero"));
        }
        let is_unsigned = left.is_unsigned || right.is_unsigned;
        // The least number by -1 is one too large for a sign, and wraps.
        let bits = of(left.wide(is_unsigned), right.wide(is_unsigned)) as u64;
        Ok(Constant { bits, is_unsigned })
    }

    /// The divisor behind `%`, if that comes next: to the lexer, the mark begins a word.
    fn modulo(&mut self, loosest: u32, depth: u32) -> Option<Result<Constant, SyntaxError>> {
        if loosest > TIGHTEST {
            return None;
        }
        let TokenKind::Word(word) = self.peek() else { return None };
        let number = word.strip_prefix('%')?;
        let digits = number.strip_suffix('U').unwrap_or(number);
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) || digits.is_empty() && !number.is_empty() {
            return None;
        }
        self.position += 1;
        if digits.is_empty() {
            return Some(self.unary(depth + 1));
        }
        let value = digits.parse().map_err(|_| self.error(format!("`{digits}` is too large a number")));
        Some(value.map(|bits| literal(bits, number)))
    }

    fn unary(&mut self, depth: u32) -> Result<Constant, SyntaxError> {
        let mut signs = Vec::new();
        while let TokenKind::Punctuation(sign @ ('-' | '+' | '~' | '!')) = self.peek() {
            self.position += 1;
            signs.push(sign);
        }
        let value = match self.advance() {
            TokenKind::Integer(value) => {
                let start = self.tokens[self.position - 1].start;
                let rest = &self.source[start..];
                let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
                literal(value, &rest[..end])
            }
            TokenKind::Word("WARP_SZ") => Constant::signed(32),
            TokenKind::Punctuation('(') => match self.peek() {
                TokenKind::Word(ty @ (".s64" | ".u64")) => {
                    self.position += 1;
                    self.expect(')')?;
                    self.check_depth(depth)?;
                    Constant { is_unsigned: ty == ".u64", ..self.unary(depth + 1)? }
                }
                _ => {
                    let value = self.conditional(depth + 1)?;
                    self.expect(')')?;
                    value
                }
            },
            _ => {
                self.position = self.position.saturating_sub(1);
                return Err(self.unexpected("a number"));
            }
        };
        Ok(signs.into_iter().rev().fold(value, |value, sign| match sign {
            '-' => Constant { bits: value.bits.wrapping_neg(), ..value },
            '~' => Constant { bits: !value.bits, ..value },
            '!' => Constant::signed(i64::from(!value.is_true())),
            _ => value,
        }))
    }
}

/// A number as it is written.
fn literal(bits: u64, text: &str) -> Constant {
    Constant { bits, is_unsigned: text.ends_with('U') || i64::try_from(bits).is_err() }
}
