//! Installation: systemd, container engines, Jupyter.

use causeway_access::keys::file;
use causeway_tests::built::causeway;
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::Server;
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `causeway` for a user whose home is this folder.
fn causeway_of(home: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(causeway());
    command.args(arguments).env_clear().env("HOME", home).env("PATH", std::env::var_os("PATH").unwrap());
    run(&mut command, LIMIT)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn systemd_is_told_when_a_server_listens_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(LIMIT)).unwrap();
    let told = || {
        let mut text = [0; 512];
        let length = systemd.recv(&mut text).expect("systemd is told");
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    };
    let mut command = Server::command(&["--listen", "127.0.0.1:0", "--insecure-no-key"]);
    command.env("NOTIFY_SOCKET", &path);
    let server = Server::start_command(command);
    assert_eq!(told(), "READY=1\nSTATUS=ready; 0 sessions");
    let on = server.connect_string();
    causeway_of(folder.path(), &["devices", "--on", &on]).must_succeed();
    server.end_by(Signal::TERM).must_succeed();
    // The status changes with the session, and may be told before the end.
    let end = core::iter::repeat_with(told)
        .find(|text| !text.starts_with("STATUS=") && !text.starts_with("WATCHDOG="));
    assert_eq!(end.as_deref(), Some("STOPPING=1"));
}

#[test]
fn a_container_engine_learns_what_a_device_is() {
    let home = tempfile::tempdir().unwrap();
    let key_file = home.path().join("key");
    let server = Server::start_with_key(&key_file);
    let (on, output) = (server.connect_string(), home.path().join("cdi/causeway.json"));
    let keys = home.path().join("keys");
    let (output_text, keys_text) = (output.to_str().unwrap(), keys.to_str().unwrap());
    let arguments = ["cdi", "generate", "--on", &on, "--output", output_text, "--key-folder", keys_text];
    causeway_of(home.path(), &arguments).must_succeed();

    let made = json(&output);
    assert_eq!((&made["kind"], &made["cdiVersion"]), (&"causeway.dev/gpu".into(), &"0.5.0".into()));
    let device = &made["devices"][0];
    let kept = Path::new(device["containerEdits"]["mounts"][0]["hostPath"].as_str().unwrap());
    assert_eq!(std::fs::metadata(kept).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(file::read(kept).unwrap()[0].key, *server.target().key.as_ref().unwrap());
    // What a container gets under the names of the driver is there.
    for mount in made["containerEdits"]["mounts"].as_array().unwrap() {
        let file = std::fs::metadata(mount["hostPath"].as_str().unwrap()).unwrap();
        assert!(file.is_file() && file.size() > 0, "{mount}");
    }

    let stranger = causeway_of(home.path(), &["cdi", "generate", "--on", "box-without-key"]);
    assert_eq!(stranger.code(), Some(1));
    assert!(stranger.stderr.contains("causeway key add"), "{stranger}");
}

#[test]
fn a_kernel_of_jupyter_is_written_where_jupyter_looks() {
    let home = tempfile::tempdir().unwrap();
    // What answers as a Python with ipykernel does.
    let python = home.path().join("python");
    std::fs::write(&python, "#!/bin/sh\nprintf /found/python3\n").unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let python = python.to_str().unwrap();
    let install = |more: &[&str]| {
        causeway_of(home.path(), &[&["jupyter", "install", "--python", python], more].concat())
    };
    install(&["--on", "gpu-box"]).must_succeed();
    let kernel = json(&home.path().join(".local/share/jupyter/kernels/causeway-gpu-box/kernel.json"));
    assert_eq!(kernel["argv"][0].as_str().map(Path::new), Some(causeway()));
    assert_eq!((&kernel["argv"][3], &kernel["argv"][5]), (&"gpu-box".into(), &"/found/python3".into()));

    let prefix = home.path().join("prefix");
    install(&["--prefix", prefix.to_str().unwrap(), "--name", "far"]).must_succeed();
    assert!(prefix.join("share/jupyter/kernels/far/kernel.json").is_file());

    let key = causeway_access::Key::generate().to_text().to_string();
    let with_key = install(&["--on", &format!("causeway://{key}@gpu-box"), "--name", "secret"]);
    assert_eq!(with_key.code(), Some(1));
    assert!(with_key.stderr.contains("causeway key add") && !with_key.stderr.contains(&key), "{with_key}");
    assert!(!home.path().join(".local/share/jupyter/kernels/secret").exists());
}
