//! Settings of the plugin, from the environment and configuration files.

use std::path::PathBuf;

use causeway_config::ValueError;
use causeway_config::read::PROCESS;
use causeway_config::table::{
    NCCL_GPU, NCCL_LANES, NCCL_LANES_DEFAULT, NCCL_PATH, NCCL_SOCKET_IFNAME, NCCL_SPEED, SOCKET_DIR,
};
use causeway_cuda::Driver;

use crate::gpu;
use crate::interfaces::InterfaceFilter;

/// What the user has set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Sockets of a connection.
    pub lanes: usize,
    /// Whether peers of this host are reached by Unix sockets, and peers by TCP.
    pub unix: bool,
    /// As above.
    pub tcp: bool,
    /// Whether memory of GPUs may be sent, and of those that are elsewhere.
    gpus: bool,
    remote_gpus: bool,
    /// The speed that NCCL sees, in Mbit/s, where the interfaces' is not to count.
    pub speed: Option<u32>,
    /// Interfaces at whose addresses peers connect.
    pub interfaces: InterfaceFilter,
    /// Folders that may be shared with other containers of the host, the surest first.
    pub folders: Vec<PathBuf>,
}

impl Settings {
    /// The driver, where memory of its GPUs may be sent.
    pub fn driver(&self) -> Option<&'static Driver> {
        gpu::driver(self.remote_gpus).filter(|_| self.gpus)
    }

    /// Those of this process.
    ///
    /// # Errors
    /// When a value makes no sense.
    pub fn from_environment() -> Result<Self, ValueError> {
        let shared = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let named = PROCESS.path(&SOCKET_DIR);
        let path = PROCESS.word(&NCCL_PATH)?.unwrap_or_default();
        let gpus = PROCESS.word(&NCCL_GPU)?.unwrap_or_default();
        Ok(Self {
            gpus: gpus != "off",
            remote_gpus: gpus == "on",
            unix: path != "tcp",
            tcp: path != "unix",
            lanes: PROCESS.number(&NCCL_LANES)?.unwrap_or(NCCL_LANES_DEFAULT) as usize,
            speed: PROCESS.number(&NCCL_SPEED)?.map(|speed| speed as u32),
            interfaces: InterfaceFilter::parse(&PROCESS.text(&NCCL_SOCKET_IFNAME).unwrap_or_default()),
            folders: named.into_iter().chain(shared).collect(),
        })
    }
}
