//! Text that is not what it claims to be: every one must be refused or accepted, never panic or run away.

mod common;

use causeway_ptx::{CompileOptions, Program};
use proptest::prelude::*;

fn compile(source: &str) -> bool {
    Program::compile(&[source], &CompileOptions::default()).is_ok()
}

/// Small sources with all parts of the language, to start mutations from.
const SEEDS: [&str; 3] = [
    include_str!("ptx/basics.75.ptx"),
    include_str!("ptx/fast.100.ptx"),
    include_str!("ptx/part_two.75.ptx"),
];

#[test]
fn deep_nesting_and_great_numbers_are_refused() {
    let head = ".version 8.0\n.target sm_75\n.address_size 64\n";
    let body = |text: &str| format!("{head}.visible .entry k() {{ {text} }}");
    for source in [
        String::new(),
        head.to_owned(),
        body(&"{".repeat(100_000)),
        format!("{head}.global .b8 x[{}];", u64::MAX),
        format!("{head}.global .b8 x[1099511627776][1099511627776];"),
        format!("{head}.global .align 3 .b8 x[4];"),
        format!("{head}.global .u32 x = {};", "{".repeat(100_000)),
        format!("{head}.global .u32 x[2] = {{1, 2, 3}};"),
        body(".reg .b32 %r<99999999999999>; mov.u32 %r99999999999998, 1;"),
        body(".shared .b8 s[1000000000]; ret;"),
        body(".local .b8 l[100000000000]; ret;"),
        body("mov.u32 %r1, 1;"),
        body("@%p bra L;"),
        body("ld.param.u32 %r, [k];"),
        body(".reg .b32 %r; mov.u32 %r, {{{{;"),
        body("call (%r, %r), (%r);"),
        body(".param .b8 p[10000000000]; ret;"),
        body("brx.idx 0, none;"),
        body(".reg .b32 a; brx.idx a, t; t: .branchtargets;"),
        body(".reg .b64 a; ld.u32 a, [a+99999999999999999999];"),
        format!("{head}.visible .entry k(.param .b8 p[40000]) {{ ret; }}"),
        format!("{head}.func f() {{ call f; ret; }} .visible .entry k() {{ call f; ret; }}"),
        format!("{head}.alias a, b;"),
    ] {
        compile(&source);
    }
    assert!(!compile(""));
    assert!(compile(head));
}

#[test]
fn truncated_sources_are_refused() {
    for seed in SEEDS {
        assert!(seed.is_ascii());
        for end in (0..seed.len()).step_by(7) {
            compile(&seed[..end]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_handled(text in ".{0,400}") {
        compile(&text);
        compile(&format!(".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k() {{ .reg .b32 %r<9>; {text} }}"));
    }

    #[test]
    fn mutated_programs_are_handled(
        seed in 0..SEEDS.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<prop::sample::Index>(), 1..30_usize), 1..6),
    ) {
        let mut bytes = SEEDS[seed].as_bytes().to_vec();
        for (at, kind, from, length) in edits {
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            match kind {
                // Delete, duplicate from elsewhere, replace a character, swap two tokens' worth of text.
                0 => { bytes.drain(at..end); }
                1 => {
                    let from = from.index(bytes.len());
                    let piece = bytes[from..(from + length).min(bytes.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
                2 => bytes[at] = b"{}()[];,.%@!|+-<>0123456789abcrpf_$: \n"[from.index(38)],
                _ => {
                    let from = from.index(bytes.len());
                    let piece = bytes[from..(from + length).min(bytes.len())].to_vec();
                    bytes.splice(at..end, piece);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        compile(&String::from_utf8_lossy(&bytes));
    }
}
