//! MPI jobs of `causeway bench mpi`, and their command lines.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use causeway_config::table;
use causeway_measure::jobs::Target;
use causeway_measure::mpi::results::Way;

use super::arguments::{Channel, MpiArguments, Placement, name};
use super::error::MpiError;
use crate::bench::error::TargetError;
use crate::bench::gpus::{Gpu, Gpus};
use crate::keys::HandOverError;
use crate::library;
use crate::mpirun::{interposer, isolated};

/// The measuring program, which `make mpi` builds beside the interposer.
const PROGRAM: &str = "causeway_mpi_bench";

/// What makes a container of its own around a rank: namespaces, and a `/dev/shm`.
const CONTAINER: [&str; 12] = [
    "unshare",
    "--ipc",
    "--pid",
    "--uts",
    "--mount",
    "--mount-proc",
    "--fork",
    "--kill-child",
    "sh",
    "-c",
    "mount -t tmpfs tmpfs /dev/shm && exec \"$@\"",
    "sh",
];

/// Where a channel cannot be ([`super::error::NO_IPC`]).
pub const LEFT_OUT: (Placement, Channel) = (Placement::Isolated, Channel::Only(causeway_comm::Channel::Ipc));

/// How jobs are started.
pub struct Starter<'a> {
    arguments: &'a MpiArguments,
    executable: PathBuf,
    launcher: Vec<OsString>,
    library: Option<PathBuf>,
    program: PathBuf,
    /// The folder with our client library.
    client: Option<PathBuf>,
    /// What containers share.
    folder: tempfile::TempDir,
    targets: Vec<(Gpu, Placement, Channel, u32)>,
}

impl<'a> Starter<'a> {
    /// What the arguments ask for, on these GPUs.
    pub fn new(arguments: &'a MpiArguments, gpus: &Gpus) -> Result<Self, MpiError> {
        let launcher = match arguments.launcher.as_slice() {
            [] => vec!["mpirun".into()],
            arguments => arguments.to_vec(),
        };
        let needs_library =
            arguments.program.is_none() || arguments.channel.iter().any(|channel| *channel != Channel::None);
        let library = match needs_library {
            true => Some(interposer(&launcher[0], arguments.library.as_deref())?.1),
            false => None,
        };
        let program = match (&arguments.program, &library) {
            (Some(named), _) => named.clone(),
            (None, Some(library)) => library.with_file_name(PROGRAM),
            (None, None) => PathBuf::from(PROGRAM),
        };
        if !program.is_file() {
            return Err(MpiError::NoProgram(program));
        }
        let mut targets = Vec::new();
        for gpu in &gpus.each {
            for placement in &arguments.placement {
                for pairs in &arguments.pairs {
                    let there = |channel: &&Channel| (*placement, **channel) != LEFT_OUT;
                    for channel in arguments.channel.iter().filter(there) {
                        targets.push((gpu.clone(), *placement, *channel, *pairs));
                    }
                }
            }
        }
        if targets.is_empty() {
            return Err(MpiError::NothingLeft);
        }
        Ok(Self {
            arguments,
            executable: std::env::current_exe().map_err(TargetError::Executable)?,
            launcher,
            library: library.map(|library| std::path::absolute(&library).unwrap_or(library)),
            program: std::path::absolute(&program).unwrap_or(program),
            client: gpus.has_server().then(library::folder).transpose().map_err(TargetError::from)?,
            folder: tempfile::tempdir().map_err(MpiError::Folder)?,
            targets,
        })
    }

    /// The targets, each called by what it does not share with all others.
    pub fn names(&self) -> Vec<Target<Way>> {
        let gpus: Vec<_> = self.targets.iter().map(|(gpu, ..)| gpu.name()).collect();
        let several = gpus.iter().any(|gpu| *gpu != gpus[0]);
        let of = |((_, placement, channel, pairs), gpu): (&(Gpu, Placement, Channel, u32), &String)| {
            let mut arguments = Vec::new();
            arguments.extend(several.then(|| gpu.clone()));
            arguments.extend((self.arguments.placement.len() > 1).then(|| name(placement)));
            arguments.extend((self.arguments.pairs.len() > 1).then(|| format!("{pairs} pairs")));
            arguments.push(channel.to_string());
            let isolated = *placement == Placement::Isolated;
            let way = Way { gpu: gpu.clone(), isolated, channel: channel.to_string(), pairs: *pairs };
            Target::new(arguments.join(" "), way)
        };
        self.targets.iter().zip(&gpus).map(of).collect()
    }

