//! A line on the program's standard error about what was refused.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Mutex;

use crate::status::Status;

/// Logs, once in a process for each function and reason, that a call is refused; gives what the call returns.
pub fn refused(function: &'static str, reason: &'static str) -> Status {
    static LOGGED: Mutex<BTreeSet<(&str, &str)>> = Mutex::new(BTreeSet::new());
    let is_new = LOGGED.lock().is_ok_and(|mut logged| logged.insert((function, reason)));
    if is_new {
        let (library, status) = if function.starts_with("cusolver") {
            ("cuSOLVER", "CUSOLVER_STATUS_NOT_SUPPORTED")
        } else {
            ("cuBLAS", "CUBLAS_STATUS_NOT_SUPPORTED")
        };
        // A program without standard error learns it from the result.
        let _ = writeln!(
            std::io::stderr(),
            "causeway: {function} returns {status}: {reason} in the library that stands in for \
             {library} on software GPUs; run the program on a GPU, or without this function"
        );
    }
    Status::NotSupported
}
