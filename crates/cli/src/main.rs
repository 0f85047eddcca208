//! The program `causeway`: serves GPUs, and runs CUDA programs on GPUs that are elsewhere.
//!
//! | module | contents |
//! | --- | --- |
//! | `serve` | `causeway serve`: start and end of a server |
//! | `try_driver` | Trial start of NVIDIA's driver on this machine |
//! | `server` | Which servers are meant, and what is to carry the sessions: the options of all commands that use some |
//! | `run` | `causeway run`: runs a program on a server's GPU |
//! | `mpirun` | `causeway mpirun`: starts the ranks of an MPI program with the interposer and a job's nonce |
//! | `devices` | `causeway devices`: the GPUs of a server |
//! | `api` | `causeway api`: the driver functions that are supported |
//! | `cdi` | `causeway cdi`: description of a server's GPUs for container engines (Container Device Interface) |
//! | `kubernetes` | `causeway kubernetes`: GPUs of servers for pods of Kubernetes |
//! | `container` | Containers: variables and files of this machine with which programs in one use servers' GPUs |
//! | `bench` | `causeway bench`: speed of copies, launches and waits, remote and native |
//! | `doctor` | `causeway doctor`: what a machine lacks for remote GPUs, InfiniBand and GPUDirect, and what to do |
//! | `check` | `causeway check`: what the software GPU lacks for a program, said before that runs |
//! | `demo` | `causeway demo`: a test of everything on this machine |
//! | `trace` | `causeway trace`: a timeline of a program, here and on the devices |
//! | `tune` | `causeway tune`: finds and stores the copy plans that suit a server |
//! | `embedded` | Embedded server: a server of its own for one command |
//! | `jupyter` | `causeway jupyter`: a Jupyter kernel that runs on a server's GPU |
//! | `config_command` | `causeway config`: what configuration files and variables set |
//! | `config_file` | Options of `causeway serve` in configuration files |
//! | `completions` | Shell completions and manual pages |
//! | `key` | `causeway key`: keys of servers, and how one gets from a server to its clients |
//! | `client` | `causeway client`: the clients of a server that have keys of their own |
//! | `login` | `causeway login`: this machine as a client of a server that has invited it |
//! | `hidden_input` | Hidden input: a line from the terminal that does not appear there |
//! | `duration` | Durations that options take: parsers for clap |
//! | `own_server` | The server of this machine that commands about keys and clients mean: its key file, and how clients reach it |
//! | `usage` | `causeway usage`: an audit log, summed up |
//! | `keys` | Passing of servers' keys to a started program |
//! | `launch` | Launch of a program, so that signals and exit codes come through |
//! | `inherited` | Inherited process state: signals, limits and timers that `causeway` changes, and their restoration before `exec` |
//! | `elf` | ELF files of 64 bits: sections, segments, what a loader loads, symbols |
//! | `libc_detection` | C library of a program |
//! | `library` | Client libraries: their folders |
//! | `renamed` | Renamed options: the former name of an option still works, with a warning, until the next minor version |
//! | `report` | Report of `causeway run --stats`: what a program did, in words and numbers |
//! | `copies` | Summary of a program's copies: their paths, and what slowed them that the program could change |
//! | `pool` | Pools of servers, whose GPUs are given to one program or job at a time |
//! | `pool_command` | `causeway pool`: the GPUs of a pool of servers, for people and for batch systems |
//! | `ptxas` | Stand-in for NVIDIA's `ptxas`, which Triton and XLA call to make machine code of their PTX: the software GPU runs the PTX itself |
//! | `xla` | Settings of XLA, the compiler of JAX and TensorFlow, where all servers are software GPUs: where `ptxas` is, and not to measure kernels |
//! | `status_query` | Status queries: a connection to a server that is asked how it is |
//! | `watch` | `causeway top`, `sessions` and `drain`: servers, and what their sessions do |
//! | `logging` | Logging: where log lines go, and how they look |
//! | `default_server` | Server that a program gets when none is named |
//! | `mmap` | `mmap` of this process: with a hint where NVIDIA's driver reserves addresses without one |
//! | `nccl` | NCCL's settings of a program: which processes it takes for those of one machine, and its network plugin |
//! | `stand_ins` | Stand-ins for NVIDIA's libraries of kernels, put in front of them where all servers are software GPUs |
//! | `waiting` | Notice of a wait: a line on standard error where a server has said nothing for some seconds |
//! | `demangle` | Names of kernels as in their sources |
//! | `rank_metrics` | Metrics of MPI ranks: messages and bytes by channel, by GPUDirect and by staging, for Prometheus |

