//! Kernels and device functions: names, parameters and what is said of them before their bodies.

use super::SyntaxError;
use super::body;
use super::lexer::TokenKind;
use super::parser::Parser;
use super::syntax::{Function, Linkage, Space, Variable};

impl Parser<'_, '_> {
    /// A kernel or device function, with what follows `.entry` or `.func` next.
    pub(super) fn function(&mut self, linkage: Linkage, is_kernel: bool) -> Result<Function, SyntaxError> {
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
        let mut function = Function {
            name,
            linkage,
            is_kernel,
            returns,
            parameters,
            max_threads: None,
            block: None,
            cluster: None,
            explicit_cluster: false,
            max_cluster_blocks: None,
            lacking: None,
            body: None,
        };
        self.function_directives(&mut function)?;
        if self.peek() == TokenKind::Punctuation('{') {
            function.body = Some(body::parse(self, &function)?);
        } else {
            self.expect(';')?;
        }
        Ok(function)
    }

    /// What stands between a function's parameters and its body.
    fn function_directives(&mut self, function: &mut Function) -> Result<(), SyntaxError> {
        while let TokenKind::Word(word) = self.peek() {
            match word {
                ".maxntid" | ".reqntid" => {
                    self.position += 1;
                    let is_required = word == ".reqntid";
                    let (mut product, mut sizes, mut axis) = (1_u64, [1; 3], 0);
                    loop {
                        let threads = self.positive("a number of threads", 1 << 20)?;
                        product = product.saturating_mul(threads);
                        if let Some(size) = sizes.get_mut(axis) {
                            *size = threads as u32;
                        }
                        axis += 1;
                        if !self.take(',') {
                            break;
                        }
                    }
                    if is_required {
                        function.block = Some(sizes);
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
                ".explicitcluster" => {
                    self.position += 1;
                    function.explicit_cluster = true;
                }
                ".maxclusterrank" => {
                    self.position += 1;
                    let blocks = self.positive("a number of blocks", 1 << 20)?;
                    function.max_cluster_blocks = Some(blocks as u32);
                }
                ".reqnctapercluster" => {
                    self.position += 1;
                    let mut size = [1; 3];
                    for (axis, blocks) in size.iter_mut().enumerate() {
                        if axis > 0 && !self.take(',') {
                            break;
                        }
                        *blocks = self.positive("a number of blocks", 1 << 20)? as u32;
                    }
                    function.cluster = Some(size);
                }
                ".blocksareclusters" => {
                    function.lacking = Some((self.line(), word.to_owned()));
                    self.position += 1;
                }
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

    /// `(.param .type name, ...)`
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
            let mut parameter = Variable::new(Space::Param, Linkage::Internal, self.line());
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
