//! `causeway kubernetes device-plugin`: what a kubelet gives a container with GPUs of servers.

use std::path::PathBuf;
use std::process::ExitCode;

use causeway_access::{ServersError, Target};
use causeway_config::table::{CUDA_VISIBLE_DEVICES, ON};
use causeway_kubernetes::device_plugin::api::{ContainerEdits, Mount};
use causeway_kubernetes::device_plugin::{Gpu, Plugin, Registration, check_resource};
use causeway_kubernetes::kubelet::KubeletError;
use clap::Args;
use thiserror::Error;

use super::client_files::{ClientFiles, ClientFilesError};
use super::poll;
use crate::container;
use crate::launch::Signals;
use crate::logging;
use crate::server::KeyArguments;

/// Offer the GPUs of servers to the pods of this node, as a resource.
///
/// Runs beside a kubelet and registers with it as a device plugin. A container with
/// `limits: {causeway.dev/gpu: 1}` gets one GPU: Causeway's program and libraries in /opt/causeway, and
/// variables that name the server, its key, and the GPU. Each node counts separately: name on each node the
/// servers whose GPUs its pods may use.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Servers, as for `causeway run --on`.
    #[arg(long, value_name = "SERVER[,SERVER...]", env = ON.name, hide_env_values = true)]
    on: String,
    #[command(flatten)]
    keys: KeyArguments,
    /// Name of the resource: DOMAIN/NAME.
    #[arg(long, value_name = "NAME", default_value = "causeway.dev/gpu", value_parser = resource)]
    resource: String,
    /// Number of containers of this node that may share a GPU.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    per_gpu: u16,
    /// Do not pass the servers' keys to containers: they have a Secret of their own, which CAUSEWAY_KEY_FILE
    /// names.
    #[arg(long)]
    without_keys: bool,
    /// Folder of the node to which program and libraries are copied, if the plugin runs in a container that
    /// has the folder at the same path. Default: containers get them from where they are.
    #[arg(long, value_name = "FOLDER")]
    client_folder: Option<PathBuf>,
    /// The kubelet's folder of device plugins.
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubelet/device-plugins")]
    kubelet_folder: PathBuf,
    #[command(flatten)]
    logging: logging::Options,
}

/// Why there is no device plugin.
#[derive(Debug, Error)]
pub enum DevicePluginError {
    /// A server makes no sense, or its key cannot be read.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// There is no key for a server, which would refuse the container.
    #[error(
        "no key of {0} is stored on this machine, so the server would refuse containers: name a file that \
         contains it with --key-file, or let the pods provide it with --without-keys"
    )]
    NoKey(String),
    /// There are no files to give.
    #[error(transparent)]
    Files(#[from] ClientFilesError),
    /// There is no kubelet.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
}

fn resource(name: &str) -> Result<String, &'static str> {
    check_resource(name).map(|()| name.to_owned())
}

