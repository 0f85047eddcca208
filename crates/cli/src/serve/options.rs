//! Options of `causeway serve`.

use crate::duration::seconds;
use crate::logging;
use causeway_access::DEFAULT_PORT;
use causeway_access::keys::limits::parse_session_memory;
use causeway_config::size::SizeError;
use causeway_config::{Size, TimeSpan, table};
use causeway_sandbox::{Mode, SandboxRequest, UserRange, default_session_memory, default_total_memory};
use causeway_server::broker::{
    DEFAULT_SESSIONS_PER_PEER, DeviceList, GpuChoice, KeepaliveSeconds, PeerRange, ReleaseTimes,
};
use causeway_server::heartbeat::HungWorker;
use clap::Args;
use nix::unistd::{Group, User};
use std::path::PathBuf;

/// Offer this machine's GPUs to clients.
///
/// Prints the address for `causeway run --on`; on a terminal, the address includes the key. Only programs of this
/// machine can connect unless `--listen` gives an address. Over TCP, both ends prove that they hold the key, and all data
/// is encrypted. The key is created at the first start: programs of the server's own user find it by
/// themselves, and `causeway key show` prints it for others. SIGTERM or Ctrl-C ends the server and its
/// sessions. SIGHUP starts the installed program with its current configuration as a new server, which
/// accepts new connections; open sessions continue.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Address to listen at: HOST:PORT, or HOST alone; unix:PATH, or unix:@NAME for an abstract socket;
    /// vsock:PORT for virtual machines of this host (or, in a guest, for its host); or one of each, separated by
    /// commas. :PORT and 0.0.0.0:PORT mean all addresses of this machine; port 0 takes any free port of TCP.
    #[arg(long, value_name = "ADDRESS", default_value_t = format!("127.0.0.1:{DEFAULT_PORT}"))]
    pub(super) listen: String,
    /// Key file. It is created if it does not exist; its folder must exist. If it is deleted or replaced, the
    /// old key is no longer accepted. Clients with keys of their own (`causeway client`) are in clients.toml
    /// beside it. Default: ~/.config/causeway/key.
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Audit log: a file to which one line of JSON is written for each session and each refused connection;
    /// `causeway usage` sums it up. Only the server's user can read it. Default: no audit log.
    #[arg(long, value_name = "FILE")]
    pub(super) audit_log: Option<PathBuf>,
    /// Allow unencrypted connections: clients that request it, and have proved that they hold the key, send
    /// data in the clear. For networks that no other host can reach.
    #[arg(long)]
    pub(super) clear: bool,
    /// Disable authentication: every host that can connect may use the GPUs and read what others send. For
    /// tests.
    #[arg(long, conflicts_with_all = ["key_file", "clear"])]
    pub(super) insecure_no_key: bool,
    /// User of this machine, by name or number, who may use the server at its Unix sockets. Can be given
    /// several times. The server's own user always may.
    #[arg(long, value_name = "USER", value_parser = user)]
    pub(super) allow_user: Vec<u32>,
    /// Group of this machine, by name or number, whose users may use the server at its Unix sockets. Can be
    /// given several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    pub(super) allow_group: Vec<u32>,
    /// Servers that this one may connect to when a client copies between GPUs of both: ADDRESS or
    /// ADDRESS/BITS, each with or without :PORT, separated by commas. Servers with the same key need not be
    /// listed.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub(super) peers: Vec<PeerRange>,
    /// Back end: driver (NVIDIA's), cpu (the software GPU), or auto (the driver; if it cannot be used,
    /// clients are refused with the reason, unless --allow-software is given). `causeway --version` lists the
    /// back ends of this build.
    #[arg(long, value_name = "auto|cpu|driver", default_value_t)]
    pub(super) gpu: GpuChoice,
    /// Devices that clients see, in this order, separated by commas: numbers as those of nvidia-smi, or UUIDs
    /// (GPU-...). Default: those of CUDA_VISIBLE_DEVICES, or all.
    #[arg(long, value_name = "DEVICES")]
    pub(super) devices: Option<DeviceList>,
    /// Use the software GPU if NVIDIA's driver cannot be used, and write that to the log. It is many times
    /// slower. Only with --gpu auto.
    #[arg(long)]
    pub(super) allow_software: bool,
    /// Folder of the cache for module images of clients, so that each crosses the network once. Default:
    /// causeway/images in $XDG_CACHE_HOME or ~/.cache.
    #[arg(long, value_name = "FOLDER")]
    pub(super) cache_dir: Option<PathBuf>,
    /// Maximum size of the image cache, in bytes, or with the suffix K, M, G or T.
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = size)]
    pub(super) cache_size: u64,
    /// Disable the image cache: every session sends its own module images.
    #[arg(long, conflicts_with_all = ["cache_dir", "cache_size"])]
    pub(super) no_cache: bool,
    /// Folder for a Unix socket by which clients of this host share memory with their workers. Needed only if
    /// clients are in containers: a folder that both can access.
    #[arg(long, value_name = "FOLDER", env = table::SOCKET_DIR.name)]
    pub(super) socket_dir: Option<PathBuf>,
    /// Maximum number of concurrent sessions; further ones are refused. Default: as many as the hard limit of
    /// open files allows, at most 4096.
    #[arg(long, value_name = "N", value_parser = one_or_more)]
    pub(super) max_sessions: Option<usize>,
    /// Maximum number of concurrent sessions of one address (of IPv6: of one network of 64 bits); further
    /// ones are refused.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SESSIONS_PER_PEER, value_parser = one_or_more)]
    pub(super) max_sessions_per_peer: usize,
    /// Action if a worker executes one command, or starts the GPU, for longer than the given time:
    /// warn:TIME or kill:TIME. A command may wait for a kernel, so allow for long kernels. A worker
    /// that is stopped, or does not respond at all, is killed after 60 s in any case.
    #[arg(long, value_name = "warn|kill[:TIME]", default_value_t = HungWorker::default())]
    pub(super) hung_worker: HungWorker,
    /// Time (seconds, or 90s, 10m, 2h) without received data after which a TCP connection of a session is
    /// closed while others of the session work, and a connection to another server. Both ends send something
    /// every second. 0: never.
    #[arg(long, value_name = "TIME", default_value_t = KeepaliveSeconds::default().connection)]
    #[arg(value_parser = seconds::<0, { u32::MAX }>)]
    pub(super) keepalive_timeout: u32,
    /// Time without data from its client after which a session over TCP ends. A program that is stopped in a
    /// debugger sends nothing, so allow for that. 0: never.
    #[arg(long, value_name = "TIME", default_value_t = KeepaliveSeconds::default().client)]
    #[arg(value_parser = seconds::<0, { u32::MAX }>)]
    pub(super) client_timeout: u32,
    /// Maximum time for which a session is kept after its TCP connection is lost, if the program
    /// has set CAUSEWAY_RESUME_TIMEOUT. A program that was killed occupies its memory for that time. 0:
    /// sessions are not kept.
    #[arg(long, value_name = "TIME", default_value_t = KeepaliveSeconds::default().resume)]
    #[arg(value_parser = seconds::<0, { u32::MAX }>)]
    pub(super) resume_timeout: u32,
    /// Idle time (90s, 30m, 8h, 2d) after which a session releases its device memory to this machine's memory
    /// (software GPU: to the disk) until the session's next command. Default: never.
    /// `causeway sessions release` does it at once.
    #[arg(long, value_name = "TIME")]
    pub(super) idle_release: Option<TimeSpan>,
    /// Maximum time for which a program waits for its released device memory while other programs occupy the
    /// GPU's memory; then its session ends.
    #[arg(long, value_name = "TIME", default_value_t = TimeSpan(ReleaseTimes::default().returns_within()))]
    pub(super) idle_return_timeout: TimeSpan,
    /// Address of the metrics endpoint, HOST:PORT or :PORT: /metrics in Prometheus' format, /metrics/otel and
    /// /metrics/dcgm with the devices under others' names, /healthz and /readyz, without authentication. Only
    /// with --metrics-sessions do the metrics contain data of clients.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics: Option<String>,
    /// Include each open session in the metrics, with client, user and job: at most 64 sessions of one peer,
    /// and 512 in all. Also the ranks of MPI jobs on this host that the server's user may see, as `causeway ranks`
    /// lists them.
    #[arg(long)]
    pub(super) metrics_sessions: bool,
    /// Grace period: after SIGTERM, open sessions may continue for this time, and new ones are
    /// refused; a second SIGTERM ends them. 0: they end at once, as with Ctrl-C.
    #[arg(long, value_name = "TIME", default_value_t = 0)]
    #[arg(value_parser = seconds::<0, { u32::MAX }>)]
    pub(super) grace_period: u32,
    /// Take the place of the server that has started this one, which is asked at standard input.
    #[arg(long, hide = true)]
    pub(super) takes_over: bool,
    #[command(flatten)]
    pub(super) sandbox: Sandbox,
    #[command(flatten)]
    pub(super) logging: logging::Options,
}

