//! What functions pass to each other, as numbers that a call through a pointer compares, and what kernels are passed.

use std::collections::HashMap;

use crate::parse::syntax::{Function, Variable};

/// Sizes in bytes of the parameters and of the results of a function, in order.
///
/// Alignment is no part of it: compiled code assumes none of parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Signature {
    pub(crate) parameters: Vec<u64>,
    pub(crate) results: Vec<u64>,
}

impl Signature {
    pub(crate) fn of(function: &Function) -> Self {
        Self {
            parameters: function.parameters.iter().map(|parameter| parameter.size).collect(),
            results: function.returns.iter().map(|value| value.size).collect(),
        }
    }
}

/// The number of a signature: equal exactly when the signatures are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct SignatureId(u64);

impl SignatureId {
    /// Of what cannot be called through a pointer. No signature has it.
    pub(crate) const NOT_CALLABLE: Self = Self(0);
    /// Of a call that no function fits. No signature has it.
    const OF_NO_FUNCTION: Self = Self(u64::MAX);

    /// As compiled code compares it.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// An entry of the table for indirect calls: one for each function of the program.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CallTarget {
    /// Address of the machine code.
    pub(crate) code: u64,
    /// The number of the function's signature.
    pub(crate) signature: SignatureId,
}

impl CallTarget {
    /// Of a function that cannot be called through a pointer.
    pub(crate) const NONE: Self = Self { code: 0, signature: SignatureId::NOT_CALLABLE };
}

/// The signatures of a program's functions, each once.
///
/// A hash would not do in their place: programs come from anyone, and whoever chooses the sizes finds two
/// lists of them with the same hash.
#[derive(Debug, Default)]
pub(crate) struct Signatures {
    numbers: HashMap<Signature, SignatureId>,
}

impl Signatures {
    /// The number of a function's signature, which is a new one if no function before had the signature.
    pub(crate) fn intern(&mut self, signature: Signature) -> SignatureId {
        let next = SignatureId(self.numbers.len() as u64 + 1);
        *self.numbers.entry(signature).or_insert(next)
    }

    /// The number of the functions that a call with these sizes may reach.
    pub(crate) fn find(&self, signature: &Signature) -> SignatureId {
        self.numbers.get(signature).copied().unwrap_or(SignatureId::OF_NO_FUNCTION)
    }
}

/// Where each parameter lies in a kernel's parameter buffer: in order, each at a multiple of its alignment.
pub(crate) fn parameter_offsets(parameters: &[Variable]) -> Vec<u32> {
    let mut end = 0_u64;
    parameters
        .iter()
        .map(|parameter| {
            let start = end.next_multiple_of(u64::from(parameter.align.max(1)));
            end = start.saturating_add(parameter.size);
            u32::try_from(start).unwrap_or(u32::MAX)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_equal_exactly_when_signatures_are() {
        let signature = |parameters: &[u64], results: &[u64]| Signature {
            parameters: parameters.into(),
            results: results.into(),
        };
        let lists = [
            signature(&[], &[]),
            signature(&[8], &[]),
            signature(&[], &[8]),
            signature(&[8, 4], &[]),
            signature(&[4, 8], &[]),
            signature(&[8], &[4]),
            signature(&[8, u64::MAX], &[4]),
            signature(&[8], &[u64::MAX, 4]),
        ];
        let mut signatures = Signatures::default();
        let numbers = lists.clone().map(|list| signatures.intern(list));
        for (index, number) in numbers.iter().enumerate() {
            assert_eq!(signatures.intern(lists[index].clone()), *number);
            assert_eq!(signatures.find(&lists[index]), *number);
            assert!(!numbers[..index].contains(number), "{:?}", lists[index]);
            assert_ne!(*number, SignatureId::NOT_CALLABLE);
        }
        let unknown = signatures.find(&signature(&[1], &[]));
        assert!(!numbers.contains(&unknown) && unknown != SignatureId::NOT_CALLABLE);
    }
}
