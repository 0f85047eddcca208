//! Instructions that try to leave their memory.

use super::choices::Choices;

const SPACES: [&str; 8] =
    ["", ".global", ".shared", ".shared::cta", ".local", ".const", ".param", ".shared::cluster"];
const SYMBOLS: [&str; 12] =
    ["g", "c", "s", "dyn", "l", "slot", "slot8", "slot4", "slot4096", "a", "b", "table"];
const TYPES: [&str; 17] = [
    "b32", "u64", "b8", "u16", "s32", "s64", "f32", "f64", "f16", "bf16", "f16x2", "u8", "s8", "b16", "b64",
    "pred", "b128",
];
const FLAT_TYPES: [&str; 8] = ["u32", "s32", "u64", "s64", "u16", "s16", "f32", "f64"];

/// One instruction or a few; `labels` counts labels.
pub fn instruction(choices: &mut Choices<'_>, labels: &mut usize) -> String {
    match choices.below(28) {
        0..=2 => load(choices),
        3..=5 => store(choices),
        6 | 7 => atomic(choices),
        8 => format!(
            "cp.async.{}.shared.global [{}], [{}], {}{};",
            choices.of(&["ca", "cg"]),
            address(choices),
            address(choices),
            choices.of(&[4, 8, 16, 3, 64]),
            choices.of(&["", ", %r1", ", 0", ", %r3"]),
        ),
        9 => direct_call(choices),
        10 | 11 => indirect_call(choices),
        12 => print(choices),
        13 => heap(choices),
        14 => {
            *labels += 1;
            let label = *labels;
            format!(
                "T{label}: .branchtargets L{label}, M{label}; brx.idx {}, T{label}; M{label}: L{label}:",
                word(choices)
            )
        }
        15 => barrier(choices),
        16 => warp(choices),
        17 | 18 => arithmetic(choices),
        19 => bits(choices),
        20 => convert(choices),
        21 => window(choices),
        22 => unknown(choices).to_owned(),
        23 => neighbours(choices),
        24 => matrices(choices),
        25 | 26 => cluster(choices),
        _ => format!("st.param.b64 [slot8], {}; call deep, (slot8);", choices.of(&["1", "100", "%d1", "-1"])),
    }
}

/// A register of 64 bits that may hold an address.
fn long(choices: &mut Choices<'_>) -> String {
    format!("%d{}", choices.below(20))
}

fn word(choices: &mut Choices<'_>) -> String {
    match choices.below(4) {
        0 => format!("%r{}", choices.below(8)),
        1 => choices.of(&["0", "-1", "1", "31", "32", "33", "255", "0x80000000", "0x7fffffff"]).to_owned(),
        2 => format!("{}", choices.word() as u32),
        _ => choices.of(&["%tid.x", "%laneid", "%clock", "WARP_SZ", "%lanemask_gt"]).to_owned(),
    }
}

/// Where an access goes: without its brackets.
fn address(choices: &mut Choices<'_>) -> String {
    let offset = match choices.below(12) {
        0 => String::new(),
        1 => "+8".to_owned(),
        2 => format!("+{}", choices.below(72)),
        3 => format!("+-{}", choices.below(72)),
        4 => format!("+{}", choices.of(&[60, 63, 64, 120, 127, 128, 4088, 4092, 4096, 65528, 65536, 65544])),
        5 => choices.of(&["+-8", "+-65528", "+-65536", "+-65544", "+1", "+-1"]).to_owned(),
        6 => choices
            .of(&["+0x7ffffff8", "+0x7fffffff", "+-0x80000000", "+0x80000000", "+0xfffffff8"])
            .to_owned(),
        7 => choices
            .of(&["+0x7ffffffffffffff8", "+-0x7ffffffffffffff8", "+0xfffffffffffffff8", "+0x10000000000"])
            .to_owned(),
        8 => format!("+{}", choices.word() as i32),
        9 => format!("+{}", choices.word() as i64),
        _ => format!("+{}", choices.of(&[0, 4, 16, 32])),
    }
    .replace("+-", "-");
    match choices.below(10) {
        0..=6 => format!("{}{offset}", long(choices)),
        7 | 8 => format!("{}{offset}", choices.of(&SYMBOLS)),
        _ => choices
            .of(&["0", "0x100000000000", "0x110000000000", "0xffffffffffffffff", "0x505458000000"])
            .to_owned(),
    }
}

