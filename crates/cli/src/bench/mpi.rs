//! What can be asked of `causeway bench mpi`, and how are its jobs started? The measuring itself is that of
//! `mpi/bench`, and what becomes of its figures `causeway_measure::mpi`'s.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use causeway_access::keys::ServersError;
use causeway_config::table;
use causeway_link::TransportChoice;
use causeway_measure::files::{self, FilesError};
use causeway_measure::mpi::case::Memory;
use causeway_measure::mpi::results::{Order, Run, Target, measure};
use causeway_measure::mpi::{job, report};
use causeway_measure::sizes::Sizes;
use clap::{Args, ValueEnum};
use thiserror::Error;

use super::targets::command_line;
use crate::embedded::{Embedded, EmbeddedError};
use crate::keys::{HandOverError, hand_over};
use crate::launch;
use crate::library::{self, LibraryError};
use crate::mpirun::{MpirunError, interposer};
use crate::server::KeyArguments;

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

/// Why a channel is not measured between containers.
const NO_IPC: &str = "cudaIPC opens no memory of a process in another PID namespace, so ipc is left out where \
     ranks are isolated";

/// What an MPI is told whose ranks are in containers of their own: it takes one launcher for one shared
/// memory. Others ignore it.
const CONTAINER_SETTINGS: [(&str, &str); 3] =
    [("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "tcp,self"), ("MPIR_CVAR_NOLOCAL", "1")];

/// Measure messages between the GPUs of an MPI program's ranks, by each channel, with the loops of the OSU
/// benchmarks.
///
/// Latency is half a round trip of blocking calls, bandwidth that of a window of messages in one direction,
/// counted in 1e9 bytes a second; the message rate is that of the same loop. A window's messages have 1 GiB
/// together at most. Short messages get all iterations, others a part of them, as OSU's do. Each run starts
/// an MPI program once for every combination of GPU, place and channel, in turn; figures are medians of the
/// runs. Bytes are compared before they are timed. Beside each figure stands by which ways the messages went,
/// with shares in percent if there was more than one.
///
/// The words behind `--` are the MPI's launcher and its options; mpirun if not given.
#[derive(Debug, Args)]
pub struct MpiArguments {
    /// What is measured: latency, bandwidth (and message rate), bidirectional, copy (bare copies within a
    /// GPU, without messages).
    #[arg(
        long,
        value_name = "KINDS",
        value_enum,
        value_delimiter = ',',
        default_value = "latency,bandwidth,bidirectional,copy",
        hide_possible_values = true
    )]
    kind: Vec<Kind>,
    /// Kinds of memory: gpu (cuMemAlloc), exportable (cuMemCreate, with a descriptor to be had), pool
    /// (cuMemAllocAsync), managed, pinned, pageable.
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        default_value = "gpu,exportable,pinned,pageable",
        value_parser = memory
    )]
    memory: Vec<Memory>,
    /// Channels, each measured by itself: auto (Causeway chooses), ipc, vmm, staged, none (without the
    /// interposer: how the MPI itself does it, if it takes memory on GPUs). With one channel by itself,
    /// messages of 79 bytes and more go by it; with auto, those from CAUSEWAY_COMM_THRESHOLD on.
    #[arg(
        long,
        value_name = "CHANNELS",
        value_enum,
        value_delimiter = ',',
        default_value = "auto,ipc,vmm,staged",
        hide_possible_values = true
    )]
    channel: Vec<Channel>,
    /// Where the ranks are: same (all in one place), isolated (each in namespaces of its own for processes,
    /// IPC, mounts and host name; needs root and unshare).
    #[arg(
        long,
        value_name = "PLACES",
        value_enum,
        value_delimiter = ',',
        default_value = "same",
        hide_possible_values = true
    )]
    place: Vec<Place>,
    /// How many pairs of ranks send at once; of several numbers, each is measured. Rates are those of all
    /// pairs together.
    #[arg(
        long,
        value_name = "COUNTS",
        value_delimiter = ',',
        default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=512)
    )]
    pairs: Vec<u32>,
    /// Sizes of messages: a list of sizes and ranges, such as 8,64K,1M..1G; in a range each size is twice the
    /// one before. If not given: 1..4M, with --quick some of them.
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    sizes: Option<Sizes>,
    /// Runs, each in processes of its own. If not given: 10, with --quick 2.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Begin no other job after so many seconds, however many runs were asked for; each target is tried once.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    time: Option<u32>,
    /// Seconds that one job, all sizes on one target, may take: it is ended then, and its target not tried
    /// again. If not given: more the more is to be measured.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    limit: Option<u32>,
    /// Iterations for short messages in a run. If not given: 1000, with --quick 100.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: Option<u32>,
    /// Messages that are under way at once when bandwidth is measured. If not given: 64, with --quick 8.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: Option<u32>,
    /// Seconds that a loop may take; it then gets fewer iterations. If not given: 1, with --quick 0.1.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    budget: Option<f64>,
    /// A short look: fewer sizes, runs and iterations.
    #[arg(long)]
    quick: bool,
    /// Measure on this machine's own GPU, with NVIDIA's libcuda.so.1.
    #[arg(long)]
    native: bool,
    /// Measure on a server's GPU: HOST:PORT, or the connect string that `causeway serve` printed. If neither
    /// this nor --native is given: on a private server with the software GPU.
    #[arg(long, value_name = "SERVER", env = table::ON.name, hide_env_values = true)]
    on: Option<String>,
    #[command(flatten)]
    keys: KeyArguments,
    /// What carries calls and copies to the server: auto, tcp, shm or verbs. Of several, each is measured.
    #[arg(long, value_name = "MODULES", value_delimiter = ',', default_value = "auto")]
    via: Vec<TransportChoice>,
    /// The interposer for this MPI, as of `causeway mpirun`.
    #[arg(long, value_name = "FILE", env = table::MPI_LIBRARY.name)]
    library: Option<PathBuf>,
    /// The measuring program. If not given: causeway_mpi_bench beside the interposer.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Options of the launcher for `none` alone, such as "--mca pml ucx".
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true)]
    own_options: String,
    /// A folder for the results: a table as CSV, everything with the single figures as JSON, pictures as SVG.
    /// It is made when it is not there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The launcher and its options.
    #[arg(last = true, value_name = "MPIRUN")]
    launcher: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Latency,
    Bandwidth,
    Bidirectional,
    Copy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Channel {
    Auto,
    Ipc,
    Vmm,
    Staged,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    Same,
    Isolated,
}

