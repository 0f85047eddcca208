//! `causeway cdi`: description of a server's GPUs for container engines (Container Device Interface).
//!
//! By the Container Device Interface: a file in `/etc/cdi` says what a container gets with a device that is
//! asked for by name, here libraries, variables and a key: podman, containerd, CRI-O and Docker read it
//! (<https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>).

mod hook;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causeway_access::ServersError;
use causeway_access::keys::file::{self, KeyFileError, Line};
use causeway_access::{DEFAULT_PORT, Endpoint, Target};
use causeway_config::table;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use thiserror::Error;

use crate::container::{self, Mount};
use crate::library::{self, LibraryError};
use crate::server::KeyArguments;

/// The oldest version that has all that is said here; engines since 2022 know it.
const VERSION: &str = "0.5.0";
const KIND: &str = "causeway.dev/gpu";
/// Where a container finds the key.
const KEYS_IN_CONTAINER: &str = "/run/causeway/keys";

/// Offer servers' GPUs to containers, as devices.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Generate(Generate),
    #[command(hide = true)]
    Hook(hook::Arguments),
}

/// Describe servers' GPUs to container engines, for `--device causeway.dev/gpu=NAME`.
///
/// NAME is a server's name, or `all` for the GPUs of all given servers. A container gets Causeway's program
/// and libraries in /opt/causeway, the server's address, and its key, which is written to a file of its own.
/// The program in the container must run as the user who owns that file.
#[derive(Debug, Args)]
pub struct Generate {
    /// Servers, as for `causeway run --on`.
    #[arg(long, value_name = "SERVER[,SERVER...]", env = table::ON.name, hide_env_values = true)]
    on: String,
    #[command(flatten)]
    keys: KeyArguments,
    /// File for the description, such as /etc/cdi/causeway.json. Default: standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Folder for the key files, one for each server. Default: /var/lib/causeway/cdi; for users other than
    /// root ~/.config/causeway/cdi.
    #[arg(long, value_name = "FOLDER")]
    key_folder: Option<PathBuf>,
}

/// Why there is no description.
#[derive(Debug, Error)]
pub enum CdiError {
    /// A server makes no sense, or its key cannot be read.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// A key cannot be written.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// There is no key for a server, which would refuse the container.
    #[error(
        "no key of {0} is stored on this machine, so the server would refuse containers: add it with `causeway key add`"
    )]
    NoKey(String),
    /// There are no libraries to give.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The system does not say where this program is.
    #[error("the path of the program causeway cannot be determined: {0}")]
    Executable(io::Error),
    /// The description cannot be written.
    #[error("cannot write the description for container engines to {}: {cause}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

/// A device of the description.
struct Device {
    name: String,
    servers: Vec<Target>,
}

/// Does what the command line asks for.
pub fn cdi(arguments: &Arguments) -> Result<ExitCode, CdiError> {
    let generate = match &arguments.command {
        Action::Generate(generate) => generate,
        Action::Hook(_) => return Ok(hook::run(io::stdin().lock())),
    };
    let servers = generate.keys.servers(&generate.on)?;
    if let Some(without) = servers.iter().find(|server| server.lacks_key()) {
        return Err(CdiError::NoKey(without.to_string()));
    }
    let folder = match &generate.key_folder {
        Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
        None if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib/causeway/cdi"),
        None => file::configuration()?.join("cdi"),
    };
    let program = std::env::current_exe().map_err(CdiError::Executable)?;
    let files = library::files(&library::folder()?);
    let devices: Vec<Value> = devices(servers)
        .iter()
        .map(|device| Ok(describe(device, write_keys(&folder, device)?.as_deref())))
        .collect::<Result<_, CdiError>>()?;
    let description = format!("{:#}\n", description(&program, &files, &devices));
    match &generate.output {
        Some(path) => {
            let failed = |cause| CdiError::Write { path: path.clone(), cause };
            path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
            std::fs::write(path, description).map_err(failed)?;
        }
        // When nobody reads our standard output nobody wanted it.
        None => drop(io::stdout().write_all(description.as_bytes())),
    }
    Ok(ExitCode::SUCCESS)
}

/// A device for each server, by the name of its host, and one for all where there are several.
fn devices(servers: Vec<Target>) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for server in &servers {
        let name = device_name(&server.endpoint);
        let taken = |name: &str| devices.iter().any(|device| device.name == name);
        let name = core::iter::once(name.clone()).chain((2..).map(|number| format!("{name}-{number}")));
        let name = name.into_iter().find(|name| !taken(name)).expect("names do not run out");
        devices.push(Device { name, servers: vec![server.clone()] });
    }
    if servers.len() > 1 {
        devices.push(Device { name: "all".to_owned(), servers });
    }
    devices
}

/// The name of a server's device: letters, digits, `_`, `-`, `.` and `:`, the first and the last a letter or
/// digit. A port is part of it unless it is the usual one.
fn device_name(endpoint: &Endpoint) -> String {
    let text = match endpoint {
        Endpoint::Tcp { host, port: DEFAULT_PORT } => host.clone(),
        Endpoint::Tcp { host, port } => format!("{host}-{port}"),
        Endpoint::Vsock(address) => address.to_string(),
        Endpoint::Unix(path) => {
            Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned()
        }
    };
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    let name: String = text.chars().map(plain).collect();
    match name.trim_matches(|letter: char| !letter.is_ascii_alphanumeric()) {
        "" | "all" => "server".to_owned(),
        name => name.to_owned(),
    }
}

