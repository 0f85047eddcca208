//! GPUs of servers as devices of a kubelet: names, health, and which of them a container should get. Pure.
//!
//! A GPU is listed several times where several containers may share it: a kubelet gives each device to one
//! container. The name of a device is the GPU's UUID and the number of the share.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use super::api::{Device, HEALTHY, MAX_DEVICE_ID, UNHEALTHY};

/// What stands between a UUID and the number of a share.
const SEPARATOR: &str = "::";

/// The maximum number of devices of a node.
pub const MAX_DEVICES: usize = 4096;

/// A GPU of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The index of its server among those that are named.
    pub server: usize,
    /// Its UUID, as the server says.
    pub uuid: String,
    /// Whether a client that comes now would get it.
    pub is_healthy: bool,
}

/// Why a container gets nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// There is no such device, or not any more.
    #[error("there is no device `{0}`: its server does not list it, or no longer")]
    Unknown(String),
    /// The same GPU twice would look to a program like one GPU.
    #[error(
        "a container requests {devices} GPUs, and this node has free shares of {gpus}: request fewer, or let \
         fewer containers share a GPU"
    )]
    SameGpu {
        /// What it asks for.
        devices: usize,
        /// How many GPUs these are.
        gpus: usize,
    },
}

/// The GPUs of all servers, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    gpus: Vec<Gpu>,
    shares: usize,
}

impl Inventory {
    /// The GPUs that servers have, each for so many containers. One that several servers offer is the first's; one
    /// whose UUID cannot be part of a device's name is left out.
    pub fn new(all: Vec<Gpu>, shares: usize) -> Self {
        let mut gpus: Vec<Gpu> = Vec::new();
        for gpu in all {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            let length = gpu.uuid.len() + SEPARATOR.len() + MAX_DEVICES.to_string().len();
            let is_usable = !gpu.uuid.is_empty() && length <= MAX_DEVICE_ID && gpu.uuid.bytes().all(is_plain);
            let is_listed = gpus.iter().any(|known| known.uuid == gpu.uuid);
            if is_usable && !is_listed && (gpus.len() + 1) * shares <= MAX_DEVICES {
                gpus.push(gpu);
            }
        }
        Self { gpus, shares }
    }