    /// The command that measures a target once.
    pub fn command(&self, number: usize) -> Result<Command, HandOverError> {
        let (gpu, placement, channel, pairs) = &self.targets[number];
        let mut arguments: Vec<OsString> = Vec::new();
        if let (Some(library), true) = (&self.library, *channel != Channel::None) {
            arguments.extend([self.executable.clone().into(), "mpirun".into(), "--library".into()]);
            arguments.extend([library.clone().into(), "--".into()]);
        }
        arguments.extend(self.launcher.iter().cloned());
        if *channel == Channel::None {
            arguments.extend(self.arguments.launcher_options.split_whitespace().map(OsString::from));
        }
        arguments.extend(["-n".into(), (2 * pairs).to_string().into()]);
        if *placement == Placement::Isolated {
            arguments.extend(CONTAINER.map(OsString::from));
        }
        arguments.push(self.program.clone().into());
        arguments.extend(self.arguments.plan().map(OsString::from));
        let mut command = gpu.command(&arguments, self.client.as_deref())?;
        self.set(&mut command, *placement, *channel);
        Ok(command)
    }

    fn set(&self, command: &mut Command, placement: Placement, channel: Channel) {
        match channel {
            Channel::None => return,
            Channel::Auto => {}
            Channel::Only(channel) => {
                command.env(table::COMM_CHANNELS.name, channel.name()).env(table::COMM_THRESHOLD.name, "79");
                if channel.is_between_hosts() {
                    command.env(table::COMM_HOSTS.name, "localhost");
                }
            }
        }
        if placement == Placement::Isolated {
            let folder = self.folder.path();
            command.envs(isolated(Some(folder.as_os_str()))).env(table::SOCKET_DIR.name, folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::super::arguments::tests::parse;
    use super::*;

    fn gpus(arguments: &MpiArguments) -> Gpus {
        Gpus::new(&arguments.on, true, &arguments.via).unwrap()
    }

    #[test]
    fn targets_are_called_by_what_differs() {
        let program = std::env::current_exe().unwrap();
        let program = program.to_str().unwrap();
        let arguments =
            parse(&["--native", "--channel", "none", "--placement", "same,isolated", "--program", program])
                .unwrap();
        let starter = Starter::new(&arguments, &gpus(&arguments)).unwrap();
        let names: Vec<_> = starter.names().into_iter().map(|target| target.name).collect();
        assert_eq!(names, ["same none", "isolated none"]);
        let command = starter.command(1).unwrap();
        let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
        assert_eq!((&arguments[0][..], &arguments[1][..], &arguments[2][..]), ("-n", "2", "unshare"));
        assert_eq!(command.get_program(), "mpirun");
    }

    #[test]
    fn cuda_ipc_is_left_out_between_containers() {
        let program = std::env::current_exe().unwrap();
        let common = ["--native", "--program", program.to_str().unwrap(), "--library"];
        let common = [&common[..], &[program.to_str().unwrap(), "--placement"]].concat();
        let of = |arguments: &[&str]| {
            let arguments = parse(&[&common[..], arguments].concat()).unwrap();
            let starter = Starter::new(&arguments, &gpus(&arguments));
            starter.map(|starter| starter.names().into_iter().map(|target| target.name).collect::<Vec<_>>())
        };
        let names = of(&["same,isolated", "--channel", "ipc,vmm"]).unwrap();
        assert_eq!(names, ["same ipc", "same vmm", "isolated vmm"]);
        let error = of(&["isolated", "--channel", "ipc"]).unwrap_err();
        assert!(error.to_string().contains("PID namespace"), "{error}");
    }
}
