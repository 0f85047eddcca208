//! Video instructions in some three thousand forms, against a model and against a GPU.

use crate::common::{Device, Params};

/// Operands that every form is computed for.
const TRIPLES: usize = 256;
/// Forms of one kernel.
const FORMS: usize = 50;

const TYPES: [&str; 2] = ["u32", "s32"];
const PARTS: [&str; 7] = ["", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"];
const COMPARISONS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];

/// Numbers at which something changes, and others: the same in every run.
fn inputs() -> Vec<u32> {
    const EDGES: [u32; 22] = [
        0,
        1,
        0xffff_ffff,
        0x7fff_ffff,
        0x8000_0000,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x8080_8080,
        0x7f7f_7f7f,
        0x00ff_00ff,
        0xff00_ff00,
        0x7fff_8000,
        31,
        32,
        33,
        0x8000_7fff,
        0x0102_0304,
        0xfffe_fdfc,
    ];
    let mut state = 0x2545_f491_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        if state & 1 != 0 { EDGES[(state >> 8) as usize % EDGES.len()] } else { state }
    };
    (0..3 * TRIPLES).map(|_| next()).collect()
}

/// The results of every form on every triple.
fn compute(forms: &[String], inputs: &[u32]) -> Vec<Vec<u32>> {
    let kernels = forms.chunks(FORMS).enumerate().map(|(number, forms)| {
        let body: String = forms
            .iter()
            .enumerate()
            .map(|(at, form)| format!("{form} st.global.u32 [%rd2+{}], %r9;\n", at * 4 * TRIPLES))
            .collect();
        format!(
            ".visible .entry k{number}(.param .u64 p, .param .u64 q)\n{{ .reg .b32 %r<10>; .reg .b64 %rd<4>;\n\
             ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r4, %tid.x;\n\
             mad.wide.u32 %rd1, %r4, 12, %rd1; mad.wide.u32 %rd2, %r4, 4, %rd2;\n\
             ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1+4]; ld.global.u32 %r3, [%rd1+8];\n{body}ret; }}\n"
        )
    });
    let source =
        format!(".version 8.0\n.target sm_75\n.address_size 64\n{}", kernels.collect::<Vec<_>>().concat());
    let device = Device::new(&[&source]);
    let input = device.upload(inputs);
    let mut results = Vec::new();
    for (number, forms) in forms.chunks(FORMS).enumerate() {
        let output = device.zeros::<u32>(forms.len() * TRIPLES);
        let params = Params::default().with(input).with(output);
        device.launch(&format!("k{number}"), 1, TRIPLES as u32, params);
        let found = device.download::<u32>(output, forms.len() * TRIPLES);
        results.extend(found.chunks(TRIPLES).map(<[u32]>::to_vec));
    }
    results
}

/// An instruction as the model reads it.
struct Form<'a> {
    opcode: &'a str,
    types: Vec<bool>,
    modifiers: Vec<&'a str>,
    /// Whether it is negated, and its selector.
    operands: Vec<(bool, Option<&'a str>)>,
}

impl<'a> Form<'a> {
    fn read(text: &'a str) -> Self {
        let (head, operands) = text.trim_end_matches(';').split_once(' ').unwrap();
        let mut parts = head.split('.');
        let opcode = parts.next().unwrap();
        let (types, modifiers): (Vec<&str>, Vec<&str>) = parts.partition(|word| TYPES.contains(word));
        let mut types: Vec<bool> = types.into_iter().map(|word| word == "s32").collect();
        if opcode.starts_with("vset") {
            types.insert(0, false);
        }
        let operand =
            |text: &'a str| (text.starts_with('-'), text.split_once('.').map(|(_, selector)| selector));
        Self { opcode, types, modifiers, operands: operands.split(", ").map(operand).collect() }
    }

    fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// What the manual's pseudocode says.
    fn result(&self, a: u32, b: u32, c: u32) -> u32 {
        match self.opcode.trim_end_matches(['2', '4']) {
            "vmad" => self.product(a, b, c),
            operation if operation != self.opcode => self.lanes(operation, a, b, c),
            operation => self.scalar(operation, a, b, c),
        }
    }

