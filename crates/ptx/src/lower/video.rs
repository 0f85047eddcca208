//! Video instructions: on one word or part of it (`vadd`), and on the halves or bytes of words (`vadd2`, `vadd4`).

use cranelift_codegen::ir::{Value, types};

use super::form::Form;
use super::{Lowered, Refusal, Translator, invalid};
use crate::parse::syntax::{Instruction, Operand, Scalar, Selected, Selector};
use crate::run::video::{
    self, PackedForm, ProductForm, Secondary, Signs, VideoOperation, WordForm, WordPart,
};

impl Form<'_> {
    /// Takes so many types and says whether they are signed.
    fn signs<const COUNT: usize>(&mut self) -> Result<[bool; COUNT], Refusal> {
        let mut signs = [false; COUNT];
        for signed in &mut signs {
            *signed = match self.scalar()? {
                Scalar::U32 => false,
                Scalar::S32 => true,
                _ => return invalid("the types are neither `.u32` nor `.s32`"),
            };
        }
        Ok(signs)
    }

    /// Takes the comparison of `vset` and its like.
    fn video_comparison(&mut self) -> Result<VideoOperation, Refusal> {
        Ok(match self.choice(&["eq", "ne", "lt", "le", "gt", "ge"]) {
            Some("eq") => VideoOperation::Equal,
            Some("ne") => VideoOperation::NotEqual,
            Some("lt") => VideoOperation::Less,
            Some("le") => VideoOperation::LessOrEqual,
            Some("gt") => VideoOperation::Greater,
            Some(_) => VideoOperation::GreaterOrEqual,
            None => return invalid("the comparison is missing"),
        })
    }
}

/// The part of a word that a selector names.
fn word_part(selector: Option<Selector>) -> Result<WordPart, Refusal> {
    match selector {
        None => Ok(WordPart::WHOLE),
        Some(Selector { bits, parts, count: 1 }) if parts < 32 / u16::from(bits) => {
            Ok(WordPart { bits, index: parts as u8 })
        }
        Some(_) => invalid("the selector names no byte and no half of a word"),
    }
}

impl Translator<'_, '_> {
    /// The selector of the operand with this index, which is a register, and whether it is negated.
    fn selected(&self, instruction: &Instruction, index: usize) -> Result<(Option<Selector>, bool), Refusal> {
        match self.operand(instruction, index)? {
            Operand::Selected(Selected { selector, negated, .. }) => Ok((*selector, *negated)),
            _ => Ok((None, false)),
        }
    }

    /// Likewise, for one that cannot be negated.
    fn selector(&self, instruction: &Instruction, index: usize) -> Result<Option<Selector>, Refusal> {
        match self.selected(instruction, index)? {
            (selector, false) => Ok(selector),
            (_, true) => invalid("only operands of `vmad` can be negated"),
        }
    }

    /// The 32 bits that an operand's selector selects from.
    fn video_source(&mut self, instruction: &Instruction, index: usize) -> Result<Value, Refusal> {
        match self.operand(instruction, index)? {
            Operand::Selected(Selected { register, .. }) => {
                let value = self.register(*register);
                self.narrow(value, types::I32)
            }
            other => self.value(other, Scalar::B32),
        }
    }

    /// Calls a function of [`video`] and writes its result.
    fn call_video(&mut self, instruction: &Instruction, function: usize, form: u64, signed: bool) -> Lowered {
        let mut arguments = Vec::with_capacity(4);
        for index in 1..4 {
            arguments.push(match instruction.operands.get(index) {
                Some(_) => self.video_source(instruction, index)?,
                None => self.constant(types::I32, 0),
            });
        }
        arguments.push(self.constant(types::I64, form.cast_signed()));
        let result = self.call_value(function, &arguments, types::I32);
        let scalar = if signed { Scalar::S32 } else { Scalar::U32 };
        match self.operand(instruction, 0)? {
            Operand::Selected(Selected { register, .. }) => {
                let whole = Operand::Register(*register);
                self.assign(&whole, scalar, result)
            }
            whole => self.assign(whole, scalar, result),
        }
    }

