//! Fault paths: what a thread does that made an invalid access or trapped.

use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, types};

use super::Translator;
use super::translator::{FaultBlock, FaultSite};
use crate::run::functions as runtime;

/// How many checks lead to the same block: register allocation takes time that grows with the square of them.
const MAX_USES: u32 = 32;

impl Translator<'_, '_> {
    /// The code of all fault blocks.
    pub(super) fn finish_fault_blocks(&mut self) {
        for FaultBlock { site, block, .. } in std::mem::take(&mut self.fault_blocks) {
            self.b.switch_to_block(block);
            let address = self.b.block_params(block)[0];
            self.raise(site, address);
        }
    }

    /// Raises a fault when `condition` is not zero; `address` is what the fault reports.
    pub(super) fn fault_if(&mut self, condition: Value, site: FaultSite, address: Value) {
        let known = self.fault_blocks.iter_mut().rev().find(|known| known.site == site);
        let fault = match known.filter(|known| known.uses < MAX_USES) {
            Some(known) => {
                known.uses += 1;
                known.block
            }
            None => {
                let block = self.b.create_block();
                self.b.append_block_param(block, types::I64);
                self.b.set_cold_block(block);
                self.fault_blocks.push(FaultBlock { site, block, uses: 1 });
                block
            }
        };
        let next = self.b.create_block();
        self.b.ins().brif(condition, fault, &[BlockArg::Value(address)], next, &[]);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
    }

    /// The code of a fault block.
    fn raise(&mut self, site: FaultSite, address: Value) {
        let thread = self.thread();
        match site {
            FaultSite::Access(size) => {
                let size = self.constant(types::I32, i64::from(size));
                self.call_runtime(
                    runtime::raise_access as *const () as usize,
                    &[thread, address, size],
                    None,
                );
            }
            FaultSite::Stack => {
                self.call_runtime(runtime::raise_stack_overflow as *const () as usize, &[thread], None);
            }
            FaultSite::CallTarget => {
                self.call_runtime(runtime::raise_call_target as *const () as usize, &[thread], None);
            }
            FaultSite::BranchTarget => {
                self.call_runtime(runtime::raise_branch_target as *const () as usize, &[thread], None);
            }
        }
        self.end_without_return();
    }
}
