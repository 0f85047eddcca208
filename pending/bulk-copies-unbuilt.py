import os
os.chdir('memory')
def sub(p, pairs):
    s=open(p).read()
    for a,b in pairs:
        assert s.count(a)==1, (p,a,s.count(a))
        s=s.replace(a,b)
    open(p,'w').write(s)
sub('crates/ptx/src/lower/memory.rs',[
("        if form.flag(\"mbarrier\") {\n","        if form.flag(\"bulk\") {\n            return self.copy_in_bulk(instruction, form);\n        }\n        if form.flag(\"mbarrier\") {\n"),
])
sub('crates/ptx/src/lower/mod.rs',[("mod bits;\n","mod bits;\nmod bulk;\n")])
sub('crates/ptx/src/lower/mbarrier.rs',[
("struct Change {\n    arrivals: Value,\n    dropped: Value,\n    bytes: Value,\n}","pub(super) struct Change {\n    pub(super) arrivals: Value,\n    pub(super) dropped: Value,\n    pub(super) bytes: Value,\n}"),
("    fn object(&mut self","    pub(super) fn object(&mut self"),
("    fn change(&mut self","    pub(super) fn change(&mut self"),
])
sub('crates/ptx/src/lower/place.rs',[
("    fn checked(&mut self","    pub(super) fn checked(&mut self"),
("    /// The address of an access of `size` bytes at `address` in `space`, after code","""    /// The address that an operand names, in its space and without a check.
    pub(super) fn address_of(&mut self, operand: &Operand) -> Result<Value, Refusal> {
        let Operand::Address(base, offset) = operand else {
            return invalid("the address is not in brackets");
        };
        let base = match base {
            Base::Symbol(name) => self.symbol_address(name)?,
            Base::Register(register) => {
                let base = self.register(*register);
                self.bits_of(base)
            }
            Base::Absolute => self.constant(types::I64, 0),
        };
        let address = self.b.ins().iadd_imm_s(base, *offset);
        Ok(self.extend(Scalar::B64, address, types::I64))
    }

    /// The address of an access of `size` bytes at `address` in `space`, after code"""),
])
open('crates/ptx/src/lower/bulk.rs','w').write('''//! `cp.async.bulk`: copies of any length between global and shared memory, made at once, so that waiting for their groups is nothing.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, types};

use super::form::Form;
use super::mbarrier::Change;
use super::spaces::AccessSpace;
use super::{Lowered, Translator, unsupported};
use crate::parse::syntax::{Instruction, Scalar};

/// Addresses and lengths are multiples of this.
const UNIT: u32 = 16;

impl Translator<'_, '_> {
    /// `cp.async.bulk` and its groups. Every block is a cluster of its own.
    pub(super) fn copy_in_bulk(&mut self, instruction: &Instruction, mut form: Form<'_>) -> Lowered {
        if form.choice(&["commit_group", "wait_group"]).is_some() {
            form.ignore(&["read"]);
            return form.finish();
        }
        let tells_object = form.flag("mbarrier::complete_tx::bytes");
        let is_grouped = form.flag("bulk_group");
        let is_global = form.flag("global");
        if !is_global || tells_object == is_grouped || form.choice(&["shared::cta", "shared::cluster"]).is_none() {
            return unsupported("copies other than between global and shared memory");
        }
        let has_policy = form.flag("L2::cache_hint");
        form.finish()?;
        self.expect_operands(instruction, 3 + usize::from(tells_object) + usize::from(has_policy))?;
        // The completion tells the direction: objects lie where the bytes come.
        let (to, from) = if tells_object {
            (AccessSpace::Shared, AccessSpace::Global)
        } else {
            (AccessSpace::Global, AccessSpace::Shared)
        };
        let target = self.address_of(&instruction.operands[0])?;
        let source = self.address_of(&instruction.operands[1])?;
        let size = self.read(instruction, 2, Scalar::U32)?;
        let whole = self.b.ins().band_imm_u(size, i64::from(!(UNIT - 1)));
        let end = self.b.ins().uextend(types::I64, whole);
        let (again, copy, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let at = self.b.append_block_param(again, types::I64);
        let zero = self.constant(types::I64, 0);
        self.b.ins().jump(again, &[BlockArg::Value(zero)]);
        self.b.switch_to_block(again);
        let is_left = self.b.ins().icmp(IntCC::UnsignedLessThan, at, end);
        self.b.ins().brif(is_left, copy, &[], done, &[]);
        self.b.seal_block(copy);
        self.b.switch_to_block(copy);
        let (source, target) = (self.b.ins().iadd(source, at), self.b.ins().iadd(target, at));
        let (source, target) = (self.checked(from, source, UNIT), self.checked(to, target, UNIT));
        for offset in [0, 8] {
            let word = self.load_at(source, offset, types::I64, false);
            self.store_at(target, offset, word, false);
        }
        let next = self.b.ins().iadd_imm_s(at, i64::from(UNIT));
        self.b.ins().jump(again, &[BlockArg::Value(next)]);
        self.b.seal_block(again);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        if tells_object {
            let place = self.object(AccessSpace::Shared, &instruction.operands[3])?;
            let (none, bytes) = (self.constant(types::I32, 0), self.b.ins().ineg(size));
            self.change(place, &Change { arrivals: none, dropped: none, bytes });
        }
        Ok(())
    }
}
''')
s=open('crates/ptx/tests/instructions.rs').read()
s=s.replace('''#[test]
fn a_call_may_name_its_targets''','''#[test]
fn bulk_copies_go_both_ways_and_tell_their_object() {
    let device = Device::new(&[".version 8.6\\n.target sm_90\\n.address_size 64
        .visible .entry k(.param .u64 p, .param .u64 bytes) {
            .shared .align 8 .b64 object; .shared .align 16 .b8 words[256];
            .reg .b64 in, out, all; .reg .b32 at, size, word; .reg .pred done;
            ld.param.u64 in, [p]; ld.param.u64 all, [bytes]; cvt.u32.u64 size, all;
            mbarrier.init.shared.b64 [object], 1;
            fence.mbarrier_init.release.cluster;
            mbarrier.arrive.expect_tx.shared.b64 _, [object], size;
            mbarrier.test_wait.parity.shared.b64 done, [object], 0;
            @done trap;
            mov.u32 at, words;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [at], [in], size, [object];
            mbarrier.try_wait.parity.shared.b64 done, [object], 0;
            @!done trap;
            ld.shared.u32 word, [words+4]; add.u32 word, word, 100; st.shared.u32 [words+4], word;
            fence.proxy.async.shared::cta;
            cp.async.bulk.global.shared::cta.bulk_group [in+256], [words], size;
            cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;
            ret; }"]);
    let words = device.upload(&(0..128_u32).collect::<Vec<_>>());
    device.launch("k", 1, 1, Params::default().with(words).with(240_u64));
    let found = device.download::<u32>(words, 128);
    let copied = |word: u32| word + if word == 1 { 100 } else { 0 };
    let expected: Vec<u32> = (0..64).chain((0..60).map(copied)).chain(124..128).collect();
    assert_eq!(found, expected);
    // Beyond the end of shared memory.
    let params = Params::default().with(words).with(4096_u64);
    assert!(device.try_launch("k", [1, 1, 1], [1, 1, 1], 0, &params).is_err());
}

#[test]
fn a_call_may_name_its_targets''')
open('crates/ptx/tests/instructions.rs','w').write(s)
sub('docs/src/reference/limits.md',[("clusters of more than one block, bulk copies (`cp.async.bulk`), 128-bit","clusters of more than one block, bulk copies of tensors, 128-bit")])
sub('CHANGELOG.md',[("(`mbarrier`, `cp.async.mbarrier.arrive`, `barrier.cluster`) run\n  on the software GPU. So do PTX","(`mbarrier`, `cp.async.mbarrier.arrive`, `cp.async.bulk`,\n  `barrier.cluster`) run on the software GPU. So do PTX")])
sub('tests/cuda/Makefile',[("# cuda::barrier has instructions of its own from here on; from 9.0 on its copies are bulk copies.\nNVCCFLAGS_barrier_objects := -gencode arch=compute_80,code=[sm_80,compute_80]\n","# cuda::barrier has instructions of its own from here on; from 9.0 on its copies are bulk copies.\nNVCCFLAGS_barrier_objects := -gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90,code=[sm_90,compute_90]\n")])
