//! Two hosts with RDMA devices, a server on one of them, and programs on the other.

use causeway_tests::built::{self, cuda_program};
use causeway_tests::client::through_run;
use causeway_tests::network::{CLIENT, Network, SERVER, Side};
use causeway_tests::process::{Running, run};
use causeway_tests::server::Server;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a program may take in a guest, beside others on few processors.
pub const LIMIT: Duration = Duration::from_secs(180);

/// The two hosts, or nothing where there are no RDMA devices, which is said.
pub fn hosts() -> Option<Network> {
    Network::of_guest().inspect_err(|why| eprintln!("skipped: {why}")).ok()
}

/// Whether the devices are RoCE: iWARP's packets have no path MTU and lose nothing, since TCP carries them.
pub fn is_roce() -> bool {
    std::env::var("CAUSEWAY_GUEST_DEVICE").is_ok_and(|device| device == "rxe")
}

/// Whether there is time for everything: `make verbs-test`, not `make test`.
pub fn runs_all() -> bool {
    std::env::var_os("CAUSEWAY_TEST_ALL").is_some()
}

/// A server on one of the hosts, as a rule the second, with a key in a folder that goes with it.
pub struct Far {
    pub server: Server,
    folder: tempfile::TempDir,
}

impl Far {
    /// Starts it, with these variables.
    pub fn start(hosts: &Network, variables: &[(&str, &str)]) -> Self {
        Self::on(hosts, Side::Server, &[], variables)
    }

    /// Starts it on the host at this side, with these arguments, too.
    pub fn on(hosts: &Network, side: Side, more: &[&str], variables: &[(&str, &str)]) -> Self {
        let address = if side == Side::Client { CLIENT } else { SERVER };
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let key = folder.path().join("key");
        let key = key.to_str().expect("temporary folders have plain names");
        let mut command = Server::command(
            &[&["--listen", address, "--key-file", key, "--peers", &format!("{CLIENT},{SERVER}")], more]
                .concat(),
        );
        command.envs(variables.iter().copied());
        Self { server: Server::start_command(hosts.inside(side, &command)), folder }
    }

    /// The file with its key.
    pub fn key_file(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// A program on the first host. It goes over verbs or not at all.
    pub fn program(&self, hosts: &Network, name: &str, arguments: &[&str]) -> Command {
        let mut command = through_run(Some(&self.server.connect_string()), &cuda_program(name));
        command.args(arguments);
        hosts.inside(Side::Client, &command)
    }

    /// `copy_rate` with these arguments, in the middle of its copies.
    pub fn start_copying(&self, hosts: &Network, arguments: &[&str]) -> Running {
        let copying = Running::start(&mut self.program(hosts, "copy_rate", arguments));
        copying.must_print("to_device", LIMIT);
        copying
    }
}

/// What is preloaded into a hostile process, compiled into a folder.
pub fn hostile_library(folder: &Path) -> PathBuf {
    let hostile = folder.join("wrong_key.so");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&hostile);
    run(compile.arg(built::source_tree().join("tests/verbs/wrong_key.c")), LIMIT).must_succeed();
    hostile
}
