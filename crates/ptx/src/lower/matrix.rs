//! Multiplication of matrices by a warp: `mma` and `wmma.mma`.
//!
//! A lane leaves the registers of its fragments in its request, waits for the other lanes, and takes the
//! registers of the result from there.

use std::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::form::Form;
use super::memory::lanes_of;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Operand, Scalar};
use crate::run::context::WarpOperation;
use crate::run::matrix::{
    Accumulator, Combination, Element, Fragment, FragmentLayout, Multiplication, MultiplyRequest, Shape,
};

/// Takes the next modifier as what `named` reads from it.
pub(super) fn next_as<T>(form: &mut Form<'_>, named: fn(&str) -> Option<T>) -> Result<T, Refusal> {
    match form.next() {
        None => invalid("a shape or type is missing"),
        Some(name) => match named(name) {
            Some(found) => Ok(found),
            None => unsupported(format!("`.{name}` of matrices")),
        },
    }
}

impl Translator<'_, '_> {
    /// `mma.sync.aligned.shape.row.col[.satfinite].d.a.b.c[.op.popc] d, a, b, c`
    pub(super) fn multiply_matrices(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["sync", "aligned", "rn", "kind::f8f6f4"]);
        if !form.flag("row") || !form.flag("col") {
            return unsupported("matrices other than `.row.col`");
        }
        let saturates = form.flag("satfinite");
        let combination = match form.choice(&["xor", "and"]) {
            None => Combination::Product,
            Some(name) => {
                if !form.flag("popc") {
                    return invalid("`.popc` is missing");
                }
                if name == "xor" { Combination::Xor } else { Combination::And }
            }
        };
        let shape = next_as(&mut form, Shape::named)?;
        let d = next_as(&mut form, Accumulator::named)?;
        let a = next_as(&mut form, Element::named)?;
        let b = next_as(&mut form, Element::named)?;
        let c = next_as(&mut form, Accumulator::named)?;
        form.finish()?;
        let layout = FragmentLayout::Mma;
        let saturates = u32::from(saturates);
        self.multiply(instruction, Multiplication { layout, shape, a, b, c, d, combination, saturates })
    }

    /// Has the warp multiply what the operands `d, a, b, c` name.
    pub(super) fn multiply(&mut self, instruction: &Instruction, multiplication: Multiplication) -> Lowered {
        if !multiplication.exists() {
            return unsupported("this shape with these types");
        }
        self.expect_operands(instruction, 4)?;
        let [a, b, c, d] = Fragment::of(&multiplication);
        let slot = self.request_slot();
        for (offset, value) in fields(&multiplication) {
            self.pass_constant(slot, offset, value);
        }
        for (index, fragment, offset) in [
            (1, a, offset_of!(MultiplyRequest, a)),
            (2, b, offset_of!(MultiplyRequest, b)),
            (3, c, offset_of!(MultiplyRequest, accumulator)),
        ] {
            for (register, value) in (0..).zip(self.read_fragment(&instruction.operands[index], &fragment)?) {
                self.pass(slot, offset + 8 * register, value);
            }
        }
        let (all, address) = (self.constant(types::I32, -1), self.b.ins().stack_addr(types::I64, slot, 0));
        self.simple_warp_operation(WarpOperation::MultiplyMatrices, all, address);
        let start = offset_of!(MultiplyRequest, accumulator) as i32;
        let registers: Vec<Value> = (0..d.registers as i32)
            .map(|register| self.b.ins().stack_load(types::I64, types::I64, slot, start + 8 * register))
            .collect();
        self.write_fragment(&instruction.operands[0], &d, &registers)
    }

    /// The registers of a fragment, each extended to 64 bits.
    pub(super) fn read_fragment(
        &mut self,
        operand: &Operand,
        fragment: &Fragment,
    ) -> Result<Vec<Value>, Refusal> {
        let scalar = register_type(fragment);
        lanes_of(operand, fragment.registers)?
            .iter()
            .map(|register| {
                let value = self.value(register, scalar)?;
                Ok(self.extend(scalar, value, types::I64))
            })
            .collect()
    }

    /// Writes the registers of a fragment, given as 64 bits each.
    pub(super) fn write_fragment(
        &mut self,
        operand: &Operand,
        fragment: &Fragment,
        values: &[Value],
    ) -> Lowered {
        let scalar = register_type(fragment);
        for (target, &value) in lanes_of(operand, fragment.registers)?.iter().zip(values) {
            let value = if scalar == Scalar::B32 { self.b.ins().ireduce(types::I32, value) } else { value };
            self.assign(target, scalar, value)?;
        }
        Ok(())
    }
}

/// The fields of a multiplication, as offsets in the request and values.
fn fields(multiplication: &Multiplication) -> [(usize, u32); 10] {
    let Multiplication { layout, shape, a, b, c, d, combination, saturates } = *multiplication;
    [
        (offset_of!(MultiplyRequest, multiplication.layout), layout as u32),
        (offset_of!(MultiplyRequest, multiplication.shape.m), shape.m),
        (offset_of!(MultiplyRequest, multiplication.shape.n), shape.n),
        (offset_of!(MultiplyRequest, multiplication.shape.k), shape.k),
        (offset_of!(MultiplyRequest, multiplication.a), a as u32),
        (offset_of!(MultiplyRequest, multiplication.b), b as u32),
        (offset_of!(MultiplyRequest, multiplication.c), c as u32),
        (offset_of!(MultiplyRequest, multiplication.d), d as u32),
        (offset_of!(MultiplyRequest, multiplication.combination), combination as u32),
        (offset_of!(MultiplyRequest, multiplication.saturates), saturates),
    ]
}

fn register_type(fragment: &Fragment) -> Scalar {
    if fragment.bits == 64 { Scalar::B64 } else { Scalar::B32 }
}
