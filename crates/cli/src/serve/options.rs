//! Options of `causeway serve`.

use crate::logging;
use causeway_access::DEFAULT_PORT;
use causeway_access::keys::limits::{TimeSpan, parse_session_memory};
use causeway_config::size::SizeError;
use causeway_config::{Size, table};
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
/// Prints the address for `causeway run --on`, on a terminal with the key in it. Listens for programs of this
/// machine only, unless --listen names another address. Whoever connects over TCP proves that it holds the
/// key, as does the server, and everything is encrypted. The key is made at the first start; programs of the
/// server's own user find it by themselves, and `causeway key show` prints it for others. SIGTERM or Ctrl-C
/// ends the server and its sessions. On SIGHUP the program, as it is installed now, and its configuration are
/// started anew: the new server accepts callers, and open sessions go on.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where to listen: HOST:PORT, or only HOST; unix:PATH, or unix:@NAME for an abstract socket; or one of
    /// each, with a comma between them. :PORT and 0.0.0.0:PORT mean every address of this machine; port 0
    /// takes any free port.
    #[arg(long, value_name = "ADDRESS", default_value_t = format!("127.0.0.1:{DEFAULT_PORT}"))]
    pub(super) listen: String,
    /// The file with the key. It is made if it is not there, in a folder that is. If it is deleted or
    /// replaced, the old key is no longer accepted. Clients with keys of their own (`causeway client`) are kept in
    /// clients.toml beside it. If not given: ~/.config/causeway/key.
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Where is written, a line of JSON each, who has used the server for what and who was turned away: `causeway
    /// usage` sums it up. Only the server's user can read the file.
    #[arg(long, value_name = "FILE")]
    pub(super) audit_log: Option<PathBuf>,
    /// Let clients that ask for it, and have proved that they hold the key, send in the clear: for a network
    /// that no other host can reach.
    #[arg(long)]
    pub(super) clear: bool,
    /// Disable authentication: every host that can connect may use the GPUs and read what others send. For
    /// tests.
    #[arg(long, conflicts_with_all = ["key_file", "clear"])]
    pub(super) insecure_no_key: bool,
    /// A user of this machine who may use the server at its Unix sockets, by name or number. May be given
    /// several times. The server's own user always may.
    #[arg(long, value_name = "USER", value_parser = user)]
    pub(super) allow_user: Vec<u32>,
    /// A group of this machine whose users may use the server at its Unix sockets, by name or number. May be
    /// given several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    pub(super) allow_group: Vec<u32>,
    /// Other servers that this one connects to when a client copies between GPUs of both: ADDRESS,
    /// ADDRESS/BITS, each with or without :PORT, with commas between them. Those that hold the same key need
    /// not be named.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub(super) peers: Vec<PeerRange>,
    /// What executes the calls: driver (NVIDIA's), cpu (the software GPU), or auto (the driver; where that
    /// cannot be used, clients are refused with the reason, unless --allow-software is given). `causeway
    /// --version` says which of them this build holds.
    #[arg(long, value_name = "auto|cpu|driver", default_value_t)]
    pub(super) gpu: GpuChoice,
    /// The devices that clients see, in this order, with commas between them: numbers as `nvidia-smi -L` counts
    /// them, or UUIDs (GPU-...). If not given: those that CUDA_VISIBLE_DEVICES leaves the server, or all.
    #[arg(long, value_name = "DEVICES")]
    pub(super) devices: Option<DeviceList>,
    /// Serve the software GPU where NVIDIA's driver cannot be used, which is many times slower; the log says
    /// when it is so. For --gpu auto only.
    #[arg(long)]
    pub(super) allow_software: bool,
    /// The folder where module images of clients are cached, so that each crosses the network once. If not
    /// given: causeway/images in $XDG_CACHE_HOME or ~/.cache.
    #[arg(long, value_name = "FOLDER")]
    pub(super) cache_dir: Option<PathBuf>,
    /// Maximum size of the image cache, in bytes, or with K, M, G or T behind the number.
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = size)]
    pub(super) cache_size: u64,
    /// Disable the image cache: every session sends its own module images.
    #[arg(long, conflicts_with_all = ["cache_dir", "cache_size"])]
    pub(super) no_cache: bool,
    /// A folder for a Unix socket by which clients of this host share memory with their workers. Containers
    /// need one that both see; without containers nothing needs to be given.
    #[arg(long, value_name = "FOLDER", env = table::SOCKET_DIR.name)]
    pub(super) socket_dir: Option<PathBuf>,
    /// Maximum number of concurrent sessions; further sessions are refused. If not given: as many as the hard limit of open files
    /// allows, 4096 at most.
    #[arg(long, value_name = "N")]
    pub(super) max_sessions: Option<usize>,
    /// Maximum number of concurrent sessions of one address (of IPv6 its network of 64 bits); further sessions are refused.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SESSIONS_PER_PEER)]
    pub(super) max_sessions_per_peer: usize,
    /// Action for a worker that executes one command, or starts the GPU, for longer than so many seconds: warn,
    /// or kill, and the seconds behind a colon. A command may have to wait for a kernel, so leave time for
    /// those. A worker that is stopped or does not answer at all is killed after 60 s either way.
    #[arg(long, value_name = "warn|kill[:SECONDS]", default_value_t = HungWorker::default())]
    pub(super) hung_worker: HungWorker,
    /// After how many seconds without a byte a connection of a session over TCP is given up while others of the
    /// session work, and a connection of another server. Something is sent on each every second. 0 is never.
    #[arg(long, value_name = "SECONDS", default_value_t = KeepaliveSeconds::default().connection)]
    pub(super) keepalive_timeout: u32,
    /// After how many seconds without a byte of its client a session over TCP ends. A program that is stopped, as
    /// by a debugger, is as silent as one behind a network that forwards nothing any more, so leave time for that.
    /// 0 is never.
    #[arg(long, value_name = "SECONDS", default_value_t = KeepaliveSeconds::default().client)]
    pub(super) client_timeout: u32,
    /// For how many seconds at most the session of a program is kept that has lost its connection over TCP and asked for
    /// being resumed (CAUSEWAY_RESUME_TIMEOUT); one that was killed takes up its memory for so long. 0 resumes none.
    #[arg(long, value_name = "SECONDS", default_value_t = KeepaliveSeconds::default().resume)]
    pub(super) resume_timeout: u32,
    /// After how long without a command, 90s, 30m, 8h or 2d, a session returns its device memory, which goes to this
    /// machine's memory (the software GPU's to its disk) and comes back before the session's next command. If not given:
    /// never. `causeway sessions release` does it by hand.
    #[arg(long, value_name = "TIME")]
    pub(super) idle_release: Option<TimeSpan>,
    /// How long a program waits at most for device memory that was released, while other programs have the GPU's memory; its
    /// session ends then.
    #[arg(long, value_name = "TIME", default_value_t = TimeSpan(ReleaseTimes::default().returns_within()))]
    pub(super) idle_return_timeout: TimeSpan,
    /// Where monitoring systems read what happens here, HOST:PORT or :PORT: /metrics in Prometheus' format,
    /// /healthz and /readyz. Whoever reaches the address may read; there is nothing of a client's in it without
    /// --metrics-sessions.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics: Option<String>,
    /// Have the metrics name each open session with its client, user and job, and what it has done: at most 64 sessions of
    /// one peer and 512 in all.
    #[arg(long)]
    pub(super) metrics_sessions: bool,
    /// Grace period in seconds: SIGTERM lets open sessions go on for so long, while new ones are refused; a second SIGTERM ends
    /// them. 0 ends them at once, as Ctrl-C does.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
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
    /// What keeps workers from the rest of this machine, should a client make one run foreign code: auto (what the
    /// system has; the log names what is missing), require (all of it, or the server does not start) or off.
    #[arg(long, value_name = "auto|require|off", default_value_t = Mode::Auto)]
    sandbox: Mode,
    /// The most memory that a session's worker may use, in bytes, or with K, M, G or T behind the number, where the
    /// server can make control groups. A worker that wants more is ended. If not given: three quarters of the
    /// machine's, or of what the server's own control group, such as a container's, may use.
    #[arg(long, value_name = "SIZE", value_parser = parse_session_memory)]
    session_memory: Option<u64>,
    /// The most memory that the server and all sessions may use together, in the same way. If there is not enough,
    /// the worker that uses most is ended. If not given: nine tenths of the machine's, or of what the server's own
    /// control group may use.
    #[arg(long, value_name = "SIZE", value_parser = parse_session_memory)]
    total_memory: Option<u64>,
    /// The users as which workers run when the server is root; no other process may have them. Each worker gets one of its
    /// own. If not given: numbers above the ranges of distributions, containers and directory services; and with
    /// NVIDIA's driver all workers share the first, since it shares events between processes of one user only.
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
    fn users_have_names_and_numbers() {
        assert_eq!((user("0"), user("root"), group("root")), (Ok(0), Ok(0), Ok(0)));
        assert!(user("no such user").unwrap_err().contains("no user `no such user`"));
    }
}
