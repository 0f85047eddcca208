//! A line on the program's standard error about what was refused.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Mutex;

use crate::status::{Done, Status};

/// How names begin in other libraries than cuBLAS, with the library and the status of what is refused.
const LIBRARIES: [(&str, &str, &str); 3] = [
    ("cusolver", "cuSOLVER", "CUSOLVER_STATUS_NOT_SUPPORTED"),
    ("curand", "cuRAND", "CURAND_STATUS_TYPE_ERROR"),
    ("cusparse", "cuSPARSE", "CUSPARSE_STATUS_NOT_SUPPORTED"),
];

/// A function's result; what is refused is logged by its name.
pub fn named(function: &'static str, done: Done) -> Done {
    if done == Err(Status::NotSupported) {
        let _ = refused(function, "these sizes, types or modes are not implemented");
    }
    done
}

/// Logs, once in a process for each function and reason, that a call is refused; gives what the call returns.
pub fn refused(function: &'static str, reason: &'static str) -> Status {
    static LOGGED: Mutex<BTreeSet<(&str, &str)>> = Mutex::new(BTreeSet::new());
    let is_new = LOGGED.lock().is_ok_and(|mut logged| logged.insert((function, reason)));
    if is_new {
        let (_, library, status) = LIBRARIES
            .into_iter()
            .find(|(prefix, ..)| function.starts_with(prefix))
            .unwrap_or(("", "cuBLAS", "CUBLAS_STATUS_NOT_SUPPORTED"));
        // A program without standard error learns it from the result.
        let _ = writeln!(
            std::io::stderr(),
            "causeway: {function} returns {status}: {reason} in the library that stands in for \
             {library} on software GPUs; run the program on a GPU, or without this function"
        );
    }
    Status::NotSupported
}
