//! Kernels that try to leave the memory that is theirs: each must end in a fault or be refused.

mod common;

use causeway_ptx::{CompileOptions, Fault, Program};
use common::{Device, Params};

const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

/// Runs the kernel `k` of a source with one thread.
fn run(body: &str) -> Result<(), Fault> {
    let device = Device::new(&[&format!("{HEAD}{body}")]);
    device.try_launch("k", [1; 3], [1; 3], 0, &Params::default())
}

/// Parameters of these sizes, as a declaration lists them.
fn byte_arrays(sizes: &[u32]) -> String {
    let parameters = sizes.iter().enumerate().map(|(index, size)| format!(".param .b8 p{index}[{size}]"));
    parameters.collect::<Vec<_>>().join(", ")
}

#[test]
fn indirect_calls_compare_signatures_and_not_their_hashes() {
    // The 64-bit FNV-1a hashes of these two lists are the same.
    const CALLER: [u32; 5] = [2541, 1618, 146, 1326, 8];
    const CALLEE: [u32; 5] = [252, 3216, 1733, 2868, 206];
    let parameters = byte_arrays(&CALLEE);
    let arguments: String =
        CALLER.iter().enumerate().map(|(index, size)| format!(".param .b8 a{index}[{size}];\n")).collect();
    let fault = run(&format!(
        ".func f({parameters}) {{ .reg .b64 r; mov.b64 r, -1; st.param.b64 [p1+3200], r; ret; }}
        .visible .entry k() {{
            .reg .b64 f;
            ld.global.b64 f, [f_pointer];
            {arguments}
            shape: .callprototype _ ({parameters});
            call f, (a0, a1, a2, a3, a4), shape;
            ret;
        }}
        .global .b64 f_pointer = f;"
    ));
    assert!(matches!(fault, Err(Fault::IllegalInstruction { .. })), "{fault:?}");
}

#[test]
fn an_indirect_call_of_the_same_signature_goes_through() {
    run(".func (.param .b32 r) f(.param .b64 a, .param .b32 b) {
            .reg .b32 %r; ld.param.b32 %r, [b]; st.param.b32 [r], %r; ret;
        }
        .global .b64 f_pointer = f;
        .visible .entry k() {
            .reg .b64 f; .reg .b32 %r; .reg .pred p;
            ld.global.b64 f, [f_pointer];
            .param .b64 a; .param .b32 b; .param .b32 r;
            st.param.b64 [a], 1;
            st.param.b32 [b], 7;
            shape: .callprototype (.param .b32 r) _ (.param .b64 a, .param .b32 b);
            call (r), f, (a, b), shape;
            ld.param.b32 %r, [r];
            setp.ne.s32 p, %r, 7;
            @p trap;
            ret;
        }")
    .unwrap();
}

#[test]
fn pointers_that_are_no_functions_are_not_called() {
    for offset in [-16_i64, -1, 1, 8, 16 * 3, 1 << 20, 1 << 40, i64::MIN] {
        let fault = run(&format!(
            ".func f() {{ ret; }}
            .func g(.param .b64 a) {{ ret; }}
            .global .b64 f_pointer = f;
            .visible .entry k() {{
                .reg .b64 f; ld.global.b64 f, [f_pointer]; add.s64 f, f, {offset};
                shape: .callprototype _ (); call f, (), shape; ret; }}"
        ));
        assert!(matches!(fault, Err(Fault::IllegalInstruction { .. })), "{offset}: {fault:?}");
    }
}

/// Runs the kernel `k` of a source, which stores to the 64-bit words that its only parameter points at.
fn words(body: &str, count: usize) -> Vec<u64> {
    let device = Device::new(&[&format!("{HEAD}{body}")]);
    let out = device.zeros::<u64>(count);
    device.launch("k", 1, 1, Params::default().with(out));
    device.download(out, count)
}