fn register(choices: &mut Choices<'_>, ty: &str) -> String {
    let kind = match ty {
        "b8" | "u8" | "s8" | "b16" | "u16" | "s16" | "f16" | "bf16" => 'h',
        "u64" | "s64" | "b64" | "b128" => 'd',
        "f32" => 'f',
        "f64" => 'e',
        "pred" => 'p',
        _ => 'r',
    };
    match kind {
        'd' => format!("%d{}", 14 + choices.below(6)),
        'p' => "%p2".to_owned(),
        'r' => format!("%r{}", 4 + choices.below(4)),
        kind => format!("%{kind}{}", choices.below(4)),
    }
}

fn registers(choices: &mut Choices<'_>, ty: &str, lanes: &str) -> String {
    let count = match lanes {
        ".v2" => 2,
        ".v4" => 4,
        ".v8" => 8,
        _ => return register(choices, ty),
    };
    let items: Vec<String> = (0..count).map(|_| register(choices, ty)).collect();
    format!("{{{}}}", items.join(", "))
}

fn shape(choices: &mut Choices<'_>) -> (&'static str, &'static str, &'static str) {
    (choices.of(&SPACES), choices.of(&["", "", ".v2", ".v4", ".v8"]), choices.of(&TYPES))
}

/// A load, whose value is copied to where the host can look at it.
fn load(choices: &mut Choices<'_>) -> String {
    let order = choices.of(&["", "", ".volatile", ".relaxed.gpu", ".acquire.sys"]);
    let (space, lanes, ty) = shape(choices);
    let target = registers(choices, ty, lanes);
    let from = address(choices);
    let seen = choices.below(6);
    format!(
        "ld{order}{space}{lanes}.{ty} {target}, [{from}]; st.global.u64 [%d0+{}], %d{};",
        8 * seen,
        14 + seen
    )
}

fn store(choices: &mut Choices<'_>) -> String {
    let order = choices.of(&["", "", ".volatile", ".relaxed.gpu", ".release.sys"]);
    let (space, lanes, ty) = shape(choices);
    let source = registers(choices, ty, lanes);
    format!("st{order}{space}{lanes}.{ty} [{}], {source};", address(choices))
}

/// Two accesses with one base, of which the first is inside. The second may be as far away as memory behind the address
/// space is from the block's shared memory, at which the highest addresses of the space begin.
fn neighbours(choices: &mut Choices<'_>) -> String {
    let base = choices.of(&["%d6", "%d0", "%d7", "%d9"]);
    let far = choices.of(&[
        "0x10000000",
        "0x10000008",
        "0xffffff8",
        "65528",
        "65536",
        "-65528",
        "-65544",
        "0xff00000",
    ]);
    let far = if far.starts_with('-') { far.to_owned() } else { format!("+{far}") };
    match choices.below(2) {
        0 => format!("ld.u64 %d14, [{base}]; ld.u64 %d15, [{base}{far}]; st.global.u64 [%d0+8], %d15;"),
        _ => format!("st.u64 [{base}], %d14; st.u64 [{base}{far}], %d14;"),
    }
}

fn atomic(choices: &mut Choices<'_>) -> String {
    let space = choices.of(&SPACES);
    let operation = choices.of(&["add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas"]);
    let ty = choices.of(&TYPES);
    let mut operands = format!("[{}], {}", address(choices), register(choices, ty));
    if operation == "cas" {
        operands += &format!(", {}", register(choices, ty));
    }
    match choices.below(2) {
        0 => format!("atom{space}.{operation}.{ty} {}, {operands};", register(choices, ty)),
        _ => format!("red{space}.{operation}.{ty} {operands};"),
    }
}

