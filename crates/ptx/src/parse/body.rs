//! Function bodies: instructions, labels, and the scopes that names live in.

use std::collections::HashMap;

use super::SyntaxError;
use super::lexer::TokenKind;
use super::parser::Parser;
use super::syntax::{
    Base, Body, Function, Guard, Instruction, Label, Linkage, Name, Operand, Prototype, Register, Scalar,
    Statement,
};

/// Registers one body may use; real kernels stay below a hundred thousand.
const MOST_REGISTERS: usize = 1 << 20;
/// Nesting of `{ }`; compilers nest two or three deep.
const DEEPEST_SCOPE: usize = 64;

/// Parses a body, from `{` to its `}`.
pub(super) fn parse(parser: &mut Parser<'_, '_>, function: &Function) -> Result<Body, SyntaxError> {
    let mut builder = Builder {
        function,
        body: Body::default(),
        scopes: Vec::new(),
        open: Vec::new(),
        pending_branches: Vec::new(),
    };
    parser.expect('{')?;
    builder.open_scope(parser)?;
    while !builder.open.is_empty() {
        builder.statement(parser)?;
    }
    builder.finish()
}

/// The names of one `{ }`.
#[derive(Default)]
struct Scope<'s> {
    parent: Option<usize>,
    registers: HashMap<&'s str, Register>,
    /// `.reg .b32 %r<100>`: prefix to type and count.
    ranges: Vec<(&'s str, Scalar, u64)>,
    variables: HashMap<&'s str, usize>,
    labels: HashMap<&'s str, Label>,
}

struct Builder<'s, 'f> {
    function: &'f Function,
    body: Body,
    /// All scopes of the body, closed ones too: a branch may name a label that comes later.
    scopes: Vec<Scope<'s>>,
    /// The open ones, innermost last.
    open: Vec<usize>,
    /// Operands that name a label: statement, operand, name, scope, line.
    pending_branches: Vec<(PendingLabel, &'s str, usize, u32)>,
}

enum PendingLabel {
    Operand { statement: usize, operand: usize },
    Table { name: String, index: usize },
}

impl<'s> Builder<'s, '_> {
    fn open_scope(&mut self, parser: &Parser<'s, '_>) -> Result<(), SyntaxError> {
        if self.open.len() >= DEEPEST_SCOPE {
            return Err(parser.error(format!("scopes are nested more than {DEEPEST_SCOPE} deep")));
        }
        self.scopes.push(Scope { parent: self.open.last().copied(), ..Scope::default() });
        self.open.push(self.scopes.len() - 1);
        Ok(())
    }

