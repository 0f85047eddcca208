//! MPI jobs in tests: a program under an MPI, with the interposer, on a server.

use crate::built;
use crate::process::{Outcome, run};
use crate::server::{Server, forget_environment};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// How long a job may take. The machine may be busy with other tests.
const LIMIT: Duration = Duration::from_secs(120);

/// An implementation that `scripts/setup.sh` installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpi {
    /// Open MPI.
    OpenMpi,
    /// MPICH.
    Mpich,
}

impl Mpi {
    /// Both.
    pub const ALL: [Self; 2] = [Self::OpenMpi, Self::Mpich];

    /// The ending of its programs in Debian.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    /// The folder with the interposer and the test programs for this MPI, built now if they are not.
    ///
    /// # Panics
    /// When they cannot be built.
    pub fn folder(self) -> &'static Path {
        static FOLDERS: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
        FOLDERS[self as usize].get_or_init(|| {
            let folder = built::source_tree().join("build/mpi").join(self.name());
            let libraries = built::causeway().parent().expect("the program is in a folder");
            let link = if self == Self::OpenMpi { "yes" } else { "no" };
            for part in ["mpi", "tests/mpi"] {
                let mut make = Command::new("make");
                make.arg("--silent").arg("-C").arg(built::source_tree().join(part));
                make.arg(format!("MPICC=mpicc.{}", self.name())).arg(format!("BUILD={}", folder.display()));
                make.arg(format!("COMM={}", libraries.display())).arg(format!("LINK_MPI={link}"));
                run(&mut make, LIMIT).must_succeed();
            }
            folder
        })
    }

    /// The interposer.
    pub fn interposer(self) -> PathBuf {
        self.folder().join("libcauseway_mpi.so")
    }

    /// A command that starts a program of `tests/mpi` as so many ranks on a server, with the interposer.
    /// Without a job they have no nonce.
    pub fn command(self, server: &Server, ranks: usize, job: Option<&str>) -> Command {
        let mut command = Command::new(format!("mpirun.{}", self.name()));
        let preload = self.interposer();
        match self {
            Self::OpenMpi => command.arg("-x").arg(format!("LD_PRELOAD={}", preload.display())),
            Self::Mpich => command.arg("-genv").arg("LD_PRELOAD").arg(preload),
        };
        self.finish(&mut command, server, ranks);
        command.envs(job.map(|nonce| ("CAUSEWAY_COMM_JOB", nonce)));
        command
    }

    /// The same by `causeway mpirun`, with options of its.
    pub fn command_of_ours(self, server: &Server, ranks: usize, options: &[&str]) -> Command {
        let mut command = Command::new(built::causeway());
        command.arg("mpirun").arg("--library").arg(self.interposer());
        command.args(options).arg("--").arg(format!("mpirun.{}", self.name()));
        self.finish(&mut command, server, ranks);
        command
    }

    /// A command that starts a program of `tests/mpi` with arguments and settings, one rank on each of these
    /// hosts. Those of a host have a nonce of their own: nothing that Causeway has joins them with the others,
    /// as between hosts, and the MPI joins them all.
    pub fn command_on_hosts(
        self,
        server: &Server,
        hosts: &[u8],
        settings: &[(&str, &str)],
        program: &str,
        arguments: &[&str],
    ) -> Command {
        let (mut command, nonce) = (self.command(server, 1, None), new_nonce());
        for (rank, host) in hosts.iter().enumerate() {
            if rank > 0 {
                command.args([":", "-n", "1"]);
            }
            command.arg("env").arg(format!("LD_PRELOAD={}", self.interposer().display()));
            command.arg(format!("CAUSEWAY_COMM_JOB={}{host:02x}", &nonce[..30]));
            command.args(settings.iter().map(|(name, value)| format!("{name}={value}")));
            command.arg(self.folder().join(program)).args(arguments);
        }
        command
    }

    fn finish(self, command: &mut Command, server: &Server, ranks: usize) {
        forget_environment(command);
        if self == Self::OpenMpi {
            command.args(["--oversubscribe", "--bind-to", "none"]);
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        let libraries = built::causeway().parent().expect("the program is in a folder");
        let search = std::env::join_paths([built::client_library_folder(), libraries]).expect("no colons");
        command.env("LD_LIBRARY_PATH", search).env("CAUSEWAY_ON", server.connect_string());
        command.env("CAUSEWAY_CACHE_DIR", "").arg("-n").arg(ranks.to_string());
    }

    /// Runs a scene of `tests/mpi/scenes`, and asserts that every rank says it is well.
    ///
    /// # Panics
    /// When one does not.
    #[track_caller]
    pub fn must_play(self, server: &Server, ranks: usize, scene: &str) -> Outcome {
        let mut command = self.command(server, ranks, Some(&new_nonce()));
        let outcome = run(command.arg(self.folder().join("scenes")).arg(scene), LIMIT).must_succeed();
        let well = outcome.stdout.matches(&format!("{scene}: ok")).count();
        assert_eq!(well, ranks, "{outcome}");
        outcome
    }

    /// Runs random messages with settings of the interposer, each rank started by what is `around` it, and
    /// gives what the ranks report.
    ///
    /// # Panics
    /// When a message is wrong.
    #[track_caller]
    pub fn must_exchange(
        self,
        server: &Server,
        ranks: usize,
        rounds: usize,
        settings: &[(&str, &str)],
        around: &[&str],
    ) -> String {
        let nonce = new_nonce();
        let mut command = self.command(server, ranks, Some(&nonce));
        command.env("CAUSEWAY_COMM_EXPLAIN", "1").envs(settings.iter().copied());
        let seed = format!("0x{}", &nonce[..15]);
        command.args(around).arg(self.folder().join("random_messages")).args([
            &seed,
            &rounds.to_string(),
            "300000",
        ]);
        let outcome = run(&mut command, LIMIT).must_succeed();
        let wanted = format!("0 of {rounds} rounds");
        assert!(outcome.stdout.contains(&wanted), "seed {seed}: {outcome}");
        outcome.stderr
    }
}

/// A job's nonce, as a launcher makes one.
///
/// # Panics
/// When the system has no random numbers.
pub fn new_nonce() -> String {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