fn argument(choices: &mut Choices<'_>) -> &'static str {
    choices.of(&["slot8", "slot4", "slot4096", "slot256", "slot", "%d1", "%r1", "%f0", "%p0", "a"])
}

fn direct_call(choices: &mut Choices<'_>) -> String {
    let call = choices.of(&[
        "call (slot8), f0, (slot8)",
        "call (slot4), f1, (slot4)",
        "call f2, (slot4096)",
        "call (slot256), f3",
        "call (%d14), f0, (%d1)",
    ]);
    if choices.once_in(3) {
        let function = choices.of(&["f0", "f1", "f2", "f3", "k", "g", "vprintf", "free"]);
        return format!("call ({}), {function}, ({});", argument(choices), argument(choices));
    }
    format!("{call}; ld.param.b64 %d15, [slot8]; st.global.u64 [%d0+48], %d15;")
}

/// A call through a pointer to a function, right or wrong, with arguments of some signature, right or wrong.
fn indirect_call(choices: &mut Choices<'_>) -> String {
    let target = match choices.below(4) {
        0 | 1 => format!("ld.global.u64 %d16, [table+{}];", 8 * choices.below(6)),
        2 => {
            format!("add.u64 %d16, %d13, {};", choices.of(&[16, 0, 1, 8, 32, 48, 1 << 20, -16, -8, i64::MIN]))
        }
        _ => format!("mov.u64 %d16, {};", long(choices)),
    };
    let call = match choices.below(5) {
        0 => "call (slot8), %d16, (slot8)".to_owned(),
        1 => "call (slot4), %d16, (slot4)".to_owned(),
        2 => "call %d16, (slot4096)".to_owned(),
        3 => "call (slot256), %d16".to_owned(),
        _ => format!("call ({}), %d16, ({}, {})", argument(choices), argument(choices), argument(choices)),
    };
    format!("{target} {call}; ld.param.b64 %d17, [slot256+248]; st.global.u64 [%d0+56], %d17;")
}

fn print(choices: &mut Choices<'_>) -> String {
    let format = if choices.below(2) == 0 { "text".to_owned() } else { long(choices) };
    let arguments = long(choices);
    if choices.once_in(4) {
        return format!(
            "st.param.b64 [slot8], {arguments}; call __assertfail, (slot8, slot8, slot4, slot8, slot8);"
        );
    }
    // The arguments in local memory: pointers of the worker, and widths.
    format!(
        "mov.u64 %d16, {format}; st.local.u64 [l], {}; st.local.u64 [l+8], {}; st.local.u64 [l+16], {};
        mov.u64 %d17, {arguments}; call (%r4), vprintf, (%d16, {});",
        long(choices),
        long(choices),
        long(choices),
        choices.of(&["%d7", "%d17"]),
    )
}

fn heap(choices: &mut Choices<'_>) -> String {
    let size = choices.of(&["0", "1", "4096", "-1", "0x7fffffffffffffff", "67108864"]);
    match choices.below(4) {
        0 => format!("mov.u64 %d16, {}; call free, (%d16);", long(choices)),
        1 => format!(
            "mov.u64 %d16, {size}; call (%d17), malloc, (%d16); st.u64 [%d17], %d17; call free, (%d17);"
        ),
        2 => format!(
            "mov.u64 %d16, {size}; call (%d17), malloc, (%d16); call free, (%d17); st.u64 [%d17], %d17;"
        ),
        _ => format!(
            "mov.u64 %d16, {size}; call (%d17), malloc, (%d16); ld.u64 %d18, [%d17+{size}]; call free, (%d17);"
        ),
    }
}

fn barrier(choices: &mut Choices<'_>) -> String {
    let (number, threads) = (word(choices), word(choices));
    match choices.below(6) {
        0 => format!("bar.sync {number};"),
        1 => format!("bar.sync {number}, {threads};"),
        2 => format!("bar.arrive {number}, {threads};"),
        3 => format!("bar.red.popc.u32 %r4, {number}, {threads}, %p0;"),
        4 => format!("barrier.red.and.pred %p2, {number}, %p1;"),
        _ => format!("bar.warp.sync {number};"),
    }
}

fn warp(choices: &mut Choices<'_>) -> String {
    let (a, b, c, mask) = (word(choices), word(choices), word(choices), word(choices));
    match choices.below(9) {
        0..=2 => {
            let mode = choices.of(&["up", "down", "bfly", "idx"]);
            format!("shfl.sync.{mode}.b32 %r4|%p2, {a}, {b}, {c}, {mask};")
        }
        3 => format!("vote.sync.ballot.b32 %r4, %p0, {mask};"),
        4 => format!("match.all.sync.b32 %r4|%p2, {a}, {mask};"),
        5 => format!("match.any.sync.b64 %r4, %d1, {mask};"),
        6 => format!("redux.sync.{}.s32 %r4, {a}, {mask};", choices.of(&["add", "min", "max"])),
        7 => "activemask.b32 %r4;".to_owned(),
        _ => format!("elect.sync %r4|%p2, {mask};"),
    }
}

/// Matrices that a warp loads, multiplies and stores, and bulk copies.
fn matrices(choices: &mut Choices<'_>) -> String {
    let (from, to, stride) = (address(choices), address(choices), word(choices));
    let space = choices.of(&["", ".shared", ".shared::cta", ".shared::cluster", ".global", ".local"]);
    let layout = choices.of(&["row", "col"]);
    let (count, registers) =
        choices.of(&[("x1", "{%r4}"), ("x2", "{%r4, %r5}"), ("x4", "{%r4, %r5, %r6, %r7}")]);
    let transposed = choices.of(&["", ".trans"]);
    let eight = "{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}";
    match choices.below(8) {
        0 => format!("ldmatrix.sync.aligned.m8n8.{count}{transposed}{space}.b16 {registers}, [{from}];"),
        1 => format!("stmatrix.sync.aligned.m8n8.{count}{transposed}{space}.b16 [{to}], {registers};"),
        2 => format!("wmma.load.a.sync.aligned.{layout}.m16n16k16{space}.f16 {eight}, [{from}], {stride};"),
        3 => format!("wmma.load.c.sync.aligned.{layout}.m8n32k16{space}.s32 {eight}, [{from}], {stride};"),
        4 => format!("wmma.store.d.sync.aligned.{layout}.m32n8k16{space}.f32 [{to}], {eight}, {stride};"),
        5 => choices
            .of(&[
                "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r4, %r5}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6, %r7};",
                "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r4, %r5, %r6, %r7}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r0, %r1, %r2, %r3};",
                "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%r4, %r5}, {%r0}, {%r1}, {%r2, %r3};",
                "wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.u8.s32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, {%r0}, {%r1, %r2, %r3, %r4}, {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7};",
                "movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r5;",
            ])
            .to_owned(),
        6 => format!("cp.async.bulk.global.shared::cta.bulk_group [{to}], [{from}], {stride};"),
        _ => format!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [{from}], {stride}, [{}];",
            address(choices)
        ),
    }
}

