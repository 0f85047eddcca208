//! Constant expressions: integers joined by the operators of C.

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

    /// A constant expression of integers.
    pub(super) fn expression(&mut self) -> Result<i64, SyntaxError> {
        self.conditional(0)
    }

    fn conditional(&mut self, depth: u32) -> Result<i64, SyntaxError> {
        let condition = self.binary(LOOSEST, depth)?;
        if !self.take('?') {
            return Ok(condition);
        }
        self.check_depth(depth)?;
        let then = self.conditional(depth + 1)?;
        self.expect(':')?;
        let otherwise = self.conditional(depth + 1)?;
        Ok(if condition != 0 { then } else { otherwise })
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

    fn binary(&mut self, loosest: u32, depth: u32) -> Result<i64, SyntaxError> {
        self.check_depth(depth)?;
        let mut left = self.unary(depth)?;
        loop {
            if let Some(divisor) = self.modulo(loosest, depth) {
                left = divisor.and_then(|divisor| self.remainder(left, divisor))?;
                continue;
            }
            let Some((operator, binds)) = self.operator(loosest) else { return Ok(left) };
            self.position += operator.len();
            let right = self.binary(binds + 1, depth + 1)?;
            left = match operator {
                "||" => i64::from(left != 0 || right != 0),
                "&&" => i64::from(left != 0 && right != 0),
                "==" => i64::from(left == right),
                "!=" => i64::from(left != right),
                "<=" => i64::from(left <= right),
                ">=" => i64::from(left >= right),
                "<" => i64::from(left < right),
                ">" => i64::from(left > right),
                "<<" => left.checked_shl(right.clamp(0, 64) as u32).unwrap_or(0),
                ">>" => left >> right.clamp(0, 63),
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                "*" => left.wrapping_mul(right),
                _ => {
                    self.remainder(left, right)?;
                    left.wrapping_div(right)
                }
            };
        }
    }

    fn remainder(&self, left: i64, right: i64) -> Result<i64, SyntaxError> {
        if right == 0 {
            return Err(self.error("a constant expression divides by zero"));
        }
        Ok(left.wrapping_rem(right))
    }

    /// The divisor behind `%`, if that comes next: to the lexer, the mark begins a word.
    fn modulo(&mut self, loosest: u32, depth: u32) -> Option<Result<i64, SyntaxError>> {
        if loosest > TIGHTEST {
            return None;
        }
        let TokenKind::Word(word) = self.peek() else { return None };
        let digits = word.strip_prefix('%')?;
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        self.position += 1;
        if digits.is_empty() {
            return Some(self.unary(depth + 1));
        }
        Some(digits.parse().map_err(|_| self.error(format!("`{digits}` is too large a number"))))
    }

    fn unary(&mut self, depth: u32) -> Result<i64, SyntaxError> {
        let mut signs = Vec::new();
        while let TokenKind::Punctuation(sign @ ('-' | '+' | '~' | '!')) = self.peek() {
            self.position += 1;
            signs.push(sign);
        }
        let value = match self.advance() {
            TokenKind::Integer(value) => value as i64,
            TokenKind::Word("WARP_SZ") => 32,
            TokenKind::Punctuation('(') => match self.peek() {
                // A cast between integers of 64 bits changes nothing.
                TokenKind::Word(".s64" | ".u64") => {
                    self.position += 1;
                    self.expect(')')?;
                    self.check_depth(depth)?;
                    self.unary(depth + 1)?
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
            '-' => value.wrapping_neg(),
            '~' => !value,
            '!' => i64::from(value == 0),
            _ => value,
        }))
    }
}