    fn compute(&self, operation: &str, x: i128, y: i128) -> i128 {
        let holds = |comparison: &str| self.has(comparison);
        match operation {
            "vadd" => x + y,
            "vsub" => x - y,
            "vabsdiff" => (x - y).abs(),
            "vmin" => x.min(y),
            "vmax" => x.max(y),
            // Half of the sum, rounded: up where it is not negative.
            "vavrg" => (x + y + i128::from(x + y >= 0)).div_euclid(2),
            "vset" => i128::from(
                x == y && (holds("eq") || holds("le") || holds("ge"))
                    || x < y && (holds("ne") || holds("lt") || holds("le"))
                    || x > y && (holds("ne") || holds("gt") || holds("ge")),
            ),
            "vshl" | "vshr" => {
                let amount = if self.has("clamp") { y.min(32) } else { y.rem_euclid(32) };
                let factor = 1_i128 << amount;
                if operation == "vshl" { x * factor } else { x.div_euclid(factor) }
            }
            _ => panic!("{operation}"),
        }
    }

    fn saturated(&self, value: i128, bits: u32) -> i128 {
        let count = 1_i128 << bits;
        match (self.has("sat"), self.types[0]) {
            (false, _) => value,
            (true, true) => value.min(count / 2 - 1).max(-count / 2),
            (true, false) => value.min(count - 1).max(0),
        }
    }

    fn scalar(&self, operation: &str, a: u32, b: u32, c: u32) -> u32 {
        let x = part(a, self.operands[1].1, self.types[1]);
        let y = part(b, self.operands[2].1, self.types[2]);
        let value = self.compute(operation, x, y);
        let Some(selector) = self.operands[0].1 else {
            let value = self.saturated(value, 32);
            let third = part(c, None, self.types[0]);
            // The intermediate result is as signed as the type of the result, and has more than 32 bits.
            let order = |value: i128| if self.types[0] { value } else { value.rem_euclid(1 << 70) };
            let value = if self.has("add") {
                value + third
            } else if self.has("min") {
                if order(value) < third { value } else { third }
            } else if self.has("max") {
                if order(value) > third { value } else { third }
            } else {
                value
            };
            return value as u32;
        };
        let mut bytes = c.to_le_bytes();
        let index: usize = selector[1..].parse().unwrap();
        if selector.starts_with('b') {
            bytes[index] = self.saturated(value, 8) as u8;
        } else {
            bytes[2 * index..2 * index + 2]
                .copy_from_slice(&(self.saturated(value, 16) as u16).to_le_bytes());
        }
        u32::from_le_bytes(bytes)
    }

    fn product(&self, a: u32, b: u32, c: u32) -> u32 {
        let x = part(a, self.operands[1].1, self.types[1]);
        let y = part(b, self.operands[2].1, self.types[2]);
        let negates_product = self.operands[1].0 ^ self.operands[2].0;
        let negates_addend = self.operands[3].0;
        let signed = self.types[1] || self.types[2] || negates_product || negates_addend;
        let (mut product, mut addend, mut one) = (x * y, c, self.has("po"));
        if negates_product {
            (product, one) = (!product, true);
        } else if negates_addend {
            (addend, one) = (!addend, true);
        }
        let sum = product + part(addend, None, signed) + i128::from(one);
        let sum = sum
            >> if self.has("shr7") {
                7
            } else if self.has("shr15") {
                15
            } else {
                0
            };
        if !self.has("sat") {
            sum as u32
        } else if signed {
            sum.clamp(i128::from(i32::MIN), i128::from(i32::MAX)) as u32
        } else {
            sum.clamp(0, i128::from(u32::MAX)) as u32
        }
    }

    fn lanes(&self, operation: &str, a: u32, b: u32, c: u32) -> u32 {
        let (unit, own, other) =
            if self.opcode.ends_with('2') { ('h', "10", "32") } else { ('b', "3210", "7654") };
        let sources = |index: usize, default: &str| -> Vec<i128> {
            let digits = self.operands[index].1.map_or(default, |selector| &selector[1..]);
            let count = digits.len();
            digits
                .bytes()
                .rev()
                .map(|digit| {
                    let number = usize::from(digit - b'0');
                    let word = if number < count { a } else { b };
                    let selector = format!("{unit}{}", number % count);
                    part(word, Some(&selector), self.types[index])
                })
                .collect()
        };
        let (x, y) = (sources(1, own), sources(2, other));
        let lanes = self.operands[0].1.map_or(own, |selector| &selector[1..]);
        let (mut sum, mut merged) = (i128::from(c), c);
        for lane in lanes.bytes().map(|digit| usize::from(digit - b'0')) {
            let bits = 32 / x.len();
            let value = self.saturated(self.compute(operation, x[lane], y[lane]), bits as u32);
            sum += value;
            let mask = (((1_u64 << bits) - 1) << (bits * lane)) as u32;
            merged = merged & !mask | (value << (bits * lane)) as u32 & mask;
        }
        if self.has("add") { sum as u32 } else { merged }
    }
}

