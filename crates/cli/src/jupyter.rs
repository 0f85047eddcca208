//! `causeway jupyter`: a Jupyter kernel that runs on a server's GPU.
//!
//! By a kernel of its own: Jupyter starts one by the command that a *kernelspec* names (a folder with a file
//! `kernel.json`), and this one begins with `causeway run`. Jupyter looks for kernelspecs in `kernels` of its
//! data folders: <https://jupyter-client.readthedocs.io/en/stable/kernels.html>.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use causeway_access::{Target, TargetError};
use causeway_config::table;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use thiserror::Error;

/// Run notebooks on a server's GPU.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Install(Install),
}

/// Create a kernel for Jupyter whose notebooks run on a server's GPU.
///
/// It appears in Jupyter's list of kernels. The server need not be reachable until a notebook is opened.
#[derive(Debug, Args)]
pub struct Install {
    /// Server, as for `causeway run --on`, without a key. Default: the server that is configured when a
    /// notebook is opened.
    #[arg(long, value_name = "SERVER[,SERVER...]", env = table::ON.name, hide_env_values = true)]
    on: Option<String>,
    /// Python interpreter of the notebooks, which must have ipykernel.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Name of the kernel's folder. Default: causeway, followed by the server's name.
    #[arg(long, value_name = "NAME", value_parser = kernel_name)]
    name: Option<String>,
    /// Name that Jupyter shows.
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// Install into share/jupyter of this folder, such as a virtual environment, instead of the user's.
    #[arg(long, value_name = "FOLDER")]
    prefix: Option<PathBuf>,
}

/// Why there is no kernel.
#[derive(Debug, Error)]
pub enum JupyterError {
    /// The server makes no sense.
    #[error(transparent)]
    Server(#[from] TargetError),
    /// A key would be in a file that others may read.
    #[error(
        "a kernel cannot contain a key, since others may read its file: save the key with `causeway key \
         add`, and name the server without it"
    )]
    Key,
    /// What should name a server is empty.
    #[error("--on is empty: omit it to use the configured server, or name one")]
    EmptyOn,
    /// The Python cannot run kernels.
    #[error(
        "{} cannot run kernels ({cause}): install ipykernel into it (`{} -m pip install ipykernel`), or name another one with \
         --python", python.display(), python.display()
    )]
    Python {
        /// What was asked.
        python: PathBuf,
        /// What it said.
        cause: String,
    },
    /// The user has no folder.
    #[error("HOME is not set, so the user has no folder for kernels: name one with --prefix")]
    NoHomeVariable,
    /// The system does not say where this program is.
    #[error("the path of the program causeway cannot be determined: {0}")]
    Executable(io::Error),
    /// The kernel cannot be written.
    #[error("cannot write the kernel to {}: {cause}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

