//! `causeway check`: what the software GPU lacks for a program, for any file.

use causeway_tests::built::{causeway, cuda_program, source_tree};
use causeway_tests::hostile::Random;
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::forget_environment;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(100);

fn check(arguments: &[&Path]) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    run(command.arg("check").args(arguments), LIMIT)
}

/// The report of one file as JSON; the exit code must say the same.
#[track_caller]
fn report(path: &Path) -> Value {
    let outcome = check(&[path, Path::new("--json")]);
    let report: Value =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"));
    let is_good = report["is_good"].as_bool().expect("it says whether all is good");
    assert_eq!(outcome.code(), Some(i32::from(!is_good)), "{outcome}");
    let files = report["files"].as_array().expect("there is a list");
    assert_eq!(files.len(), 1, "{report:#}");
    files[0].clone()
}

fn fixture(name: &str) -> PathBuf {
    source_tree().join("crates/gpu-software/tests/fixtures").join(name)
}

#[test]
fn programs_with_ptx_are_good_in_each_of_their_forms() {
    for program in ["vector_add", "vector_add.shared", "cooperative_groups", "moe_dispatch"] {
        let report = report(&cuda_program(program));
        assert!(report["is_good"] == true && report["good_kernels"].as_u64() > Some(0), "{report:#}");
        assert_eq!(report["machine_code_alone"]["modules"], 0, "{report:#}");
    }
    let words = check(&[&cuda_program("vector_add")]).must_succeed();
    assert!(
        words.stdout.contains("PTX for 7.5") && words.stdout.contains("has everything that they need"),
        "{words}"
    );
    // The objects of a program that the device linker has joined are one module, and refer to each other.
    let linked = report(&cuda_program("rdc"));
    assert!(linked["is_good"] == true && linked["modules"] == 1, "{linked:#}");
}

#[test]
fn machine_code_alone_is_named_with_its_kernels() {
    let path = cuda_program("machine_code_only");
    let report = report(&path);
    assert_eq!(report["machine_code"], serde_json::json!(["7.5"]), "{report:#}");
    assert_eq!(report["machine_code_alone"]["kernels"], serde_json::json!(["_Z3setPi"]), "{report:#}");
    let words = check(&[&path]);
    for text in ["machine code for 7.5", "_Z3setPi", "-gencode arch=compute_75,code=compute_75"] {
        assert!(words.stdout.contains(text) && words.code() == Some(1), "{text}: {words}");
    }
}

#[test]
fn refused_instructions_are_named_with_kernel_and_line() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("kernels.ptx");
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry one()\n{\nret;\n}\n.visible .entry two()\n{\ntcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;\nret;\n}\n";
    fs::write(&path, text).unwrap();
    let report = report(&path);
    let [lacking] = &report["lacking"].as_array().unwrap()[..] else { panic!("{report:#}") };
    assert!(lacking["kernel"] == "two" && lacking["line"] == 10, "{report:#}");
    assert!(
        lacking["instruction"].as_str().is_some_and(|text| text.starts_with("tcgen05.mma")),
        "{report:#}"
    );
    assert_eq!(report["good_kernels"], 1);
}