/// Writes the keys of a device's servers to a file that only this user can read; none where they need none.
fn write_keys(folder: &Path, device: &Device) -> Result<Option<PathBuf>, KeyFileError> {
    let line =
        |server: &Target| Some(Line { server: Some(server.endpoint.clone()), key: server.key.clone()? });
    let lines: Vec<Line> = device.servers.iter().filter_map(line).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let path = folder.join(format!("{}.keys", device.name));
    file::write(&path, &lines)?;
    Ok(Some(path))
}

/// What a container gets with a device.
fn describe(device: &Device, keys: Option<&Path>) -> Value {
    let addresses = device.servers.iter().map(Target::address).collect::<Vec<_>>().join(",");
    let mut variables = vec![format!("{}={addresses}", table::ON.name)];
    let mut mounts = Vec::new();
    if let Some(keys) = keys {
        variables.push(format!("{}={KEYS_IN_CONTAINER}", table::KEY_FILE.name));
        mounts.push(Mount::read_only(keys, KEYS_IN_CONTAINER));
    }
    mounts.extend(container::socket_mounts(&device.servers));
    let mounts: Vec<_> = mounts.iter().map(Mount::to_cdi).collect();
    json!({ "name": device.name, "containerEdits": { "env": variables, "mounts": mounts } })
}

/// The whole description. `files` are the libraries: the name that programs ask for, and where it is.
fn description(program: &Path, files: &[(&str, PathBuf)], devices: &[Value]) -> Value {
    let placement = (table::COMM_CONTAINER.name, hook::PLACEMENT_FILE.to_owned());
    let variables = container::library_variables().into_iter().chain([placement]);
    let variables: Vec<_> = variables.map(|(name, value)| format!("{name}={value}")).collect();
    let mounts: Vec<_> = container::library_mounts(program, files).iter().map(Mount::to_cdi).collect();
    // When the container's namespaces are made, and before its program begins.
    let hook = json!({ "hookName": "createRuntime", "path": program, "args": ["causeway", "cdi", "hook"] });
    json!({
        "cdiVersion": VERSION,
        "kind": KIND,
        "containerEdits": { "env": variables, "mounts": mounts, "hooks": [hook] },
        "devices": devices,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::Key;

    fn named(list: &str) -> Vec<String> {
        devices(Target::list(list).unwrap()).into_iter().map(|device| device.name).collect()
    }

    #[test]
    fn every_server_has_a_device_and_several_one_together() {
        assert_eq!(named("gpu-box"), ["gpu-box"]);
        assert_eq!(named("a,a:7691,b,a"), ["a", "a-7691", "b", "a-2", "all"]);
        assert_eq!(named("unix:/run/causeway/fast.sock,[::1]:7690"), ["fast", "1", "all"]);
        assert_eq!(named("all"), ["server"]);
    }

    #[test]
    fn a_container_gets_address_key_and_libraries_and_no_other_key() {
        let folder = tempfile::tempdir().unwrap();
        let (near, far) = (Key::generate(), Key::generate());
        let list = format!(
            "causeway://{}@near,causeway://{}@far:1,unix:/run/x/s.sock",
            *near.to_text(),
            *far.to_text()
        );
        let devices = devices(Target::list(&list).unwrap());
        let keys = write_keys(folder.path(), &devices[1]).unwrap().unwrap();
        let lines = file::read(&keys).unwrap();
        assert!(lines.len() == 1 && lines[0].key == far);
        let made = describe(&devices[1], Some(&keys));
        assert_eq!(
            made["containerEdits"]["env"],
            json!(["CAUSEWAY_ON=causeway://far:1", "CAUSEWAY_KEY_FILE=/run/causeway/keys"])
        );
        assert_eq!(made["containerEdits"]["mounts"][0]["hostPath"], json!(keys));
        let socket = describe(&devices[2], write_keys(folder.path(), &devices[2]).unwrap().as_deref());
        assert_eq!(socket["containerEdits"]["mounts"][0]["containerPath"], "/run/x");

        let files = [("libcuda.so.1", PathBuf::from("/usr/lib/causeway/libcuda.so.1"))];
        let whole = description(Path::new("/usr/bin/causeway"), &files, &[made]);
        assert_eq!(whole["kind"], "causeway.dev/gpu");
        assert_eq!(whole["containerEdits"]["hooks"][0]["args"], json!(["causeway", "cdi", "hook"]));
        let named = "CAUSEWAY_COMM_CONTAINER=/opt/causeway/container";
        assert!(whole["containerEdits"]["env"].as_array().unwrap().contains(&json!(named)), "{whole}");
        assert_eq!(
            whole["containerEdits"]["mounts"][1]["containerPath"],
            "/opt/causeway/lib/causeway/libcuda.so.1"
        );
        for key in [&near, &far] {
            assert!(
                !whole.to_string().contains(&**key.to_text()),
                "the description is for everybody to read"
            );
        }
    }
}