/// A byte, half or all of a word.
fn part(word: u32, selector: Option<&str>, signed: bool) -> i128 {
    let (start, bits) = match selector {
        None => (0, 32),
        Some(selector) => {
            let bits = if selector.starts_with('b') { 8 } else { 16 };
            (selector[1..].parse::<u32>().unwrap() * bits, bits)
        }
    };
    let value = i128::from(word >> start) % (1 << bits);
    if signed && value >> (bits - 1) != 0 { value - (1 << bits) } else { value }
}

/// Every combination of types and modifiers, with selectors that change from form to form.
fn forms() -> Vec<String> {
    let mut forms = Vec::new();
    let mut turn = 0_usize;
    let mut pick = |from: &[&'static str]| {
        turn = turn.wrapping_mul(5).wrapping_add(3) % 7919;
        from[turn / 3 % from.len()]
    };
    let mut scalar = |head: &str, forms: &mut Vec<String>| {
        for end in ["", ".add", ".min", ".max", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"] {
            let (a, b) = (pick(&PARTS), pick(&PARTS));
            forms.push(match end {
                "" => format!("{head} %r9, %r1{a}, %r2{b};"),
                ".add" | ".min" | ".max" => format!("{head}{end} %r9, %r1{a}, %r2{b}, %r3;"),
                _ => format!("{head} %r9{end}, %r1{a}, %r2{b}, %r3;"),
            });
        }
    };
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| (TYPES[a], TYPES[b])) {
        for comparison in COMPARISONS {
            scalar(&format!("vset.{a}.{b}.{comparison}"), &mut forms);
        }
        for (d, sat) in [("u32", ""), ("u32", ".sat"), ("s32", ""), ("s32", ".sat")] {
            for opcode in ["vadd", "vsub", "vabsdiff", "vmin", "vmax"] {
                scalar(&format!("{opcode}.{d}.{a}.{b}{sat}"), &mut forms);
            }
            // Of the amount, the type is always the same.
            let mode = if b == "u32" { ".clamp" } else { ".wrap" };
            for opcode in ["vshl", "vshr"] {
                scalar(&format!("{opcode}.{d}.{a}.u32{sat}{mode}"), &mut forms);
            }
        }
    }
    let halves = ["", ".h10", ".h32", ".h01", ".h23", ".h12", ".h30", ".h00", ".h33", ".h21"];
    let bytes = ["", ".b3210", ".b7654", ".b0123", ".b7531", ".b0000", ".b4637", ".b5072", ".b1166"];
    let half_masks = ["", ".h0", ".h1", ".h10"];
    let byte_masks = [
        "", ".b0", ".b1", ".b10", ".b2", ".b20", ".b21", ".b210", ".b3", ".b30", ".b31", ".b310", ".b32",
        ".b320", ".b321", ".b3210",
    ];
    let mut packed = |opcode: &str, rest: &str, forms: &mut Vec<String>| {
        for turn in 0..4 {
            let (a, b) = (pick(&halves), pick(&halves));
            forms.push(format!("{opcode}2{rest} %r9{}, %r1{a}, %r2{b}, %r3;", half_masks[turn]));
            let (a, b) = (pick(&bytes), pick(&bytes));
            let mask = byte_masks[(forms.len() / 2 * 5 + turn) % 16];
            forms.push(format!("{opcode}4{rest} %r9{mask}, %r1{a}, %r2{b}, %r3;"));
        }
    };
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| (TYPES[a], TYPES[b])) {
        for end in ["", ".add"] {
            for comparison in COMPARISONS {
                packed("vset", &format!(".{a}.{b}.{comparison}{end}"), &mut forms);
            }
        }
        for (d, end) in TYPES.into_iter().flat_map(|d| ["", ".sat", ".add"].map(|end| (d, end))) {
            for opcode in ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"] {
                packed(opcode, &format!(".{d}.{a}.{b}{end}"), &mut forms);
            }
        }
        for (sat, scale) in
            ["", ".sat"].into_iter().flat_map(|sat| ["", ".shr7", ".shr15"].map(|end| (sat, end)))
        {
            for (po, [x, y, z]) in [
                ("", ["", "", ""]),
                ("", ["-", "", ""]),
                ("", ["", "-", ""]),
                ("", ["", "", "-"]),
                ("", ["-", "-", ""]),
                (".po", ["", "", ""]),
            ] {
                let (i, j) = (PARTS[forms.len() % 7], PARTS[forms.len() / 7 % 7]);
                forms.push(format!("vmad.s32.{a}.{b}{po}{sat}{scale} %r9, {x}%r1{i}, {y}%r2{j}, {z}%r3;"));
            }
        }
    }
    forms
}