    /// `vadd` and its like: `op.dtype.atype.btype[.sat][.op2] d[.dsel], a[.asel], b[.bsel][, c]`
    pub(super) fn video_word(&mut self, instruction: &Instruction, operation: VideoOperation) -> Lowered {
        let mut form = Form::of(instruction);
        let signs = form.signs()?;
        let saturates = form.flag("sat");
        self.video_word_of(instruction, form, operation, signs, saturates, false)
    }

    /// `vshl` and `vshr`, the same with `.clamp` or `.wrap`.
    pub(super) fn video_shift(&mut self, instruction: &Instruction, operation: VideoOperation) -> Lowered {
        let mut form = Form::of(instruction);
        let signs: Signs = form.signs()?;
        if signs[2] {
            return invalid("the type of the amount is not `.u32`");
        }
        let saturates = form.flag("sat");
        let Some(mode) = form.choice(&["clamp", "wrap"]) else {
            return invalid("one of `.clamp` and `.wrap` is missing");
        };
        self.video_word_of(instruction, form, operation, signs, saturates, mode == "wrap")
    }

    /// `vset.atype.btype.cmp[.op2]`, whose result, 0 or 1, is unsigned.
    pub(super) fn video_compare(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let [a, b] = form.signs()?;
        let operation = form.video_comparison()?;
        self.video_word_of(instruction, form, operation, [false, a, b], false, false)
    }

    fn video_word_of(
        &mut self,
        instruction: &Instruction,
        mut form: Form<'_>,
        operation: VideoOperation,
        signs: Signs,
        saturates: bool,
        wraps: bool,
    ) -> Lowered {
        let secondary = match form.choice(&["add", "min", "max"]) {
            None => Secondary::None,
            Some("add") => Secondary::Add,
            Some("min") => Secondary::Minimum,
            Some(_) => Secondary::Maximum,
        };
        form.finish()?;
        let target = word_part(self.selector(instruction, 0)?)?;
        let merges = target != WordPart::WHOLE;
        if merges && secondary != Secondary::None {
            return invalid("it has a selector of the result and a second operation");
        }
        if merges || secondary != Secondary::None || instruction.operands.len() > 3 {
            self.expect_operands(instruction, 4)?;
            if self.selector(instruction, 3)?.is_some() {
                return invalid("the third operand has a selector");
            }
        } else {
            self.expect_operands(instruction, 3)?;
        }
        let a = word_part(self.selector(instruction, 1)?)?;
        let b = word_part(self.selector(instruction, 2)?)?;
        let form = WordForm { operation, signs, saturates, wraps, secondary, a, b, target };
        self.call_video(instruction, video::word as *const () as usize, form.to_bits(), signs[0])
    }

    /// `vmad.dtype.atype.btype[.po][.sat][.scale] d, [-]a[.asel], [-]b[.bsel], [-]c`
    pub(super) fn video_product(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let signs: Signs = form.signs()?;
        let (adds_one, saturates) = (form.flag("po"), form.flag("sat"));
        let shift = match form.choice(&["shr7", "shr15"]) {
            Some("shr7") => 7,
            Some(_) => 15,
            None => 0,
        };
        form.finish()?;
        self.expect_operands(instruction, 4)?;
        let (a, a_negated) = self.selected(instruction, 1)?;
        let (b, b_negated) = self.selected(instruction, 2)?;
        let (c, negates_addend) = self.selected(instruction, 3)?;
        if c.is_some() || self.selected(instruction, 0)? != (None, false) {
            return invalid("only the factors may have selectors");
        }
        let negates_product = a_negated != b_negated;
        if adds_one && (a_negated || b_negated || negates_addend) {
            return invalid("nothing can be negated with `.po`");
        }
        if negates_product && negates_addend {
            return invalid("either the product can be negated or what is added");
        }
        let form = ProductForm {
            a: word_part(a)?,
            b: word_part(b)?,
            signs: [signs[1], signs[2]],
            negates_product,
            negates_addend,
            adds_one,
            saturates,
            shift,
        };
        self.call_video(instruction, video::multiply_add as *const () as usize, form.to_bits(), signs[0])
    }