/// Serves the kubelet until a signal ends it.
pub fn device_plugin(arguments: &Arguments) -> Result<ExitCode, DevicePluginError> {
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGINT]);
    let _at_end = logging::start(&arguments.logging);
    let servers = arguments.keys.servers(&arguments.on)?;
    if let Some(without) = servers.iter().find(|server| server.lacks_key() && !arguments.without_keys) {
        return Err(DevicePluginError::NoKey(without.to_string()));
    }
    let files = ClientFiles::new(arguments.client_folder.as_deref())?;
    let containers = Containers { servers: servers.clone(), files, has_keys: !arguments.without_keys };
    let plugin = Plugin::new(Box::new(move |gpus| containers.edits(gpus)));
    poll::start(&servers, arguments.per_gpu.into(), &plugin);
    let registration = Registration {
        folder: arguments.kubelet_folder.clone(),
        endpoint: endpoint(&arguments.resource),
        resource: arguments.resource.clone(),
    };
    registration.serve_until(&plugin, move || {
        signals.wait();
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The file name of the plugin's socket: one for each resource.
fn endpoint(resource: &str) -> String {
    format!("{}.sock", resource.replace('/', "_"))
}

/// What containers get.
struct Containers {
    servers: Vec<Target>,
    files: ClientFiles,
    /// Whether they get the servers' keys.
    has_keys: bool,
}

impl Containers {
    /// What a container gets with these GPUs, which stand in the order of their servers.
    fn edits(&self, gpus: &[&Gpu]) -> ContainerEdits {
        let mut numbers: Vec<usize> = gpus.iter().map(|gpu| gpu.server).collect();
        numbers.dedup();
        let servers: Vec<&Target> = numbers.into_iter().map(|number| &self.servers[number]).collect();
        let addresses = servers.iter().map(|server| self.address(server)).collect::<Vec<_>>().join(",");
        let uuids = gpus.iter().map(|gpu| gpu.uuid.as_str()).collect::<Vec<_>>().join(",");
        let own = [(ON.name, addresses), (CUDA_VISIBLE_DEVICES.name, uuids)];
        let variables = container::library_variables().into_iter().chain(own);
        let mounts = container::library_mounts(&self.files.program, &self.files.libraries)
            .into_iter()
            .chain(container::socket_mounts(servers));
        ContainerEdits {
            variables: variables.map(|(name, value)| (name.to_owned(), value)).collect(),
            mounts: mounts
                .map(|mount| Mount {
                    container_path: mount.container.to_string_lossy().into_owned(),
                    host_path: mount.host.to_string_lossy().into_owned(),
                    read_only: mount.is_read_only,
                })
                .collect(),
        }
    }

    fn address(&self, server: &Target) -> String {
        if self.has_keys { server.connect_string().to_string() } else { server.address() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::Key;

    fn gpu(server: usize, uuid: &str) -> Gpu {
        Gpu { server, uuid: uuid.to_owned(), is_healthy: true }
    }

    #[test]
    fn a_container_gets_the_servers_of_its_gpus_and_no_others() {
        let key = Key::generate();
        let list = format!("causeway://{}@a,unix:/run/x/s.sock,b:1", *key.to_text());
        let mut containers = Containers {
            servers: Target::list(&list).unwrap(),
            files: ClientFiles {
                program: "/usr/bin/causeway".into(),
                libraries: vec![("libcuda.so.1", "/usr/lib/causeway/libcuda.so.1".into())],
            },
            has_keys: true,
        };
        let edits = containers.edits(&[&gpu(0, "GPU-1"), &gpu(0, "GPU-2"), &gpu(2, "GPU-3")]);
        let text = key.to_text();
        let servers = edits.variables["CAUSEWAY_ON"].as_str();
        assert_eq!(servers.split(',').count(), 2);
        assert!(
            servers.contains(text.as_str()) && servers.contains("@a") && servers.ends_with("b:1"),
            "{servers}"
        );
        assert_eq!(edits.variables["CUDA_VISIBLE_DEVICES"], "GPU-1,GPU-2,GPU-3");
        assert_eq!(edits.variables["LD_LIBRARY_PATH"], "/opt/causeway/lib/causeway");
        let paths: Vec<_> = edits.mounts.iter().map(|mount| mount.container_path.as_str()).collect();
        assert_eq!(paths, ["/opt/causeway/bin/causeway", "/opt/causeway/lib/causeway/libcuda.so.1"]);
        assert!(edits.mounts.iter().all(|mount| mount.read_only));

        let local = containers.edits(&[&gpu(1, "GPU-4")]);
        assert!(local.mounts.iter().any(|mount| mount.host_path == "/run/x" && !mount.read_only));
        containers.has_keys = false;
        let without = containers.edits(&[&gpu(0, "GPU-1")]);
        assert!(!without.variables["CAUSEWAY_ON"].contains(text.as_str()));
    }

    #[test]
    fn each_resource_has_a_socket() {
        assert_eq!(endpoint("causeway.dev/gpu"), "causeway.dev_gpu.sock");
    }
}
