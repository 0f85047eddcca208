//! How is a server started and ended?

use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use causeway_access::keys::file::{self, KeyFileError};
use causeway_access::{DEFAULT_PORT, Endpoint, Target, TargetError};
use causeway_api::coverage::FINGERPRINT;
use causeway_config::size::SizeError;
use causeway_config::{Size, table};
use causeway_server::back_end;
use causeway_server::broker::{
    Access, AllowedUsers, Broker, BrokerConfig, CacheConfig, DEFAULT_SESSIONS_PER_PEER, GpuChoice, PeerRange,
    StartError,
};
use causeway_server::heartbeat::{HungWorker, Patience};
use clap::Args;
use nix::unistd::{Group, User};
use thiserror::Error;

use crate::sandbox::Sandbox;
use crate::{launch, logging};

/// Offer this machine's GPUs to clients.
///
/// Prints the address for `causeway run --on`, on a terminal with the key in it. Listens for programs of this
/// machine only, unless --listen names another address. Whoever connects over TCP proves that it holds the
/// key, as does the server, and everything is encrypted. The key is made at the first start; programs of the
/// server's own user find it by themselves, and `causeway key show` prints it for others. SIGTERM or Ctrl-C
/// ends the server and its sessions.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where to listen: HOST:PORT, or only HOST; unix:PATH, or unix:@NAME for an abstract socket; or one of
    /// each, with a comma between them. :PORT and 0.0.0.0:PORT mean every address of this machine; port 0
    /// takes any free port.
    #[arg(long, value_name = "ADDRESS", default_value_t = format!("127.0.0.1:{DEFAULT_PORT}"))]
    listen: String,
    /// The file with the key. It is made if it is not there, in a folder that is. If it is deleted or
    /// replaced, the old key lets nobody in any more. If not given: ~/.config/causeway/key.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Let clients that ask for it, and have proved that they hold the key, send in the clear: for a network
    /// that nobody else can reach.
    #[arg(long)]
    clear: bool,
    /// Ask nobody for a key: whoever reaches the address may use the GPUs and read what others send. For
    /// tests.
    #[arg(long, conflicts_with_all = ["key_file", "clear"])]
    insecure_no_key: bool,
    /// A user of this machine who may use the server at its Unix sockets, by name or number. May be given
    /// several times. The server's own user always may.
    #[arg(long, value_name = "USER", value_parser = user)]
    allow_user: Vec<u32>,
    /// A group of this machine whose users may use the server at its Unix sockets, by name or number. May be
    /// given several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    allow_group: Vec<u32>,
    /// Other servers that this one connects to when a client copies between GPUs of both: ADDRESS,
    /// ADDRESS/BITS, each with or without :PORT, with commas between them. Those that hold the same key need
    /// not be named.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    peers: Vec<PeerRange>,
    /// What executes the calls: driver (NVIDIA's), cpu (the software GPU), or auto (the driver; where that
    /// cannot be used, clients are told why and turned away, unless --allow-software is given). `causeway
    /// --version` says which of them this build holds.
    #[arg(long, value_name = "auto|cpu|driver", default_value_t)]
    gpu: GpuChoice,
    /// Serve the software GPU where NVIDIA's driver cannot be used, which is many times slower; the log says
    /// when it is so. For --gpu auto only.
    #[arg(long)]
    allow_software: bool,
    /// The folder where module images of clients are kept, so that each crosses the network once. If not
    /// given: causeway/images in $XDG_CACHE_HOME or ~/.cache.
    #[arg(long, value_name = "FOLDER")]
    cache_dir: Option<PathBuf>,
    /// The most that the images kept may take, in bytes, or with K, M, G or T behind the number.
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = size)]
    cache_size: u64,
    /// Keep no module images: every session sends its own.
    #[arg(long, conflicts_with_all = ["cache_dir", "cache_size"])]
    no_cache: bool,
    /// A folder for a Unix socket by which clients of this host share memory with their workers. Containers
    /// need one that both see; without containers nothing needs to be given.
    #[arg(long, value_name = "FOLDER", env = table::SOCKET_DIR.name)]
    socket_dir: Option<PathBuf>,
    /// The most sessions at a time; more are refused. If not given: as many as the hard limit of open files
    /// allows, 4096 at most.
    #[arg(long, value_name = "N")]
    most_sessions: Option<usize>,
    /// The most sessions of one address (of IPv6 its network of 64 bits) at a time; more are refused.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SESSIONS_PER_PEER)]
    most_sessions_per_peer: usize,
    /// What is done about a worker that is at one command, or at starting the GPU, for so many seconds: warn,
    /// or kill, and the seconds behind a colon. A command may have to wait for a kernel, so leave time for
    /// those. A worker that is stopped or does not answer at all is killed after 60 s either way.
    #[arg(long, value_name = "warn|kill[:SECONDS]", default_value_t = HungWorker::default())]
    hung_worker: HungWorker,
    #[command(flatten)]
    sandbox: Sandbox,
    #[command(flatten)]
    logging: logging::Options,
}

