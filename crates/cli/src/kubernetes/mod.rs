//! `causeway kubernetes`: GPUs of servers for pods of Kubernetes.
//!
//! | Module          | Question it answers                                              |
//! |-----------------|------------------------------------------------------------------|
//! | `device_plugin` | What does a kubelet give a container with a server's GPU?        |
//! | `poll`          | Which GPUs have the servers, and which of them can be had now?   |
//! | `client_files`  | Where on a node are the files that containers get?               |

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