    /// `vadd2`, `vadd4` and their like: `op.dtype.atype.btype[.sat][.add] d[.mask], a[.asel], b[.bsel], c`
    pub(super) fn packed_lanes(
        &mut self,
        instruction: &Instruction,
        operation: VideoOperation,
        lanes: u8,
    ) -> Lowered {
        let mut form = Form::of(instruction);
        let signs = form.signs()?;
        self.packed_lanes_of(instruction, form, operation, lanes, signs)
    }

    /// `vset2` and `vset4`: a lane of the result is 1 where the comparison holds.
    pub(super) fn compare_lanes(&mut self, instruction: &Instruction, lanes: u8) -> Lowered {
        let mut form = Form::of(instruction);
        let [a, b] = form.signs()?;
        let operation = form.video_comparison()?;
        self.packed_lanes_of(instruction, form, operation, lanes, [false, a, b])
    }

    fn packed_lanes_of(
        &mut self,
        instruction: &Instruction,
        mut form: Form<'_>,
        operation: VideoOperation,
        lanes: u8,
        signs: Signs,
    ) -> Lowered {
        let compares = !matches!(
            operation,
            VideoOperation::Add
                | VideoOperation::Subtract
                | VideoOperation::Average
                | VideoOperation::AbsoluteDifference
                | VideoOperation::Minimum
                | VideoOperation::Maximum
        );
        let saturates = !compares && form.flag("sat");
        let accumulates = form.flag("add");
        form.finish()?;
        if saturates && accumulates {
            return invalid("it has both `.sat` and `.add`");
        }
        self.expect_operands(instruction, 4)?;
        if self.selector(instruction, 3)?.is_some() {
            return invalid("the third operand has a selector");
        }
        let mask = lane_mask(self.selector(instruction, 0)?, lanes)?;
        let (a, b) = if lanes == 2 { (0x10, 0x32) } else { (0x3210, 0x7654) };
        let a = lane_parts(self.selector(instruction, 1)?, lanes, a)?;
        let b = lane_parts(self.selector(instruction, 2)?, lanes, b)?;
        let form = PackedForm { operation, signs, saturates, accumulates, lanes, mask, a, b };
        self.call_video(instruction, video::packed as *const () as usize, form.to_bits(), signs[0])
    }
}

/// The lanes that the selector of a result names, from the highest on, each once.
fn lane_mask(selector: Option<Selector>, lanes: u8) -> Result<u8, Refusal> {
    let Some(selector) = selector else { return Ok((1 << lanes) - 1) };
    let named: Vec<u16> = (0..selector.count).map(|digit| selector.parts >> (4 * digit) & 15).collect();
    if selector.bits != 32 / lanes
        || !named.is_sorted_by(|low, high| low < high)
        || named.iter().any(|lane| *lane >= u16::from(lanes))
    {
        return invalid("the selector of the result names no lanes");
    }
    Ok(named.iter().map(|lane| 1 << lane).sum())
}

/// Which parts of two words the lanes of an operand are.
fn lane_parts(selector: Option<Selector>, lanes: u8, default: u16) -> Result<u16, Refusal> {
    let Some(selector) = selector else { return Ok(default) };
    let is_within =
        (0..selector.count).all(|digit| selector.parts >> (4 * digit) & 15 < 2 * u16::from(lanes));
    if selector.bits != 32 / lanes || selector.count != lanes || !is_within {
        return invalid("the selector does not name a part of two words for each lane");
    }
    Ok(selector.parts)
}