/// Where a channel cannot be ([`NO_IPC`]).
const LEFT_OUT: (Place, Channel) = (Place::Isolated, Channel::Ipc);

/// The words of command lines.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn memory(text: &str) -> Result<Memory, String> {
    text.parse().map_err(|_| format!("the kinds of memory are {}", Memory::ALL.map(Memory::name).join(", ")))
}

fn sizes(text: &str) -> Result<Sizes, String> {
    let sizes: Sizes =
        text.parse().map_err(|error: causeway_measure::sizes::SizesError| error.to_string())?;
    if sizes.bytes().iter().any(|bytes| *bytes > 1 << 30) {
        return Err("messages of up to 1G are measured".to_owned());
    }
    Ok(sizes)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 60.0 => Ok(seconds),
        _ => Err("this must be more than 0 and at most 60 seconds".to_owned()),
    }
}

/// Why no message was measured.
#[derive(Debug, Error)]
pub enum MpiError {
    /// A server's address makes no sense, or its key cannot be read.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// The ranks would not find the server's key.
    #[error(transparent)]
    Keys(#[from] HandOverError),
    /// There is no client library.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The private server does not start.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// There is no launcher, or no interposer for it.
    #[error(transparent)]
    Mpirun(#[from] MpirunError),
    /// There is no measuring program.
    #[error(
        "there is no measuring program at {}: build it with `make mpi`, and name it by --program",
        .0.display()
    )]
    NoProgram(PathBuf),
    /// One server is measured at a time.
    #[error("{0} servers are named, and messages are measured on the GPUs of one")]
    Several(usize),
    /// What was asked for cannot be.
    #[error("nothing is left to measure: {NO_IPC}")]
    NothingLeft,
    /// There is no folder that containers can share.
    #[error("a folder that the containers share cannot be made: {0}")]
    Folder(io::Error),
    /// The results cannot be written.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Nobody reads the tables.
    #[error("the results cannot be printed: {0}")]
    Print(io::Error),
    /// The system does not say where this program is.
    #[error("the system does not say where the program causeway is: {0}")]
    Executable(io::Error),
}

