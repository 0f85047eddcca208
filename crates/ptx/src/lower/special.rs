//! Special registers.

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::{Refusal, Translator, unsupported};
use crate::memory::Arena;
use crate::run::context::ThreadContext;
use crate::run::functions as runtime;

/// The special registers that have components, each three fields of the context in a row.
const VECTORS: [&str; 8] =
    ["tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"];

impl Translator<'_, '_> {
    /// The value of `%name`.
    pub(super) fn special_register(&mut self, name: &str) -> Result<Value, Refusal> {
        let (base, component) = match name.rsplit_once('.') {
            Some((base, component)) if VECTORS.contains(&base) => match component {
                "x" => (base, 0),
                "y" => (base, 1),
                "z" => (base, 2),
                "w" => return Ok(self.constant(types::I32, 0)),
                _ => return unsupported(format!("the special register `%{name}`")),
            },
            _ => (name, 0),
        };
        let word =
            |translator: &mut Self, offset: usize| Ok(translator.field(types::I32, offset + 4 * component));
        match base {
            "tid" => Ok(self.tid(component)),
            "ntid" => word(self, std::mem::offset_of!(ThreadContext, ntid)),
            "ctaid" => word(self, std::mem::offset_of!(ThreadContext, ctaid)),
            "nctaid" => word(self, std::mem::offset_of!(ThreadContext, nctaid)),
            "laneid" => Ok(self.lane()),
            "warpid" => Ok(self.warp()),
            "smid" => word(self, std::mem::offset_of!(ThreadContext, worker)),
            "nsmid" => word(self, std::mem::offset_of!(ThreadContext, workers)),
            "dynamic_smem_size" => word(self, std::mem::offset_of!(ThreadContext, dynamic_shared)),
            "total_smem_size" | "aggr_smem_size" => {
                word(self, std::mem::offset_of!(ThreadContext, total_shared))
            }
            "nwarpid" => Ok(self.constant(types::I32, 32)),
            "gridid" => Ok(self.constant(types::I64, 0)),
            "lanemask_eq" => Ok(self.lane_mask(|t, bit| {
                let _ = t;
                bit
            })),
            "lanemask_lt" => Ok(self.lane_mask(|t, bit| t.b.ins().iadd_imm_s(bit, -1))),
            "lanemask_le" => Ok(self.lane_mask(|t, bit| {
                let below = t.b.ins().iadd_imm_s(bit, -1);
                t.b.ins().bor(below, bit)
            })),
            "lanemask_ge" => Ok(self.lane_mask(|t, bit| t.b.ins().ineg(bit))),
            "lanemask_gt" => Ok(self.lane_mask(|t, bit| {
                let from = t.b.ins().ineg(bit);
                t.b.ins().bxor(from, bit)
            })),
            "clock" | "clock_hi" | "clock64" => {
                let clock = self.call_value(runtime::clock as *const () as usize, &[], types::I64);
                Ok(match base {
                    "clock64" => clock,
                    "clock_hi" => {
                        let high = self.b.ins().ushr_imm_u(clock, 32);
                        self.b.ins().ireduce(types::I32, high)
                    }
                    _ => self.b.ins().ireduce(types::I32, clock),
                })
            }
            "globaltimer" | "globaltimer_lo" | "globaltimer_hi" => {
                let time = self.call_value(runtime::global_timer as *const () as usize, &[], types::I64);
                Ok(match base {
                    "globaltimer" => time,
                    "globaltimer_hi" => {
                        let high = self.b.ins().ushr_imm_u(time, 32);
                        self.b.ins().ireduce(types::I32, high)
                    }
                    _ => self.b.ins().ireduce(types::I32, time),
                })
            }
            // Halves of the address by which the blocks of a grid synchronise.
            "envreg1" | "envreg2" => {
                let address = self.field(types::I64, std::mem::offset_of!(ThreadContext, workspace));
                let half = if base == "envreg1" { self.b.ins().ushr_imm_u(address, 32) } else { address };
                Ok(self.b.ins().ireduce(types::I32, half))
            }
            "reserved_smem_offset_begin" | "reserved_smem_offset_0" | "reserved_smem_offset_1" => {
                Ok(self.constant(types::I32, i64::from(Arena::RESERVED_SHARED.start)))
            }
            "reserved_smem_offset_end" => {
                Ok(self.constant(types::I32, i64::from(Arena::RESERVED_SHARED.end)))
            }
            "reserved_smem_offset_cap" => {
                Ok(self.constant(types::I32, i64::from(Arena::RESERVED_SHARED.len() as u32)))
            }
            // The driver sets other environment registers for its own use; a program sees zeros.
            _ if base.starts_with("envreg") || base.starts_with("pm") => Ok(self.constant(types::I32, 0)),
            "clusterid" => word(self, std::mem::offset_of!(ThreadContext, clusterid)),
            "nclusterid" => word(self, std::mem::offset_of!(ThreadContext, nclusterid)),
            "cluster_ctaid" => word(self, std::mem::offset_of!(ThreadContext, cluster_ctaid)),
            "cluster_nctaid" => word(self, std::mem::offset_of!(ThreadContext, cluster_nctaid)),
            "cluster_ctarank" => word(self, std::mem::offset_of!(ThreadContext, cluster_rank)),
            "cluster_nctarank" => word(self, std::mem::offset_of!(ThreadContext, cluster_blocks)),
            "is_explicit_cluster" => {
                let is_explicit = word(self, std::mem::offset_of!(ThreadContext, is_explicit_cluster))?;
                Ok(self.b.ins().ireduce(types::I8, is_explicit))
            }
            _ => unsupported(format!("the special register `%{name}`")),
        }
    }

    /// A mask made from the bit of the thread's own lane.
    fn lane_mask(&mut self, build: fn(&mut Self, Value) -> Value) -> Value {
        let lane = self.lane();
        let one = self.constant(types::I32, 1);
        let bit = self.b.ins().ishl(one, lane);
        build(self, bit)
    }
}
