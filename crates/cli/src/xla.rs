//! Settings of XLA, the compiler of JAX and TensorFlow, where all servers are software GPUs: where `ptxas` is,
//! and not to measure kernels.

use std::env::var_os;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use crate::ptxas;

/// The variable by which JAX finds the toolkit whose `ptxas` XLA starts.
const TOOLKIT: &str = "CUDA_ROOT";

/// The variable with XLA's options. One that it does not know ends the program, so only old ones are set.
const FLAGS: &str = "XLA_FLAGS";

/// Options, unless the program's own have them. XLA compiles and measures many forms of a product to choose
/// one, which takes long here and finds nothing; and cuBLAS' stand-in is faster than Triton's kernels.
const OPTIONS: [&str; 2] = ["--xla_gpu_autotune_level=0", "--xla_gpu_enable_triton_gemm=false"];

/// Sets both for a program that uses software GPUs alone, where the user has set nothing else; one that uses
/// others does not inherit them.
pub fn hand_over(command: &mut Command, is_software: bool) {
    let toolkit = var_os(TOOLKIT).filter(|path| !path.is_empty());
    match toolkit {
        // A program that makes no machine code needs none.
        None if is_software => drop(ptxas::toolkit().map(|folder| command.env(TOOLKIT, folder))),
        Some(path) if !is_software && ptxas::toolkit_path().is_ok_and(|ours| ours == path) => {
            command.env_remove(TOOLKIT);
        }
        _ => {}
    }
    let flags = var_os(FLAGS).unwrap_or_default();
    let changed = if is_software { with_options(&flags) } else { without_options(&flags) };
    if changed.is_empty() {
        command.env_remove(FLAGS);
    } else if changed != flags {
        command.env(FLAGS, changed);
    }
}

/// The options of a program, and those of ours that it does not set.
fn with_options(flags: &OsStr) -> OsString {
    let is_set = |option: &&str| {
        let name = option.split('=').next().unwrap_or(option).trim_start_matches('-').as_bytes();
        flags.as_bytes().windows(name.len()).any(|part| part == name)
    };
    // A path is the file with the options.
    let names_file = !flags.is_empty() && !flags.as_bytes().trim_ascii_start().starts_with(b"-");
    let mut all = flags.to_owned();
    for option in OPTIONS.iter().filter(|option| !names_file && !is_set(option)) {
        if !all.is_empty() {
            all.push(" ");
        }
        all.push(option);
    }
    all
}

/// The options of a program that was started by one to whose own ours were added.
fn without_options(flags: &OsStr) -> OsString {
    let mut rest = flags.as_bytes();
    for option in OPTIONS.iter().rev() {
        let shorter = rest.strip_suffix(option.as_bytes());
        rest = shorter.map_or(rest, |shorter| shorter.strip_suffix(b" ").unwrap_or(shorter));
    }
    OsStr::from_bytes(rest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_added_to_those_of_the_program_and_taken_away_again() {
        for (own, all) in [
            ("", "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"),
            ("--a=b", "--a=b --xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"),
            ("--xla_gpu_autotune_level=4", "--xla_gpu_autotune_level=4 --xla_gpu_enable_triton_gemm=false"),
            ("/a/file", "/a/file"),
        ] {
            assert_eq!(with_options(OsStr::new(own)), all);
            assert_eq!(with_options(OsStr::new(all)), all);
            assert_eq!(without_options(OsStr::new(all)), own);
        }
    }
}
