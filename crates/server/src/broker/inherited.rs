//! Environment variables that a worker inherits from the server.
//!
//! A worker runs what clients send, and what is in the environment of a service is often its owner's alone:
//! tokens, passwords, addresses. So it begins with none, and gets those that it or a library of its acts on.

use std::ffi::OsString;

use causeway_config::Component;
use causeway_config::table::{ALL, CONFIG};

/// What the C library, the loader and Rust act on. `HOME` is where the driver keeps what it compiles if nobody
/// says another place.
const SYSTEM: [&str; 12] = [
    "GLIBC_TUNABLES",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "PATH",
    "RUST_BACKTRACE",
    "RUST_MIN_STACK",
    "TMPDIR",
    "TZ",
];

/// How the names begin that NVIDIA's libraries and those of RDMA devices act on.
const LIBRARIES: [&str; 6] = ["CUDA_", "IBV_", "MLX4_", "MLX5_", "NVIDIA_", "RDMAV_"];

/// Those of the variables that a worker gets.
pub fn inherited(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    variables.into_iter().filter(|(name, _)| name.to_str().is_some_and(is_inherited))
}

fn is_inherited(name: &str) -> bool {
    SYSTEM.contains(&name)
        || LIBRARIES.iter().any(|start| name.starts_with(start))
        || ALL.iter().any(|variable| {
            let concerns_worker = variable
                .components
                .iter()
                .any(|component| matches!(component, Component::Server | Component::Test));
            variable.name == name && concerns_worker && variable.name != CONFIG.name
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gets_what_it_acts_on_and_nothing_else() {
        let given = [
            "AWS_SECRET_ACCESS_KEY",
            "CAUSEWAY_CONFIG",
            "CAUSEWAY_DRIVER",
            "CAUSEWAY_KEY_FILE",
            "CAUSEWAY_ON",
            "CAUSEWAY_SOFTWARE_GPU_DEVICES",
            "CAUSEWAY_UNKNOWN",
            "CUDA_VISIBLE_DEVICES",
            "LD_LIBRARY_PATH",
            "MLX5_SINGLE_THREADED",
            "NOTIFY_SOCKET",
            "SOME_SERVICE_TOKEN",
            "SSH_AUTH_SOCK",
        ];
        let got: Vec<_> = inherited(given.map(|name| (name.into(), "value".into())))
            .map(|(name, _)| name.into_string().unwrap())
            .collect();
        let wanted = [
            "CAUSEWAY_DRIVER",
            "CAUSEWAY_SOFTWARE_GPU_DEVICES",
            "CUDA_VISIBLE_DEVICES",
            "LD_LIBRARY_PATH",
            "MLX5_SINGLE_THREADED",
        ];
        assert_eq!(got, wanted);
    }
}
