//! The instructions of PTX that the software GPU does not have.
//!
//! A kernel that contains one, or calls a function that does, is refused by itself. The parser does not read
//! the operands of such an instruction, some of which have forms of their own; a word that is neither here
//! nor in the instruction table is no instruction.

/// Opcodes up to PTX 9.5, sorted.
const OPCODES: [&str; 8] =
    ["clusterlaunchcontrol", "fabric", "istypep", "multimem", "sured", "tcgen05", "tensormap", "wgmma"];

/// Whether an opcode is one of PTX that the software GPU does not have.
pub(crate) fn lacks(opcode: &str) -> bool {
    OPCODES.binary_search(&opcode).is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_list_is_sorted_so_that_every_opcode_is_found() {
        for opcode in super::OPCODES {
            assert!(super::lacks(opcode), "{opcode} is out of order");
        }
        assert!(!super::lacks("add") && !super::lacks("nosuch"));
    }
}