/// The options about the sandbox.
#[derive(Debug, Clone, Copy, Args)]
pub struct Sandbox {
    /// Sandbox of workers: auto (what the system supports; the log names what is missing), require (all of
    /// it, or the server does not start), or off.
    #[arg(long, value_name = "auto|require|off", default_value_t = Mode::Auto)]
    sandbox: Mode,
    /// Maximum memory of a session's worker, in bytes, or with the suffix K, M, G or T, if the server can
    /// create control groups. A worker that exceeds it is killed. Default: three quarters of the machine's
    /// memory, or of the limit of the server's own control group.
    #[arg(long, value_name = "SIZE", value_parser = parse_session_memory)]
    session_memory: Option<u64>,
    /// Maximum memory of the server and all sessions together, in the same units. If it is exhausted, the
    /// worker that uses most is killed. Default: nine tenths of the machine's memory, or of the limit of the
    /// server's own control group.
    #[arg(long, value_name = "SIZE", value_parser = parse_session_memory)]
    total_memory: Option<u64>,
    /// Range of user IDs for workers, if the server is root; no other process may have them. Each worker gets
    /// one. Default: IDs above the ranges of distributions, containers and directory services; with NVIDIA's
    /// driver all workers share the first, since it shares events only between processes of one user.
    #[arg(long, value_name = "FIRST-LAST")]
    worker_users: Option<UserRange>,
}

