//! Embedded server: a server of its own for one command.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_access::local::SOCKET_PREFIX;
use causeway_access::servers::LOCAL;
use causeway_access::target::random_bytes;
use causeway_access::{Key, Target, private_folder};
use causeway_api::calls::COMMANDS;
use causeway_link::TransportChoice;
use causeway_server::broker::{Access, Broker, BrokerConfig, GpuChoice, RunningBroker, StartError};
use thiserror::Error;

use crate::keys::{self, HandOverError};
use crate::logging::{self, AtEnd, Format, Level};
use crate::try_driver::{TrialError, try_driver};

/// How long workers get to end by themselves when their client has ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no private server.
#[derive(Debug, Error)]
pub enum EmbeddedError {
    /// It does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// This machine's own GPUs are wanted, and NVIDIA's driver cannot be used.
    #[error("`{LOCAL}` means the GPUs of this machine, which cannot be used: {0}")]
    NoDriver(TrialError),
    /// The program would not find its key.
    #[error(transparent)]
    Key(#[from] HandOverError),
}

/// A server with this machine's GPUs or the software GPU for the life of one command, which only its user can reach.
pub struct Embedded {
    broker: Option<RunningBroker>,
    _at_end: Option<AtEnd>,
    gpu: GpuChoice,
    target: Target,
    /// Where the program that uses it finds its key.
    key_file: Option<PathBuf>,
}

impl Embedded {
    /// Starts a server with the software GPU; see [`Self::with`].
    pub fn start(via: &[TransportChoice], verbose: bool) -> Result<Self, EmbeddedError> {
        Self::with(GpuChoice::Cpu, via, verbose)
    }

    /// Starts a server. It says nothing unless something fails, or `verbose` is set. It is reached at a Unix socket that only
    /// this user can use; over TCP, at loopback with a key of its own, where `via` can be had in no other way.
    pub fn with(gpu: GpuChoice, via: &[TransportChoice], verbose: bool) -> Result<Self, EmbeddedError> {
        if gpu == GpuChoice::Driver {
            try_driver().map_err(EmbeddedError::NoDriver)?;
        }
        let level = if verbose { Level::Info } else { Level::Error };
        let logging = logging::Options { log: Format::Text, log_level: level };
        let at_end = logging::start_once(&logging);
        let config =
            BrokerConfig { gpu, worker_arguments: logging.of_worker(), ..BrokerConfig::new(COMMANDS) };
        let needs_tcp =
            |via: &TransportChoice| matches!(via, TransportChoice::Only(kind) if !kind.is_within_host());
        let config = if via.iter().any(needs_tcp) {
            let access = Access::Key(Key::generate());
            // Only root sees what passes over a loopback device.
            BrokerConfig { listen: Some((Ipv4Addr::LOCALHOST, 0).into()), access, clear: true, ..config }
        } else {
            BrokerConfig { socket: Some(socket()), access: Access::NoKey, ..config }
        };
        let broker = Broker::start(config)?;
        let target = broker.target().clone();
        let key_file = target.key.as_ref().map(|_| keys::keep(core::slice::from_ref(&target))).transpose()?;
        Ok(Self { gpu, target, broker: Some(broker), key_file, _at_end: at_end })
    }

    /// What it serves.
    pub fn gpu(&self) -> GpuChoice {
        self.gpu
    }

    /// Where it listens.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The file with its key, if it has one.
    pub fn key_file(&self) -> Option<&Path> {
        self.key_file.as_deref()
    }
}

/// A unique name for a socket.
fn socket() -> String {
    let name = format!("{SOCKET_PREFIX}{:032x}", u128::from_le_bytes(random_bytes()));
    match private_folder() {
        // What a killed server leaves there the next one removes.
        Ok(folder) => format!("{}/{name}.sock", folder.display()),
        // The kernel says who connects there, too.
        Err(_) => format!("@{name}"),
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let Some(broker) = self.broker.take() else { return };
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while broker.sessions() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        broker.stop();
        if let Some(path) = &self.key_file {
            // The key in it opens nothing any more.
            let _ = std::fs::remove_file(path);
        }
    }
}