// These panic where standard output or error is closed or full, and with that the exit code of a program that has run is
// lost: `write!`, and what it returns, is used instead.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod api;
mod bench;
mod cdi;
#[cfg(feature = "software")]
mod check;
mod client;
mod completions;
mod config_command;
mod config_file;
mod container;
mod copies;
mod default_server;
mod demangle;
mod demo;
mod devices;
mod doctor;
mod duration;
// Most of it is read by `check` alone.
#[cfg_attr(not(feature = "software"), allow(dead_code))]
mod elf;
mod embedded;
mod hidden_input;
mod inherited;
mod jupyter;
mod key;
mod keys;
mod kubernetes;
mod launch;
mod libc_detection;
mod library;
mod logging;
mod login;
#[cfg(feature = "driver")]
mod mmap;
mod mpirun;
mod nccl;
mod own_server;
mod pool;
mod pool_command;
#[cfg(feature = "software")]
mod ptxas;
mod rank_metrics;
mod renamed;
mod report;
mod run;
mod serve;
mod server;
#[cfg_attr(not(feature = "software"), allow(dead_code))]
mod stand_ins;
mod status_query;
mod trace;
mod try_driver;
mod tune;
mod usage;
mod waiting;
mod watch;
#[cfg(feature = "software")]
mod xla;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::LazyLock;

use causeway_config::file::{FilesError, Section};
use causeway_config::read::{PROCESS, files};
use causeway_config::{Component, Role, act_as, check, unknown};
use causeway_server::back_end::BUILT_IN;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ratatui::crossterm::terminal;

/// Run CUDA programs on GPUs that are elsewhere.
///
/// A server with a GPU runs `causeway serve`. On any other machine `causeway run --on SERVER -- PROGRAM`
/// runs an unmodified CUDA program there: its calls of the CUDA driver are carried to the server.
#[derive(Debug, Parser)]
#[command(name = "causeway", version, long_version = LONG_VERSION.as_str(), after_long_help = environment(), max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What `causeway --version` says: the version, the commit with its date, and for `causeway serve` the back ends that are built in.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    format!("{}{}\nback ends: {BUILT_IN}", env!("CARGO_PKG_VERSION"), of_commit(env!("CAUSEWAY_COMMIT")))
});

/// The commit that was built and its date, behind the version; nothing where the build did not know them.
fn of_commit(commit: &str) -> String {
    if commit.is_empty() { String::new() } else { format!(" ({commit})") }
}

// What the help says of a command stands at its arguments.
#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Run(run::Arguments),
    Trace(trace::Arguments),
    Mpirun(mpirun::Arguments),
    Devices(devices::Arguments),
    Sessions(watch::sessions::Arguments),
    Top(watch::top::Arguments),
    Ranks(watch::ranks::Arguments),
    Drain(watch::drain::Arguments),
    Move(watch::moves::MoveArguments),
    Checkpoint(watch::moves::CheckpointArguments),
    Restore(watch::moves::RestoreArguments),
    Pool(pool_command::Arguments),
    Doctor(doctor::Arguments),
    #[cfg(feature = "software")]
    Check(check::Arguments),
    Key(key::Arguments),
    Client(client::Arguments),
    Login(login::Arguments),
    Usage(usage::Arguments),
    Config(config_command::Arguments),
    Api(api::Arguments),
    Demo(demo::Arguments),
    Tune(tune::Arguments),
    Jupyter(jupyter::Arguments),
    Cdi(cdi::Arguments),
    Kubernetes(kubernetes::Arguments),
    Bench(bench::BenchArguments),
    Completions(completions::CompletionArguments),
    Man(completions::ManArguments),
    /// Measure one target; started by `causeway bench`.
    #[command(hide = true)]
    Measure(bench::MeasureArguments),
    /// Measure plans in a process that uses the client library; started by `causeway tune`.
    #[command(hide = true)]
    TuneHere(tune::HereArguments),
    /// Start NVIDIA's driver, and say why if it cannot be; started by `causeway serve`.
    #[command(hide = true)]
    TryDriver,
    /// Serve one client; started by `causeway serve`.
    #[command(hide = true)]
    Worker(logging::Options),
}