    fn innermost(&mut self) -> &mut Scope<'s> {
        let index = *self.open.last().expect("a scope is open while statements are read");
        &mut self.scopes[index]
    }

    fn statement(&mut self, parser: &mut Parser<'s, '_>) -> Result<(), SyntaxError> {
        match parser.peek() {
            TokenKind::Punctuation('{') => {
                parser.advance();
                self.open_scope(parser)
            }
            TokenKind::Punctuation('}') => {
                parser.advance();
                self.open.pop();
                Ok(())
            }
            TokenKind::Punctuation(';') => {
                parser.advance();
                Ok(())
            }
            TokenKind::Punctuation('@') => self.instruction(parser),
            TokenKind::Word(word) if parser.peek_after() == TokenKind::Punctuation(':') => {
                self.label(parser, word)
            }
            TokenKind::Word(word) if word.starts_with('.') => self.directive(parser, word),
            TokenKind::Word(_) => self.instruction(parser),
            _ => Err(parser.unexpected("an instruction")),
        }
    }

    fn label(&mut self, parser: &mut Parser<'s, '_>, name: &'s str) -> Result<(), SyntaxError> {
        parser.advance();
        parser.advance();
        match parser.peek() {
            TokenKind::Word(".branchtargets") => {
                parser.advance();
                let scope = *self.open.last().expect("a scope is open");
                let mut count = 0;
                loop {
                    let line = parser.line();
                    let target = parser.name("a label")?;
                    let pending = PendingLabel::Table { name: name.to_owned(), index: count };
                    self.pending_branches.push((pending, target, scope, line));
                    count += 1;
                    if !parser.take(',') {
                        break;
                    }
                }
                parser.expect(';')?;
                self.body.branch_tables.insert(name.to_owned(), vec![0; count]);
            }
            TokenKind::Word(".callprototype") => {
                parser.advance();
                let mut prototype = Prototype::default();
                if parser.peek() == TokenKind::Punctuation('(') {
                    prototype.returns = prototype_list(parser)?;
                }
                parser.name("`_`")?;
                if parser.peek() == TokenKind::Punctuation('(') {
                    prototype.parameters = prototype_list(parser)?;
                }
                while !parser.take(';') {
                    if parser.advance() == TokenKind::End {
                        return Err(parser.unexpected("`;`"));
                    }
                }
                self.body.prototypes.insert(name.to_owned(), prototype);
            }
            TokenKind::Word(".calltargets") => {
                parser.skip_directive()?;
                return Err(parser.error("`.calltargets` is not supported by the software GPU"));
            }
            _ => {
                let label = self.body.labels;
                if self.innermost().labels.insert(name, label).is_some() {
                    return Err(parser.error(format!("label `{name}` is defined twice")));
                }
                self.body.labels += 1;
                self.body.statements.push(Statement::Label(label));
            }
        }
        Ok(())
    }

    fn directive(&mut self, parser: &mut Parser<'s, '_>, word: &str) -> Result<(), SyntaxError> {
        match word {
            ".reg" => self.registers(parser),
            ".param" | ".local" | ".shared" | ".global" | ".const" => {
                if matches!(word, ".global" | ".const") {
                    return Err(
                        parser.error(format!("`{word}` variables inside a function are not supported"))
                    );
                }
                // The names are those of the source text, which the tree does not keep.
                let start = parser.position;
                let variables = parser.variables(Linkage::Internal)?;
                let names: Vec<&'s str> = parser.tokens[start..parser.position]
                    .iter()
                    .filter_map(|token| match token.kind {
                        TokenKind::Word(name) => Some(name),
                        _ => None,
                    })
                    .collect();
                for variable in variables {
                    let name = names.iter().copied().find(|name| *name == variable.name).unwrap_or_default();
                    if variable.space != super::syntax::Space::Shared && variable.size > 1 << 30 {
                        return Err(parser.error(format!("`{name}` is larger than 1 GiB")));
                    }
                    let index = self.body.variables.len();
                    self.innermost().variables.insert(name, index);
                    self.body.variables.push(variable);
                }
                Ok(())
            }
            ".loc" | ".file" | ".section" | ".pragma" => parser.skip_directive(),
            _ => Err(parser.error(format!("the directive `{word}` is not supported by the software GPU"))),
        }
    }

    /// `.reg .type name, name<count>, ... ;`
    fn registers(&mut self, parser: &mut Parser<'s, '_>) -> Result<(), SyntaxError> {
        parser.advance();
        let word = parser.name("a type")?;
        let scalar = word
            .strip_prefix('.')
            .and_then(Scalar::named)
            .ok_or_else(|| parser.error(format!("registers of type `{word}` are not supported")))?;
        loop {
            let name = parser.name("the name of a register")?;
            if parser.take('<') {
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
        if self.body.registers.len() >= MOST_REGISTERS {
            return Err(parser.error(format!("a function uses more than {MOST_REGISTERS} registers")));
        }
        self.body.registers.push(scalar);
        Ok(self.body.registers.len() - 1)
    }

    fn find_register(
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
            // The digits that number a register may follow digits of its name: `%f1<3>` makes %f10, %f11, %f12.
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

    fn register(&mut self, parser: &mut Parser<'s, '_>) -> Result<Register, SyntaxError> {
        let name = parser.name("a register")?;
        self.find_register(parser, name)?
            .ok_or_else(|| parser.error(format!("`{name}` is not a register that was declared")))
    }

    /// What a word names, other than a register or label.
    fn find_name(&self, word: &str) -> Name {
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

    fn instruction(&mut self, parser: &mut Parser<'s, '_>) -> Result<(), SyntaxError> {
        let (line, start) = (parser.line(), parser.tokens[parser.position].start);
        let guard = if parser.take('@') {
            let negated = parser.take('!');
            Some(Guard { register: self.register(parser)?, negated })
        } else {
            None
        };
        let words = parser.name("an instruction")?;
        let mut words = words.split('.').map(str::to_owned);
        let opcode = words.next().unwrap_or_default();
        let mut instruction = Instruction {
            line,
            guard,
            opcode,
            modifiers: words.collect(),
            operands: Vec::new(),
            text: String::new(),
        };
        let branches = matches!(instruction.opcode.as_str(), "bra" | "brx");
        while !parser.take(';') {
            if !instruction.operands.is_empty() {
                parser.expect(',')?;
            }
            let operand = match parser.peek() {
                TokenKind::Word(name) if branches && !name.starts_with('%') => {
                    parser.advance();
                    self.branch_target(name, instruction.operands.len(), line)
                }
                _ => self.operand(parser)?,
            };
            instruction.operands.push(operand);
        }
        let end = parser.tokens[parser.position - 1].start + 1;
        instruction.text = parser.source[start..end].split_whitespace().collect::<Vec<_>>().join(" ");
        self.body.statements.push(Statement::Instruction(instruction));
        Ok(())
    }

    fn branch_target(&mut self, name: &'s str, operand: usize, line: u32) -> Operand {
        if self.body.branch_tables.contains_key(name) {
            return Operand::Table(name.to_owned());
        }
        let pending = PendingLabel::Operand { statement: self.body.statements.len(), operand };
        let scope = *self.open.last().expect("a scope is open");
        self.pending_branches.push((pending, name, scope, line));
        Operand::Label(0)
    }

    /// One operand; `d|p` counts as one.
    fn operand(&mut self, parser: &mut Parser<'s, '_>) -> Result<Operand, SyntaxError> {
        match parser.peek() {
            TokenKind::Punctuation('(') => {
                parser.advance();
                Ok(Operand::List(self.operands_until(parser, ')')?))
            }
            TokenKind::Punctuation('{') => {
                parser.advance();
                Ok(Operand::Vector(self.operands_until(parser, '}')?))
            }
            TokenKind::Punctuation('[') => self.address(parser),
            _ => {
                let first = self.simple_operand(parser)?;
                if parser.take('|') {
                    let second = self.simple_operand(parser)?;
                    return Ok(Operand::Pair(Box::new(first), Box::new(second)));
                }
                Ok(first)
            }
        }
    }

    fn operands_until(
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

    fn simple_operand(&mut self, parser: &mut Parser<'s, '_>) -> Result<Operand, SyntaxError> {
        if parser.take('!') {
            return Ok(Operand::Not(self.register(parser)?));
        }
        let negative = parser.take('-');
        let operand = match parser.peek() {
            TokenKind::Integer(value) => {
                Operand::Integer(if negative { (value as i64).wrapping_neg() } else { value as i64 })
            }
            TokenKind::Single(bits) => Operand::Single(bits ^ (u32::from(negative) << 31)),
            TokenKind::Double(bits) => Operand::Double(bits ^ (u64::from(negative) << 63)),
            TokenKind::Word(_) if negative => return Err(parser.unexpected("a number after `-`")),
            TokenKind::Word("_") => Operand::Sink,
            TokenKind::Word(word) => {
                if let Some(register) = self.find_register(parser, word)? {
                    Operand::Register(register)
                } else if self.body.prototypes.contains_key(word)
                    || self.body.branch_tables.contains_key(word)
                {
                    Operand::Table(word.to_owned())
                } else if let Some(special) = word.strip_prefix('%') {
                    Operand::Special(special.to_owned())
                } else if word == "WARP_SZ" {
                    Operand::Integer(32)
                } else {
                    parser.advance();
                    let name = self.find_name(word);
                    let offset = offset(parser)?;
                    return Ok(Operand::Symbol(name, offset));
                }
            }
            _ => return Err(parser.unexpected("an operand")),
        };
        parser.advance();
        Ok(operand)
    }

    fn address(&mut self, parser: &mut Parser<'s, '_>) -> Result<Operand, SyntaxError> {
        parser.expect('[')?;
        let base = match parser.peek() {
            TokenKind::Word(word) => {
                parser.advance();
                match self.find_register(parser, word)? {
                    Some(register) => Base::Register(register),
                    None if word.starts_with('%') => {
                        return Err(parser.error(format!("`{word}` is not a register that was declared")));
                    }
                    None => Base::Symbol(self.find_name(word)),
                }
            }
            _ => {
                let absolute = parser.integer()?;
                parser.expect(']')?;
                return Ok(Operand::Address(Base::Absolute, absolute));
            }
        };
        let offset = offset(parser)?;
        parser.expect(']')?;
        Ok(Operand::Address(base, offset))
    }

    /// Resolves the labels that branches named.
    fn finish(mut self) -> Result<Body, SyntaxError> {
        for (place, name, scope, line) in std::mem::take(&mut self.pending_branches) {
            let mut scope = Some(scope);
            let mut found = None;
            while let (Some(index), None) = (scope, found) {
                found = self.scopes[index].labels.get(name).copied();
                scope = self.scopes[index].parent;
            }
            let unknown = || SyntaxError { line, message: format!("there is no label `{name}`") };
            let table = self.body.branch_tables.contains_key(name);
            match place {
                PendingLabel::Operand { statement, operand } => {
                    if let Statement::Instruction(instruction) = &mut self.body.statements[statement] {
                        instruction.operands[operand] = match found {
                            Some(label) => Operand::Label(label),
                            None if table => Operand::Table(name.to_owned()),
                            None => return Err(unknown()),
                        };
                    }
                }
                PendingLabel::Table { name: table, index } => {
                    let label = found.ok_or_else(unknown)?;
                    if let Some(targets) = self.body.branch_tables.get_mut(&table)
                        && let Some(target) = targets.get_mut(index)
                    {
                        *target = label;
                    }
                }
            }
        }
        Ok(self.body)
    }
}

/// `+4`, `-4` or nothing. `+-4` is what some compilers write.
fn offset(parser: &mut Parser<'_, '_>) -> Result<i64, SyntaxError> {
    if parser.take('+') || parser.peek() == TokenKind::Punctuation('-') { parser.integer() } else { Ok(0) }
}

/// Counts the parameters of a prototype and skips what they are: the call itself says what it passes.
fn prototype_list(parser: &mut Parser<'_, '_>) -> Result<usize, SyntaxError> {
    parser.expect('(')?;
    let mut count = 0;
    let mut any = false;
    loop {
        match parser.advance() {
            TokenKind::Punctuation(')') => return Ok(count + usize::from(any)),
            TokenKind::Punctuation(',') => count += 1,
            TokenKind::End => return Err(parser.unexpected("`)`")),
            _ => any = true,
        }
    }
}