/// Another block's shared memory: an address in it, and what goes there.
fn cluster(choices: &mut Choices<'_>) -> String {
    let rank =
        choices.of(&["0", "1", "2", "3", "15", "16", "254", "-1", "0x00ffffff", "%cluster_ctarank", "%r1"]);
    let from = match choices.below(3) {
        0 => choices.of(&["%d6", "%d9", "0", "64", "128", "0xfffff8", "0x1000000", "0x3f000"]).to_owned(),
        _ => long(choices),
    };
    let map = match choices.below(3) {
        0 => format!("mapa.u64 %d14, {from}, {rank};"),
        1 => format!("mapa.shared::cluster.u64 %d14, {from}, {rank};"),
        _ => format!(
            "cvt.u32.u64 %r4, {}; mapa.shared::cluster.u32 %r5, %r4, {rank}; cvt.u64.u32 %d14, %r5;",
            long(choices)
        ),
    };
    let offset = choices.of(&[
        "",
        "+8",
        "+-8",
        "+112",
        "+120",
        "+128",
        "+0x3efff8",
        "+0xffff80",
        "+0x1000000",
        "+0x7fffffff",
    ]);
    let to = format!("%d14{offset}").replace("+-", "-");
    let other = address(choices);
    let completes = "mbarrier::complete_tx::bytes";
    let access = match choices.below(18) {
        0 => format!("ld.shared::cluster.u64 %d15, [{to}]; st.global.u64 [%d0+8], %d15;"),
        1 => format!("st.shared::cluster.v2.u64 [{to}], {{%d14, %d1}};"),
        2 => format!("ld.u64 %d15, [{to}]; st.global.u64 [%d0+16], %d15;"),
        3 => format!("st.u64 [{to}], %d14;"),
        4 => format!("atom.shared::cluster.exch.b64 %d15, [{to}], %d1; st.global.u64 [%d0+24], %d15;"),
        5 => format!("atom.shared::cluster.cas.b32 %r5, [{to}], %r4, %r1;"),
        6 => format!("red.shared::cluster.add.u32 [{to}], 1;"),
        7 => format!("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{to}], {};", word(choices)),
        8 => {
            format!("st.async.shared::cluster.{completes}.v4.b32 [{to}], {{%r0, %r1, %r2, %r3}}, [{other}];")
        }
        9 => format!("st.async.shared::cluster.{completes}.u64 [{other}], %d1, [{to}];"),
        10 => {
            format!("red.async.relaxed.cluster.shared::cluster.{completes}.min.s32 [{to}], %r1, [{other}];")
        }
        11 => format!(
            "cp.async.bulk.shared::cluster.shared::cta.{completes} [{to}], [{other}], {}, [{to}];",
            word(choices)
        ),
        12 => format!(
            "cp.async.bulk.shared::cluster.shared::cta.{completes} [{other}], [{to}], {}, [{to}];",
            word(choices)
        ),
        13 => format!(
            "cp.async.bulk.shared::cluster.global.{completes}.multicast::cluster [{to}], [{other}], {}, [{}], %h{};",
            word(choices),
            address(choices),
            choices.below(4),
        ),
        14 => "barrier.cluster.arrive.relaxed; barrier.cluster.wait;".to_owned(),
        15 => choices
            .of(&[
                "barrier.cluster.arrive;",
                "barrier.cluster.wait;",
                "barrier.cluster.arrive.aligned; exit;",
            ])
            .to_owned(),
        16 => format!("getctarank.u64 %r4, {to}; getctarank.shared::cluster.u64 %r5, {to};")
            .replace(&to, "%d14"),
        _ => {
            let space = choices.of(&["shared", "shared::cluster", "shared::cta", "global"]);
            format!(
                "isspacep.{space} %p2, %d14; cvta.{space}.u64 %d15, %d14; cvta.to.{space}.u64 %d16, %d14;
                ld.u64 %d17, [%d15]; st.global.u64 [%d0+32], %d17; ld.shared::cluster.u64 %d17, [%d16]; st.global.u64 [%d0+40], %d17;"
            )
        }
    };
    format!("{map} {access}")
}