/// The width of lines that clap is not to break again: a terminal's, but no more than pages have.
fn help_width() -> usize {
    const MAX_WIDTH: u16 = 100;
    const MIN_WIDTH: u16 = 40;
    let columns = terminal::size().ok().filter(|_| io::stdout().is_terminal()).map(|(columns, _)| columns);
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    usize::from(columns.or_else(named).unwrap_or(MAX_WIDTH).clamp(MIN_WIDTH, MAX_WIDTH))
}

/// The end of `causeway --help`.
fn environment() -> String {
    let variables = causeway_config::document::help(help_width());
    format!(
        "\
Environment variables:
{variables}
CUDA_VISIBLE_DEVICES and the other CUDA_* variables of the program have their usual meaning; they \
are interpreted by the client library or given to the server's driver. A program that is started \
with CAUSEWAY_ON and finds our libcuda.so.1 needs no `causeway run`.

Exit codes of `causeway run`: the program's own; a signal that ends the program ends `causeway run` \
too; 127 when the program is not found, 126 when it cannot be started, 125 for any other error."
    )
}

impl Command {
    /// Which sections of configuration files concern the command.
    fn role(&self) -> Role {
        match self {
            Self::Serve(_) | Self::TryDriver => Role::Server,
            Self::Worker(_) => Role::Worker,
            _ => Role::Client,
        }
    }

