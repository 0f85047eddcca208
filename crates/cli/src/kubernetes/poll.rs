//! Polling of servers: which GPUs they have, and whether a client that comes now would get one.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use causeway_access::Target;
use causeway_kubernetes::device_plugin::{Gpu, Inventory, Plugin};
use causeway_wire::status::ServerStatus;
use parking_lot::Mutex;

use crate::status_query::status_over;

/// The interval between two queries of a server.
const INTERVAL: Duration = Duration::from_secs(5);

/// What is known of a server.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Known {
    /// UUIDs of its GPUs, those that it had once included, and whether each can be had.
    gpus: Vec<(String, bool)>,
}

impl Known {
    /// Takes an reply, or that there is none.
    fn update(&mut self, status: Option<&ServerStatus>) {
        let Some(status) = status.filter(|status| !status.is_draining) else {
            self.gpus.iter_mut().for_each(|(_, is_healthy)| *is_healthy = false);
            return;
        };
        let listed: Vec<String> = status.devices.iter().map(|device| device.uuid.to_string()).collect();
        for (uuid, is_healthy) in &mut self.gpus {
            // A server whose management library does not reply lists none, and serves as before.
            *is_healthy = listed.is_empty() || listed.contains(uuid);
        }
        for uuid in listed {
            if !self.gpus.iter().any(|(known, _)| *known == uuid) {
                self.gpus.push((uuid, true));
            }
        }
    }
}

/// What is known of all servers, for the plugin.
struct All {
    known: Mutex<Vec<Known>>,
    plugin: Arc<Plugin>,
    shares: usize,
}

impl All {
    fn update(&self, server: usize, status: Option<&ServerStatus>) {
        // Held until the plugin has it, so that what it has last is the newest.
        let mut known = self.known.lock();
        known[server].update(status);
        let gpus = known.iter().enumerate().flat_map(|(server, known)| {
            let gpu = move |(uuid, is_healthy): &(String, bool)| Gpu {
                server,
                uuid: uuid.clone(),
                is_healthy: *is_healthy,
            };
            known.gpus.iter().map(gpu)
        });
        self.plugin.set(Inventory::new(gpus.collect(), self.shares));
    }
}

/// Asks each server from now on, from a thread of its own, and tells the plugin.
pub fn start(servers: &[Target], shares: usize, plugin: &Arc<Plugin>) {
    let known = Mutex::new(vec![Known::default(); servers.len()]);
    let all = Arc::new(All { known, plugin: Arc::clone(plugin), shares });
    for (number, target) in servers.iter().cloned().enumerate() {
        let all = Arc::clone(&all);
        thread::spawn(move || poll(number, &target, &all));
    }
}

fn poll(number: usize, target: &Target, all: &All) {
    let mut connection = None;
    let mut last: Option<Result<usize, String>> = None;
    loop {
        let reply = status_over(&mut connection, target);
        all.update(number, reply.as_ref().ok());
        let outcome = reply.map(|status| status.devices.len()).map_err(|error| error.to_string());
        if last.as_ref() != Some(&outcome) {
            match &outcome {
                Ok(count) => tracing::info!(server = %target, gpus = count, "the server answers"),
                Err(error) => tracing::warn!(server = %target, "its GPUs are unavailable: {error}"),
            }
            last = Some(outcome);
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::status::DeviceStatus;

    fn status(uuids: &[&str], is_draining: bool) -> ServerStatus {
        let device = |uuid: &&str| DeviceStatus {
            index: 0,
            name: "x".into(),
            uuid: (*uuid).into(),
            memory_total: 0,
            memory_used: 0,
            utilisation: None,
        };
        ServerStatus { is_draining, devices: uuids.iter().map(device).collect(), ..ServerStatus::default() }
    }

    #[test]
    fn a_gpu_that_is_known_stays_and_is_healthy_while_its_server_would_serve() {
        let mut known = Known::default();
        let mut after = |status: Option<ServerStatus>| {
            known.update(status.as_ref());
            known.gpus.iter().map(|(uuid, is_healthy)| (uuid.clone(), *is_healthy)).collect::<Vec<_>>()
        };
        let gpus = |list: &[(&str, bool)]| {
            list.iter().map(|(uuid, health)| ((*uuid).to_owned(), *health)).collect::<Vec<_>>()
        };
        assert_eq!(after(None), gpus(&[]));
        assert_eq!(after(Some(status(&["A", "B"], false))), gpus(&[("A", true), ("B", true)]));
        assert_eq!(after(None), gpus(&[("A", false), ("B", false)]));
        assert_eq!(
            after(Some(status(&[], false))),
            gpus(&[("A", true), ("B", true)]),
            "the reply lists no GPUs"
        );
        assert_eq!(after(Some(status(&["B", "C"], false))), gpus(&[("A", false), ("B", true), ("C", true)]));
        assert_eq!(after(Some(status(&["A", "B"], true))), gpus(&[("A", false), ("B", false), ("C", false)]));
    }
}
