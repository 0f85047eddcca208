//! Python wheel: programs use a configured server once it is installed, and nothing else.

use causeway_tests::built::{causeway, cuda_program, source_tree};
use causeway_tests::process::run;
use std::process::Command;
use std::time::Duration;

/// Making a virtual environment takes its time, and so do kernels that CuPy compiles.
const LIMIT: Duration = Duration::from_secs(1500);

/// Of what is built here, which needs this machine's glibc. `make wheel-test` does the same with the wheel
/// that is handed out.
#[test]
fn the_wheel_works_in_a_new_virtual_environment() {
    cuda_program("vector_add");
    let folder = tempfile::tempdir().unwrap();
    let built = causeway().parent().expect("the program is in a folder");
    let (tree, out) = (folder.path().join("tree"), folder.path().join("out"));
    let tool = |command: &mut Command| run(command.current_dir(source_tree()), LIMIT).must_succeed();
    tool(Command::new("python3").arg("tools/package").arg("stage").args([built, &tree]));
    let tag = "py3-none-linux_x86_64";
    tool(Command::new("python3").arg("tools/package").arg("wheel").args([&tree, &out]).arg(tag));
    let wheel = std::fs::read_dir(&out).unwrap().next().expect("a wheel was made").unwrap().path();
    tool(Command::new("tests/wheel/run").arg(wheel));
}
