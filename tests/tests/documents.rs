//! Documents: commands that README and book show, and outputs that they quote.

use causeway_tests::built::{causeway, cuda_program, source_tree};
use causeway_tests::process::run;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// Runs a tool of the tree, which prints what is wrong. The tools keep this environment from the programs
/// they start.
fn tool(arguments: &[&str]) {
    let mut command = Command::new("python3");
    run(command.args(arguments).arg(causeway()).current_dir(source_tree()), LIMIT).must_succeed();
}

#[test]
fn commands_of_readme_and_book_do_what_they_say() {
    // What the documents call `./program`.
    cuda_program("vector_add");
    tool(&["tools/doc_commands"]);
}

#[test]
fn the_page_about_the_command_line_is_what_the_program_prints() {
    tool(&["tools/cli_reference", "--check"]);
}