/// What the compiler says to a source, or of its first kernel that cannot run.
fn refusal(body: &str) -> String {
    let source = format!("{HEAD}{body}");
    match Program::compile(&[&source], &CompileOptions::default()) {
        Ok(program) => match program.kernels().iter().find_map(|kernel| kernel.unsupported.as_ref()) {
            None => panic!("accepted: {body}"),
            Some(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_parameter_that_was_not_written_reads_as_zero() {
    // Without clearing, the slots hold what the calls before left on the worker's native stack.
    let source = "
        .extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
        .func (.param .b64 r) f(.param .b8 p[64]) {
            .reg .b64 a, b; ld.param.b64 a, [p+56]; ld.param.b64 b, [r]; or.b64 a, a, b; st.param.b64 [r], a; ret;
        }
        .func (.param .b64 r) g() { ret; }
        .func reads(.param .b64 to) {
            .reg .b64 o, v; .reg .pred p;
            .param .align 8 .b8 big[512]; .param .b8 argument[64]; .param .b64 r, s, guarded;
            ld.param.b64 o, [to];
            setp.eq.u64 p, o, 0;
            @p st.param.b64 [guarded], o;
            ld.param.b64 v, [guarded]; st.global.b64 [o+512], v;
            call (r), f, (argument); ld.param.b64 v, [r]; st.global.b64 [o+520], v;
            call (s), g; ld.param.b64 v, [s]; st.global.b64 [o+528], v;
            LOADS ret;
        }
        .global .b8 text[4] = {37, 102, 10, 0};
        .visible .entry k(.param .u64 out) {
            .reg .b64 o, v; .reg .b32 x; .local .align 8 .b8 numbers[16];
            mov.u64 v, text; mov.u64 o, numbers; cvta.local.u64 o, o;
            call (x), vprintf, (v, o);
            ld.param.u64 o, [out];
            call reads, (o);
            ret;
        }";
    let loads: String = (0..64)
        .map(|word| format!("ld.param.b64 v, [big+{0}]; st.global.b64 [o+{0}], v;\n", 8 * word))
        .collect();
    assert_eq!(words(&source.replace("LOADS", &loads), 67), [0; 67]);
}

#[test]
fn registers_of_128_bits_do_not_fit_the_slot_of_an_argument() {
    let reason = refusal(
        ".func f(.param .b128 p) { .reg .b64 a; mov.b64 a, -1; st.param.b64 [p+8], a; ret; }
        .visible .entry k() { .reg .b128 q; call f, (q); ret; }",
    );
    assert!(reason.contains("register of up to 64 bits"), "{reason}");
}

#[test]
fn results_come_back_in_registers() {
    let source = ".func (.param .b32 r) f(.param .b32 a) {
            .reg .b32 x; ld.param.b32 x, [a]; add.u32 x, x, 1; st.param.b32 [r], x; ret; }
        .visible .entry k(.param .u64 out) {
            .reg .b64 o; .reg .b32 x; ld.param.u64 o, [out]; mov.u32 x, 41;
            call (x), f, (x); st.global.u32 [o], x; ret; }";
    assert_eq!(words(source, 1), [42]);
}

#[test]
fn local_variables_outside_of_functions_are_refused() {
    // Their place was taken for a part of whatever frame the function had, of any size.
    let source = ".local .b8 big[2000000000];
        .visible .entry k() { .local .b8 own[16]; st.local.u8 [big+1999999999], 1; st.local.u8 [own], 1; ret; }";
    let reason = refusal(source);
    assert!(reason.contains("line 4: variable `big`"), "{reason}");
}

#[test]
fn types_that_an_instruction_does_not_have_are_refused() {
    // A floating-point argument of a runtime function that takes integers would be whatever the register
    // held.
    for (declarations, instruction) in [
        (".reg .f32 a;", "prmt.f32 a, a, a, a"),
        (".reg .f32 a;", "bmsk.clamp.f32 a, a, a"),
        (".reg .f64 a;", "match.any.sync.f64 a, a, 1"),
        (".reg .f32 a;", "rem.f32 a, a, a"),
        (".reg .f32 a;", "shl.f32 a, a, 1"),
        (".reg .b64 a;", "prmt.b64 a, a, a, a"),
        (".reg .b64 a;", "shf.l.wrap.b64 a, a, a, 3"),
        (".reg .b16 a; .shared .b64 s;", "atom.shared.add.u8 a, [s], 1"),
        (".reg .b64 a; .shared .b64 s;", "atom.shared.inc.u64 a, [s], 1"),
        (".reg .b32 a;", "mov.b32 a, !a"),
        (".reg .b16 a;", "@a bra L; L: ret"),
        (".reg .f64 a;", "mov.f64 a, %tid.x"),
        (".reg .f32 a;", "min.f32 a"),
        (".reg .f32 a;", "max.f32 a, a"),
        (".reg .b32 a;", "mov.b32 a, %laneid.y"),
    ] {
        let reason = refusal(&format!(".visible .entry k() {{ {declarations}\n{instruction};\nret; }}"));
        assert!(
            reason.contains("line 5") && reason.contains(instruction.split(';').next().unwrap()),
            "{reason}"
        );
    }
}

#[test]
fn declarations_that_contradict_each_other_are_refused() {
    for (source, reason) in [
        (".visible .entry (.param .b32 r) k() { st.param.b32 [r], 1; ret; }", "kernel `k` returns a value"),
        (
            ".func f(.param .b64 a) { .reg .b64 x; atom.param.add.u64 x, [a], 1; ret; }",
            "parameters have no atomic operations",
        ),
        (
            ".func f() { .reg .b64 x; t: .callprototype _ (.param .b64 a); call x, (x, x), t; ret; }",
            "it has 2 arguments and 0 results, and its prototype 1 and 0",
        ),
        (
            ".func f() { .reg .b64 x; L: t: .branchtargets L; call x, (x), t; ret; }",
            "`t` is neither a `.callprototype` nor `.calltargets`",
        ),
        (
            ".func f(.param .b64 a) { ret; } .func g() { .param .b32 s; call f, (s); ret; }",
            "`f` takes values of [8]",
        ),
    ] {
        let found = refusal(source);
        assert!(found.contains(reason), "{found}");
    }
}

#[test]
fn sizes_that_add_up_to_more_than_64_bits_are_refused() {
    let shared: String = (0..3).map(|index| format!(".shared .b8 s{index}[1099511627776];\n")).collect();
    let shared = format!(".visible .entry k() {{ {shared} ret; }}");
    assert!(refusal(&shared).contains("bytes of `.shared` variables"));
    let local = ".visible .entry k() { .local .b8 a[1000000000]; .local .b8 b[1000000000]; ret; }";
    assert!(refusal(local).contains("2000000000 bytes of `.local` variables"));
    let slots = ".visible .entry k() { .param .b8 a[1000000000]; .param .b8 b[1000000000]; ret; }";
    assert!(refusal(slots).contains("bytes of `.param` variables"));
}

#[test]
fn kernels_that_would_take_gigabytes_to_translate_are_refused() {
    let many = |count, line: fn(usize) -> String| (0..count).map(line).collect::<String>();
    let begin = many(10_000, |index| format!(".reg .b64 r{index}; mov.b64 r{index}, %clock64;\n"));
    let end = many(10_000, |index| format!("st.global.b64 [r{index}], r{index};\n"));
    let reason = refusal(&format!(".visible .entry k() {{ {begin} {end} ret; }}"));
    assert!(reason.contains("function `k` has 100010000 pairs of a register and an instruction"), "{reason}");
    let ranges = many(2000, |index| format!(".reg .b32 a{index}_<2>;\n"));
    let reason = refusal(&format!(".visible .entry k() {{ {ranges} ret; }}"));
    assert!(reason.contains("more than 1024 ranges"), "{reason}");
    let kernels = many(30_000, |index| format!(".entry k{index}() {{ }}\n"));
    assert!(refusal(&kernels).contains("the program has 900000000 pairs of a kernel and a function"));
    let labels = many(200_000, |index| format!("L{index}:\n"));
    let reason = refusal(&format!(".visible .entry k() {{ {labels} ret; }}"));
    assert!(reason.contains("has 200000 labels, and at most 131072 are possible"), "{reason}");
}

#[test]
fn empty_local_variables_have_an_address() {
    run(".visible .entry k() { .reg .b64 a; .local .b8 none[0]; mov.u64 a, none; ret; }").unwrap();
}

#[test]
fn a_kernel_frees_only_what_a_kernel_allocated() {
    let device = Device::new(&[&format!(
        "{HEAD}.extern .func free(.param .b64 p);
        .extern .func (.param .b64 r) malloc(.param .b64 s);
        .visible .entry k(.param .u64 pointer) {{
            .reg .b64 a; .param .b64 p; ld.param.u64 a, [pointer]; st.param.b64 [p], a; call free, (p); ret; }}
        .visible .entry own() {{
            .reg .b64 a; mov.b64 a, 100; call (a), malloc, (a); st.u64 [a], a; call free, (a); ret; }}
        .visible .entry twice() {{
            .reg .b64 a; mov.b64 a, 100; call (a), malloc, (a); call free, (a); call free, (a); ret; }}"
    )]);
    let buffer = device.upload(&[1_u64]);
    let fault = device.try_launch("k", [1; 3], [1; 3], 0, &Params::default().with(buffer));
    assert!(matches!(fault, Err(Fault::IllegalAddress { address, .. }) if address == buffer), "{fault:?}");
    assert_eq!(device.download::<u64>(buffer, 1), [1]);
    device.launch("own", 1, 1, Params::default());
    let fault = device.try_launch("twice", [1; 3], [1; 3], 0, &Params::default());
    assert!(matches!(fault, Err(Fault::IllegalAddress { .. })), "{fault:?}");
}

#[test]
fn kernels_run_out_of_allocations_before_the_worker_runs_out_of_mappings() {
    let device = Device::new(&[&format!(
        "{HEAD}.extern .func (.param .b64 r) malloc(.param .b64 s);
        .visible .entry k(.param .u64 out) {{
            .reg .b64 o, a, n; .reg .pred p;
            ld.param.u64 o, [out]; mov.b64 n, 0;
            AGAIN: mov.b64 a, 1; call (a), malloc, (a); setp.eq.u64 p, a, 0; @p bra DONE;
            add.u64 n, n, 1; bra AGAIN;
            DONE: st.global.u64 [o], n; ret; }}"
    )]);
    let out = device.zeros::<u64>(1);
    device.launch("k", 1, 1, Params::default().with(out));
    assert_eq!(device.download::<u64>(out, 1), [16384]);
    std::thread::spawn(|| ()).join().unwrap();
}

#[test]
fn a_short_format_prints_no_more_than_the_buffer_holds() {
    let device = Device::new(&[&format!(
        "{HEAD}.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
        .visible .entry k(.param .u64 format, .param .u64 arguments) {{
            .reg .b64 f, a; .reg .b32 r;
            ld.param.u64 f, [format]; ld.param.u64 a, [arguments]; call (r), vprintf, (f, a); ret; }}"
    )]);
    let text = device.upload(&vec![b'x'; 1 << 20]);
    let format = device.upload("%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s\0".as_bytes());
    let arguments = device.upload(&[text; 16]);
    device.launch("k", 1, 1, Params::default().with(format).with(arguments));
    assert_eq!(device.output.text.lock().unwrap().len(), 4 << 20);
}
