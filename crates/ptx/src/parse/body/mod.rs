//! Function bodies: statements and labels. [`names`] knows what names mean, [`operands`] reads operands.

mod builder;
mod names;
mod operands;

use super::SyntaxError;
use super::lexer::TokenKind;
use super::parser::Parser;
use super::syntax::{Body, Function, Guard, Instruction, Linkage, Operand, Prototype, Space, Statement};
use crate::lacking::lacks;
use builder::{Builder, PendingLabel};

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

impl<'s> Builder<'s, '_> {
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
                self.body.prototypes.insert(name.to_owned(), Some(prototype));
            }
            TokenKind::Word(".calltargets") => {
                // Every call through a pointer is checked when it is made, so that the list need not be kept.
                parser.advance();
                loop {
                    parser.name("a function")?;
                    if !parser.take(',') {
                        break;
                    }
                }
                parser.expect(';')?;
                self.body.prototypes.insert(name.to_owned(), None);
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
                    if variable.space != Space::Shared && variable.size > 1 << 30 {
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
        if lacks(&instruction.opcode) {
            skip_operands(parser)?;
        }
        while !parser.take(';') {
            if !instruction.operands.is_empty() {
                parser.expect(',')?;
            }
            let operand = match parser.peek() {
                TokenKind::Word(name) if branches && !name.starts_with('%') => {
                    parser.advance();
                    self.branch_target(name, instruction.operands.len(), line)
                }
                // One argument alone would be an expression in brackets.
                TokenKind::Punctuation('(') if instruction.opcode == "call" => {
                    parser.advance();
                    Operand::List(self.operands_until(parser, ')')?)
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
        drop_unread_results(&mut self.body);
        Ok(self.body)
    }
}

/// Has atomic operations whose result no other instruction names give none, as `red` does: compilers emit `atom` for
/// `atomicAdd` even if nothing reads its result, and a thread that does not read it does not poll.
fn drop_unread_results(body: &mut Body) {
    let mut mentions = vec![0_u8; body.registers.len()];
    let mut mention = |register: usize| mentions[register] = mentions[register].saturating_add(1);
    for statement in &body.statements {
        let Statement::Instruction(instruction) = statement else { continue };
        instruction.operands.iter().for_each(|operand| operand.for_each_register(&mut mention));
        if let Some(guard) = instruction.guard {
            mention(guard.register);
        }
    }
    for statement in &mut body.statements {
        if let Statement::Instruction(instruction) = statement
            && instruction.opcode == "atom"
            && let Some(result @ &mut Operand::Register(register)) = instruction.operands.first_mut()
            && mentions[register] == 1
        {
            *result = Operand::Sink;
        }
    }
}

/// Skips to the `;` behind the operands of an instruction that nobody will translate.
fn skip_operands(parser: &mut Parser<'_, '_>) -> Result<(), SyntaxError> {
    let mut open = 0_u32;
    loop {
        match parser.peek() {
            TokenKind::Punctuation(';') if open == 0 => return Ok(()),
            TokenKind::Punctuation('{') => open += 1,
            TokenKind::Punctuation('}') if open > 0 => open -= 1,
            TokenKind::Punctuation('}' | ';') | TokenKind::End => return Err(parser.unexpected("`;`")),
            _ => {}
        }
        parser.advance();
    }
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