impl Sandbox {
    /// What is wanted of the sandbox of a server whose key is in this file.
    pub fn wanted(&self, key_file: Option<PathBuf>) -> SandboxRequest {
        SandboxRequest {
            mode: self.sandbox,
            users: self.worker_users.unwrap_or(UserRange::DEFAULT),
            apart: self.worker_users.is_some(),
            session_memory: self.session_memory.unwrap_or_else(default_session_memory),
            total_memory: self.total_memory.unwrap_or_else(default_total_memory),
            key_file,
            ..SandboxRequest::default()
        }
    }
}

/// A number of which 0 makes no sense.
fn one_or_more(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| "give a whole number of 1 or more".to_owned())
}

/// A number of bytes on the command line.
pub fn size(text: &str) -> Result<u64, SizeError> {
    text.parse().map(|Size(bytes)| bytes)
}

/// A user by name or number.
pub fn user(text: &str) -> Result<u32, String> {
    by_name(text, "user", |name| Ok(User::from_name(name)?.map(|user| user.uid.as_raw())))
}

/// A group by name or number.
pub fn group(text: &str) -> Result<u32, String> {
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

#[cfg(test)]
mod values_tests {
    use super::*;

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        assert_eq!(one_or_more("3"), Ok(3));
        assert!(["0", "-1", "many", ""].iter().all(|text| one_or_more(text).is_err()));
    }

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!((user("0"), user("root"), group("root")), (Ok(0), Ok(0), Ok(0)));
        assert!(user("no such user").unwrap_err().contains("no user `no such user`"));
    }
}
