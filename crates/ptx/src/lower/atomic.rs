//! Atomic operations on memory.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AtomicRmwOp, BlockArg, InstBuilder, MemFlagsData, Value, types};

use super::access::MemoryAccess;
use super::form::Form;
use super::halves::half_of;
use super::memory::{has_cache_policy, lanes_of};
use super::registers::machine_type;
use super::spaces::AccessSpace;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Operand, Scalar};
use crate::run::context::ThreadContext;

const OPERATIONS: [&str; 10] = ["add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas"];

/// What fences order, and for whom. Objects that are initialised and bytes that are copied are there at once.
const FENCES: [&str; 19] = [
    "cta",
    "gl",
    "sys",
    "gpu",
    "cluster",
    "sc",
    "acq_rel",
    "acquire",
    "release",
    "mbarrier_init",
    "proxy",
    "async",
    "async::generic",
    "tensormap::generic",
    "shared::cta",
    "global",
    "sync_restrict::shared::cta",
    "sync_restrict::shared::cluster",
    "alias",
];

impl Translator<'_, '_> {
    /// `atom` and `red` (which has no destination).
    pub(super) fn atomic(&mut self, instruction: &Instruction, returns_old: bool) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["relaxed", "acquire", "release", "acq_rel", "sc"]);
        let completes = !returns_old && form.completes_bytes()?;
        let space = form.space()?;
        let Some(operation) = form.choice(&OPERATIONS) else { return unsupported("this operation") };
        form.ignore_hints();
        let lanes = form.lanes();
        let scalar = form.scalar()?;
        form.finish()?;
        let first = usize::from(returns_old);
        if lanes > 1 {
            return self.atomic_vector(instruction, returns_old, space, operation, scalar, lanes);
        }
        let has_policy = has_cache_policy(instruction);
        let operands = first + usize::from(completes) + if operation == "cas" { 3 } else { 2 };
        self.expect_operands(instruction, operands + usize::from(has_policy))?;
        // Only memory that several threads can reach has atomic operations, and alignment to make them so.
        if space == AccessSpace::Param {
            return invalid("parameters have no atomic operations");
        }
        let value = self.read(instruction, first + 1, scalar)?;
        let access = self.access(space, &instruction.operands[first], scalar.size())?;
        let MemoryAccess::Memory(address, offset) = access else {
            return invalid("the address is a parameter");
        };
        let address = self.b.ins().iadd_imm_s(address, i64::from(offset));
        let old = if operation == "cas" {
            let replacement = self.read(instruction, first + 2, scalar)?;
            let (expected, replacement) = (self.bits_of(value), self.bits_of(replacement));
            self.compare_and_swap(space, address, expected, replacement)
        } else {
            self.read_modify_write(space, operation, scalar, address, value)?
        };
        if returns_old {
            let old = self.from_bits(old, machine_type(scalar));
            return self.write(instruction, scalar, old);
        }
        if completes { self.complete_bytes_of(instruction, 2, scalar.size()) } else { Ok(()) }
    }

    /// The same for each element of a vector, one after the other: each is atomic by itself.
    fn atomic_vector(
        &mut self,
        instruction: &Instruction,
        returns_old: bool,
        space: AccessSpace,
        operation: &str,
        scalar: Scalar,
        lanes: u32,
    ) -> Lowered {
        if operation == "cas"
            || !scalar.is_float()
            || !matches!(space, AccessSpace::Global | AccessSpace::Generic)
        {
            return unsupported("vectors of anything but floating-point numbers in global memory");
        }
        let first = usize::from(returns_old);
        let has_policy = has_cache_policy(instruction);
        self.expect_operands(instruction, first + 2 + usize::from(has_policy))?;
        let sources = lanes_of(self.operand(instruction, first + 1)?, lanes)?;
        let values: Vec<Value> =
            sources.iter().map(|source| self.value(source, scalar)).collect::<Result<_, Refusal>>()?;
        let access = self.access(space, &instruction.operands[first], scalar.size() * lanes)?;
        let MemoryAccess::Memory(address, offset) = access else {
            return invalid("the address is a parameter");
        };
        let address = self.b.ins().iadd_imm_s(address, i64::from(offset));
        let mut old = Vec::with_capacity(values.len());
        for (lane, value) in values.into_iter().enumerate() {
            let address = self.b.ins().iadd_imm_s(address, lane as i64 * i64::from(scalar.size()));
            let bits = self.read_modify_write(space, operation, scalar, address, value)?;
            old.push(self.from_bits(bits, machine_type(scalar)));
        }
        if returns_old {
            let targets = lanes_of(self.operand(instruction, 0)?, lanes)?;
            for (target, value) in targets.iter().zip(old) {
                self.assign(target, scalar, value)?;
            }
        }
        Ok(())
    }

    /// Shared memory belongs to one cluster, whose threads never run at the same time: plain accesses are
    /// atomic there.
    fn compare_and_swap(
        &mut self,
        space: AccessSpace,
        address: Value,
        expected: Value,
        replacement: Value,
    ) -> Value {
        if is_shared(space) {
            let ty = self.b.func.dfg.value_type(expected);
            let old = self.b.ins().load(ty, MemFlagsData::new(), address, 0);
            let same = self.b.ins().icmp(IntCC::Equal, old, expected);
            let new = self.b.ins().select(same, replacement, old);
            self.b.ins().store(MemFlagsData::new(), new, address, 0);
            old
        } else {
            self.b.ins().atomic_cas(MemFlagsData::new(), address, expected, replacement)
        }
    }

    /// Returns the bits that were in memory.
    fn read_modify_write(
        &mut self,
        space: AccessSpace,
        operation: &str,
        scalar: Scalar,
        address: Value,
        value: Value,
    ) -> Result<Value, Refusal> {
        let flags = MemFlagsData::new();
        if is_shared(space) {
            let old = self.b.ins().load(machine_type(scalar), flags, address, 0);
            let new = self.combined(operation, scalar, old, value)?;
            self.b.ins().store(flags, new, address, 0);
            return Ok(self.bits_of(old));
        }
        let native = match (operation, scalar.is_float(), scalar.is_signed()) {
            ("add", false, _) => Some(AtomicRmwOp::Add),
            ("and", false, _) => Some(AtomicRmwOp::And),
            ("or", false, _) => Some(AtomicRmwOp::Or),
            ("xor", false, _) => Some(AtomicRmwOp::Xor),
            ("exch", false, _) => Some(AtomicRmwOp::Xchg),
            ("min", false, true) => Some(AtomicRmwOp::Smin),
            ("max", false, true) => Some(AtomicRmwOp::Smax),
            ("min", false, false) => Some(AtomicRmwOp::Umin),
            ("max", false, false) => Some(AtomicRmwOp::Umax),
            _ => None,
        };
        if let Some(native) = native {
            return Ok(self.b.ins().atomic_rmw(machine_type(scalar), flags, native, address, value));
        }
        // Sums of single precision in global memory, but not in shared memory, have no subnormal numbers.
        let unflushed = match (operation, scalar, space) {
            ("add", Scalar::F32, AccessSpace::Generic) => {
                let [base, size] = [
                    std::mem::offset_of!(ThreadContext, shared_base),
                    std::mem::offset_of!(ThreadContext, shared_size),
                ]
                .map(|offset| self.field(types::I64, offset));
                let offset = self.b.ins().isub(address, base);
                Some(Some(self.b.ins().icmp(IntCC::UnsignedLessThan, offset, size)))
            }
            ("add", Scalar::F32, AccessSpace::Global) => Some(None),
            _ => None,
        };
        // Anything else: compute a new value and put it there if nobody changed the old one meanwhile.
        let ty = machine_type(scalar);
        let bits_ty = machine_type(match scalar.size() {
            2 => Scalar::B16,
            4 => Scalar::B32,
            _ => Scalar::B64,
        });
        let first = self.b.ins().load(bits_ty, flags, address, 0);
        let (again, done) = (self.b.create_block(), self.b.create_block());
        let expected = self.b.append_block_param(again, bits_ty);
        self.b.ins().jump(again, &[BlockArg::Value(first)]);
        self.b.switch_to_block(again);
        let old = self.from_bits(expected, ty);
        let new = match unflushed {
            None => self.combined(operation, scalar, old, value)?,
            Some(is_shared) => {
                let (a, b) = (self.flush(old), self.flush(value));
                let sum = self.b.ins().fadd(a, b);
                let sum = self.flush(sum);
                match is_shared {
                    None => sum,
                    Some(is_shared) => {
                        let unflushed_sum = self.b.ins().fadd(old, value);
                        self.b.ins().select(is_shared, unflushed_sum, sum)
                    }
                }
            }
        };
        let new = self.bits_of(new);
        let found = self.b.ins().atomic_cas(flags, address, expected, new);
        let same = self.b.ins().icmp(IntCC::Equal, found, expected);
        self.b.ins().brif(same, done, &[], again, &[BlockArg::Value(found)]);
        self.b.seal_block(again);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Ok(expected)
    }

    /// The value that replaces `old`.
    fn combined(
        &mut self,
        operation: &str,
        scalar: Scalar,
        old: Value,
        value: Value,
    ) -> Result<Value, Refusal> {
        if matches!(scalar, Scalar::F16x2 | Scalar::Bf16x2) {
            let half = half_of(scalar);
            let (old, value) = (self.split_pair(old), self.split_pair(value));
            let low = self.combined(operation, half, old[0], value[0])?;
            let high = self.combined(operation, half, old[1], value[1])?;
            return Ok(self.join_pair([low, high]));
        }
        if matches!(scalar, Scalar::F16 | Scalar::Bf16) {
            let (a, b) = (self.unpack_half(scalar, old), self.unpack_half(scalar, value));
            let result = self.combined(operation, Scalar::F32, a, b)?;
            return Ok(self.pack_half(scalar, result));
        }
        let float = scalar.is_float();
        Ok(match operation {
            "add" if float => self.b.ins().fadd(old, value),
            "add" => self.b.ins().iadd(old, value),
            "min" | "max" if float => self.lesser_number(old, value, operation == "max"),
            "min" | "max" => self.integer_extremum(scalar, operation == "max", old, value),
            "exch" => value,
            _ if float => return unsupported("this operation on floating-point numbers"),
            "and" => self.b.ins().band(old, value),
            "or" => self.b.ins().bor(old, value),
            "xor" => self.b.ins().bxor(old, value),
            "inc" => {
                let wraps = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, old, value);
                let next = self.b.ins().iadd_imm_s(old, 1);
                let zero = self.constant(types::I32, 0);
                self.b.ins().select(wraps, zero, next)
            }
            "dec" => {
                let none = self.b.ins().icmp_imm_s(IntCC::Equal, old, 0);
                let beyond = self.b.ins().icmp(IntCC::UnsignedGreaterThan, old, value);
                let wraps = self.b.ins().bor(none, beyond);
                let previous = self.b.ins().iadd_imm_s(old, -1);
                self.b.ins().select(wraps, value, previous)
            }
            _ => return unsupported("this operation"),
        })
    }

    /// Memory fences.
    pub(super) fn fence(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        // It names the map that it is about, and the bytes of one.
        let is_of_map = instruction.modifiers.iter().any(|modifier| modifier == "tensormap::generic");
        while let Some(modifier) = form.next() {
            if !FENCES.contains(&modifier) {
                return unsupported(format!("the modifier `.{modifier}`"));
            }
        }
        if let Some(operand) = instruction.operands.first() {
            match operand {
                Operand::Sink => return Ok(()),
                Operand::Address(..) if is_of_map => {}
                _ => return invalid("it has no operands"),
            }
        }
        self.b.ins().fence();
        Ok(())
    }
}

fn is_shared(space: AccessSpace) -> bool {
    matches!(space, AccessSpace::Shared | AccessSpace::Cluster)
}