/// Does what the command line asks for.
pub fn jupyter(arguments: &Arguments) -> Result<ExitCode, JupyterError> {
    let Action::Install(install) = &arguments.command;
    let on = install.on.as_deref().map(str::trim);
    let is_variable = std::env::var_os(table::ON.name).is_some_and(|value| value.is_empty());
    if on == Some("") && !is_variable {
        return Err(JupyterError::EmptyOn);
    }
    let on = on.filter(|on| !on.is_empty());
    let servers = on.map(Target::list).transpose()?.unwrap_or_default();
    if servers.iter().any(|server| server.key.is_some()) {
        return Err(JupyterError::Key);
    }
    let python = python(&install.python)?;
    let causeway = std::env::current_exe().map_err(JupyterError::Executable)?;
    let name = install.name.clone().unwrap_or_else(|| name_for(on));
    let display_name = install.display_name.clone().unwrap_or_else(|| match on {
        Some(on) => format!("Python 3 on {on} (Causeway)"),
        None => "Python 3 (Causeway)".to_owned(),
    });
    let folder = kernels(install.prefix.as_deref())?.join(name);
    let path = folder.join("kernel.json");
    let text = format!("{:#}\n", kernel(&causeway, on, &python, &display_name));
    let failed = |cause| JupyterError::Write { path: path.clone(), cause };
    std::fs::create_dir_all(&folder).map_err(failed)?;
    std::fs::write(&path, text).map_err(failed)?;
    // Who does not read where it is finds it in Jupyter's list.
    let _ = writeln!(io::stdout(), "{}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// The path of a Python that can run kernels, as it says itself: Jupyter may have another search path.
fn python(named: &Path) -> Result<PathBuf, JupyterError> {
    let wrong = |cause: String| JupyterError::Python { python: named.to_owned(), cause };
    let script = "import sys, ipykernel; sys.stdout.write(sys.executable)";
    let reply = Command::new(named).args(["-c", script]).stdin(Stdio::null()).output();
    let reply = reply.map_err(|cause| wrong(cause.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match reply.status.success() {
        true => Ok(text(&reply.stdout).into()),
        false => Err(wrong(text(&reply.stderr).lines().last().unwrap_or("it says nothing").to_owned())),
    }
}

/// The user's folder with kernels, or that in a prefix.
fn kernels(prefix: Option<&Path>) -> Result<PathBuf, JupyterError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = match prefix {
        Some(prefix) => std::path::absolute(prefix).ok().map(|prefix| prefix.join("share/jupyter")),
        None => variable("JUPYTER_DATA_DIR")
            .or_else(|| variable("XDG_DATA_HOME").map(|data| data.join("jupyter")))
            .or_else(|| variable("HOME").map(|home_dir| home_dir.join(".local/share/jupyter"))),
    };
    Ok(data.ok_or(JupyterError::NoHomeVariable)?.join("kernels"))
}

/// What `kernel.json` says. `{connection_file}` is for Jupyter to fill in.
fn kernel(causeway: &Path, on: Option<&str>, python: &Path, display_name: &str) -> Value {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut command = vec![text(causeway), "run".to_owned()];
    command.extend(on.into_iter().flat_map(|on| ["--on".to_owned(), on.to_owned()]));
    command.extend(["--".to_owned(), text(python)]);
    command.extend(["-m", "ipykernel_launcher", "-f", "{connection_file}"].map(str::to_owned));
    json!({
        "argv": command,
        "display_name": display_name,
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": { "debugger": true },
    })
}

/// The name of a kernel's folder for a server.
fn name_for(on: Option<&str>) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    let server = on.unwrap_or_default().chars().map(plain).collect::<String>();
    format!("causeway-{server}").trim_end_matches('-').to_ascii_lowercase()
}

/// A name that Jupyter takes for a kernel's folder.
fn kernel_name(text: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("a kernel's name has letters, digits, `-`, `_` and `.`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_begins_with_causeway_run_on_its_server() {
        let made =
            kernel(Path::new("/usr/bin/causeway"), Some("gpu-box"), Path::new("/v/bin/python"), "shown");
        let expected = [
            "/usr/bin/causeway",
            "run",
            "--on",
            "gpu-box",
            "--",
            "/v/bin/python",
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
        ];
        assert_eq!((&made["argv"], &made["display_name"]), (&json!(expected), &json!("shown")));
        let without = kernel(Path::new("causeway"), None, Path::new("python3"), "");
        assert_eq!(without["argv"][2], "--");
    }

    #[test]
    fn every_server_has_a_folder_of_its_own() {
        assert_eq!(name_for(None), "causeway");
        assert_eq!(name_for(Some("gpu-box")), "causeway-gpu-box");
        assert_eq!(name_for(Some("Box.example:7690,unix:/run/x")), "causeway-box.example-7690-unix--run-x");
        assert!(kernel_name("../x").is_err() && kernel_name("").is_err() && kernel_name("a_b.c-1").is_ok());
    }

    #[test]
    fn a_python_without_ipykernel_is_refused_with_what_to_do() {
        let text = python(Path::new("/bin/false")).unwrap_err().to_string();
        assert!(text.contains("/bin/false -m pip install ipykernel"), "{text}");
        assert!(python(Path::new("/no/such/python")).unwrap_err().to_string().contains("No such file"));
    }
}
