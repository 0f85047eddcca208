//! Commit and date of the sources, for `causeway --version`.
//!
//! They come from git, or from `CAUSEWAY_COMMIT` ("1a2b3c4d 2026-11-28") where a package is built of an archive of the
//! sources. Both are those of the commit and not of the build, so that builds of one commit are the same.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=CAUSEWAY_COMMIT");
    let given = std::env::var("CAUSEWAY_COMMIT").ok().filter(|commit| !commit.trim().is_empty());
    let commit = given.or_else(commit_of_tree).unwrap_or_default();
    println!("cargo::rustc-env=CAUSEWAY_COMMIT={}", commit.trim());
}

/// What git says of the tree that this file is in; nothing outside of one.
fn commit_of_tree() -> Option<String> {
    // A commit moves the branch, whose file says so; another branch changes HEAD.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["log", "-1", "--format=%h %cs", "--abbrev=8"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