/// Why a server does not start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address cannot be listened at.
    #[error(
        "`{address}` is no address to listen at ({cause}): give HOST:PORT, for example 127.0.0.1:{DEFAULT_PORT}"
    )]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The user names one back end and allows another one.
    #[error(
        "--allow-software is for --gpu auto, which takes the software GPU then where the driver cannot be used; \
         --gpu {0} takes nothing else: leave one of the two out"
    )]
    NoFallback(GpuChoice),
    /// The key file that was named would be in a folder that is not there.
    #[error(
        "there is no folder {0} for the key file: is the name right? If it is, make the folder with `mkdir -p -m 700 {0}`"
    )]
    NoFolder(PathBuf),
    /// NVIDIA's driver is the only thing that is to serve, and cannot be used.
    #[error(
        "--gpu driver cannot serve, for the GPU cannot be used: {0}. `nvidia-smi` and `causeway doctor` say more; --gpu cpu \
         serves the software GPU"
    )]
    NoDriver(String),
    /// NVIDIA's driver cannot be tried.
    #[error("NVIDIA's driver cannot be tried in a process of its own: {0}")]
    Trial(io::Error),
    /// There is no place for the key.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// More is to be listened at than one server does.
    #[error(
        "`{0}` names several addresses of one kind: a server listens at one address over TCP and at one Unix socket"
    )]
    TooMany(String),
    /// The broker does not start.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Runs a server until it is told to end.
pub fn serve(arguments: &Arguments) -> Result<ExitCode, ServeError> {
    let signals = launch::Signals::block(&[libc::SIGTERM, libc::SIGINT]);
    let _at_end = logging::start(&arguments.logging);
    let (listen, socket) = places(&arguments.listen)?;
    let gpu = gpu(arguments)?;
    let access = match &arguments.key_file {
        // At a Unix socket nobody needs a key.
        _ if arguments.insecure_no_key || listen.is_none() => Access::NoKey,
        Some(path) => {
            must_have_folder(path)?;
            Access::KeyFile(path.clone())
        }
        None => Access::KeyFile(file::default_path()?),
    };
    let defaults = BrokerConfig::new(FINGERPRINT);
    let key_file = match &access {
        Access::KeyFile(path) => Some(path.clone()),
        Access::Key(_) | Access::NoKey => None,
    };
    if gpu == GpuChoice::Driver {
        try_driver()?;
    }
    let broker = Broker::start(BrokerConfig {
        listen,
        socket,
        access,
        clear: arguments.clear,
        allowed: AllowedUsers {
            users: arguments.allow_user.iter().copied().collect(),
            groups: arguments.allow_group.iter().copied().collect(),
        },
        peers: arguments.peers.clone(),
        most_sessions: arguments.most_sessions,
        most_sessions_per_peer: arguments.most_sessions_per_peer,
        patience: Patience { hung: arguments.hung_worker, ..defaults.patience },
        gpu,
        cache: cache(arguments),
        // The software GPU starts in no time.
        spare_worker: gpu != GpuChoice::Cpu,
        worker_arguments: arguments.logging.of_worker(),
        socket_folder: arguments.socket_dir.clone(),
        sandbox: arguments.sandbox.wanted(key_file),
        ..defaults
    })?;
    // Whoever started the server may not want to know where it is; that is no reason not to serve.
    let mut out = io::stdout().lock();
    for target in broker.targets() {
        let target = reachable(target);
        // What is not a terminal may be a log, where a secret would stay.
        let text = if out.is_terminal() { target.connect_string() } else { target.address().into() };
        let _ = writeln!(out, "{}", *text);
    }
    let _ = out.flush();
    drop(out);
    let signal = signals.wait();
    tracing::info!(signal = signal.number, "stopping");
    broker.stop();
    Ok(ExitCode::SUCCESS)
}

