//! `causeway kubernetes`: GPUs of servers for pods of Kubernetes.
//!
//! | module | contents |
//! | --- | --- |
//! | `device_plugin` | `causeway kubernetes device-plugin`: what a kubelet gives a container with GPUs of servers |
//! | `poll` | Polling of servers: which GPUs they have, and whether a client that comes now would get one |
//! | `client_files` | Client files of a node: program and libraries, at paths from which a kubelet mounts them into containers |
//! | `dra` | `causeway kubernetes dra`: the driver by which claims get GPUs of servers, and the publication of these GPUs |
//! | `publish` | Publication of servers' GPUs: a ResourceSlice for each server, kept as the server is |

mod client_files;
mod device_plugin;
mod dra;
mod poll;
mod publish;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use thiserror::Error;

use device_plugin::DevicePluginError;
use dra::DraError;

/// Why pods get no GPUs.
#[derive(Debug, Error)]
pub enum KubernetesError {
    /// There is no device plugin.
    #[error(transparent)]
    DevicePlugin(#[from] DevicePluginError),
    /// There is no DRA driver.
    #[error(transparent)]
    Dra(#[from] DraError),
}

/// Offer servers' GPUs to pods of Kubernetes.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    DevicePlugin(device_plugin::Arguments),
    Dra(dra::Arguments),
}

/// Does what the command line asks for.
pub fn kubernetes(arguments: &Arguments) -> Result<ExitCode, KubernetesError> {
    match &arguments.command {
        Action::DevicePlugin(arguments) => Ok(device_plugin::device_plugin(arguments)?),
        Action::Dra(arguments) => Ok(dra::dra(arguments)?),
    }
}