    /// How many GPUs there are.
    pub fn len(&self) -> usize {
        self.gpus.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// The list for the kubelet.
    pub fn devices(&self) -> Vec<Device> {
        let of = |gpu: &Gpu| {
            let health = if gpu.is_healthy { HEALTHY } else { UNHEALTHY }.to_owned();
            let uuid = gpu.uuid.clone();
            (0..self.shares)
                .map(move |share| Device { id: format!("{uuid}{SEPARATOR}{share}"), health: health.clone() })
        };
        self.gpus.iter().flat_map(of).collect()
    }

    /// The GPUs of devices that a container gets, in the order in which the servers are named.
    pub fn gpus_of(&self, ids: &[String]) -> Result<Vec<&Gpu>, AllocationError> {
        let mut indexes = Vec::with_capacity(ids.len());
        for id in ids {
            indexes.push(self.index_of(id).ok_or_else(|| AllocationError::Unknown(id.clone()))?);
        }
        indexes.sort_unstable();
        indexes.dedup();
        if indexes.len() < ids.len() {
            return Err(AllocationError::SameGpu { devices: ids.len(), gpus: indexes.len() });
        }
        Ok(indexes.into_iter().map(|index| &self.gpus[index]).collect())
    }

    /// Which of the devices that are free a container should get: different GPUs, of as few servers as can be, and
    /// those that fewest share. The kubelet may do otherwise.
    pub fn preferred(&self, available: &[String], required: &[String], count: usize) -> Vec<String> {
        let mut chosen: Vec<String> = required.to_vec();
        let mut free: BTreeMap<usize, Vec<&String>> = BTreeMap::new();
        for id in available.iter().filter(|id| !required.contains(id)) {
            if let Some(index) = self.index_of(id) {
                free.entry(index).or_default().push(id);
            }
        }
        let taken: Vec<usize> = required.iter().filter_map(|id| self.index_of(id)).collect();
        free.retain(|index, _| !taken.contains(index));
        let server_of = |index: usize| self.gpus[index].server;
        let mut candidates: Vec<(usize, &Vec<&String>)> =
            free.iter().map(|(index, ids)| (*index, ids)).collect();
        // The server that has some of this container already, then the one with most; there, what is shared least.
        candidates.sort_by_key(|(index, ids)| {
            let server = server_of(*index);
            let is_in_use = taken.iter().any(|taken| server_of(*taken) == server);
            let choice = free.keys().filter(|other| server_of(**other) == server).count();
            (!is_in_use, Reverse(choice), server, Reverse(ids.len()), *index)
        });
        let missing = count.saturating_sub(chosen.len());
        chosen.extend(candidates.iter().take(missing).map(|(_, ids)| ids[0].clone()));
        chosen
    }

    /// The index of a device's GPU.
    fn index_of(&self, id: &str) -> Option<usize> {
        let (uuid, share) = id.rsplit_once(SEPARATOR)?;
        let share: usize = share.parse().ok()?;
        self.gpus.iter().position(|gpu| gpu.uuid == uuid).filter(|_| share < self.shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(server: usize, uuid: &str, is_healthy: bool) -> Gpu {
        Gpu { server, uuid: uuid.to_owned(), is_healthy }
    }

    fn inventory(shares: usize) -> Inventory {
        let all = vec![gpu(0, "A", true), gpu(1, "B", true), gpu(1, "C", false), gpu(2, "A", true)];
        Inventory::new(all, shares)
    }

    fn ids(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_gpu_is_listed_once_for_each_container_that_may_have_it() {
        let devices: Vec<_> =
            inventory(2).devices().into_iter().map(|device| (device.id, device.health)).collect();
        let expected = [("A", HEALTHY), ("B", HEALTHY), ("C", UNHEALTHY)]
            .map(|(uuid, health)| [0, 1].map(|share| (format!("{uuid}::{share}"), health.to_owned())));
        assert_eq!(devices, expected.concat());
    }

    #[test]
    fn what_cannot_be_a_name_is_left_out_and_there_are_not_too_many() {
        let long = "G".repeat(60);
        let all = vec![gpu(0, "", true), gpu(0, "a b", true), gpu(0, &long, true), gpu(0, "GPU-1", true)];
        assert_eq!(Inventory::new(all, 1).len(), 1);
        let many = (0..10).map(|number| gpu(0, &number.to_string(), true)).collect();
        assert_eq!(Inventory::new(many, MAX_DEVICES / 4).devices().len(), MAX_DEVICES);
        let longest =
            Inventory::new(vec![gpu(0, "GPU-01234567-0123-0123-0123-0123456789ab", true)], MAX_DEVICES);
        assert!(longest.devices().iter().all(|device| device.id.len() <= MAX_DEVICE_ID));
    }

    #[test]
    fn a_container_gets_the_gpus_of_its_devices_or_an_error() {
        let inventory = inventory(2);
        let found = |text| {
            let gpus = inventory.gpus_of(&ids(text))?;
            Ok(gpus.into_iter().map(|gpu| (gpu.server, gpu.uuid.as_str())).collect::<Vec<_>>())
        };
        assert_eq!(found("C::1 A::0"), Ok(vec![(0, "A"), (1, "C")]));
        assert_eq!(found("A::0 A::1"), Err(AllocationError::SameGpu { devices: 2, gpus: 1 }));
        for unknown in ["D::0", "A::2", "A", "A::", "::0"] {
            assert_eq!(found(unknown), Err(AllocationError::Unknown(unknown.to_owned())), "{unknown}");
        }
    }

    #[test]
    fn different_gpus_of_one_server_are_preferred_and_those_that_fewest_share() {
        let all = vec![gpu(0, "A", true), gpu(1, "B", true), gpu(1, "C", true)];
        let inventory = Inventory::new(all, 2);
        let preferred =
            |available, required, count| inventory.preferred(&ids(available), &ids(required), count);
        assert_eq!(preferred("A::0 A::1 B::0 B::1 C::0", "", 2), ids("B::0 C::0"));
        assert_eq!(preferred("A::1 B::1 C::0 C::1", "", 1), ids("C::0"));
        assert_eq!(preferred("A::1 B::0 C::0", "A::0", 2), ids("A::0 B::0"));
        assert_eq!(preferred("A::1", "A::0", 2), ids("A::0"), "a second share of a GPU is of no use");
        assert_eq!(preferred("D::0 A::0", "", 5), ids("A::0"));
    }
}
