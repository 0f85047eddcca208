//! Variables: state space, type, bounds and initial values.

use super::SyntaxError;
use super::lexer::TokenKind;
use super::parser::Parser;
use super::syntax::{Linkage, Opaque, Pointer, Scalar, Space, Variable};

/// Largest variable that can be declared: 1 TiB, the largest address space.
const MAX_VARIABLE_BYTES: u64 = 1 << 40;

impl Parser<'_, '_> {
    /// `.space [.align n] [.attribute(..)] [.v2|.v4] .type name[..]... [= initial], ... ;` with the space
    /// next.
    pub(super) fn variables(&mut self, linkage: Linkage) -> Result<Vec<Variable>, SyntaxError> {
        let space = match self.advance() {
            TokenKind::Word(".global") => Space::Global,
            TokenKind::Word(".const") => Space::Const,
            TokenKind::Word(".shared") => Space::Shared,
            TokenKind::Word(".local") => Space::Local,
            _ => Space::Param,
        };
        let mut template = Variable::new(space, linkage, self.line());
        let (scalar, lanes) = self.variable_type(&mut template)?;
        let mut variables = Vec::new();
        loop {
            let mut variable = template.clone();
            self.declarator(&mut variable, scalar, lanes)?;
            if self.take('=') {
                self.initialiser(&mut variable, scalar)?;
            }
            variables.push(variable);
            if !self.take(',') {
                break;
            }
        }
        self.expect(';')?;
        Ok(variables)
    }

    /// The words between the state space and the name; returns the element type and its lanes.
    pub(super) fn variable_type(&mut self, variable: &mut Variable) -> Result<(Scalar, u32), SyntaxError> {
        let mut lanes = 1;
        loop {
            let word = self.name("a type such as `.b32`")?;
            match word {
                ".align" => {
                    let align = self.positive("an alignment", 1 << 20)?;
                    if !align.is_power_of_two() {
                        return Err(self.error(format!("{align} is not a power of two, so not an alignment")));
                    }
                    variable.align = align as u32;
                }
                ".attribute" => {
                    self.expect('(')?;
                    while !self.take(')') {
                        match self.advance() {
                            TokenKind::Word(".managed") => variable.managed = true,
                            TokenKind::End => return Err(self.unexpected("`)`")),
                            _ => {}
                        }
                    }
                }
                // Such a variable has an address, which stands for what is bound to it.
                ".texref" | ".samplerref" | ".surfref" => {
                    variable.opaque = Some(match word {
                        ".texref" => Opaque::Texture,
                        ".surfref" => Opaque::Surface,
                        _ => Opaque::Sampler,
                    });
                    return Ok((Scalar::B64, lanes));
                }
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                ".ptr" | ".global" | ".const" | ".shared" | ".local" => {}
                _ => {
                    let scalar = word
                        .strip_prefix('.')
                        .and_then(Scalar::named)
                        .filter(|scalar| *scalar != Scalar::Pred)
                        .ok_or_else(|| self.error(format!("`{word}` is not a type of variables")))?;
                    return Ok((scalar, lanes));
                }
            }
        }
    }

    /// Name and array bounds.
    pub(super) fn declarator(
        &mut self,
        variable: &mut Variable,
        scalar: Scalar,
        lanes: u32,
    ) -> Result<(), SyntaxError> {
        variable.line = self.line();
        // Parameters may say what they point at between type and name; nothing depends on it here.
        while matches!(
            self.peek(),
            TokenKind::Word(".ptr" | ".global" | ".const" | ".shared" | ".local" | ".align")
        ) {
            if self.advance() == TokenKind::Word(".align") {
                self.positive("an alignment", 1 << 20)?;
            }
        }
        variable.name = self.name("the name of a variable")?.to_owned();
        let element = u64::from(scalar.size() * lanes);
        let mut size = element;
        while self.take('[') {
            if self.take(']') {
                size = 0;
                continue;
            }
            let count = self.positive("the length of an array", MAX_VARIABLE_BYTES)?;
            self.expect(']')?;
            size = size
                .checked_mul(count)
                .filter(|&size| size <= MAX_VARIABLE_BYTES)
                .ok_or_else(|| self.error(format!("`{}` is larger than any memory", variable.name)))?;
        }
        variable.size = size;
        variable.element = element as u32;
        if variable.align == 0 {
            variable.align = element as u32;
        }
        Ok(())
    }

    /// What follows `=`. Nested braces are read as if they were not there.
    fn initialiser(&mut self, variable: &mut Variable, scalar: Scalar) -> Result<(), SyntaxError> {
        let mut depth = 0_u32;
        loop {
            while self.take('{') {
                depth += 1;
            }
            if self.peek() != TokenKind::Punctuation('}') {
                self.element(variable, scalar)?;
            }
            while depth > 0 && self.take('}') {
                depth -= 1;
            }
            if depth == 0 {
                break;
            }
            self.expect(',')?;
        }
        if variable.size == 0 {
            variable.size = variable.initial.len() as u64;
        }
        if variable.initial.len() as u64 > variable.size {
            return Err(self.error(format!("`{}` has more initial values than it has room", variable.name)));
        }
        Ok(())
    }

    /// One initial value.
    fn element(&mut self, variable: &mut Variable, scalar: Scalar) -> Result<(), SyntaxError> {
        let width = scalar.size();
        let negative = self.take('-');
        let bits = match self.peek() {
            TokenKind::Integer(mask) if self.peek_after() == TokenKind::Punctuation('(') && !negative => {
                // `0xFF00(symbol)`: one byte of an address.
                self.position += 2;
                let shift = mask.trailing_zeros() & 63;
                self.pointer(variable, width, shift)?;
                self.expect(')')?;
                0
            }
            TokenKind::Integer(value) => {
                self.position += 1;
                let value = if negative { value.wrapping_neg() } else { value };
                match scalar {
                    Scalar::F64 => (value as i64 as f64).to_bits(),
                    Scalar::F32 => u64::from((value as i64 as f32).to_bits()),
                    _ => value,
                }
            }
            TokenKind::Single(bits) => {
                self.position += 1;
                u64::from(bits) ^ (u64::from(negative) << 31)
            }
            TokenKind::Double(bits) => {
                self.position += 1;
                let bits = bits ^ (u64::from(negative) << 63);
                if scalar == Scalar::F32 { u64::from((f64::from_bits(bits) as f32).to_bits()) } else { bits }
            }
            TokenKind::Word(_) if !negative => {
                self.pointer(variable, width, 0)?;
                0
            }
            _ => return Err(self.unexpected("an initial value")),
        };
        let mut bytes = [0_u8; 16];
        bytes[..8].copy_from_slice(&bits.to_le_bytes());
        variable.initial.extend_from_slice(&bytes[..width as usize]);
        Ok(())
    }

    /// `symbol`, `symbol+4`, `generic(symbol)` or `generic(symbol)+4`.
    fn pointer(&mut self, variable: &mut Variable, width: u32, shift: u32) -> Result<(), SyntaxError> {
        let generic =
            self.peek() == TokenKind::Word("generic") && self.peek_after() == TokenKind::Punctuation('(');
        if generic {
            self.position += 2;
        }
        let symbol = self.name("the name of a symbol")?.to_owned();
        // The offset may stand inside or behind the parentheses of `generic( )`.
        let mut addend = self.addend()?;
        if generic {
            self.expect(')')?;
            addend = addend.wrapping_add(self.addend()?);
        }
        let offset = variable.initial.len() as u64;
        variable.pointers.push(Pointer { offset, width, shift, symbol, addend });
        Ok(())
    }
}
