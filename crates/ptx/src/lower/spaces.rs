//! State spaces: which one an instruction names, and how addresses are turned from one to another.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::form::Form;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::link::Symbol;
use crate::parse::syntax::{Instruction, Name, Scalar, Space};
use crate::run::context::ThreadContext;
use crate::run::distributed;

/// The state space an instruction names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessSpace {
    Generic,
    Global,
    /// The block's shared memory.
    Shared,
    /// The shared memory of the cluster's blocks.
    Cluster,
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
            Some("shared" | "shared::cta") => AccessSpace::Shared,
            Some("shared::cluster") => AccessSpace::Cluster,
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
            // Another block's memory may be meant.
            AccessSpace::Shared | AccessSpace::Cluster if self.image.maps_shared => {
                let convert = if from_generic {
                    distributed::generic_to_window as *const () as usize
                } else {
                    distributed::window_to_generic as *const () as usize
                };
                let thread = self.thread();
                let result = self.call_value(convert, &[thread, address], types::I64);
                return self.write(instruction, scalar, result);
            }
            AccessSpace::Shared | AccessSpace::Cluster => {
                Some(std::mem::offset_of!(ThreadContext, shared_base))
            }
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

    /// `mapa[.space].type d, a, rank`: the address in the shared memory of that block of the cluster.
    pub(super) fn map_to_block(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let in_window = form.flag("shared::cluster");
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 3)?;
        let address = self.long_address(instruction, scalar)?;
        let rank = self.read(instruction, 2, Scalar::U32)?;
        let map = if in_window {
            distributed::map_in_window as *const () as usize
        } else {
            distributed::map_generic as *const () as usize
        };
        let thread = self.thread();
        let mapped = self.call_value(map, &[thread, address, rank], types::I64);
        let mapped = if scalar.size() == 4 { self.b.ins().ireduce(types::I32, mapped) } else { mapped };
        self.write(instruction, scalar, mapped)
    }

    /// `getctarank[.space].type d, a`: the rank of the block whose shared memory an address lies in.
    pub(super) fn rank_of_block(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let in_window = form.flag("shared::cluster");
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let address = self.long_address(instruction, scalar)?;
        let rank_of = if in_window {
            distributed::rank_in_window as *const () as usize
        } else {
            distributed::rank_of_generic as *const () as usize
        };
        let thread = self.thread();
        let rank = self.call_value(rank_of, &[thread, address], types::I32);
        self.write(instruction, Scalar::B32, rank)
    }

    /// The second operand, an address of this type, as 64 bits.
    fn long_address(&mut self, instruction: &Instruction, scalar: Scalar) -> Result<Value, Refusal> {
        let address = self.read(instruction, 1, scalar)?;
        let address = self.bits_of(address);
        Ok(self.extend(Scalar::B64, address, types::I64))
    }

    /// Whether an address lies in a constant variable of the module.
    fn is_constant(&mut self, address: Value) -> Value {
        let variables = self.image.variables.iter().zip(self.placement.variables);
        let constants: Vec<(u64, u64)> = variables
            .filter(|(variable, _)| variable.space == Space::Const)
            .map(|(variable, &start)| (start, variable.size))
            .collect();
        let mut result = self.constant(types::I8, 0);
        for (start, size) in constants {
            let offset = self.b.ins().iadd_imm_s(address, start.wrapping_neg().cast_signed());
            let size = self.constant(types::I64, size.cast_signed());
            let within = self.b.ins().icmp(IntCC::UnsignedLessThan, offset, size);
            result = self.b.ins().bor(result, within);
        }
        result
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
        // Another block's memory is shared memory of the cluster, and not global.
        let of_cluster = match space {
            AccessSpace::Cluster | AccessSpace::Global if self.image.maps_shared => {
                let thread = self.thread();
                let rank_of = distributed::rank_of_generic as *const () as usize;
                let rank = self.call_value(rank_of, &[thread, address], types::I32);
                self.b.ins().icmp_imm_s(IntCC::NotEqual, rank, i64::from(distributed::NO_RANK.cast_signed()))
            }
            _ => shared,
        };
        let is_constant = match space {
            _ if constant => self.is_constant(address),
            AccessSpace::Global => self.is_constant(address),
            _ => shared,
        };
        let result = match space {
            _ if constant => is_constant,
            AccessSpace::Shared => shared,
            AccessSpace::Cluster => of_cluster,
            AccessSpace::Local => local,
            AccessSpace::Global => {
                let bits = i64::from(self.placement.space_bits);
                let upper = self.b.ins().ushr_imm_u(address, bits);
                let inside = (self.placement.space_base >> bits) as i64;
                let inside = self.b.ins().icmp_imm_s(IntCC::Equal, upper, inside);
                let window = self.b.ins().bor(of_cluster, local);
                let window = self.b.ins().bor(window, is_constant);
                self.b.ins().band_not(inside, window)
            }
            AccessSpace::Param => {
                let base = self.field(types::I64, std::mem::offset_of!(ThreadContext, parameters));
                let offset = self.b.ins().isub(address, base);
                let limit = i64::from(crate::limits::MAX_PARAMETER_BYTES);
                self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, offset, limit)
            }
            AccessSpace::Generic => return invalid("the state space is missing"),
        };
        self.write(instruction, Scalar::Pred, result)
    }
}
