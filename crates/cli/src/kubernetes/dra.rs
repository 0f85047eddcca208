//! `causeway kubernetes dra`: the driver by which claims get GPUs of servers, and the publication of these GPUs.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use causeway_access::{ServersError, Target};
use causeway_config::table::{CUDA_VISIBLE_DEVICES, ON};
use causeway_kubernetes::api_server::{ApiError, ApiServer};
use causeway_kubernetes::dra::api::Claim;
use causeway_kubernetes::dra::claim::AllocatedDevice;
use causeway_kubernetes::dra::driver::{Cluster, Driver, Sockets};
use causeway_kubernetes::dra::prepared::PreparedClaims;
use causeway_kubernetes::dra::slice::{API_VERSION, Publication, device_name, pool_name};
use causeway_kubernetes::kubelet::KubeletError;
use clap::Args;
use serde_json::{Value, json};
use thiserror::Error;

use super::client_files::{ClientFiles, ClientFilesError};
use super::publish;
use crate::container;
use crate::launch::Signals;
use crate::logging;
use crate::server::KeyArguments;
use crate::status_query::ServerConnection;

/// Offer the GPUs of servers to the cluster, by Dynamic Resource Allocation (Kubernetes 1.34 or later).
///
/// On each node, runs beside a kubelet as a DRA driver: for a claim to which the scheduler has given GPUs, containers get
/// Causeway's program and libraries in /opt/causeway, and variables that name the servers, their keys, and the
/// GPUs. With --publish, runs once in the cluster, and publishes the GPUs as ResourceSlices: one pool for each
/// server, whose GPUs the scheduler counts for the whole cluster.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Servers, as for `causeway run --on`. Give --publish and all nodes the same ones.
    #[arg(long, value_name = "SERVER[,SERVER...]", env = ON.name, hide_env_values = true)]
    on: String,
    #[command(flatten)]
    keys: KeyArguments,
    /// Name of the driver, which a DeviceClass selects.
    #[arg(long, value_name = "NAME", default_value = "gpu.causeway.dev", value_parser = driver_name)]
    driver: String,
    /// Publish the servers' GPUs, and serve no kubelet.
    #[arg(long)]
    publish: bool,
    /// Publish the GPUs for nodes with this label alone. Default: for all nodes.
    #[arg(long, value_name = "LABEL=VALUE", requires = "publish", value_parser = label)]
    node_label: Option<(String, String)>,
    /// Let several claims share a GPU, each with a part of its memory. The cluster needs the feature
    /// DRAConsumableCapacity.
    #[arg(long, requires = "publish")]
    shared: bool,
    /// Do not pass the servers' keys to containers: they have a Secret of their own, which CAUSEWAY_KEY_FILE
    /// names.
    #[arg(long, conflicts_with = "publish")]
    without_keys: bool,
    /// Folder of the node to which program and libraries are copied, if the driver runs in a container that
    /// has the folder at the same path. Default: containers get them from where they are.
    #[arg(long, value_name = "FOLDER", conflicts_with = "publish")]
    client_folder: Option<PathBuf>,
    /// The kubelet's folder.
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubelet", conflicts_with = "publish")]
    kubelet_folder: PathBuf,
    /// Folder from which the container engine reads descriptions of devices (CDI).
    #[arg(long, value_name = "FOLDER", default_value = "/var/run/cdi", conflicts_with = "publish")]
    cdi_folder: PathBuf,
    /// Address of the API server. Default: the one of the cluster in which this runs as a pod.
    #[arg(long, value_name = "URL")]
    api_server: Option<String>,
    /// File with the certificates (PEM) by which the API server is recognised.
    #[arg(long, value_name = "FILE", requires = "api_server")]
    api_ca: Option<PathBuf>,
    /// File with the token for the API server.
    #[arg(long, value_name = "FILE", requires = "api_server")]
    api_token: Option<PathBuf>,
    #[command(flatten)]
    logging: logging::Options,
}

/// Why there is no driver.
#[derive(Debug, Error)]
pub enum DraError {
    /// A server makes no sense, or its key cannot be read.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// There is no key for a server, which would refuse.
    #[error(
        "no key of {0} is stored on this machine, so the server would refuse containers: name a file that \
         contains it with --key-file, or let the pods provide it with --without-keys"
    )]
    NoKey(String),
    /// Two servers would be one pool.
    #[error(
        "{0} is named twice, or two servers have addresses that differ in punctuation alone: name each once"
    )]
    SamePool(String),
    /// There are no files to give.
    #[error(transparent)]
    Files(#[from] ClientFilesError),
    /// There is no API server.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Claims cannot be kept.
    #[error("the folders for prepared claims ({}, {}) cannot be used: {cause}", records.display(), descriptions.display())]
    Claims {
        /// For records.
        records: PathBuf,
        /// For container engines.
        descriptions: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// There is no kubelet.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    /// No thread can be started.
    #[error("cannot start a thread for a server: {0}")]
    Thread(io::Error),
}

fn driver_name(name: &str) -> Result<String, &'static str> {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-');
    if name.len() <= 63 && name.bytes().all(is_plain) && name.split('.').all(is_part) {
        Ok(name.to_owned())
    } else {
        Err("give a domain name in lower case with at most 63 characters, such as gpu.causeway.dev")
    }
}

fn label(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("give LABEL=VALUE, such as causeway.dev/client=true")?;
    if name.is_empty() { Err("the label has no name") } else { Ok((name.to_owned(), value.to_owned())) }
}

