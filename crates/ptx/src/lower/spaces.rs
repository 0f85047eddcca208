//! State spaces: which one an instruction names, and how addresses are turned from one to another.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, types};

use super::form::Form;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::link::Symbol;
use crate::parse::syntax::{Instruction, Name, Scalar, Space};
use crate::run::context::ThreadContext;

/// The state space an instruction names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessSpace {
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

impl Form<'_> {
    /// Takes the state space.
    pub(super) fn space(&mut self) -> Result<AccessSpace, Refusal> {
        const SPACES: [&str; 10] = [
            "global",
            "shared",
            "shared::cta",
            "local",
            "const",
            "param",
            "param::entry",
            "param::func",
            "generic",
            "shared::cluster",
        ];
        Ok(match self.choice(&SPACES) {
            None | Some("generic") => AccessSpace::Generic,
            Some("global" | "const") => AccessSpace::Global,
            // Every block is a cluster of its own.
            Some("shared" | "shared::cta" | "shared::cluster") => AccessSpace::Shared,
            Some("local") => AccessSpace::Local,
            Some(_) => AccessSpace::Param,
        })
    }
}

impl Translator<'_, '_> {
    /// The state space a symbol's address is an address of.
    pub(super) fn window_of(&self, name: &Name) -> Result<AccessSpace, Refusal> {
        let space = match name {
            Name::Own(index) => self.body.variables[*index].space,
            Name::Module(symbol) => match self.symbol(symbol)? {
                Symbol::Variable(id) => self.image.variables[id].space,
                _ => return invalid(format!("`{symbol}` is not a variable")),
            },
            Name::Parameter(_) | Name::Return(_) => Space::Param,
        };
        Ok(match space {
            Space::Shared => AccessSpace::Shared,
            Space::Local => AccessSpace::Local,
            _ => AccessSpace::Global,
        })
    }

    /// `cvta`: generic addresses are window base plus offset, and global addresses are generic ones already.
    pub(super) fn convert_address(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let from_generic = form.flag("to");
        let space = form.space()?;
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        if scalar.size() != 8 {
            return unsupported("addresses of 32 bits");
        }
        let address = self.read(instruction, 1, scalar)?;
        let base = match space {
            AccessSpace::Shared => Some(std::mem::offset_of!(ThreadContext, shared_base)),
            AccessSpace::Local => Some(std::mem::offset_of!(ThreadContext, local_base)),
            _ => None,
        };
        let result = match base {
            None => address,
            Some(base) => {
                let base = self.field(types::I64, base);
                if from_generic { self.b.ins().isub(address, base) } else { self.b.ins().iadd(address, base) }
            }
        };
        self.write(instruction, scalar, result)
    }

    /// `mapa[.space].type d, a, rank`: the address in the shared memory of that block of the cluster, which is
    /// this one.
    pub(super) fn map_to_block(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["shared::cluster"]);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 3)?;
        let address = self.read(instruction, 1, scalar)?;
        self.write(instruction, scalar, address)
    }

    /// `getctarank[.space].type d, a`: the rank of the block whose shared memory an address lies in, which is
    /// the only one.
    pub(super) fn rank_of_block(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["shared::cluster"]);
        form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let first = self.constant(types::I32, 0);
        self.write(instruction, Scalar::B32, first)
    }

    /// `isspacep`
    pub(super) fn is_in_space(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let constant = form.flag("const");
        let space = form.space()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let address = self.read(instruction, 1, Scalar::U64)?;
        let within = |translator: &mut Self, base: usize, size: usize| {
            let base = translator.field(types::I64, base);
            let size = translator.field(types::I64, size);
            let offset = translator.b.ins().isub(address, base);
            translator.b.ins().icmp(IntCC::UnsignedLessThan, offset, size)
        };
        let shared = within(
            self,
            std::mem::offset_of!(ThreadContext, shared_base),
            std::mem::offset_of!(ThreadContext, shared_size),
        );
        let local = within(
            self,
            std::mem::offset_of!(ThreadContext, local_base),
            std::mem::offset_of!(ThreadContext, local_size),
        );
        let result = match space {
            _ if constant => self.constant(types::I8, 0),
            AccessSpace::Shared => shared,
            AccessSpace::Local => local,
            AccessSpace::Global => {
                let bits = i64::from(self.placement.space_bits);
                let upper = self.b.ins().ushr_imm_u(address, bits);
                let inside = (self.placement.space_base >> bits) as i64;
                let inside = self.b.ins().icmp_imm_s(IntCC::Equal, upper, inside);
                let window = self.b.ins().bor(shared, local);
                self.b.ins().band_not(inside, window)
            }
            _ => return unsupported("this state space"),
        };
        self.write(instruction, Scalar::Pred, result)
    }
}