/// Which GPU the ranks use.
#[derive(Clone)]
enum Where {
    Native,
    Server { server: causeway_access::Target, key_file: Option<PathBuf>, via: TransportChoice },
}

/// How jobs are started.
struct Starter<'a> {
    arguments: &'a MpiArguments,
    executable: PathBuf,
    launcher: Vec<OsString>,
    library: Option<PathBuf>,
    program: PathBuf,
    /// The folder with our client library.
    client: Option<PathBuf>,
    /// What containers share.
    folder: tempfile::TempDir,
    targets: Vec<(Where, Place, Channel, u32)>,
}

/// Measures; the exit code says whether all targets were measured to the end.
pub fn mpi(arguments: &MpiArguments) -> Result<ExitCode, MpiError> {
    if let Some(folder) = &arguments.out {
        files::prepare(folder)?;
    }
    let embedded;
    let places = match (arguments.servers()?, arguments.native) {
        (None, false) => {
            embedded = Embedded::start(&arguments.via, false)?;
            let key_file = embedded.key_file().map(Path::to_owned);
            arguments.places(Some((embedded.target().clone(), key_file)))
        }
        (server, _) => {
            let key_file = arguments.keys.file().map(Path::to_owned);
            arguments.places(server.map(|server| (server, key_file)))
        }
    };
    let starter = Starter::new(arguments, places)?;
    let order = Order {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_line(std::env::args_os()),
        targets: starter.names(),
        runs: arguments.runs.unwrap_or(if arguments.quick { 2 } else { 10 }),
        time: arguments.time.map(|seconds| Duration::from_secs(seconds.into())),
    };
    let limit = arguments.limit();
    let mut trouble = None;
    let run = measure(order, |number| match starter.command(number) {
        Ok(mut command) => job::run(&mut command, limit),
        Err(error) => {
            trouble.get_or_insert(error);
            Err(job::JobError::Nothing)
        }
    });
    match trouble {
        Some(error) => Err(error.into()),
        None => finish(&run, arguments),
    }
}

