//! Directives outside of function bodies.

use super::SyntaxError;
use super::body;
use super::lexer::{Token, TokenKind, tokens};
use super::syntax::{Function, Linkage, Module, Pointer, Scalar, Space, Variable};

/// Largest variable that can be declared: 1 TiB, the largest address space.
const LARGEST_VARIABLE: u64 = 1 << 40;

/// Parses one source.
pub(crate) fn parse(source: &str) -> Result<Module, SyntaxError> {
    let tokens = tokens(source)?;
    let mut parser = Parser { source, tokens: &tokens, position: 0 };
    parser.module()
}

/// A reader of tokens. [`body`] adds the methods that read function bodies.
pub(crate) struct Parser<'s, 't> {
    pub(super) source: &'s str,
    pub(super) tokens: &'t [Token<'s>],
    pub(super) position: usize,
}

impl<'s> Parser<'s, '_> {
    pub(super) fn peek(&self) -> TokenKind<'s> {
        self.tokens[self.position].kind
    }

    pub(super) fn peek_after(&self) -> TokenKind<'s> {
        self.tokens[(self.position + 1).min(self.tokens.len() - 1)].kind
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens[self.position].line
    }

    pub(super) fn advance(&mut self) -> TokenKind<'s> {
        let kind = self.peek();
        if kind != TokenKind::End {
            self.position += 1;
        }
        kind
    }

    pub(super) fn error(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError { line: self.line(), message: message.into() }
    }

    pub(super) fn unexpected(&self, wanted: &str) -> SyntaxError {
        let found = match self.peek() {
            TokenKind::Word(word) => format!("`{word}`"),
            TokenKind::Text(text) => format!("the string \"{text}\""),
            TokenKind::Punctuation(character) => format!("`{character}`"),
            TokenKind::End => "the end of the text".to_owned(),
            TokenKind::Integer(_) | TokenKind::Single(_) | TokenKind::Double(_) => "a number".to_owned(),
        };
        self.error(format!("expected {wanted}, found {found}"))
    }

    /// Takes the punctuation mark if it is next.
    pub(super) fn take(&mut self, character: char) -> bool {
        let found = self.peek() == TokenKind::Punctuation(character);
        if found {
            self.position += 1;
        }
        found
    }

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

    pub(super) fn name(&mut self, wanted: &str) -> Result<&'s str, SyntaxError> {
        match self.peek() {
            TokenKind::Word(word) => {
                self.position += 1;
                Ok(word)
            }
            _ => Err(self.unexpected(wanted)),
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

    fn positive(&mut self, what: &str, limit: u64) -> Result<u64, SyntaxError> {
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

    fn module(&mut self) -> Result<Module, SyntaxError> {
        let mut module = Module::default();
        let mut address_size = None;
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
                TokenKind::Word(".target") => module.target = self.target()?,
                TokenKind::Word(".address_size") => {
                    self.position += 1;
                    let bits = self.integer()?;
                    if bits != 64 {
                        return Err(self.error(format!(
                            "`.address_size {bits}`: the software GPU runs programs with 64-bit addresses only"
                        )));
                    }
                    address_size = Some(bits);
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
        if module.version == 0 {
            return Err(SyntaxError {
                line: 1,
                message: "there is no `.version`: this is not PTX".to_owned(),
            });
        }
        if module.target == 0 {
            return Err(SyntaxError { line: 1, message: "there is no `.target`".to_owned() });
        }
        if address_size.is_none() {
            // 32 bits are the default of the language.
            return Err(SyntaxError {
                line: 1,
                message: "there is no `.address_size 64`: the software GPU runs programs with 64-bit addresses only"
                    .to_owned(),
            });
        }
        Ok(module)
    }

    fn target(&mut self) -> Result<u32, SyntaxError> {
        self.position += 1;
        let mut target = 0;
        loop {
            let word = self.name("a target such as `sm_75`")?;
            if let Some(number) = word.strip_prefix("sm_") {
                let digits = number.trim_end_matches(['a', 'f']);
                target = digits.parse().map_err(|_| self.error(format!("`{word}` is not a known target")))?;
            } else if !matches!(word, "debug" | "texmode_unified" | "texmode_independent") {
                return Err(self.error(format!("`{word}` is not a target the software GPU can be")));
            }
            if !self.take(',') {
                return Ok(target);
            }
        }
    }

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

    /// `.space [.align n] [.attribute(..)] [.v2|.v4] .type name[..]... [= initial], ... ;` with the space next.
    pub(super) fn variables(&mut self, linkage: Linkage) -> Result<Vec<Variable>, SyntaxError> {
        let space = match self.advance() {
            TokenKind::Word(".global") => Space::Global,
            TokenKind::Word(".const") => Space::Const,
            TokenKind::Word(".shared") => Space::Shared,
            TokenKind::Word(".local") => Space::Local,
            _ => Space::Param,
        };
        let mut template = Variable {
            name: String::new(),
            line: self.line(),
            linkage,
            space,
            align: 0,
            size: 0,
            initial: Vec::new(),
            pointers: Vec::new(),
            managed: false,
        };
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
    fn variable_type(&mut self, variable: &mut Variable) -> Result<(Scalar, u32), SyntaxError> {
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
    fn declarator(&mut self, variable: &mut Variable, scalar: Scalar, lanes: u32) -> Result<(), SyntaxError> {
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
            let count = self.positive("the length of an array", LARGEST_VARIABLE)?;
            self.expect(']')?;
            size = size
                .checked_mul(count)
                .filter(|&size| size <= LARGEST_VARIABLE)
                .ok_or_else(|| self.error(format!("`{}` is larger than any memory", variable.name)))?;
        }
        variable.size = size;
        if variable.align == 0 {
            variable.align = element as u32;
        }
        Ok(())
    }

    /// What follows `=`. Nested braces are read as if they were not there.
    fn initialiser(&mut self, variable: &mut Variable, scalar: Scalar) -> Result<(), SyntaxError> {
        let mut depth = 0_u32;
        let mut open_ended = variable.size == 0;
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
            open_ended = false;
        }
        if open_ended || variable.initial.len() as u64 > variable.size {
            return Err(self.error(format!("`{}` has more initial values than it has room", variable.name)));
        }
        Ok(())
    }

    fn element(&mut self, variable: &mut Variable, scalar: Scalar) -> Result<(), SyntaxError> {
        let width = scalar.size();
        let offset = variable.initial.len() as u64;
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
        debug_assert_eq!(offset, variable.initial.len() as u64);
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

    /// `+4`, `-4` or nothing.
    fn addend(&mut self) -> Result<i64, SyntaxError> {
        if self.take('+') || self.peek() == TokenKind::Punctuation('-') { self.integer() } else { Ok(0) }
    }

    fn function(&mut self, linkage: Linkage, is_kernel: bool) -> Result<Function, SyntaxError> {
        if self.take_word(".attribute") {
            while !self.take(')') {
                if self.advance() == TokenKind::End {
                    return Err(self.unexpected("`)`"));
                }
            }
        }
        let returns =
            if self.peek() == TokenKind::Punctuation('(') { self.parameters()? } else { Vec::new() };
        let name = self.name("the name of a function")?.to_owned();
        let parameters =
            if self.peek() == TokenKind::Punctuation('(') { self.parameters()? } else { Vec::new() };
        let mut function =
            Function { name, linkage, is_kernel, returns, parameters, max_threads: None, body: None };
        self.function_directives(&mut function)?;
        if self.peek() == TokenKind::Punctuation('{') {
            function.body = Some(body::parse(self, &function)?);
        } else {
            self.expect(';')?;
        }
        Ok(function)
    }

    fn function_directives(&mut self, function: &mut Function) -> Result<(), SyntaxError> {
        while let TokenKind::Word(word) = self.peek() {
            match word {
                ".maxntid" | ".reqntid" => {
                    self.position += 1;
                    let mut product = 1_u64;
                    loop {
                        product = product.saturating_mul(self.positive("a number of threads", 1 << 20)?);
                        if !self.take(',') {
                            break;
                        }
                    }
                    function.max_threads = Some(product.clamp(1, u64::from(u32::MAX)) as u32);
                }
                ".minnctapersm"
                | ".maxnctapersm"
                | ".maxnreg"
                | ".abi_preserve"
                | ".abi_preserve_control" => {
                    self.position += 1;
                    self.integer()?;
                }
                ".noreturn" => self.position += 1,
                ".pragma" => self.skip_directive()?,
                _ => {
                    return Err(self.error(format!(
                        "the directive `{word}` of function `{}` is not supported by the software GPU",
                        function.name
                    )));
                }
            }
        }
        Ok(())
    }

    fn parameters(&mut self) -> Result<Vec<Variable>, SyntaxError> {
        self.expect('(')?;
        let mut parameters = Vec::new();
        while !self.take(')') {
            if !parameters.is_empty() {
                self.expect(',')?;
            }
            if self.peek() != TokenKind::Word(".param") {
                return Err(self.error(
                    "only parameters in the `.param` space are supported by the software GPU, not those in registers",
                ));
            }
            self.position += 1;
            let mut parameter = Variable {
                name: String::new(),
                line: self.line(),
                linkage: Linkage::Internal,
                space: Space::Param,
                align: 0,
                size: 0,
                initial: Vec::new(),
                pointers: Vec::new(),
                managed: false,
            };
            let (scalar, lanes) = self.variable_type(&mut parameter)?;
            self.declarator(&mut parameter, scalar, lanes)?;
            if parameter.size > 1 << 20 {
                return Err(self.error(format!("parameter `{}` is larger than 1 MiB", parameter.name)));
            }
            parameters.push(parameter);
        }
        Ok(parameters)
    }
}