    /// Whose variables the command acts on, itself or by what it starts, and its exit code where one cannot
    /// be used. It says so before it does anything.
    fn environment(&self) -> (&'static [Component], u8) {
        const PROGRAM: &[Component] = &[Component::Client, Component::Worker, Component::Run];
        match self {
            Self::Serve(_) => (&[Component::Server], 1),
            Self::Run(_) | Self::Trace(_) | Self::Demo(_) => (PROGRAM, 125),
            Self::Doctor(_) => (PROGRAM, 2),
            Self::Devices(_)
            | Self::Sessions(_)
            | Self::Top(_)
            | Self::Drain(_)
            | Self::Move(_)
            | Self::Checkpoint(_)
            | Self::Restore(_)
            | Self::Pool(_)
            | Self::Bench(_)
            | Self::Tune(_) => (PROGRAM, 1),
            #[cfg(feature = "software")]
            // It checks those of the software GPU itself.
            Self::Check(_) => (&[], 2),
            Self::Mpirun(_) => (&[Component::Mpirun, Component::Rank], 125),
            Self::Jupyter(_) | Self::Cdi(_) | Self::Kubernetes(_) => (&[Component::Run], 1),
            // Those that are started by others have been checked there.
            Self::Key(_)
            | Self::Client(_)
            | Self::Login(_)
            | Self::Usage(_)
            | Self::Config(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Ranks(_)
            | Self::Api(_)
            | Self::Measure(_)
            | Self::TuneHere(_)
            | Self::TryDriver
            | Self::Worker(_) => (&[], 1),
        }
    }
}

/// What is to be done, as the command line says, and for `causeway serve` configuration files, too.
fn parse() -> Result<Command, CommandError> {
    let all = Arguments::command();
    let typed_arguments = renamed::with_current_names(std::env::args_os().collect());
    let typed = or_exit(all.clone().try_get_matches_from(&typed_arguments), &typed_arguments);
    let matches = match typed.subcommand() {
        Some((config_file::SERVE, serve)) => {
            act_as(Role::Server);
            files().check(|section| *section == Section::Serve).map_err(CommandError::of(1))?;
            let wrong = |errors| CommandError::of(1)(FilesError { errors });
            let counting = config_file::counting(&all, files(), serve);
            let with_defaults = config_file::with_defaults(all, files(), serve).map_err(wrong)?;
            let errors = serve::check_entries(&counting);
            if !errors.is_empty() {
                return Err(wrong(errors));
            }
            or_exit(with_defaults.try_get_matches_from(&typed_arguments), &typed_arguments)
        }
        _ => typed,
    };
    Ok(or_exit(Arguments::from_arg_matches(&matches), &typed_arguments).command)
}

/// What was parsed; ends this process where the command line is wrong, or asks for help or the version.
fn or_exit<T>(parsed: Result<T, clap::Error>, typed: &[OsString]) -> T {
    parsed.unwrap_or_else(|error| {
        let code = usage_exit_code(&error, typed);
        // When nobody reads it there is nobody to tell.
        let _ = blame_variable(error, typed).print();
        std::process::exit(code)
    })
}

/// The exit code of a wrong command line: commands that end as their program does have one of their own.
fn usage_exit_code(error: &clap::Error, typed: &[OsString]) -> i32 {
    let ends_like_program = matches!(typed.get(1), Some(command) if ["run", "trace", "demo", "mpirun"].iter().any(|name| command == name));
    match (error.use_stderr(), ends_like_program) {
        (false, _) => 0,
        (true, true) => 125,
        (true, false) => 2,
    }
}

/// The error with the variable's name in place of the option's, where the value is from a variable.
fn blame_variable(mut error: clap::Error, typed: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return error };
    let Some(long) = argument.split([' ', '=']).next().and_then(|option| option.strip_prefix("--")) else {
        return error;
    };
    let is_typed = |word: &OsString| {
        let option = word.to_str().and_then(|word| word.strip_prefix("--")).unwrap_or_default();
        option.split('=').next() == Some(long)
    };
    if typed.iter().take_while(|word| *word != "--").any(is_typed) {
        return error;
    }
    if let Some(variable) = variable_of(&Arguments::command(), long) {
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
    error
}

/// The variable that is set and fills the option of a command or of one of its subcommands.
fn variable_of(command: &clap::Command, long: &str) -> Option<String> {
    let own = command.get_arguments().filter(|option| option.get_long() == Some(long)).find_map(|option| {
        let variable = option.get_env()?;
        std::env::var_os(variable)?;
        variable.to_str().map(str::to_owned)
    });
    own.or_else(|| command.get_subcommands().find_map(|command| variable_of(command, long)))
}

fn main() -> ExitCode {
    #[cfg(feature = "software")]
    {
        let arguments: Vec<_> = std::env::args_os().collect();
        if ptxas::is_meant(&arguments) {
            return ptxas::run(&arguments);
        }
    }
    let outcome = parse().and_then(|command| {
        act_as(command.role());
        let (components, code) = command.environment();
        check(PROCESS, components).map_err(CommandError::of(code))?;
        for variable in unknown::among(std::env::vars_os().map(|(name, _)| name)) {
            let _ = writeln!(io::stderr(), "causeway: warning: {variable}");
        }
        carry_out(command)
    });
    outcome.unwrap_or_else(|error| {
        if error.is_broken_pipe && has_no_reader(io::stdout()) {
            // As a program that SIGPIPE ends: `causeway api | head` is no error that anybody wants to read of.
            return ExitCode::from(128 + 13);
        }
        // When nobody reads our standard error there is nobody to tell.
        let _ = writeln!(io::stderr(), "causeway: {}", error.text);
        ExitCode::from(error.code)
    })
}

fn carry_out(command: Command) -> Result<ExitCode, CommandError> {
    match command {
        Command::Serve(arguments) => serve::serve(&arguments).map_err(CommandError::of(1)),
        Command::Run(arguments) => {
            run::run(&arguments).map_err(|error| CommandError::of(error.exit_code())(error))
        }
        Command::Trace(arguments) => {
            trace::trace(&arguments).map_err(|error| CommandError::of(error.exit_code())(error))
        }
        Command::Mpirun(arguments) => {
            mpirun::mpirun(&arguments).map_err(|error| CommandError::of(error.exit_code())(error))
        }
        Command::Devices(arguments) => devices::devices(&arguments).map_err(CommandError::of(1)),
        Command::Sessions(arguments) => watch::sessions::sessions(&arguments).map_err(CommandError::of(1)),
        Command::Top(arguments) => watch::top::top(&arguments).map_err(CommandError::of(1)),
        Command::Ranks(arguments) => watch::ranks::ranks(&arguments).map_err(CommandError::of(1)),
        Command::Drain(arguments) => watch::drain::drain(&arguments).map_err(CommandError::of(1)),
        Command::Move(arguments) => watch::moves::move_session(&arguments).map_err(CommandError::of(1)),
        Command::Checkpoint(arguments) => watch::moves::checkpoint(&arguments).map_err(CommandError::of(1)),
        Command::Restore(arguments) => watch::moves::restore(&arguments).map_err(CommandError::of(1)),
        Command::Pool(arguments) => pool_command::pool(&arguments).map_err(CommandError::of(1)),
        Command::Doctor(arguments) => doctor::doctor(&arguments).map_err(CommandError::of(2)),
        #[cfg(feature = "software")]
        Command::Check(arguments) => check::check(&arguments).map_err(CommandError::of(2)),
        Command::Config(arguments) => {
            config_command::config(&arguments, &Arguments::command()).map_err(CommandError::of(1))
        }
        Command::Completions(arguments) => {
            completions::completions(&arguments, Arguments::command()).map_err(CommandError::of(1))
        }
        Command::Man(arguments) => {
            completions::man(&arguments, Arguments::command()).map_err(CommandError::of(1))
        }
        Command::Key(arguments) => key::key(&arguments).map_err(CommandError::of(1)),
        Command::Client(arguments) => client::client(&arguments).map_err(CommandError::of(1)),
        Command::Login(arguments) => login::login(&arguments).map_err(CommandError::of(1)),
        Command::Usage(arguments) => usage::usage(&arguments).map_err(CommandError::of(1)),
        Command::Api(arguments) => api::api(&arguments).map_err(CommandError::of(1)),
        Command::Demo(arguments) => {
            demo::demo(&arguments).map_err(|error| CommandError::of(error.exit_code())(error))
        }
        Command::Jupyter(arguments) => jupyter::jupyter(&arguments).map_err(CommandError::of(1)),
        Command::Cdi(arguments) => cdi::cdi(&arguments).map_err(CommandError::of(1)),
        Command::Kubernetes(arguments) => kubernetes::kubernetes(&arguments).map_err(CommandError::of(1)),
        Command::Bench(arguments) => bench::bench(&arguments).map_err(CommandError::of(1)),
        Command::Measure(arguments) => bench::measure(&arguments).map_err(CommandError::of(1)),
        Command::Tune(arguments) => tune::tune(&arguments).map_err(CommandError::of(1)),
        Command::TuneHere(arguments) => tune::tune_here(&arguments).map_err(CommandError::of(1)),
        Command::TryDriver => try_driver::try_driver_here().map_err(CommandError::of(1)),
        Command::Worker(arguments) => {
            let _at_end = logging::start(&arguments);
            Ok(causeway_server::worker_main())
        }
    }
}

/// What a command failed with: a sentence and an exit code.
struct CommandError {
    text: String,
    code: u8,
    /// Whether something was written that nobody reads.
    is_broken_pipe: bool,
}

impl CommandError {
    fn of<E: Error + 'static>(code: u8) -> impl Fn(E) -> Self {
        move |error| Self { text: error.to_string(), code, is_broken_pipe: is_broken_pipe(&error) }
    }
}

