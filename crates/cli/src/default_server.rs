//! Server that a program gets when none is named. Nobody's program runs on the software GPU unnoticed: it is many
//! times slower, and a lost `CAUSEWAY_ON` would not be noticed until a job takes surprisingly long.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use causeway_access::servers::{LOCAL, SOFTWARE};
use thiserror::Error;

/// There is no server to use.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "no server is named, and this machine has no GPU with NVIDIA's driver: name a server by --on, by CAUSEWAY_ON or \
     in a configuration file (`causeway config example`), or the software GPU by `--on software`"
)]
pub struct NoServer;

/// Where the driver of a GPU is reached: NVIDIA's, and in Windows Subsystem for Linux.
const DRIVER_FILES: [&str; 2] = ["/dev/nvidiactl", "/dev/dxg"];

/// What is used in place of a server that is named, and what is to be said of it. Whoever `names_transport` by which a
/// server of this machine is reached asks for one, and hears in a script, too, which it is.
pub fn choose(names_transport: bool) -> Result<(&'static str, Option<&'static str>), NoServer> {
    let has_gpu = DRIVER_FILES.iter().any(|file| Path::new(file).exists());
    let is_read = io::stderr().is_terminal();
    let (server, notice) = default_of(has_gpu, is_read || names_transport)?;
    Ok((server, (is_read || !has_gpu).then_some(notice)))
}

fn default_of(has_gpu: bool, is_read: bool) -> Result<(&'static str, &'static str), NoServer> {
    match (has_gpu, is_read) {
        (true, _) => {
            Ok((LOCAL, "no server is named: the program uses this machine's own GPUs (`--on local`)"))
        }
        (false, true) => Ok((
            SOFTWARE,
            "no server is named: the program uses the software GPU (`--on software`), which is many times slower than a \
             GPU; --on, CAUSEWAY_ON or a configuration file name a server",
        )),
        (false, false) => Err(NoServer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_gpu_is_taken_only_where_somebody_reads_that_it_is() {
        assert_eq!(default_of(false, false), Err(NoServer));
        assert!(default_of(false, true).is_ok_and(|(server, _)| server == SOFTWARE));
        for is_read in [false, true] {
            assert!(default_of(true, is_read).is_ok_and(|(server, _)| server == LOCAL));
        }
    }
}
