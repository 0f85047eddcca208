//! A reader of tokens, and what all directives are read with.

use super::lexer::{SyntaxError, Token, TokenKind};

/// A reader of tokens. [`module`](super::module), [`variable`](super::variable) and
/// [`function`](super::function) add the methods that read their parts of a source.
pub(crate) struct Parser<'s, 't> {
    pub(super) source: &'s str,
    pub(super) tokens: &'t [Token<'s>],
    pub(super) position: usize,
}

impl<'s> Parser<'s, '_> {
    /// The next token.
    pub(super) fn peek(&self) -> TokenKind<'s> {
        self.tokens[self.position].kind
    }

    /// The one after it.
    pub(super) fn peek_after(&self) -> TokenKind<'s> {
        self.tokens[(self.position + 1).min(self.tokens.len() - 1)].kind
    }

    /// The next token's line.
    pub(super) fn line(&self) -> u32 {
        self.tokens[self.position].line
    }

    /// Takes the next token; the end stays where it is.
    pub(super) fn advance(&mut self) -> TokenKind<'s> {
        let kind = self.peek();
        if kind != TokenKind::End {
            self.position += 1;
        }
        kind
    }

    /// An error at the next token.
    pub(super) fn error(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError { line: self.line(), message: message.into() }
    }

    /// The next token is another than was wanted.
    pub(super) fn unexpected(&self, expected: &str) -> SyntaxError {
        let found = match self.peek() {
            TokenKind::Word(word) => format!("`{word}`"),
            TokenKind::Text(text) => format!("the string \"{text}\""),
            TokenKind::Punctuation(character) => format!("`{character}`"),
            TokenKind::End => "the end of the text".to_owned(),
            TokenKind::Integer(_) | TokenKind::Single(_) | TokenKind::Double(_) => "a number".to_owned(),
        };
        self.error(format!("expected {expected}, found {found}"))
    }

    /// Takes the punctuation mark if it is next.
    pub(super) fn take(&mut self, character: char) -> bool {
        let found = self.peek() == TokenKind::Punctuation(character);
        if found {
            self.position += 1;
        }
        found
    }

    /// Takes the punctuation mark, which must be next.
    pub(super) fn expect(&mut self, character: char) -> Result<(), SyntaxError> {
        if self.take(character) { Ok(()) } else { Err(self.unexpected(&format!("`{character}`"))) }
    }

    /// Takes the word if it is next.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek() == TokenKind::Word(word);
        if found {
            self.position += 1;
        }
        found
    }

    /// Takes the word that must be next.
    pub(super) fn name(&mut self, expected: &str) -> Result<&'s str, SyntaxError> {
        match self.peek() {
            TokenKind::Word(word) => {
                self.position += 1;
                Ok(word)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// An integer with an optional sign.
    pub(super) fn integer(&mut self) -> Result<i64, SyntaxError> {
        let negative = self.take('-');
        match self.peek() {
            TokenKind::Integer(value) => {
                self.position += 1;
                Ok(if negative { (value as i64).wrapping_neg() } else { value as i64 })
            }
            _ => Err(self.unexpected("an integer")),
        }
    }

    /// An integer from 0 to `limit`.
    pub(super) fn positive(&mut self, what: &str, limit: u64) -> Result<u64, SyntaxError> {
        let line = self.line();
        let value = self.integer()?;
        if value >= 0 && value as u64 <= limit {
            return Ok(value as u64);
        }
        Err(SyntaxError {
            line,
            message: format!("{value} is out of range for {what}, which is at most {limit}"),
        })
    }

    /// `+4`, `-4` or nothing. `+-4` is what some compilers write.
    pub(super) fn addend(&mut self) -> Result<i64, SyntaxError> {
        if self.take('+') || self.peek() == TokenKind::Punctuation('-') { self.expression() } else { Ok(0) }
    }

    /// Skips what debug directives say: the rest of the line, or a block in braces.
    pub(super) fn skip_directive(&mut self) -> Result<(), SyntaxError> {
        let line = self.line();
        let directive = self.advance();
        match directive {
            TokenKind::Word(".loc" | ".file") => {
                while self.line() == line && self.peek() != TokenKind::End {
                    self.position += 1;
                }
            }
            TokenKind::Word(".section") => {
                while self.peek() != TokenKind::Punctuation('{') {
                    if self.advance() == TokenKind::End {
                        return Err(self.unexpected("`{` after `.section`"));
                    }
                }
                let mut depth = 0_usize;
                loop {
                    match self.advance() {
                        TokenKind::Punctuation('{') => depth += 1,
                        TokenKind::Punctuation('}') => depth -= 1,
                        TokenKind::End => return Err(self.unexpected("`}` at the end of a section")),
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            _ => {
                while !self.take(';') {
                    if self.advance() == TokenKind::End {
                        return Err(self.unexpected("`;`"));
                    }
                }
            }
        }
        Ok(())
    }
}
