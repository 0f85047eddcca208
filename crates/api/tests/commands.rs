//! Numbers of commands never change: what a release knew is at the front of what this build knows.

use causeway_api::calls::{COMMANDS, Opcode};
use std::path::Path;

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn every_command_has_the_number_of_its_line() {
    let table = lines(&Path::new(env!("CARGO_MANIFEST_DIR")).join("list/commands.txt"));
    assert_eq!(table.len(), Opcode::ALL.len());
    assert_eq!(usize::from(COMMANDS.known().count), table.len());
    for (number, (line, opcode)) in table.iter().zip(Opcode::ALL).enumerate() {
        let kind = if opcode.is_posted() { "posted" } else { "called" };
        assert!(line.starts_with(&format!("{kind} {}(", opcode.name())), "{number}: {line}");
        assert_eq!(*opcode as usize, number);
    }
}

#[test]
fn what_has_been_released_keeps_its_number() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let now = lines(&root.join("crates/api/list/commands.txt"));
    let released = lines(&root.join("tests/corpus/protocol_5/commands.txt"));
    assert!(released.len() > 200 && now.len() >= released.len());
    for (number, line) in released.iter().enumerate() {
        assert_eq!(now[number], *line, "command {number} is not what releases know");
    }
}
