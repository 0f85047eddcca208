//! Starting CUDA programs on a server. They keep nothing in folders of the user.

use crate::built;
use crate::server::forget_environment;
use std::path::Path;
use std::process::Command;

/// A program as `causeway run` starts it; without a server it gets a private one with the software GPU.
pub fn through_run(server: Option<&str>, program: &Path) -> Command {
    run_with(&["--on", server.unwrap_or("software")], program)
}

/// A program as `causeway run` starts it on the server that configuration files name.
pub fn through_run_as_configured(program: &Path) -> Command {
    run_with(&[], program)
}

fn run_with(options: &[&str], program: &Path) -> Command {
    let mut command = Command::new(built::causeway());
    forget_environment(&mut command);
    command
        .arg("run")
        .args(options)
        .arg("--")
        .arg(program)
        .env("LD_LIBRARY_PATH", built::programs_folder().join("lib"));
    command.env("CAUSEWAY_CACHE_DIR", "");
    command
}

/// A program started by itself: the client library and the server come from the environment alone.
pub fn by_itself(server: &str, program: &Path) -> Command {
    let mut command = Command::new(program);
    forget_environment(&mut command);
    let folders = [built::client_library_folder().to_owned(), built::programs_folder().join("lib")];
    let search_path = std::env::join_paths(folders).expect("no folder of ours has a colon in its name");
    command.env("LD_LIBRARY_PATH", search_path).env("CAUSEWAY_ON", server).env("CAUSEWAY_CACHE_DIR", "");
    command
}
