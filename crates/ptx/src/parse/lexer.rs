//! Words of PTX text.

use thiserror::Error;

/// Text that is not PTX, with the line where that became clear (the first line is 1).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub(crate) struct SyntaxError {
    pub(crate) line: u32,
    pub(crate) message: String,
}

/// One word with the place where it starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Token<'s> {
    pub(crate) kind: TokenKind<'s>,
    /// Line in the source, from 1.
    pub(crate) line: u32,
    /// Byte offset of the first character.
    pub(crate) start: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TokenKind<'s> {
    /// A name, opcode with its modifiers, register or directive: `ld.global.f32`, `%tid.x`, `.reg`,
    /// `$L__BB0_1`.
    Word(&'s str),
    /// An integer; a sign is a token of its own.
    Integer(u64),
    /// The bits of a single-precision constant: `0f3F800000`.
    Single(u32),
    /// A double-precision constant: `0d3FF0000000000000` or `1.0`.
    Double(u64),
    /// The text between quotes.
    Text(&'s str),
    /// Anything else, one character.
    Punctuation(char),
    /// End of the text.
    End,
}

/// Splits `source` into tokens, ending with [`TokenKind::End`].
pub(crate) fn tokens(source: &str) -> Result<Vec<Token<'_>>, SyntaxError> {
    let mut lexer = Lexer { source, position: 0, line: 1 };
    let mut tokens = Vec::with_capacity(source.len() / 4);
    loop {
        let token = lexer.next()?;
        tokens.push(token);
        if token.kind == TokenKind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'s> {
    source: &'s str,
    position: usize,
    line: u32,
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn continues_word(byte: u8) -> bool {
    starts_word(byte) || byte.is_ascii_digit()
}

impl<'s> Lexer<'s> {
    fn peek(&self, ahead: usize) -> u8 {
        self.source.as_bytes().get(self.position + ahead).copied().unwrap_or(0)
    }

    fn error(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError { line: self.line, message: message.into() }
    }

    fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.line += 1;
                    self.position += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.position += 1,
                // Fat binaries pad PTX text with NUL bytes; they end it.
                0 => {
                    self.position = self.source.len();
                    return Ok(());
                }
                b'/' if self.peek(1) == b'/' => {
                    let rest = &self.source[self.position..];
                    self.position += rest.find('\n').unwrap_or(rest.len());
                }
                b'/' if self.peek(1) == b'*' => {
                    let rest = &self.source[self.position..];
                    let end = rest.find("*/").ok_or_else(|| self.error("a comment does not end"))?;
                    self.line += rest[..end].bytes().filter(|&byte| byte == b'\n').count() as u32;
                    self.position += end + 2;
                }
                _ => return Ok(()),
            }
        }
    }

    fn next(&mut self) -> Result<Token<'s>, SyntaxError> {
        self.skip_blanks()?;
        let (start, line) = (self.position, self.line);
        let first = self.peek(0);
        let kind = if start >= self.source.len() {
            TokenKind::End
        } else if starts_word(first) {
            self.word()
        } else if first.is_ascii_digit() {
            self.number()?
        } else if first == b'"' {
            let rest = &self.source[start + 1..];
            let end = rest.find('"').ok_or_else(|| self.error("a string does not end"))?;
            self.line += rest[..end].bytes().filter(|&byte| byte == b'\n').count() as u32;
            self.position += end + 2;
            TokenKind::Text(&rest[..end])
        } else {
            let character = self.source[start..].chars().next().unwrap_or('\0');
            self.position += character.len_utf8();
            TokenKind::Punctuation(character)
        };
        Ok(Token { kind, line, start })
    }

    fn word(&mut self) -> TokenKind<'s> {
        let start = self.position;
        // `.reg.b32` is two words: a directive and a type.
        let directive = self.peek(0) == b'.';
        self.position += 1;
        loop {
            let byte = self.peek(0);
            if continues_word(byte) && !(directive && byte == b'.') {
                self.position += 1;
            } else if byte == b':' && self.peek(1) == b':' {
                // Modifiers such as `.shared::cta` and `.L1::evict_last`.
                self.position += 2;
            } else {
                return TokenKind::Word(&self.source[start..self.position]);
            }
        }
    }

    fn number(&mut self) -> Result<TokenKind<'s>, SyntaxError> {
        let start = self.position;
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'.' {
            let exponent = matches!(self.peek(0), b'e' | b'E') && matches!(self.peek(1), b'+' | b'-');
            let hexadecimal =
                self.source[start..].starts_with("0x") || self.source[start..].starts_with("0X");
            self.position += if exponent && !hexadecimal { 2 } else { 1 };
        }
        let text = &self.source[start..self.position];
        parse_number(text).ok_or_else(|| self.error(format!("`{text}` is not a number")))
    }
}

fn parse_number<'s>(text: &str) -> Option<TokenKind<'s>> {
    let bytes = text.as_bytes();
    if bytes[0] == b'0' && bytes.len() > 1 {
        let digits = &text[2..];
        match bytes[1] {
            b'f' | b'F' if digits.len() == 8 => {
                return u32::from_str_radix(digits, 16).ok().map(TokenKind::Single);
            }
            b'd' | b'D' if digits.len() == 16 => {
                return u64::from_str_radix(digits, 16).ok().map(TokenKind::Double);
            }
            _ => {}
        }
    }
    if !text.starts_with("0x") && !text.starts_with("0X") && text.contains(['.', 'e', 'E']) {
        return text.parse::<f64>().ok().map(|value| TokenKind::Double(value.to_bits()));
    }
    let digits = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    u64::from_str_radix(digits, radix).ok().map(TokenKind::Integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<TokenKind<'_>> {
        tokens(source).unwrap().into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn numbers_in_every_notation() {
        use TokenKind::{Double, End, Integer, Single};
        assert_eq!(
            kinds("0 10 0x1F 0b101 017 4294967295U 0f3F800000 0d3FF0000000000000 1.5 2e3 0xFFFFFFFFFFFFFFFF"),
            [
                Integer(0),
                Integer(10),
                Integer(31),
                Integer(5),
                Integer(15),
                Integer(4_294_967_295),
                Single(0x3F80_0000),
                Double(1_f64.to_bits()),
                Double(1.5_f64.to_bits()),
                Double(2000_f64.to_bits()),
                Integer(u64::MAX),
                End
            ]
        );
    }

    #[test]
    fn modifiers_with_double_colons_belong_to_the_word_and_labels_do_not() {
        use TokenKind::{End, Punctuation, Word};
        assert_eq!(kinds(".reg.b32 %r"), [Word(".reg"), Word(".b32"), Word("%r"), End]);
        assert_eq!(
            kinds("$L1: ld.shared::cta.u32"),
            [Word("$L1"), Punctuation(':'), Word("ld.shared::cta.u32"), End]
        );
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let tokens = tokens("/* a\nb */ // c\n\"x\ny\" z").unwrap();
        assert_eq!(tokens[1].line, 4);
        assert!(super::tokens("/* never ends").is_err());
        assert!(super::tokens("\"never ends").is_err());
        assert!(super::tokens("0x").is_err());
    }
}
