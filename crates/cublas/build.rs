//! Functions that are refused, from their list; and a library that stays loaded, since programs keep what
//! they found in it.

use std::fmt::Write as _;
use std::path::Path;

/// The lists, with what exports the functions of each.
const LISTS: [(&str, &str); 4] = [
    ("list/refused.txt", "refused"),
    ("list/refused_solver.txt", "refused_solver"),
    ("list/refused_random.txt", "refused_random"),
    ("list/refused_sparse.txt", "refused_sparse"),
];

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcublas.so");
    println!("cargo:rerun-if-changed=build.rs");
    let mut source = String::new();
    for (path, exporter) in LISTS {
        println!("cargo:rerun-if-changed={path}");
        let list = std::fs::read_to_string(path).expect("the lists of refused functions are in this folder");
        writeln!(source, "{exporter}! {{").expect("a string takes what is written to it");
        for name in list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            writeln!(source, "    {name}").expect("a string takes what is written to it");
        }
        source.push_str("}\n");
    }
    let folder = std::env::var_os("OUT_DIR").expect("cargo names the folder");
    std::fs::write(Path::new(&folder).join("refused.rs"), source).expect("the folder can be written to");
}