/// What executes the calls, as the arguments say.
fn gpu(arguments: &Arguments) -> Result<GpuChoice, ServeError> {
    match (arguments.gpu, arguments.allow_software) {
        (GpuChoice::Auto { .. }, allows_software) => Ok(GpuChoice::Auto { allows_software }),
        (chosen, false) => Ok(chosen),
        (chosen, true) => Err(ServeError::NoFallback(chosen)),
    }
}

/// Refuses a key file in a folder that is not there: it is more likely to be misspelt than wanted.
fn must_have_folder(key_file: &Path) -> Result<(), ServeError> {
    let folder = key_file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(missing) => Err(ServeError::NoFolder(missing.to_owned())),
        None => Ok(()),
    }
}

/// Starts NVIDIA's driver once, in a process of its own: the server's must not load it. A server that could
/// serve nobody does not begin.
fn try_driver() -> Result<(), ServeError> {
    let program = std::env::current_exe().map_err(ServeError::Trial)?;
    let mut command = process::Command::new(program);
    command.arg("try-driver").stdin(process::Stdio::null());
    // The signals that end the server, which it keeps back, end this process as well.
    let default_signals = || launch::Signals::unblock(&[libc::SIGTERM, libc::SIGINT]);
    // SAFETY: between fork and exec one async-signal-safe call is made.
    unsafe { command.pre_exec(default_signals) };
    let outcome = command.output().map_err(ServeError::Trial)?;
    if outcome.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&outcome.stdout);
    Err(ServeError::NoDriver(match said.trim() {
        "" => format!("a process that tries it ended with {}", outcome.status),
        cause => cause.trim_end_matches('.').to_owned(),
    }))
}

/// Starts NVIDIA's driver, and prints why if it cannot be.
pub fn try_driver_here() -> Result<ExitCode, io::Error> {
    let Err(cause) = back_end::open_gpu(GpuChoice::Driver) else { return Ok(ExitCode::SUCCESS) };
    writeln!(io::stdout(), "{cause}")?;
    Ok(ExitCode::FAILURE)
}

/// Where images are kept, as the arguments say.
fn cache(arguments: &Arguments) -> Option<CacheConfig> {
    if arguments.no_cache {
        return None;
    }
    let folder = arguments.cache_dir.clone().or_else(default_cache);
    if folder.is_none() {
        tracing::warn!(
            "module images are not kept between sessions: there is no HOME; name a folder with --cache-dir"
        );
    }
    folder.map(|folder| CacheConfig { folder, capacity: arguments.cache_size })
}

/// The folder for images unless another is named.
fn default_cache() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    let folder = folder.or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    Some(folder.join("causeway").join("images"))
}

/// A number of bytes on the command line.
pub fn size(text: &str) -> Result<u64, SizeError> {
    text.parse().map(|Size(bytes)| bytes)
}

/// Where to listen over TCP, and at which Unix socket.
fn places(list: &str) -> Result<(Option<SocketAddr>, Option<String>), ServeError> {
    let (mut network, mut socket) = (None, None);
    for text in list.split(',').map(str::trim) {
        let is_first = match text.strip_prefix("unix:") {
            Some(_) => {
                let wrong = |cause: TargetError| ServeError::Address {
                    address: text.to_owned(),
                    cause: cause.to_string(),
                };
                let Endpoint::Unix(name) = text.parse::<Target>().map_err(wrong)?.endpoint else {
                    unreachable!("an address that begins with unix: is a Unix socket's")
                };
                socket.replace(name).is_none()
            }
            None => network.replace(resolve(text)?).is_none(),
        };
        if !is_first {
            return Err(ServeError::TooMany(list.to_owned()));
        }
    }
    Ok((network, socket))
}

