//! Plugin of a kubelet: the list of devices, what a container gets with some of them, and registration at the
//! kubelet.
//!
//! A kubelet that starts removes all sockets from its folder and forgets who was registered. So the plugin
//! listens and registers anew when its own socket has gone or the kubelet's is another one.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::device_plugin::api::{
    ALLOCATE, AllocateRequest, AllocateResponse, ContainerEdits, DeviceIds, DeviceList, KUBELET_SOCKET,
    LIST_AND_WATCH, OPTIONS, Options, PRE_START, PREFERRED_ALLOCATION, PreferenceRequest, PreferenceResponse,
    REGISTER, RegisterRequest, VERSION,
};
use crate::device_plugin::inventory::{Gpu, Inventory};
use crate::grpc::{Code, Reply, Service, Status, call, serve};
use crate::kubelet::{KubeletError, listen, run_until};

/// What a container gets with GPUs.
pub type Edits = Box<dyn Fn(&[&Gpu]) -> ContainerEdits + Send + Sync>;

/// What this plugin can do, for the registration.
const ABILITIES: Options = Options { pre_start_required: false, preferred_allocation: true };

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
        *self.inventory.lock() = inventory;
        self.list.send_if_modified(|sent| {
            let is_new = *sent != list;
            *sent = list;
            is_new
        });
    }

    /// The GPUs as they are known now.
    fn inventory(&self) -> Inventory {
        self.inventory.lock().clone()
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
            Status::new(Code::InvalidArgument, format!("malformed message for {method}: {error}"))
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

/// Interval at which a restart of the kubelet is looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long is waited after a registration that failed.
const RETRY: Duration = Duration::from_secs(2);
/// How long a kubelet may take to answer.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);

/// How a plugin makes itself known.
#[derive(Debug, Clone)]
pub struct Registration {
    /// The kubelet's folder of device plugins, `/var/lib/kubelet/device-plugins`.
    pub folder: PathBuf,
    /// The file name of the plugin's socket in it.
    pub endpoint: String,
    /// What pods ask for.
    pub resource: String,
}

/// What tells one socket from the next at the same path; none where there is none.
fn version(path: &Path) -> Option<(u64, i64, i64)> {
    let data = fs::metadata(path).ok()?;
    Some((data.ino(), data.ctime(), data.ctime_nsec()))
}

/// Ends a task with this value.
struct Ending(AbortHandle);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Registration {
    /// Serves the kubelet until `end`, which is called in a thread of its own, returns, or something fails that time
    /// does not mend. A kubelet that is not there, or refuses, is tried again.
    pub fn serve_until(
        &self,
        plugin: &Arc<Plugin>,
        end: impl FnOnce() + Send + 'static,
    ) -> Result<(), KubeletError> {
        let (registration, plugin) = (self.clone(), Arc::clone(plugin));
        let outcome = run_until(async move { registration.run(&plugin).await }, end);
        // The kubelet takes a plugin that cannot be reached for one that has ended.
        let _ = fs::remove_file(self.folder.join(&self.endpoint));
        outcome
    }

    async fn run(&self, plugin: &Arc<Plugin>) -> Result<(), KubeletError> {
        if !self.folder.is_dir() {
            return Err(KubeletError::NoFolder(self.folder.clone()));
        }
        loop {
            self.serve_once(plugin).await?;
            tracing::info!("the kubelet has restarted");
        }
    }

    /// Listens and registers, until the kubelet starts anew.
    async fn serve_once(&self, plugin: &Arc<Plugin>) -> Result<(), KubeletError> {
        let (own, kubelet) = (self.folder.join(&self.endpoint), self.folder.join(KUBELET_SOCKET));
        let listener = listen(&own)?;
        let ours = version(&own);
        let service: Arc<Plugin> = Arc::clone(plugin);
        let _ending = Ending(tokio::spawn(serve(listener, service)).abort_handle());

        let mut last_error = String::new();
        let registered = loop {
            // Before it is called: should it start anew meanwhile, it is called again.
            let before = version(&kubelet);
            match self.register(&kubelet).await {
                Ok(()) => break before,
                Err(error) if error != last_error => {
                    tracing::warn!(
                        "cannot register with the kubelet, retrying every {} s: {error}",
                        RETRY.as_secs()
                    );
                    last_error = error;
                }
                Err(_) => {}
            }
            sleep(RETRY).await;
            if version(&own) != ours {
                return Ok(());
            }
        };
        tracing::info!(resource = self.resource, socket = %own.display(), "device plugin registered with the \
            kubelet");
        while version(&own) == ours && version(&kubelet) == registered {
            sleep(INTERVAL).await;
        }
        Ok(())
    }

    async fn register(&self, kubelet: &Path) -> Result<(), String> {
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: self.endpoint.clone(),
            resource: self.resource.clone(),
            options: Some(ABILITIES),
        };
        let response = call(kubelet, REGISTER, &request.encode_to_vec(), REGISTER_TIMEOUT).await;
        response.map(drop).map_err(|error| error.to_string())
    }
}

/// Whether this is a name by which pods can ask for a resource: DOMAIN/NAME.
pub fn check_resource(name: &str) -> Result<(), &'static str> {
    let is_part = |part: &str, max: usize, plain: &[u8]| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || plain.contains(&byte);
        let ends = [part.bytes().next(), part.bytes().last()];
        let has_ends = ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()));
        has_ends && part.len() <= max && part.bytes().all(allowed)
    };
    match name.split_once('/') {
        Some((domain, _)) if domain.ends_with("kubernetes.io") => {
            Err("names in kubernetes.io are reserved for Kubernetes")
        }
        Some((domain, name)) if is_part(domain, 253, b"-.") && is_part(name, 63, b"-._") => Ok(()),
        _ => Err("give DOMAIN/NAME in lower case, such as causeway.dev/gpu"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_has_a_domain_and_a_name() {
        for good in ["causeway.dev/gpu", "lab.example/a100-40", "x/y"] {
            assert_eq!(check_resource(good), Ok(()), "{good}");
        }
        for bad in [
            "gpu",
            "causeway.dev/",
            "/gpu",
            "a/b/c",
            "Causeway.dev/gpu",
            "a b/c",
            "-a/b",
            "kubernetes.io/gpu",
        ] {
            assert!(check_resource(bad).is_err(), "{bad}");
        }
    }
}
