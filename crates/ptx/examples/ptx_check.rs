//! Says whether the software GPU can run PTX files: `cargo run -p causeway-ptx --example ptx_check --
//! FILE...` (all files given are linked into one program).

use std::process::ExitCode;

use causeway_ptx::{CompileOptions, Program};

fn main() -> ExitCode {
    let mut sources = Vec::new();
    for path in std::env::args().skip(1) {
        match std::fs::read_to_string(&path) {
            Ok(source) => sources.push(source),
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    match Program::compile(&sources, &CompileOptions::default()) {
        Ok(program) => {
            for kernel in program.kernels() {
                println!(
                    "{}: {} bytes of parameters, {} of shared and {} of local memory",
                    kernel.name, kernel.parameter_bytes, kernel.shared_bytes, kernel.local_bytes
                );
                if let Some(error) = &kernel.unsupported {
                    println!("{}: {error}", kernel.name);
                }
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
