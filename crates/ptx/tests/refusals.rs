//! Kernels that are refused before they run, and the texts of the refusals.

mod common;

use causeway_ptx::{CompileError, CompileOptions, Fault, Program};
use common::{Device, Params, kernel};

/// Why the only kernel of a source cannot run.
fn unsupported(source: &str) -> CompileError {
    let program = Program::compile(&[source], &CompileOptions::default()).unwrap();
    program.kernels()[0].unsupported.clone().expect("it can run")
}

#[test]
fn what_is_not_supported_is_refused_with_its_line() {
    let refused = |source: &str| Program::compile(&[source], &CompileOptions::default()).unwrap_err();
    let source = kernel("\n\ntcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;");
    let error = unsupported(&source);
    let CompileError::UnsupportedInstruction { line: 14, .. } = error else { panic!("{error:?}") };
    assert_eq!(
        error.to_string(),
        "line 14: `tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;` is not supported by \
         the software GPU (there is no entry for it in the instruction table)"
    );
    let error = unsupported(&kernel("add.wonderful.u32 %r1, %r2, %r3;"));
    assert!(
        matches!(error, CompileError::UnsupportedInstruction { reason, .. } if reason == "the modifier `.wonderful`")
    );
    // A type of operands that only instructions without an entry have does not matter.
    let error = unsupported(&kernel("multimem.red.add.f64 [%rd1], %rd2;"));
    assert!(matches!(error, CompileError::UnsupportedInstruction { .. }), "{error}");
    let error = refused(&kernel("add.u32 %r1, %r2;"));
    assert!(matches!(error, CompileError::InvalidInstruction { .. }), "{error}");
    // What is no PTX at all is an error of its text.
    let error = refused(&kernel("nosuch.u32 %r1, %r2;"));
    let no_such = "line 12: `nosuch.u32 %r1, %r2;` is not valid: no version of PTX has such an instruction";
    assert_eq!(error.to_string(), no_such);
    let error = refused(&kernel("tex.1d.v4.f32.s32 {%f0, %f1, [%rd0, {%r1}];"));
    assert!(matches!(&error, CompileError::Syntax { line: 12, .. }), "{error}");
    let error = refused(&kernel("bra nowhere;"));
    assert!(matches!(&error, CompileError::Syntax { line: 12, .. }), "{error}");
    let error = refused(".version 8.0\n.target sm_75\n.address_size 32\n");
    assert!(error.to_string().contains(".address_size 32"), "{error}");
    let error = refused(".version 8.0\n.target gfx900\n.address_size 64\n");
    assert!(error.to_string().contains("gfx900"), "{error}");
    // Doubles in single precision: nothing to do where there are none.
    let mapped = |body: &str| kernel(body).replace("sm_75", "sm_10, map_f64_to_f32");
    assert!(Program::compile(&[&mapped("add.f32 %f1, %f2, %f3;")], &CompileOptions::default()).is_ok());
    let error = refused(&mapped(".reg .f64 %d<2>; add.f64 %d0, %d1, %d1;"));
    let CompileError::Syntax { line: 12, message, .. } = &error else { panic!("{error:?}") };
    assert!(message.contains("map_f64_to_f32"), "{error}");
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.extern .func missing();\n\
        .visible .entry k() { call missing; ret; }";
    assert_eq!(refused(source), CompileError::Unresolved(vec!["missing".to_owned()]));
    // One immediate in brackets is a list of arguments, and no expression.
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.func f(.param .b32 a) { ret; }\n\
        .visible .entry k() { call f, (5); ret; }";
    let error = refused(source);
    assert!(error.to_string().contains("neither a `.param` variable nor a register"), "{error}");
    let twice = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .func f() { ret; }";
    let error = Program::compile(&[twice, twice], &CompileOptions::default()).unwrap_err();
    assert_eq!(error, CompileError::Duplicate("f".to_owned()));
}

