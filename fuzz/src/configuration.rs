//! What must hold for the text of any configuration file: it is understood or refused with a place, and what is
//! understood means the same when it is written down anew.

use core::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use causeway_config::file::Section;
use causeway_config::file::keys::{examine, value_of, variable};
use causeway_config::file::text::{Entry, Value, entries};

/// Reads a text as a configuration file, judges what stands in it, and reads it again as it would be written.
pub fn configuration(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let file = Arc::new(PathBuf::from("/etc/causeway/fuzzed.toml"));
    let (found, errors) = entries(&file, text);
    let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
    for location in
        found.iter().map(|entry| &entry.location).chain(errors.iter().map(|error| &error.location))
    {
        assert!(location.line.is_some_and(|line| (1..=lines).contains(&line)), "{location} of {lines} lines");
    }
    for error in &errors {
        assert!(!error.text.is_empty());
    }
    for entry in &found {
        let wrong = examine(entry);
        if let (None, Some(variable)) = (&wrong, variable(&entry.section, &entry.key)) {
            let value = value_of(variable, entry).expect("what is not wrong has a value");
            assert!(!value.contains('\0'), "{entry:?}: what no variable can have");
        }
    }
    let (again, errors) = entries(&file, &written(&found));
    assert_eq!(errors, [], "{found:?}");
    assert_eq!(meanings(&again), meanings(&found));
}

/// The entries without their places, in an order of their own.
fn meanings(entries: &[Entry]) -> Vec<(String, &str, &[Value], bool)> {
    let mut all: Vec<_> = Vec::new();
    for Entry { section, key, values, is_list, .. } in entries {
        all.push((section.to_string(), key.as_str(), values.as_slice(), *is_list));
    }
    all.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
    all
}

/// A file in which these entries stand, a line each.
fn written(entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let values: Vec<_> = entry.values.iter().map(value).collect();
        let values = values.join(", ");
        let values = if entry.is_list { format!("[{values}]") } else { values };
        let table = match &entry.section {
            Section::Client => "client".to_owned(),
            Section::Serve => "serve".to_owned(),
            Section::Server(name) => format!("servers.{}", quoted(name)),
        };
        let _ = writeln!(text, "{table}.{} = {values}", quoted(&entry.key));
    }
    text
}

fn value(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::Number(number) => number.to_string(),
        Value::Switch(is_on) => is_on.to_string(),
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for letter in text.chars() {
        if letter.is_control() || matches!(letter, '"' | '\\') {
            let _ = write!(out, "\\U{:08x}", u32::from(letter));
        } else {
            out.push(letter);
        }
    }
    out + "\""
}
