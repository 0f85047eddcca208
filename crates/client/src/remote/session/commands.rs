//! Command support: which commands both ends of a session know.
//!
//! A server of an earlier release does not know the newest commands. What needs one of those is not supported
//! with that server, which is known before anything is sent.

use crate::locks::{Mutex, rank};
use crate::log::error;
use causeway_access::Target;
use causeway_api::calls::Opcode;
use causeway_api::sys::CUresult;
use causeway_wire::text::Printable;

/// The commands that client and server have in common.
pub struct CommonCommands {
    /// How many, from number 0 on.
    count: u16,
    /// The server's release.
    release: Printable,
    /// The numbers of those that were wanted and are not among them, each said once.
    logged: Mutex<rank::MissingCommands, Vec<u16>>,
}

impl CommonCommands {
    /// The first `count` commands, with a server of this release.
    pub fn new(count: u16, release: Printable) -> Self {
        Self { count, release, logged: Mutex::default() }
    }

    /// Whether the server knows a command.
    pub fn has(&self, opcode: Opcode) -> bool {
        (opcode as u16) < self.count
    }

    /// Refuses a command that the server at `target` does not know.
    #[inline]
    pub fn must_have(&self, opcode: Opcode, target: &Target) -> Result<(), CUresult> {
        if self.has(opcode) { Ok(()) } else { Err(self.missing(opcode, target)) }
    }

    /// Says once that the server does not know a command.
    #[cold]
    fn missing(&self, opcode: Opcode, target: &Target) -> CUresult {
        let mut logged = self.logged.lock();
        if !logged.contains(&(opcode as u16)) {
            logged.push(opcode as u16);
            error!(
                "{} is not supported with the server {target}: it is Causeway {}, which does not know that yet, and \
                 this library is {}; update the server",
                opcode.name(),
                self.release,
                env!("CARGO_PKG_VERSION")
            );
        }
        CUresult::CUDA_ERROR_NOT_SUPPORTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_command_is_refused_and_logged_once() {
        let target: Target = "causeway://host:1?insecure-no-key".parse().unwrap();
        let newest = *Opcode::ALL.last().unwrap();
        let common = CommonCommands::new(newest as u16, "0.1.9".into());
        assert_eq!(common.must_have(Opcode::ALL[0], &target), Ok(()));
        assert_eq!(common.must_have(Opcode::ALL[newest as usize - 1], &target), Ok(()));
        for _ in 0..2 {
            assert_eq!(common.must_have(newest, &target), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
        }
        assert_eq!(*common.logged.lock(), [newest as u16]);
        assert_eq!(CommonCommands::new(newest as u16 + 1, "1".into()).must_have(newest, &target), Ok(()));
    }
}
