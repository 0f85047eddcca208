//! The plugin's side of the API: the list of devices, and what a container gets with some of them.

use std::sync::{Arc, Mutex, PoisonError};

use prost::Message as _;
use tokio::sync::watch;

use super::api::{
    ALLOCATE, AllocateRequest, AllocateResponse, ContainerEdits, DeviceIds, DeviceList, LIST_AND_WATCH,
    OPTIONS, Options, PRE_START, PREFERRED_ALLOCATION, PreferenceRequest, PreferenceResponse,
};
use super::inventory::{Gpu, Inventory};
use crate::grpc::{Code, Reply, Service, Status};

/// What a container gets with GPUs.
pub type Edits = Box<dyn Fn(&[&Gpu]) -> ContainerEdits + Send + Sync>;

/// What this plugin can do, for the registration.
pub const ABILITIES: Options = Options { pre_start_required: false, preferred_allocation: true };

/// The plugin, which responds to the kubelet by the last inventory.
pub struct Plugin {
    inventory: Mutex<Inventory>,
    list: watch::Sender<Vec<u8>>,
    edits: Edits,
}

impl Plugin {
    /// A plugin without devices. `edits` says what a container gets.
    pub fn new(edits: Edits) -> Arc<Self> {
        let (list, _) = watch::channel(Vec::new());
        Arc::new(Self { inventory: Mutex::default(), list, edits })
    }

    /// Replaces the inventory. The kubelet gets the new list if anything has changed.
    pub fn set(&self, inventory: Inventory) {
        let list = DeviceList { devices: inventory.devices() }.encode_to_vec();
        *self.inventory.lock().unwrap_or_else(PoisonError::into_inner) = inventory;
        self.list.send_if_modified(|sent| {
            let is_new = *sent != list;
            *sent = list;
            is_new
        });
    }

    /// The GPUs as they are known now.
    fn inventory(&self) -> Inventory {
        self.inventory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn allocate(&self, request: &AllocateRequest) -> Result<AllocateResponse, Status> {
        let inventory = self.inventory();
        let edits = |container: &DeviceIds| {
            let gpus = inventory.gpus_of(&container.ids);
            gpus.map(|gpus| (self.edits)(&gpus)).map_err(|error| Status::new(Code::FailedPrecondition, error))
        };
        Ok(AllocateResponse { containers: request.containers.iter().map(edits).collect::<Result<_, _>>()? })
    }

    fn preference(&self, request: &PreferenceRequest) -> PreferenceResponse {
        let inventory = self.inventory();
        let containers = request.containers.iter().map(|container| {
            let count = usize::try_from(container.count).unwrap_or(0);
            DeviceIds { ids: inventory.preferred(&container.available, &container.required, count) }
        });
        PreferenceResponse { containers: containers.collect() }
    }
}

impl Service for Plugin {
    fn call(&self, method: &str, message: &[u8]) -> Result<Reply, Status> {
        let damaged = |error: prost::DecodeError| {
            Status::new(
                Code::InvalidArgument,
                format!("the message for {method} cannot be understood: {error}"),
            )
        };
        let reply = match method {
            OPTIONS => ABILITIES.encode_to_vec(),
            LIST_AND_WATCH => return Ok(Reply::State(self.list.subscribe())),
            PREFERRED_ALLOCATION => {
                self.preference(&PreferenceRequest::decode(message).map_err(damaged)?).encode_to_vec()
            }
            ALLOCATE => self.allocate(&AllocateRequest::decode(message).map_err(damaged)?)?.encode_to_vec(),
            // It was not asked for, and there is nothing to do.
            PRE_START => Vec::new(),
            _ => return Err(Status::new(Code::Unimplemented, format!("a device plugin has no {method}"))),
        };
        Ok(Reply::Message(reply))
    }
}
