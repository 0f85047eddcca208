//! Loops of a body: instructions that a thread may execute more than once.

use crate::parse::syntax::{Body, Function, Operand, Statement};

/// The statements of a body that lie in a loop.
pub(super) struct Loops {
    /// For each statement whether it does.
    repeated: Vec<bool>,
}

impl Loops {
    /// Finds the loops of a function. A device function may be called from a loop, so that all of
    /// their statements count.
    ///
    /// Whoever comes to a statement again has jumped back over it or to it, from behind it: all that lies
    /// between a jump backwards and its label may be in a loop, and nothing else.
    pub(super) fn of(function: &Function, body: &Body) -> Self {
        let count = body.statements.len();
        if !function.is_kernel {
            return Self { repeated: vec![true; count] };
        }
        let mut labels = vec![usize::MAX; body.labels];
        for (index, statement) in body.statements.iter().enumerate() {
            if let Statement::Label(label) = statement {
                labels[*label] = index;
            }
        }
        // For each statement, up to where a loop goes that starts there.
        let mut ends = vec![0; count];
        for (index, statement) in body.statements.iter().enumerate() {
            let Statement::Instruction(instruction) = statement else { continue };
            let mut jump = |label: usize| {
                if let Some(end) = ends.get_mut(labels[label]) {
                    *end = index.max(*end);
                }
            };
            for operand in &instruction.operands {
                match operand {
                    Operand::Label(label) => jump(*label),
                    Operand::Table(name) => {
                        body.branch_tables.get(name).into_iter().flatten().for_each(|label| jump(*label));
                    }
                    _ => {}
                }
            }
        }
        let mut end = 0;
        let repeated = ends
            .iter()
            .enumerate()
            .map(|(index, &own)| {
                // A jump forwards ends before it starts and adds nothing.
                end = own.max(end);
                index <= end && end != 0
            })
            .collect();
        Self { repeated }
    }

    /// Whether the statement with this index lies in a loop.
    pub(super) fn contains(&self, statement: usize) -> bool {
        self.repeated.get(statement).copied().unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::waits_for_others;

    /// The functions of a source, each with these statements.
    fn function(kind: &str, body: &str) -> Function {
        let source = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.visible {kind} f() {{ .reg .b32 %r<4>; .reg .b64 %rd<2>;
             .reg .pred %p<2>; {body} ret; }}"
        );
        crate::parse::parse(&source).unwrap().functions.remove(0)
    }

    #[test]
    fn what_lies_between_a_label_and_a_jump_back_to_it_is_in_a_loop() {
        let function = function(
            ".entry",
            "mov.b32 %r0, 0; @%p0 bra END; A: add.u32 %r0, %r0, 1; B: @%p1 bra A; sub.u32 %r0, %r0, 1; END:",
        );
        let loops = Loops::of(&function, function.body.as_ref().unwrap());
        // mov, bra, A, add, B, bra, sub, END, ret
        let found: Vec<bool> = (0..9).map(|statement| loops.contains(statement)).collect();
        assert_eq!(found, [false, false, true, true, true, true, false, false, false]);
    }

    #[test]
    fn threads_wait_by_an_atomic_in_a_loop_alone() {
        let atomic = "atom.global.add.u32 %r0, [%rd0], 1; mov.u32 %r1, %r0;";
        let in_loop = format!("A: {atomic} @%p0 bra A;");
        assert!(!waits_for_others(&function(".entry", atomic)));
        assert!(waits_for_others(&function(".entry", &in_loop)));
        assert!(waits_for_others(&function(".func", atomic)), "whoever calls it may do so in a loop");
        for unread in ["atom.global.add.u32 %r0, [%rd0], 1;", "atom.global.add.u32 _, [%rd0], 1;"] {
            assert!(!waits_for_others(&function(".entry", &format!("A: {unread} @%p0 bra A;"))), "{unread}");
        }
        assert!(!waits_for_others(&function(".entry", "A: red.global.add.u32 [%rd0], 1; @%p0 bra A;")));
        assert!(!waits_for_others(&function(".entry", "A: ld.global.u32 %r0, [%rd0]; @%p0 bra A;")));
        assert!(waits_for_others(&function(".entry", "A: ld.volatile.global.u32 %r0, [%rd0]; @%p0 bra A;")));
        assert!(waits_for_others(&function(".entry", "bar.sync 0;")));
    }
}