#[test]
fn every_form_computes_what_the_manual_says() {
    let (forms, inputs) = (forms(), inputs());
    assert!(forms.len() > 2500, "{}", forms.len());
    for (text, results) in forms.iter().zip(compute(&forms, &inputs)) {
        let form = Form::read(text);
        for (triple, found) in inputs.chunks(3).zip(results) {
            let expected = form.result(triple[0], triple[1], triple[2]);
            assert_eq!(found, expected, "{text} of {triple:x?}: {found:#x}, not {expected:#x}");
        }
    }
}

/// Checksums of the results of an H200 (driver 580.159.04, ptxas of CUDA 13.0, 30 November 2026) for the same
/// numbers, by FNV-1a of 64 bits. The GPU has no such instructions: ptxas makes each of several others, which, in some forms of
/// the scalar ones, compute something else than the manual says. Those are left out.
#[test]
fn results_are_those_of_an_h200() {
    let lines: Vec<(&str, u64)> = include_str!("video_h200.txt")
        .lines()
        .map(|line| {
            let (checksum, form) = line.split_once(' ').unwrap();
            (form, u64::from_str_radix(checksum, 16).unwrap())
        })
        .collect();
    let forms: Vec<String> = lines.iter().map(|(form, _)| (*form).to_owned()).collect();
    for ((form, expected), results) in lines.iter().zip(compute(&forms, &inputs())) {
        let mut checksum = 0xcbf2_9ce4_8422_2325_u64;
        for byte in results.iter().flat_map(|result| result.to_le_bytes()) {
            checksum = (checksum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        assert_eq!(checksum, *expected, "{form}");
    }
}

/// As ptxas refuses them.
#[test]
fn forms_that_do_not_exist_are_refused() {
    for form in [
        "vmad.s32.u32.u32 %r9, -%r1, %r2, -%r3;",
        "vmad.s32.u32.u32.po %r9, -%r1, %r2, %r3;",
        "vmad.s32.u32.u32.po %r9, %r1, %r2, -%r3;",
        "vmad.s32.u32.u32 %r9, %r1.b0, %r2, %r3.b0;",
        "vadd2.s32.s32.s32.sat.add %r9, %r1, %r2, %r3;",
        "vadd4.s32.s32.s32 %r9.b13, %r1, %r2, %r3;",
        "vadd4.s32.s32.s32 %r9, %r1.b321, %r2, %r3;",
        "vadd2.s32.s32.s32 %r9.b1, %r1, %r2, %r3;",
        "vadd2.s32.s32.s32 %r9.h2, %r1, %r2, %r3;",
        "vadd.s32.s32.s32.add %r9.b0, %r1, %r2, %r3;",
        "vadd.s32.s32.s32 %r9.b0, %r1, %r2;",
        "vadd.s32.s32.s32.add %r9, %r1, %r2;",
        "vadd.s32.s32.s32 %r9, %r1, -%r2;",
        "vadd.b32.b32.b32 %r9, %r1, %r2;",
        "vadd.s32.s32.s32 %r9, %r1.h2, %r2;",
        "vadd.s32.s32.s32 %r9, %r1.b4, %r2;",
        "vadd.s32.s32.s32 %r9, %r1.b10, %r2;",
        "vshl.s32.s32.s32.wrap %r9, %r1, %r2;",
        "vshl.s32.s32.u32 %r9, %r1, %r2;",
        "add.u32 %r9, %r1.b0, %r2;",
        "add.u32 %r9.b0, %r1, %r2;",
        "add.u32 %r9, %r1, -%r2;",
        "setmaxnreg.dec.sync.aligned.u32 25;",
        "setmaxnreg.dec.sync.aligned.u32 264;",
        "setmaxnreg.dec.sync.aligned.u32 16;",
        "setmaxnreg.dec.sync.aligned.u32 %r1;",
        "setmaxnreg.dec.sync.u32 24;",
        "st.bulk.shared::cta [%r1], 12, 0;",
        "st.bulk.shared::cta [%r1], 16, 1;",
    ] {
        let error = crate::common::refusal(&crate::common::kernel(form));
        assert!(error.contains("is not valid"), "{form}: {error}");
    }
    for form in ["vset.s32.u32.lt.sat %r9, %r1, %r2;", "st.bulk.shared::cluster [%r1], 16, 0;"] {
        let error = crate::common::refusal(&crate::common::kernel(form));
        assert!(error.contains("is not supported"), "{form}: {error}");
    }
}

#[test]
fn immediate_operands_and_sinks_are_words() {
    crate::evaluate::check(&[
        ("vadd.s32.s32.s32 %r9, %r1.b1, -5;", "%r9", [0x8000, 0, 0], 0xffff_ff7b),
        ("vmad.s32.s32.s32 %r9, %r1, -3, -4;", "%r9", [7, 0, 0], 0xffff_ffe7),
        ("mov.u32 %r9, 1; vadd.u32.u32.u32 _, %r1, %r2;", "%r9", [7, 0, 0], 1),
        // Registers that hold floating-point numbers have bytes, too.
        (
            "add.f32 %f9, %f1, %f1; mov.b32 %r4, %f9; vadd.u32.u32.u32 %r9, %r4.b3, 0;",
            "%r9",
            [0x3f80_0000, 0, 0],
            0x40,
        ),
        (
            "setmaxnreg.inc.sync.aligned.u32 240; mov.u32 %r9, %r1; setmaxnreg.dec.sync.aligned.u32 24;",
            "%r9",
            [9, 0, 0],
            9,
        ),
    ]);
}

/// Results that are merged into a register by lanes other than those that a barrier interrupts.
#[test]
fn selected_registers_survive_a_barrier() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n\
        .reg .b32 %r<9>; .reg .b64 %rd<3>;\nld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 0x01010101;\n\
        bar.sync 0; vadd.u32.u32.u32 %r3.b1, %r2.b0, %r2.b3, %r2; bar.sync 0;\n\
        vmad.s32.s32.s32 %r3, -%r3, %r2.b0, %r1; mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.u32 [%rd2], %r3; ret; }\n";
    let device = Device::new(&[source]);
    let output = device.zeros::<u32>(64);
    device.launch("k", 1, 64, Params::default().with(output));
    let expected: Vec<u32> = (0..64_u32)
        .map(|thread| {
            let mut bytes = [thread as u8; 4];
            bytes[1] = 2 * thread as u8;
            thread.wrapping_sub(u32::from_le_bytes(bytes).wrapping_mul(thread))
        })
        .collect();
    assert_eq!(device.download::<u32>(output, 64), expected);
}