/// Numbers on which machine instructions trap, or which make addresses.
fn arithmetic(choices: &mut Choices<'_>) -> String {
    let operation = choices.of(&[
        "add",
        "sub",
        "mul.lo",
        "div",
        "rem",
        "min",
        "max",
        "mul.hi",
        "mul.wide",
        "sad",
        "abs",
        "neg",
        "addc",
        "div.rn",
        "sqrt.rz",
        "fma.rp",
        "mad24.hi",
        "dp4a.s32",
        "sin.approx",
        "rcp.rm",
        "vadd4.s32.s32",
    ]);
    let ty = choices.of(&FLAT_TYPES);
    let value = |choices: &mut Choices<'_>| match choices.below(3) {
        0 => register(choices, ty),
        1 if !ty.starts_with('f') => {
            choices.of(&["0", "-1", "1", "0x80000000", "0x8000000000000000"]).to_owned()
        }
        _ => match ty {
            "f32" => "%f1".to_owned(),
            "f64" => "%e1".to_owned(),
            "u64" | "s64" => long(choices),
            "u16" | "s16" => "%h0".to_owned(),
            _ => choices.of(&["%r1", "%r2"]).to_owned(),
        },
    };
    let count = match operation {
        "abs" | "neg" | "sqrt.rz" | "sin.approx" | "rcp.rm" => 1,
        "sad" | "fma.rp" | "mad24.hi" | "dp4a.s32" | "vadd4.s32.s32" => 3,
        _ => 2,
    };
    let operands: Vec<String> = (0..count).map(|_| value(choices)).collect();
    format!("{operation}.{ty} {}, {};", register(choices, ty), operands.join(", "))
}

