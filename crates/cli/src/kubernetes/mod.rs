//! `causeway kubernetes`: GPUs of servers for pods of Kubernetes.
//!
//! | module | contents |
//! | --- | --- |
//! | `device_plugin` | `causeway kubernetes device-plugin`: what a kubelet gives a container with GPUs of servers |
//! | `poll` | Polling of servers: which GPUs they have, and whether a client that comes now would get one |
//! | `client_files` | Client files of a node: program and libraries, at paths from which a kubelet mounts them into containers |

mod client_files;
mod device_plugin;
mod poll;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub use device_plugin::DevicePluginError;

/// Servers' GPUs for pods of Kubernetes.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    DevicePlugin(device_plugin::Arguments),
}

/// Does what the command line asks for.
pub fn kubernetes(arguments: &Arguments) -> Result<ExitCode, DevicePluginError> {
    let Action::DevicePlugin(arguments) = &arguments.command;
    device_plugin::device_plugin(arguments)
}