#[test]
fn calls_and_libraries_that_are_not_to_be_had_are_named() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let compile = |source: &str, out: &str, more: &[&str]| {
        let file = folder.path().join(format!("{out}.c"));
        fs::write(&file, source).unwrap();
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-o"]).arg(folder.path().join(out)).arg(file).args(more);
        run(&mut command, LIMIT).must_succeed();
        folder.path().join(out)
    };
    let image = fs::read(fixture("cubin_only.fatbin")).unwrap();
    let bytes = image.iter().map(|byte| format!("{byte},")).collect::<String>();
    let code = format!("__attribute__((section(\".nv_fatbin\"), aligned(8))) char code[] = {{{bytes}}};");
    compile(&code, "libcufft.so.12", &["-Wl,-soname,libcufft.so.12"]);
    let source = "int cuMemBatchDecompressAsync(void); int cuInit(int); int f(void) { return cuInit(0) + cuMemBatchDecompressAsync(); }";
    let library = folder.path().join("libcufft.so.12");
    let library = library.to_str().expect("the path is text");
    let program = compile(source, "library.so", &["-Wl,--no-as-needed", library, "-Wl,-rpath,$ORIGIN"]);
    let found = report(&program);
    let lacking = found["lacking"].as_array().unwrap();
    assert_eq!(lacking.len(), 2, "{found:#}");
    assert_eq!(lacking[0]["function"], "cuMemBatchDecompressAsync", "{found:#}");
    assert!(lacking[1]["library"] == "libcufft.so.12", "{found:#}");
    assert!(
        lacking[1]["reason"].as_str().is_some_and(|text| text.contains("only machine code")),
        "{found:#}"
    );
    // A folder has each library once, those without GPU code or such calls are left out.
    let other = compile("int g;", "other.so", &[]);
    let outcome = check(&[&other]);
    assert!(outcome.code() == Some(0) && outcome.stdout.contains("0 files of 1 with GPU code"), "{outcome}");
    let outcome = check(&[folder.path(), Path::new("--json")]);
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let files = report["files"].as_array().unwrap();
    assert!(outcome.code() == Some(1) && files.len() == 2 && report["examined"] == 3, "{outcome}");
    fs::remove_file(library).unwrap();
    let outcome = check(&[&program]);
    assert!(
        outcome.code() == Some(1) && outcome.stdout.contains("libcufft.so.12 was not found"),
        "{outcome}"
    );
}

#[test]
fn what_cannot_be_read_is_said_in_a_sentence() {
    let missing = check(&[Path::new("/no/such/file")]);
    assert!(missing.code() == Some(2) && missing.stderr.contains("cannot check /no/such/file"), "{missing}");
    for other in [Path::new("/dev/null"), &source_tree().join("README.md")] {
        let outcome = check(&[other]);
        assert!(outcome.code() == Some(2) && outcome.stderr.contains("is no program"), "{outcome}");
        assert!(outcome.stdout.is_empty(), "{outcome}");
    }
}

/// A terminal is not to act on what a file says.
#[test]
fn names_out_of_files_are_printed_as_text() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("kernels\x1b[31m.ptx");
    fs::write(&path, ".version 8.0\n.target sm_75\n\x1b[2J\n").unwrap();
    let outcome = check(&[&path]);
    assert!(outcome.code() == Some(1) && outcome.stdout.contains("\\u001b[31m"), "{outcome}");
    assert!(!outcome.stdout.contains('\x1b'), "{outcome}");
}

#[test]
fn damaged_files_are_errors_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let whole = fs::read(cuda_program("rdc")).unwrap();
    // Random bytes where the file speaks of itself: headers, sections' headers, fat binaries and their wrappers.
    let number = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    let fatbin = position(&whole, &0xba55_ed50_u32.to_le_bytes());
    let wrapper = position(&whole, &0x4662_43b1_u32.to_le_bytes());
    let mut random = Random::new(54);
    for round in 0..48 {
        let mut file = whole.clone();
        let (start, length) =
            [(0, 64), (number(40), whole.len() - number(40)), (fatbin, 96), (wrapper, 72)][round % 4];
        for _ in 0..=random.below(8) {
            file[start + random.below(length)] = random.below(256) as u8;
        }
        if round % 8 == 7 {
            file.truncate(random.below(whole.len()));
        }
        let path = folder.path().join("damaged");
        fs::write(&path, &file).unwrap();
        let outcome = check(&[&path]);
        assert!(
            matches!(outcome.code(), Some(0..=2)) && !outcome.stderr.contains("panicked"),
            "{round}: {outcome}"
        );
        if outcome.code() == Some(2) {
            assert_eq!(outcome.stderr.lines().count(), 1, "{round}: {outcome}");
        }
    }
}

fn position(bytes: &[u8], magic: &[u8]) -> usize {
    bytes.windows(magic.len()).position(|window| window == magic).expect("the program has one")
}