fn bits(choices: &mut Choices<'_>) -> String {
    let ty = choices.of(&FLAT_TYPES);
    let target = register(choices, ty);
    let source = register(choices, ty);
    let (a, b) = (word(choices), word(choices));
    match choices.below(9) {
        0 => format!("shl.{ty} {target}, {source}, {a};"),
        1 => format!("shr.{ty} {target}, {source}, {a};"),
        2 => format!("bfe.{ty} {target}, {source}, {a}, {b};"),
        3 => format!("bfi.{ty} {target}, {source}, {source}, {a}, {b};"),
        4 => format!("shf.l.clamp.{ty} {target}, {source}, {source}, {a};"),
        5 => format!("prmt.{ty} {target}, {source}, {source}, {a};"),
        6 => format!("bmsk.clamp.{ty} {target}, {source}, {source};"),
        7 => format!("szext.wrap.{ty} {target}, {source}, {a};"),
        _ => format!(
            "{}.{ty} {target}, {source};",
            choices.of(&["clz", "popc", "brev", "bfind", "not", "cnot"])
        ),
    }
}

fn convert(choices: &mut Choices<'_>) -> String {
    let (to, from) = (choices.of(&TYPES), choices.of(&TYPES));
    let rounding = choices.of(&["", ".rn", ".rzi", ".rni", ".rz", ".sat", ".rzi.sat", ".rmi.ftz"]);
    let source = match from {
        "f32" => choices.of(&["%f0", "%f1"]).to_owned(),
        "f64" => choices.of(&["%e0", "%e1"]).to_owned(),
        other => register(choices, other),
    };
    match choices.below(3) {
        0 => format!(
            "mov.{to} {}, {};",
            register(choices, to),
            choices.of(&["%tid.x", "%clock64", "l", "f0", "g+99999999999"])
        ),
        1 => format!("set.lt.{to}.{from} {}, {source}, {source};", register(choices, to)),
        _ => format!("cvt{rounding}.{to}.{from} {}, {source};", register(choices, to)),
    }
}

/// Addresses turned from one window to another.
fn window(choices: &mut Choices<'_>) -> String {
    let space = choices.of(&["shared", "local", "global", "const", "param", "shared::cluster"]);
    let source = long(choices);
    match choices.below(4) {
        0 => format!("cvta.{space}.u64 %d14, {source};"),
        1 => format!("cvta.to.{space}.u64 %d14, {source};"),
        2 => format!("isspacep.{space} %p2, {source};"),
        _ => format!("sub.u64 %d15, {source}, {}; add.u64 %d14, {}, %d15;", long(choices), long(choices)),
    }
}

/// Instructions that the software GPU does not have, that do nothing, or for which a launch has no object: refused,
/// without effect, or the end of the kernel.
fn unknown(choices: &mut Choices<'_>) -> &'static str {
    choices.of(&[
        "prefetch.global.L1 [%d1];",
        "discard.global.L2 [%d1], 128;",
        "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d1, {%f0, %f1}];",
        "suld.b.1d.b32.trap {%r4}, [%d1, {%r4}];",
        "alloca.u64 %d14, %d1;",
        "stacksave.u64 %d14;",
        "stackrestore.u64 %d1;",
        "mbarrier.init.shared.b64 [%d1], 1;",
        "setmaxnreg.inc.sync.aligned.u32 240;",
        "nanosleep.u32 0xffffffff;",
        "brkpt;",
        "trap;",
        "exit;",
        "applypriority.global.L2::evict_normal [%d1], 128;",
    ])
}
