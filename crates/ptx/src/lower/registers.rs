//! Register classes of a body: the kind of machine register that holds each PTX register.

use cranelift_codegen::ir::{Type, types};

use crate::parse::syntax::{Base, Body, Operand, Scalar, Selected, Statement};

/// The machine type that values of a PTX type have.
pub(super) fn machine_type(scalar: Scalar) -> Type {
    match scalar {
        Scalar::Pred | Scalar::B8 | Scalar::U8 | Scalar::S8 => types::I8,
        Scalar::B16 | Scalar::U16 | Scalar::S16 | Scalar::F16 | Scalar::Bf16 => types::I16,
        Scalar::B32 | Scalar::U32 | Scalar::S32 => types::I32,
        Scalar::F16x2 | Scalar::Bf16x2 | Scalar::U16x2 | Scalar::S16x2 => types::I32,
        Scalar::B64 | Scalar::U64 | Scalar::S64 | Scalar::F32x2 => types::I64,
        Scalar::F32 => types::F32,
        Scalar::F64 => types::F64,
        Scalar::B128 => types::I128,
    }
}

/// Decides for each register whether it is held as an integer or as a floating-point number.
///
/// Newer compilers declare every register as untyped bits. Holding one in the kind of machine register in
/// which it is mostly used saves a move between register files at each use. `moves_bits` says of an opcode that
/// it only moves bits.
pub(super) fn register_types(body: &Body, moves_bits: impl Fn(&str) -> bool) -> Vec<Type> {
    let mut scores = vec![0_i32; body.registers.len()];
    for statement in &body.statements {
        let Statement::Instruction(instruction) = statement else { continue };
        let scalars: Vec<Scalar> =
            instruction.modifiers.iter().filter_map(|modifier| Scalar::named(modifier)).collect();
        let moves = moves_bits(&instruction.opcode);
        for (index, operand) in instruction.operands.iter().enumerate() {
            let scalar = match scalars.as_slice() {
                [] => continue,
                [first, .., last] if instruction.opcode != "setp" => {
                    if index == 0 {
                        *first
                    } else {
                        *last
                    }
                }
                [first, ..] => *first,
            };
            let weight = match scalar {
                Scalar::F32 | Scalar::F64 => 1,
                _ if moves => 0,
                _ => -1,
            };
            score_operand(operand, weight, &mut scores);
        }
    }
    body.registers
        .iter()
        .zip(scores)
        .map(|(&declared, score)| match declared {
            Scalar::B32 if score > 0 => types::F32,
            Scalar::B64 if score > 0 => types::F64,
            _ => machine_type(declared),
        })
        .collect()
}

fn score_operand(operand: &Operand, weight: i32, scores: &mut [i32]) {
    match operand {
        Operand::Register(register) | Operand::Selected(Selected { register, .. }) => {
            scores[*register] += weight;
        }
        Operand::Vector(items) | Operand::Coordinates(_, items) => {
            items.iter().for_each(|item| score_operand(item, weight, scores));
        }
        Operand::Pair(first, _) => score_operand(first, weight, scores),
        Operand::Address(Base::Register(register), _) => scores[*register] -= 4,
        _ => {}
    }
}