/// A user by name or number.
fn user(text: &str) -> Result<u32, String> {
    by_name(text, "user", |name| Ok(User::from_name(name)?.map(|user| user.uid.as_raw())))
}

/// A group by name or number.
fn group(text: &str) -> Result<u32, String> {
    by_name(text, "group", |name| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw())))
}

fn by_name(
    text: &str,
    kind: &str,
    find: impl FnOnce(&str) -> nix::Result<Option<u32>>,
) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match find(text) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(format!("this machine has no {kind} `{text}`")),
        Err(cause) => Err(format!("the {kind} `{text}` cannot be looked up: {cause}")),
    }
}

fn resolve(address: &str) -> Result<SocketAddr, ServeError> {
    let wrong = |cause: String| ServeError::Address { address: address.to_owned(), cause };
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    if let Some(port) = address.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok((Ipv4Addr::UNSPECIFIED, port).into());
    }
    if let Ok(address) = address.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok((address, DEFAULT_PORT).into());
    }
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| wrong(format!("`{port}` is no port")))?),
        None => (address, DEFAULT_PORT),
    };
    let mut addresses = (host, port).to_socket_addrs().map_err(|cause| wrong(cause.to_string()))?;
    addresses.next().ok_or_else(|| wrong("the name has no address".to_owned()))
}

/// The address under which other machines reach a server that listens at all addresses of this one.
fn reachable(target: &Target) -> Target {
    let mut target = target.clone();
    if let Endpoint::Tcp { host, .. } = &mut target.endpoint
        && host.parse().is_ok_and(|address: IpAddr| address.is_unspecified())
    {
        *host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood_with_and_without_a_port() {
        let resolved = |text: &str| resolve(text).unwrap().to_string();
        assert_eq!(resolved("127.0.0.1:0"), "127.0.0.1:0");
        assert_eq!(resolved("127.0.0.1"), format!("127.0.0.1:{DEFAULT_PORT}"));
        assert_eq!(resolved(":7730"), "0.0.0.0:7730");
        assert_eq!(resolved("[::1]:80"), "[::1]:80");
        assert_eq!(resolved("::1"), format!("[::1]:{DEFAULT_PORT}"));
        assert!(resolve("localhost:1").unwrap().ip().is_loopback());
    }

    #[test]
    fn a_server_listens_over_tcp_and_at_a_unix_socket() {
        let (network, socket) = places("127.0.0.1:5, unix:/run/a.sock").unwrap();
        assert!(network == "127.0.0.1:5".parse().ok() && socket.as_deref() == Some("/run/a.sock"));
        assert!(matches!(places("unix:@a"), Ok((None, Some(name))) if name == "@a"));
        assert!(matches!(places("127.0.0.1:5,127.0.0.1:6"), Err(ServeError::TooMany(_))));
        assert!(matches!(places("unix:a"), Err(ServeError::Address { .. })));
    }

    #[test]
    fn a_key_file_is_made_only_in_a_folder_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            must_have_folder(&folder.path().join("key")).is_ok()
                && must_have_folder(Path::new("key")).is_ok()
        );
        let text = must_have_folder(&folder.path().join("ky/key")).unwrap_err().to_string();
        assert!(text.contains("/ky` for") || text.contains("mkdir -p -m 700"), "{text}");
    }

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!((user("0"), user("root"), group("root")), (Ok(0), Ok(0), Ok(0)));
        assert!(user("no such user").unwrap_err().contains("no user `no such user`"));
    }

    #[test]
    fn what_is_no_address_is_explained() {
        let text = resolve("localhost:http").unwrap_err().to_string();
        assert!(text.contains("`http` is no port") && text.contains("HOST:PORT"), "{text}");
        for wrong in ["no-such-host.invalid", ":", ":http", ":70000"] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
    }
}
