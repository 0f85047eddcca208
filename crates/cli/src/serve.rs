//! How is a server started and ended?

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;

use causeway_api::coverage::FINGERPRINT;
use causeway_fabric::awake::{self, BadCores};
use causeway_fabric::{DEFAULT_PORT, Target};
use causeway_server::broker::key_file::{self, KeyFileError};
use causeway_server::broker::{Broker, BrokerConfig, CacheConfig, GpuChoice, StartError};
use clap::Args;
use thiserror::Error;

use crate::{launch, logging};

/// Offer this machine's GPUs to clients.
///
/// Prints one line on standard output: the connect string for `causeway run --on`. Listens for programs of
/// this machine only, unless --listen names another address; then a key is needed, and everything is
/// encrypted. The key is made at the first start. SIGTERM or Ctrl-C ends the server and its sessions.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where to listen: HOST:PORT, or only HOST. 0.0.0.0 means every address of this machine; port 0
    /// takes any free port.
    #[arg(long, value_name = "ADDRESS", default_value_t = format!("127.0.0.1:{DEFAULT_PORT}"))]
    listen: String,
    /// The file with the key. It is made if it is not there. If not given: no key on a loopback address, else
    /// ~/.config/causeway/key.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// What executes the calls: the NVIDIA driver, cpu (the software GPU), or auto (the driver if it has a
    /// GPU, else the software GPU).
    #[arg(long, value_name = "auto|cpu|driver", default_value_t = GpuChoice::Auto)]
    gpu: GpuChoice,
    /// The folder where module images of clients are kept, so that each crosses the network once. If not given:
    /// causeway/images in $XDG_CACHE_HOME or ~/.cache.
    #[arg(long, value_name = "FOLDER")]
    cache_dir: Option<PathBuf>,
    /// The most that the images kept may take, in bytes, or with K, M, G or T behind the number.
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = parse_size)]
    cache_size: u64,
    /// Keep no module images: every session sends its own.
    #[arg(long, conflicts_with_all = ["cache_dir", "cache_size"])]
    no_cache: bool,
    /// A folder for a Unix socket by which clients of this host share memory with their workers. Containers need one that
    /// both see; without containers nothing needs to be given.
    #[arg(long, value_name = "FOLDER", env = "CAUSEWAY_SOCKET_DIR")]
    socket_dir: Option<PathBuf>,
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
    /// The key is missing or not secret.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The user counts on a number of cores that is none.
    #[error(transparent)]
    Cores(#[from] BadCores),
    /// The broker does not start.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Runs a server until it is told to end.
pub fn serve(arguments: &Arguments) -> Result<ExitCode, ServeError> {
    awake::cores_of_user()?;
    let signals = launch::Signals::block(&[libc::SIGTERM, libc::SIGINT]);
    logging::start(&arguments.logging);
    let listen = resolve(&arguments.listen)?;
    let key_file = match &arguments.key_file {
        Some(path) => Some(path.clone()),
        None if listen.ip().is_loopback() => None,
        None => Some(key_file::default_path()?),
    };
    let key = match key_file {
        Some(path) => {
            let (key, new) = key_file::load_or_create(&path)?;
            tracing::info!(file = %path.display(), new, "the key is in a file that only its owner can read");
            Some(key)
        }
        None => None,
    };
    let broker = Broker::start(BrokerConfig {
        listen,
        key,
        gpu: arguments.gpu,
        cache: cache(arguments),
        // The software GPU starts in no time.
        spare_worker: arguments.gpu != GpuChoice::Cpu,
        worker_arguments: arguments.logging.of_worker(),
        socket_folder: arguments.socket_dir.clone(),
        ..BrokerConfig::new(FINGERPRINT)
    })?;
    // Whoever started the server may not want to know where it is; that is no reason not to serve.
    let _ = writeln!(io::stdout(), "{}", reachable(broker.target()).connect_string());
    let signal = signals.wait();
    tracing::info!(signal = signal.number, "stopping");
    broker.stop();
    Ok(ExitCode::SUCCESS)
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

fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size: give a number of bytes, or one with K, M, G or T behind it");
    let (number, shift) = match text.trim().split_at_checked(text.trim().len().saturating_sub(1)) {
        Some((number, "K" | "k")) => (number, 10),
        Some((number, "M" | "m")) => (number, 20),
        Some((number, "G" | "g")) => (number, 30),
        Some((number, "T" | "t")) => (number, 40),
        _ => (text.trim(), 0),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).ok_or_else(wrong)
}

fn resolve(address: &str) -> Result<SocketAddr, ServeError> {
    let wrong = |cause: String| ServeError::Address { address: address.to_owned(), cause };
    if let Ok(address) = address.parse() {
        return Ok(address);
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
    let anywhere = target.host.parse().is_ok_and(|address: IpAddr| address.is_unspecified());
    let host = if anywhere {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    } else {
        target.host.clone()
    };
    Target { host, ..target.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood_with_and_without_a_port() {
        let resolved = |text: &str| resolve(text).unwrap().to_string();
        assert_eq!(resolved("127.0.0.1:0"), "127.0.0.1:0");
        assert_eq!(resolved("127.0.0.1"), format!("127.0.0.1:{DEFAULT_PORT}"));
        assert_eq!(resolved("[::1]:80"), "[::1]:80");
        assert_eq!(resolved("::1"), format!("[::1]:{DEFAULT_PORT}"));
        assert!(resolve("localhost:1").unwrap().ip().is_loopback());
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!((parse_size("100"), parse_size("2K"), parse_size("1T")), (Ok(100), Ok(2048), Ok(1 << 40)));
        assert!(["", "G", "-1", "1.5G", "99999999T", "é"].iter().all(|text| parse_size(text).is_err()));
    }

    #[test]
    fn what_is_no_address_is_explained() {
        let text = resolve("localhost:http").unwrap_err().to_string();
        assert!(text.contains("`http` is no port") && text.contains("HOST:PORT"), "{text}");
        assert!(resolve("no-such-host.invalid").is_err());
    }
}