/// Whether an error was caused by a reader that is gone.
fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let is_one = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref().is_some_and(is_one) || error.source().is_some_and(is_broken_pipe)
}

/// Whether the other end of a pipe is closed.
fn has_no_reader(pipe: impl std::os::fd::AsFd) -> bool {
    let mut watched = [rustix::event::PollFd::new(&pipe, rustix::event::PollFlags::empty())];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = rustix::event::poll(&mut watched, Some(&at_once));
    polled.is_ok()
        && watched[0].revents().intersects(rustix::event::PollFlags::ERR | rustix::event::PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn wrong_command_lines_have_the_exit_codes_that_help_names() {
        for (line, code) in [
            ("run --no-such", 125),
            ("run", 125),
            ("run --help", 0),
            ("mpirun --no-such", 125),
            ("devices --no-such", 2),
            ("--version", 0),
            ("nonsense", 2),
        ] {
            let typed: Vec<OsString> =
                ["causeway"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            let error = Arguments::command().try_get_matches_from(&typed).unwrap_err();
            assert_eq!(usage_exit_code(&error, &typed), code, "{line}");
        }
    }

    #[test]
    fn pipe_without_a_reader_is_distinguished_from_other_errors() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!has_no_reader(&writer));
        drop(reader);
        assert!(has_no_reader(&writer));
        let broken = usage::UsageError::Print(io::ErrorKind::BrokenPipe.into());
        assert!(
            is_broken_pipe(&broken)
                && !is_broken_pipe(&usage::UsageError::Print(io::ErrorKind::StorageFull.into()))
        );
    }
}
