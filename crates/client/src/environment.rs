//! Environment variables and configuration files of this library. Their meanings are `causeway-config`'s.

use causeway_config::read::PROCESS;
use causeway_config::{Component, Variable, check, table};

/// The value of a variable as it is, be it empty.
pub fn read(variable: &Variable) -> Option<String> {
    PROCESS.raw(variable).map(|value| value.to_string_lossy().into_owned())
}

/// Whether a variable of NVIDIA's is set to something other than `0` or nothing.
pub fn is_on(variable: &Variable) -> bool {
    PROCESS.text(variable).is_some_and(|value| value != "0")
}

/// The variables that the worker gets, with their values.
pub fn for_worker() -> Vec<(String, String)> {
    table::for_worker().filter_map(|variable| Some((variable.name.to_owned(), read(variable)?))).collect()
}

/// Checks everything that this library acts on, and what its workers get: nothing that makes no sense is
/// passed over. What it says is a sentence with the variable's name, or with file, line and key.
pub fn must_be_usable() -> Result<(), String> {
    check(PROCESS, &[Component::Client, Component::Worker]).map_err(|error| error.to_string())
}