/// `st.bulk` with sizes of 32 and 64 bits, in both address spaces, and outside of the block's memory.
#[test]
fn bulk_stores_clear_shared_memory() {
    let kernel = |store: &str| {
        format!(
            ".version 9.0\n.target sm_100\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 size)\n{{\n\
             .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p;\n.shared .align 16 .b8 s[128];\n\
             ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [size]; cvt.u32.u64 %r2, %rd2; mov.u32 %r1, %tid.x;\n\
             mov.u32 %r3, s; cvt.u64.u32 %rd3, %r3; cvta.shared.u64 %rd4, %rd3; shl.b32 %r4, %r1, 2; add.u32 %r5, %r3, %r4;\n\
             st.shared.u32 [%r5], -1; bar.sync 0; setp.ne.u32 %p, %r1, 3; @%p bra done;\n{store}\ndone: bar.sync 0;\n\
             ld.shared.u32 %r6, [%r5]; mad.wide.u32 %rd5, %r1, 4, %rd1; st.global.u32 [%rd5], %r6; ret; }}\n"
        )
    };
    let cleared = |store: &str, size: u64| {
        let device = Device::new(&[&kernel(store)]);
        let output = device.zeros::<u32>(32);
        let params = Params::default().with(output).with(size);
        let ended = device.try_launch("k", [1, 1, 1], [32, 1, 1], 0, &params);
        ended.map(|()| device.download::<u32>(output, 32))
    };
    let expected = |from: usize, to: usize| -> Vec<u32> {
        (0..32).map(|word| if (from..to).contains(&word) { 0 } else { u32::MAX }).collect()
    };
    assert_eq!(cleared("st.bulk.weak.shared::cta [%r3], %rd2, 0;", 40), Ok(expected(0, 10)));
    assert_eq!(cleared("st.bulk.shared::cta [%r3+16], %r2, 0;", 8), Ok(expected(4, 6)));
    assert_eq!(cleared("st.bulk [%rd4+64], 64, 0;", 0), Ok(expected(16, 32)));
    assert_eq!(cleared("st.bulk.weak [%rd4], %rd2, 0;", 0), Ok(expected(0, 0)));
    for (store, size) in [
        ("st.bulk.weak.shared::cta [%r3], %rd2, 0;", 136),
        ("st.bulk.weak.shared::cta [%r3+4], %rd2, 0;", 8),
        ("st.bulk.weak.shared::cta [%r3], %rd2, 0;", u64::MAX - 7),
    ] {
        let ended = cleared(store, size);
        assert!(ended.is_err(), "{store} of {size}: {ended:?}");
    }
}
