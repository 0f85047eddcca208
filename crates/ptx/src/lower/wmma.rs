//! `wmma`: loads and stores of fragments whose layout PTX leaves open, and their multiplication.

use std::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

use super::access::MemoryAccess;
use super::form::Form;
use super::matrix::next_as;
use super::spaces::AccessSpace;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Operand, Scalar};
use crate::run::context::ThreadContext;
use crate::run::matrix::{
    Accumulator, Combination, Element, Fragment, FragmentLayout, Matrix, Multiplication, Shape,
};

/// A matrix in memory.
struct MatrixInMemory {
    space: AccessSpace,
    /// Address of its first element.
    base: Value,
    /// Elements from one row to the next, or from one column to the next, as 64 bits.
    stride: Value,
    by_rows: bool,
    fragment: Fragment,
}

impl Translator<'_, '_> {
    /// `wmma.load`, `wmma.store` and `wmma.mma`
    pub(super) fn warp_matrix(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["sync", "aligned"]);
        match form.choice(&["load", "store", "mma"]) {
            Some("load") => self.load_fragment(instruction, form),
            Some("store") => self.store_fragment(instruction, form),
            Some(_) => self.multiply_fragments(instruction, form),
            None => invalid("`.load`, `.store` or `.mma` is missing"),
        }
    }

    /// `wmma.load.matrix.sync.aligned.layout.shape[.space].type r, [p][, stride]`
    fn load_fragment(&mut self, instruction: &Instruction, mut form: Form<'_>) -> Lowered {
        let matrix = match form.choice(&["a", "b", "c"]) {
            Some("a") => Matrix::A,
            Some("b") => Matrix::B,
            Some(_) => Matrix::Accumulator,
            None => return invalid("which matrix (`.a`, `.b` or `.c`) is missing"),
        };
        self.synchronise_warp();
        let memory = self.matrix_in_memory(form, matrix, instruction.operands.get(1..))?;
        let fragment = memory.fragment;
        let mut registers = Vec::with_capacity(fragment.registers as usize);
        for register in 0..fragment.registers {
            let mut bits = self.constant(types::I64, 0);
            for part in 0..fragment.packed() {
                let access = self.element_access(&memory, register * fragment.packed() + part);
                let element = self.load_at(access, 0, element_type(&fragment), false);
                let element = self.extend(Scalar::B64, element, types::I64);
                let element = self.b.ins().ishl_imm_u(element, i64::from(part * fragment.bits));
                bits = self.b.ins().bor(bits, element);
            }
            registers.push(bits);
        }
        self.write_fragment(&instruction.operands[0], &fragment, &registers)
    }

    /// `wmma.store.d.sync.aligned.layout.shape[.space].type [p], r[, stride]`
    fn store_fragment(&mut self, instruction: &Instruction, mut form: Form<'_>) -> Lowered {
        if !form.flag("d") {
            return invalid("which matrix (`.d`) is missing");
        }
        let (address, source, stride) = match instruction.operands.as_slice() {
            [address, source] => (address, source, None),
            [address, source, stride] => (address, source, Some(stride)),
            other => return invalid(format!("it has {} operands, not 2 or 3", other.len())),
        };
        self.synchronise_warp();
        let mut operands = vec![address.clone()];
        operands.extend(stride.cloned());
        let memory = self.matrix_in_memory(form, Matrix::Accumulator, Some(&operands))?;
        let fragment = memory.fragment;
        let registers = self.read_fragment(source, &fragment)?;
        for (register, &bits) in (0..).zip(&registers) {
            for part in 0..fragment.packed() {
                let access = self.element_access(&memory, register * fragment.packed() + part);
                let element = self.b.ins().ushr_imm_u(bits, i64::from(part * fragment.bits));
                let element = match element_type(&fragment) {
                    types::I64 => element,
                    narrow => self.b.ins().ireduce(narrow, element),
                };
                self.store_at(access, 0, element, false);
            }
        }
        Ok(())
    }

    /// `wmma.mma.sync.aligned.layout.layout.shape[.d.a.b.c | .d.c][.satfinite] d, a, b, c`. Where a layout counts
    /// is where fragments are loaded: they have none here.
    fn multiply_fragments(&mut self, instruction: &Instruction, mut form: Form<'_>) -> Lowered {
        form.ignore(&["row", "col", "rn"]);
        let saturates = u32::from(form.flag("satfinite"));
        let shape = next_as(&mut form, Shape::named)?;
        let d = next_as(&mut form, Accumulator::named)?;
        let second = form.next();
        let (a, b, c) = match (form.next(), form.next()) {
            // Of halves only the types of the accumulators are named.
            (None, _) => (Some(Element::F16), Some(Element::F16), second.and_then(Accumulator::named)),
            (Some(_), None) => return invalid("a type is missing"),
            (Some(b), Some(c)) => (second.and_then(Element::named), Element::named(b), Accumulator::named(c)),
        };
        form.finish()?;
        let (Some(a), Some(b), Some(c)) = (a, b, c) else { return unsupported("these types of matrices") };
        let of_products = multiplication_of(shape, a, c);
        self.multiply(instruction, Multiplication { b, d, saturates, ..of_products })
    }

    /// The matrix that the rest of the modifiers and the operands `[p][, stride]` mean.
    fn matrix_in_memory(
        &mut self,
        mut form: Form<'_>,
        matrix: Matrix,
        operands: Option<&[Operand]>,
    ) -> Result<MatrixInMemory, Refusal> {
        let by_rows = match form.choice(&["row", "col"]) {
            Some(layout) => layout == "row",
            None => return invalid("the layout is missing"),
        };
        let space = form.space()?;
        let shape = next_as(&mut form, Shape::named)?;
        // There are fragments of the types and shapes of which there is a multiplication.
        let (element, accumulator) = match matrix {
            Matrix::Accumulator => {
                let accumulator = next_as(&mut form, Accumulator::named)?;
                let element = match accumulator {
                    Accumulator::F64 => Element::F64,
                    Accumulator::S32 => Element::S8,
                    // Of the shapes with numbers of 32 bits, one has a `k` of its own.
                    _ if shape.k == 8 => Element::Tf32,
                    _ => Element::F16,
                };
                (element, accumulator)
            }
            _ => {
                let element = next_as(&mut form, Element::named)?;
                let accumulator = match element {
                    Element::F64 => Accumulator::F64,
                    Element::S8 | Element::U8 => Accumulator::S32,
                    _ => Accumulator::F32,
                };
                (element, accumulator)
            }
        };
        form.finish()?;
        if !multiplication_of(shape, element, accumulator).exists() {
            return unsupported("this shape with this type");
        }
        let fragment = match matrix {
            Matrix::Accumulator => Fragment::of_accumulator(FragmentLayout::Wmma, shape, accumulator),
            factor => Fragment::of_factor(FragmentLayout::Wmma, factor, shape, element),
        };
        let (address, stride) = match operands {
            Some([address]) => (address, None),
            Some([address, stride]) => (address, Some(stride)),
            _ => return invalid("the address is missing"),
        };
        let (space, base) = self.address_of(space, address)?;
        let stride = match stride {
            Some(stride) => {
                let stride = self.value(stride, Scalar::U32)?;
                self.b.ins().uextend(types::I64, stride)
            }
            None => {
                let stride = if by_rows { fragment.columns } else { fragment.rows };
                self.constant(types::I64, i64::from(stride))
            }
        };
        Ok(MatrixInMemory { space, base, stride, by_rows, fragment })
    }

    /// Where this lane's element with number `index` lies. The layout of [`Fragment::position`]: elements of a
    /// matrix row by row, each lane the next ones.
    fn element_access(&mut self, memory: &MatrixInMemory, index: u32) -> MemoryAccess {
        let fragment = &memory.fragment;
        let lane = self.field(types::I32, offset_of!(ThreadContext, lane));
        let lane = self.b.ins().uextend(types::I64, lane);
        let first = self.b.ins().imul_imm_s(lane, i64::from(fragment.registers * fragment.packed()));
        let element = self.b.ins().iadd_imm_s(first, i64::from(index));
        // Rows and columns are powers of two.
        let element = self.b.ins().band_imm_u(element, i64::from(fragment.rows * fragment.columns - 1));
        let row = self.b.ins().ushr_imm_u(element, i64::from(fragment.columns.ilog2()));
        let column = self.b.ins().band_imm_u(element, i64::from(fragment.columns - 1));
        let (outer, inner) = if memory.by_rows { (row, column) } else { (column, row) };
        let distance = self.b.ins().imul(outer, memory.stride);
        let distance = self.b.ins().iadd(distance, inner);
        let distance = self.b.ins().imul_imm_s(distance, i64::from(fragment.bits / 8));
        let address = self.b.ins().iadd(memory.base, distance);
        self.checked(memory.space, address, fragment.bits / 8)
    }
}

/// The multiplication of two matrices of the same type.
fn multiplication_of(shape: Shape, element: Element, accumulator: Accumulator) -> Multiplication {
    Multiplication {
        layout: FragmentLayout::Wmma,
        shape,
        a: element,
        b: element,
        c: accumulator,
        d: accumulator,
        combination: Combination::Product,
        saturates: 0,
    }
}

/// The machine type of an element, as bits.
fn element_type(fragment: &Fragment) -> Type {
    match fragment.bits {
        8 => types::I8,
        16 => types::I16,
        32 => types::I32,
        _ => types::I64,
    }
}