/// Shows and keeps what was measured.
fn finish(run: &Run, arguments: &MpiArguments) -> Result<ExitCode, MpiError> {
    if !run.records.is_empty() {
        io::stdout().lock().write_all(report::text(run).as_bytes()).map_err(MpiError::Print)?;
        if let Some(folder) = &arguments.out {
            let written = report::write(folder, run)?;
            writeln!(io::stdout().lock(), "\n{}", files::listed(&written)).map_err(MpiError::Print)?;
        }
    }
    if arguments.place.contains(&LEFT_OUT.0) && arguments.channel.contains(&LEFT_OUT.1) {
        // As below.
        let _ = writeln!(io::stderr(), "causeway: {NO_IPC}");
    }
    let troubles = run.troubles();
    for trouble in &troubles {
        // When nobody reads our standard error the exit code still tells.
        let _ = writeln!(io::stderr(), "causeway: {trouble}");
    }
    Ok(if troubles.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl MpiArguments {
    fn servers(&self) -> Result<Option<causeway_access::Target>, MpiError> {
        let Some(on) = crate::server::named(self.on.as_deref()) else { return Ok(None) };
        let mut servers = self.keys.servers(on)?;
        match servers.len() {
            1 => Ok(servers.pop()),
            several => Err(MpiError::Several(several)),
        }
    }

    fn places(&self, server: Option<(causeway_access::Target, Option<PathBuf>)>) -> Vec<Where> {
        let native = self.native.then_some(Where::Native);
        let servers = server.into_iter().flat_map(|(server, key_file)| {
            self.via.iter().map(move |via| Where::Server {
                server: server.clone(),
                key_file: key_file.clone(),
                via: *via,
            })
        });
        native.into_iter().chain(servers).collect()
    }

    fn sizes(&self) -> Vec<u64> {
        let usual = || if self.quick { Sizes::steps(8, 4 << 20, 8) } else { Sizes::steps(1, 4 << 20, 2) };
        self.sizes.clone().unwrap_or_else(usual).bytes().to_vec()
    }

    fn budget(&self) -> f64 {
        self.budget.unwrap_or(if self.quick { 0.1 } else { 1.0 })
    }

    /// How long a job may take: one round of a window can be longer than its loop's time.
    fn limit(&self) -> Duration {
        if let Some(seconds) = self.limit {
            return Duration::from_secs(seconds.into());
        }
        let loops = self.kind.len() * self.memory.len() * self.sizes().len();
        Duration::from_secs(60) + Duration::from_secs_f64((1.0 + 10.0 * self.budget()) * loops as f64)
    }

    /// What the measuring program is told.
    fn plan(&self) -> [String; 6] {
        let list = |words: Vec<String>| words.join(",");
        let (iterations, window) = if self.quick { (100, 8) } else { (1000, 64) };
        [
            list(self.kind.iter().map(name).collect()),
            list(self.memory.iter().map(Memory::to_string).collect()),
            list(self.sizes().iter().map(u64::to_string).collect()),
            self.iterations.unwrap_or(iterations).to_string(),
            self.window.unwrap_or(window).to_string(),
            self.budget().to_string(),
        ]
    }
}

impl<'a> Starter<'a> {
    fn new(arguments: &'a MpiArguments, places: Vec<Where>) -> Result<Self, MpiError> {
        let launcher = match arguments.launcher.as_slice() {
            [] => vec!["mpirun".into()],
            words => words.to_vec(),
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
        let has_server = places.iter().any(|place| matches!(place, Where::Server { .. }));
        let mut targets = Vec::new();
        for gpu in places {
            for place in &arguments.place {
                for pairs in &arguments.pairs {
                    let there = |channel: &&Channel| (*place, **channel) != LEFT_OUT;
                    for channel in arguments.channel.iter().filter(there) {
                        targets.push((gpu.clone(), *place, *channel, *pairs));
                    }
                }
            }
        }
        if targets.is_empty() {
            return Err(MpiError::NothingLeft);
        }
        Ok(Self {
            arguments,
            executable: std::env::current_exe().map_err(MpiError::Executable)?,
            launcher,
            library: library.map(|library| std::path::absolute(&library).unwrap_or(library)),
            program: std::path::absolute(&program).unwrap_or(program),
            client: has_server.then(library::folder).transpose()?,
            folder: tempfile::tempdir().map_err(MpiError::Folder)?,
            targets,
        })
    }

    /// The targets, each called by what it does not share with all others.
    fn names(&self) -> Vec<Target> {
        let gpu_of = |gpu: &Where| match gpu {
            Where::Native => "native".to_owned(),
            Where::Server { via, .. } => format!("causeway {via}"),
        };
        let gpus: Vec<_> = self.targets.iter().map(|(gpu, ..)| gpu_of(gpu)).collect();
        let several = gpus.iter().any(|gpu| *gpu != gpus[0]);
        let of = |((_, place, channel, pairs), gpu): (&(Where, Place, Channel, u32), &String)| {
            let mut words = Vec::new();
            words.extend(several.then(|| gpu.clone()));
            words.extend((self.arguments.place.len() > 1).then(|| name(place)));
            words.extend((self.arguments.pairs.len() > 1).then(|| format!("{pairs} pairs")));
            words.push(name(channel));
            Target {
                name: words.join(" "),
                gpu: gpu.clone(),
                isolated: *place == Place::Isolated,
                channel: name(channel),
                pairs: *pairs,
                trouble: None,
            }
        };
        self.targets.iter().zip(&gpus).map(of).collect()
    }

    /// The command that measures a target once.
    fn command(&self, number: usize) -> Result<Command, HandOverError> {
        let (gpu, place, channel, pairs) = &self.targets[number];
        let mut words: Vec<OsString> = Vec::new();
        if let (Some(library), true) = (&self.library, *channel != Channel::None) {
            words.extend([self.executable.clone().into(), "mpirun".into(), "--library".into()]);
            words.extend([library.clone().into(), "--".into()]);
        }
        words.extend(self.launcher.iter().cloned());
        if *channel == Channel::None {
            words.extend(self.arguments.own_options.split_whitespace().map(OsString::from));
        }
        words.extend(["-n".into(), (2 * pairs).to_string().into()]);
        if *place == Place::Isolated {
            words.extend(CONTAINER.map(OsString::from));
        }
        words.push(self.program.clone().into());
        words.extend(self.arguments.plan().map(OsString::from));
        let mut command = match (gpu, &self.client) {
            (Where::Server { server, key_file, via }, Some(client)) => {
                let mut command = launch::command(&words, client);
                hand_over(&mut command, core::slice::from_ref(server), key_file.as_deref())?;
                command.env(table::VIA.name, via.to_string());
                command
            }
            _ => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                command
            }
        };
        self.set(&mut command, *place, *channel);
        Ok(command)
    }

    fn set(&self, command: &mut Command, place: Place, channel: Channel) {
        if channel == Channel::None {
            return;
        }
        if channel != Channel::Auto {
            command.env(table::COMM_CHANNELS.name, name(&channel)).env(table::COMM_THRESHOLD.name, "79");
        }
        if place == Place::Isolated {
            command.envs(CONTAINER_SETTINGS).env(table::SOCKET_DIR.name, self.folder.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: MpiArguments,
    }

    fn parse(words: &[&str]) -> Result<MpiArguments, clap::Error> {
        Line::try_parse_from([&["mpi"], words].concat()).map(|line| line.arguments)
    }

    #[test]
    fn the_program_is_told_what_is_asked_for() {
        let arguments = parse(&["--quick", "--memory", "gpu,pool", "--kind", "latency", "--sizes", "8,1K"]);
        assert_eq!(arguments.unwrap().plan(), ["latency", "gpu,pool", "8,1024", "100", "8", "0.1"]);
        let arguments = parse(&["--window", "2", "--", "mpiexec", "--oversubscribe"]).unwrap();
        assert_eq!((arguments.plan()[4].as_str(), arguments.launcher.len()), ("2", 2));
        assert_eq!(arguments.sizes().len(), 23);
    }

    #[test]
    fn mistakes_are_refused() {
        for words in [
            ["--memory", "paper"],
            ["--kind", "speed"],
            ["--channel", "gdr"],
            ["--sizes", "2G"],
            ["--budget", "0"],
            ["--pairs", "0"],
            ["--window", "2000"],
            ["--place", "away"],
        ] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn targets_are_called_by_what_differs() {
        let program = std::env::current_exe().unwrap();
        let program = program.to_str().unwrap();
        let arguments =
            parse(&["--native", "--channel", "none", "--place", "same,isolated", "--program", program])
                .unwrap();
        let starter = Starter::new(&arguments, arguments.places(None)).unwrap();
        let names: Vec<_> = starter.names().into_iter().map(|target| target.name).collect();
        assert_eq!(names, ["same none", "isolated none"]);
        let command = starter.command(1).unwrap();
        let words: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
        assert_eq!((&words[0][..], &words[1][..], &words[2][..]), ("-n", "2", "unshare"));
        assert_eq!(command.get_program(), "mpirun");
    }

    #[test]
    fn cuda_ipc_is_left_out_between_containers() {
        let program = std::env::current_exe().unwrap();
        let common = ["--native", "--program", program.to_str().unwrap(), "--library"];
        let common = [&common[..], &[program.to_str().unwrap(), "--place"]].concat();
        let of = |words: &[&str]| {
            let arguments = parse(&[&common[..], words].concat()).unwrap();
            let starter = Starter::new(&arguments, arguments.places(None));
            starter.map(|starter| starter.names().into_iter().map(|target| target.name).collect::<Vec<_>>())
        };
        let names = of(&["same,isolated", "--channel", "ipc,vmm"]).unwrap();
        assert_eq!(names, ["same ipc", "same vmm", "isolated vmm"]);
        let error = of(&["isolated", "--channel", "ipc"]).unwrap_err();
        assert!(error.to_string().contains("PID namespace"), "{error}");
    }
}
