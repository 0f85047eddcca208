//! State of a pool's servers: how many GPUs each offers.

use std::time::{Duration, Instant};

use causeway_access::Target;
use causeway_sync::threads;
use crossbeam_channel::unbounded;

use crate::status_query::ServerConnection;

/// How long all servers of a pool may take to answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// What is known of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// The server, as the pool's list names it.
    pub server: String,
    /// How many GPUs it offers, or why it cannot be used.
    pub devices: Result<u32, String>,
}

impl ServerState {
    /// Why it cannot be used, as a sentence; nothing where it can.
    pub fn reason(&self) -> Option<String> {
        let why = self.devices.as_ref().err()?;
        // Most reasons name the server, by its address or by its name.
        Some(if why.contains(&self.server) { why.clone() } else { format!("{}: {why}", self.server) })
    }
}

/// Asks all servers at the same time. One that does not answer in time cannot be used. `target` says where a server is.
pub fn query<E: core::fmt::Display>(
    servers: &[String],
    target: impl Fn(&str) -> Result<Target, E>,
) -> Vec<ServerState> {
    let late = || Err("it does not respond in time".to_owned());
    let mut states: Vec<ServerState> =
        servers.iter().map(|server| ServerState { server: server.clone(), devices: late() }).collect();
    let (sender, replies) = unbounded();
    for (at, server) in servers.iter().enumerate() {
        match target(server) {
            Ok(target) => {
                let sender = sender.clone();
                // One that waits for a dead server ends with this process.
                let asker = move || {
                    let _ = sender.send((at, devices(&target)));
                };
                if let Err(error) = threads::spawn("asker", asker) {
                    states[at].devices = Err(format!("cannot query it: {error}"));
                }
            }
            Err(error) => states[at].devices = Err(error.to_string()),
        }
    }
    drop(sender);
    let deadline = Instant::now() + TIMEOUT;
    while let Ok((at, devices)) = replies.recv_deadline(deadline) {
        states[at].devices = devices;
    }
    states
}

/// How many GPUs a server offers now.
fn devices(target: &Target) -> Result<u32, String> {
    let mut server = ServerConnection::connect(target).map_err(|error| error.to_string())?;
    let status = server.status().map_err(|error| error.to_string())?;
    match status.devices.len() {
        _ if status.is_draining => Err("it is draining and accepts no new sessions".to_owned()),
        0 => Err("it reports no GPU".to_owned()),
        devices => Ok(devices as u32),
    }
}