#[test]
fn operands_that_only_unsupported_instructions_have_are_no_mistakes() {
    for instruction in [
        "sured.b.add.1d.u32.trap [surface, {%r1}], %r2;",
        "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, {%r1, %r2, %r3, %r4}, %p1;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p1, 1, 1, 0, 0;",
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd0, {%r1, %r1, %r1}], [%r2], {%r1};",
        "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r1], 16, %r2;",
        "redux.sync.min.f32 %f1, %f2, 0xffffffff;",
        "mov.u32 %r1, %no_such_register;",
        "ld.global.b128 %rd2, [%rd0];",
    ] {
        let error = unsupported(&kernel(&format!("\n{instruction}")));
        let CompileError::UnsupportedInstruction { line: 13, instruction: text, .. } = &error else {
            panic!("{instruction}: {error:?}")
        };
        assert_eq!(text, instruction);
    }
}

#[test]
fn a_kernel_that_cannot_run_leaves_the_others_alone() {
    let head = ".version 9.0\n.target sm_100\n.address_size 64\n.global .texref old_texture;\n";
    let tensors = "{ .reg .b32 %r<9>; .reg .f32 %f<9>;\ntcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;\nret; }";
    let cluster = ".reqnctapercluster 2, 1, 1 .blocksareclusters";
    let source = format!(
        "{head}.func deep() {tensors}
        .func outer() {{ call deep; ret; }}
        .visible .entry direct() {tensors}
        .visible .entry indirect() {{ call outer; ret; }}
        .visible .entry cluster() {cluster} {{ ret; }}
        .visible .entry alone() .reqnctapercluster 1 .maxclusterrank 4 {{ ret; }}
        .visible .entry fine(.param .u64 out) {{
            .reg .b64 p; .reg .b32 t; ld.param.u64 p, [out]; mov.u32 t, %tid.x; mad.wide.u32 p, t, 4, p;
            st.global.u32 [p], t; ret; }}"
    );
    let device = Device::new(&[&source]);
    let reasons: Vec<_> = device
        .loaded
        .program()
        .kernels()
        .iter()
        .map(|kernel| (kernel.name.as_str(), kernel.unsupported.as_ref().map(ToString::to_string)))
        .collect();
    let named = |name: &str| reasons.iter().find(|(found, _)| *found == name).unwrap().1.clone();
    assert!(named("direct").is_some_and(|reason| reason.starts_with("line 10: `tcgen05.")), "{reasons:?}");
    assert!(named("indirect").is_some_and(|reason| reason.starts_with("line 6: `tcgen05.")), "{reasons:?}");
    let cluster = "line 13: `.blocksareclusters` is not supported by the software GPU";
    assert_eq!(named("cluster").as_deref(), Some(cluster));
    assert_eq!((named("alone"), named("fine")), (None, None));
    for kernel in ["direct", "indirect", "cluster"] {
        let ended = device.try_launch(kernel, [2, 1, 1], [1, 1, 1], 0, &Params::default());
        assert!(matches!(ended, Err(Fault::Unsupported { .. })), "{kernel}: {ended:?}");
    }
    let out = device.zeros::<u32>(40);
    device.launch("fine", 1, 40, Params::default().with(out));
    assert_eq!(device.download::<u32>(out, 40), (0..40).collect::<Vec<_>>());
}

/// As on an H200 (driver 580, 29 November 2026): `.reqntid` demands its shape, `.maxntid` only limits the
/// number.
#[test]
fn a_block_of_another_shape_than_the_kernel_demands_is_refused() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n\
        .visible .entry demands() .reqntid 64, 1, 1 { ret; }\n.visible .entry limits() .maxntid 64, 1, 1 { ret; }";
    let device = Device::new(&[source]);
    let launch = |kernel, block| device.try_launch(kernel, [1, 1, 1], block, 0, &Params::default());
    assert_eq!(launch("demands", [64, 1, 1]), Ok(()));
    for other in [[32, 1, 1], [32, 2, 1]] {
        let fault = launch("demands", other).unwrap_err();
        assert!(fault.to_string().contains("the kernel demands [64, 1, 1]"), "{fault}");
    }
    assert_eq!(launch("limits", [8, 8, 1]), Ok(()));
    assert!(launch("limits", [65, 1, 1]).is_err());
}
