//! The book's page about variables, compared with the table.
//!
//! `CAUSEWAY_WRITE_TABLES=1 cargo test -p causeway-config --test document` writes it anew.

use std::path::Path;

use causeway_config::document::{Part, markdown};

#[test]
fn the_books_tables_are_those_of_the_crate() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/environment.md");
    let text = std::fs::read_to_string(&path).expect("the page is there");
    let mut anew = text.clone();
    for (name, part) in [("variables", Part::Default), ("verbs", Part::Verbs)] {
        let (begin, end) = (format!("<!-- table: {name} -->\n\n"), "\n<!-- end of table -->");
        let start =
            anew.find(&begin).unwrap_or_else(|| panic!("no place for the table {name}")) + begin.len();
        let length = anew[start..].find(end).unwrap_or_else(|| panic!("the table {name} has no end"));
        anew.replace_range(start..start + length, &markdown(part));
    }
    if std::env::var_os("CAUSEWAY_WRITE_TABLES").is_some() {
        std::fs::write(&path, &anew).expect("the page can be written");
    } else {
        assert!(text == anew, "the page is not the table's: write it anew with CAUSEWAY_WRITE_TABLES=1");
    }
}