/// Serves the kubelet, or publishes, until a signal ends it.
pub fn dra(arguments: &Arguments) -> Result<ExitCode, DraError> {
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGINT]);
    let _at_end = logging::start(&arguments.logging);
    let servers = arguments.keys.servers(&arguments.on)?;
    if let Some(without) = servers.iter().find(|server| server.lacks_key() && !arguments.without_keys) {
        return Err(DraError::NoKey(without.to_string()));
    }
    let pools: Vec<String> = servers.iter().map(pool_of).collect();
    if let Some(twice) = pools.iter().enumerate().find(|(number, pool)| pools[..*number].contains(pool)) {
        return Err(DraError::SamePool(servers[twice.0].to_string()));
    }
    let api = match &arguments.api_server {
        Some(address) => ApiServer::new(address, arguments.api_ca.as_deref(), arguments.api_token.clone())?,
        None => ApiServer::of_cluster()?,
    };
    if arguments.publish {
        let publication = Publication {
            driver: arguments.driver.clone(),
            node_label: arguments.node_label.clone(),
            is_shared: arguments.shared,
        };
        publish::start(&servers, &pools, &api, &publication).map_err(DraError::Thread)?;
        signals.wait();
        return Ok(ExitCode::SUCCESS);
    }
    let files = ClientFiles::new(arguments.client_folder.as_deref())?;
    let sockets = Sockets {
        folder: arguments.kubelet_folder.join("plugins").join(&arguments.driver),
        registry: arguments.kubelet_folder.join("plugins_registry"),
    };
    if !sockets.registry.is_dir() {
        return Err(KubeletError::NoFolder(sockets.registry).into());
    }
    let records = sockets.folder.join("claims");
    let prepared = PreparedClaims::open(&records, &arguments.cdi_folder)
        .map_err(|cause| DraError::Claims { records, descriptions: arguments.cdi_folder.clone(), cause })?;
    let node = Node { servers, pools, files, has_keys: !arguments.without_keys, api };
    let driver = Driver::new(&arguments.driver, Box::new(node), prepared);
    sockets.serve_until(&driver, move || {
        signals.wait();
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The pool of a server.
fn pool_of(server: &Target) -> String {
    pool_name(&server.endpoint.to_string())
}

/// What the driver of a node knows.
struct Node {
    servers: Vec<Target>,
    /// The names of their pools.
    pools: Vec<String>,
    files: ClientFiles,
    /// Whether containers get the servers' keys.
    has_keys: bool,
    api: ApiServer,
}

impl Cluster for Node {
    fn claim(&self, claim: &Claim) -> Result<Vec<u8>, String> {
        let Claim { namespace, name, .. } = claim;
        let found =
            self.api.get(&format!("/apis/{API_VERSION}/namespaces/{namespace}/resourceclaims/{name}"));
        found.map_err(|error| error.to_string())?.ok_or_else(|| {
            format!("the API server has no claim {namespace}/{name} ({API_VERSION}, which Kubernetes has since 1.34)")
        })
    }

    fn edits(&self, devices: &[AllocatedDevice]) -> Result<Value, String> {
        let mut gpus: Vec<(usize, String)> = Vec::with_capacity(devices.len());
        for device in devices {
            let number = self.pools.iter().position(|pool| *pool == device.pool).ok_or_else(|| {
                format!("the pool {} is not one of this driver's servers (--on)", device.pool)
            })?;
            gpus.push((number, device.device.clone()));
        }
        // In the order in which the program sees them; two shares of a GPU are one to it.
        gpus.sort();
        gpus.dedup();
        let mut uuids = Vec::with_capacity(gpus.len());
        for same_server in gpus.chunk_by(|one, next| one.0 == next.0) {
            let listed = uuids_of(&self.servers[same_server[0].0])?;
            for (number, device) in same_server {
                let uuid = listed.iter().find(|uuid| device_name(uuid).as_ref() == Some(device));
                uuids.push(uuid.cloned().ok_or_else(|| {
                    format!("{} does not list the GPU {device}, or no longer", self.servers[*number])
                })?);
            }
        }
        let mut numbers: Vec<usize> = gpus.iter().map(|(number, _)| *number).collect();
        numbers.dedup();
        let servers: Vec<&Target> = numbers.into_iter().map(|number| &self.servers[number]).collect();
        let address = |server: &&Target| {
            if self.has_keys { server.connect_string().to_string() } else { server.address() }
        };
        let own = [
            (ON.name, servers.iter().map(address).collect::<Vec<_>>().join(",")),
            (CUDA_VISIBLE_DEVICES.name, uuids.join(",")),
        ];
        let variables = container::library_variables().into_iter().chain(own);
        let mounts = container::library_mounts(&self.files.program, &self.files.libraries)
            .into_iter()
            .chain(container::socket_mounts(servers));
        Ok(json!({
            "env": variables.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
            "mounts": mounts.map(|mount| mount.to_cdi()).collect::<Vec<_>>(),
        }))
    }
}

/// The GPUs that a server would give a client now. It is asked with the key that containers get: where that was revoked, the
/// pod hears of it before its container starts.
fn uuids_of(server: &Target) -> Result<Vec<String>, String> {
    let status = ServerConnection::connect(server).and_then(|mut server| server.status());
    let status = status.map_err(|error| error.to_string())?;
    if status.is_draining {
        return Err(format!("{server} is draining and accepts no new sessions"));
    }
    Ok(status.devices.iter().map(|device| device.uuid.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_and_labels_have_names() {
        assert!(driver_name("gpu.causeway.dev").is_ok() && driver_name("a-1.b").is_ok());
        for bad in ["", "GPU.dev", "a..b", "-a.b", "a_b", "../x", &"x".repeat(64)] {
            assert!(driver_name(bad).is_err(), "{bad}");
        }
        assert_eq!(label("a/b=c"), Ok(("a/b".to_owned(), "c".to_owned())));
        assert!(label("a").is_err() && label("=b").is_err());
    }
}
