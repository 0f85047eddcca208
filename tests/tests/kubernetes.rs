//! Kubernetes: a kubelet gives containers GPUs of servers by the device plugin.

use causeway_kubernetes::device_plugin::api::{
    ContainerEdits, DeviceList, HEALTHY, PRE_START, UNHEALTHY, VERSION,
};
use causeway_tests::built::{causeway, cuda_program, source_tree};
use causeway_tests::kubelet::Kubelet;
use causeway_tests::process::{Running, eventually, run};
use causeway_tests::server::{Server, forget_environment};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::Receiver;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SOCKET: &str = "causeway.dev_gpu.sock";

/// Starts the plugin with a kubelet's folder, for a server whose key is in this file.
fn plugin(server: &Server, keys: &Path, folder: &Path, more: &[&str]) -> Running {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(["kubernetes", "device-plugin", "--on", &server.target().address()]);
    command.arg("--key-file").arg(keys).arg("--kubelet-folder").arg(folder).args(more);
    Running::start(&mut command)
}

/// The next list that says something else than "no devices yet".
fn devices(list: &Receiver<DeviceList>) -> Vec<(String, String)> {
    loop {
        let devices = list.recv_timeout(LIMIT).expect("the plugin tells of its devices").devices;
        if !devices.is_empty() {
            return devices.into_iter().map(|device| (device.id, device.health)).collect();
        }
    }
}

/// Runs a program as a container with these edits: its variables, and libraries at the paths of the node.
fn in_container(edits: &ContainerEdits, program: &Path) {
    let mut command = Command::new(program);
    forget_environment(&mut command);
    let library = edits.mounts.iter().find(|mount| mount.container_path.ends_with("/libcuda.so.1"));
    let library = library.expect("a container gets the library");
    assert!(library.read_only && library.container_path.starts_with(&edits.variables["LD_LIBRARY_PATH"]));
    let folder = tempfile::tempdir().unwrap();
    for mount in edits.mounts.iter().filter(|mount| mount.container_path.contains(".so")) {
        let name = Path::new(&mount.container_path).file_name().unwrap();
        std::os::unix::fs::symlink(&mount.host_path, folder.path().join(name)).unwrap();
    }
    command.envs(&edits.variables).env("LD_LIBRARY_PATH", folder.path());
    run(&mut command, LIMIT).must_succeed();
}

#[test]
fn a_container_that_asks_for_a_gpu_uses_a_servers() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let key = keys.path().join("key");
    let server = Server::start_with_key(&key);
    let kubelet = Kubelet::start(folder.path(), 1);
    let client = keys.path().join("client");
    let mut plugin = plugin(
        &server,
        &key,
        folder.path(),
        &["--per-gpu", "2", "--client-folder", client.to_str().unwrap()],
    );

    // It was refused once, and comes again.
    let known = kubelet.registration();
    plugin.must_print("the kubelet is not ready: 100 %", LIMIT);
    assert_eq!((known.version.as_str(), known.resource.as_str()), (VERSION, "causeway.dev/gpu"));
    assert_eq!(known.endpoint, SOCKET);
    let list = kubelet.watch(SOCKET);
    let listed = devices(&list);
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(listed.iter().all(|(_, health)| health == HEALTHY), "{listed:?}");

    let ids: Vec<String> = listed.into_iter().map(|(id, _)| id).collect();
    let chosen = kubelet.preference(SOCKET, &ids, 1);
    assert_eq!(chosen.len(), 1);
    let edits = kubelet.allocate(SOCKET, &chosen).unwrap().containers.remove(0);
    assert!(edits.mounts.iter().all(|mount| Path::new(&mount.host_path).starts_with(&client)), "{edits:?}");
    in_container(&edits, &cuda_program("vector_add"));

    for (wrong, expected) in
        [(ids.clone(), "shares of 1"), (vec!["none".to_owned()], "there is no device `none`")]
    {
        let error = kubelet.allocate(SOCKET, &wrong).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(kubelet.call(SOCKET, PRE_START, &[]).unwrap().is_empty());
    let error = kubelet.call(SOCKET, "/v1beta1.DevicePlugin/Other", &[]).unwrap_err().to_string();
    assert!(error.contains("code 12"), "{error}");
    let error = kubelet.call(SOCKET, "/v1beta1.DevicePlugin/Allocate", &[0xff; 9]).unwrap_err().to_string();
    assert!(error.contains("code 3"), "{error}");

    // GPUs of a server that is gone can be had no more.
    server.kill();
    assert!(devices(&list).iter().all(|(_, health)| health == UNHEALTHY));

    plugin.signal(Signal::TERM);
    plugin.finish(LIMIT).must_succeed();
    assert!(!folder.path().join(SOCKET).exists());
}

#[test]
fn a_kubelet_that_starts_anew_knows_the_plugin_again() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let key = keys.path().join("key");
    let server = Server::start_with_key(&key);
    // The plugin is there first.
    let plugin = plugin(&server, &key, folder.path(), &["--resource", "lab.example/gpu", "--without-keys"]);
    plugin.must_print("no process listens at", LIMIT);
    eventually("the plugin listens", LIMIT, || folder.path().join("lab.example_gpu.sock").exists());
    for _ in 0..2 {
        let kubelet = Kubelet::start(folder.path(), 0);
        let known = kubelet.registration();
        let listed = devices(&kubelet.watch(&known.endpoint));
        assert_eq!(listed.len(), 1, "{listed:?}");
        let edits = kubelet.allocate(&known.endpoint, &[listed[0].0.clone()]).unwrap().containers.remove(0);
        assert_eq!(edits.variables["CAUSEWAY_ON"], server.target().address(), "without a key");
    }
}

#[test]
fn what_cannot_work_is_told_before_anything_is_done() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let key = keys.path().join("key");
    std::fs::write(&key, "0".repeat(64)).unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, permissions).unwrap();
    let none = folder.path().join("none");
    for (words, expected) in [
        (vec!["--kubelet-folder", none.to_str().unwrap()], "there is no folder"),
        (vec!["--resource", "gpu"], "such as causeway.dev/gpu"),
        (vec!["--per-gpu", "0"], "1..=1024"),
    ] {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        command
            .args(["kubernetes", "device-plugin", "--on", "127.0.0.1:1", "--key-file"])
            .arg(&key)
            .args(words);
        let outcome = run(&mut command, LIMIT);
        assert!(
            outcome.code().is_some_and(|code| code != 0) && outcome.stderr.contains(expected),
            "{outcome}"
        );
    }
}

#[test]
fn manifests_and_chart_are_such_that_a_cluster_and_the_program_take_them() {
    let mut packages = Command::new("scripts/python-packages.sh");
    let packages = run(packages.arg("kubernetes").current_dir(source_tree()), LIMIT * 5).must_succeed();
    let mut tool = Command::new("python3");
    tool.args(["tools/kubernetes"]).arg(causeway()).current_dir(source_tree());
    tool.env("PYTHONPATH", packages.stdout.trim()).env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut tool, LIMIT * 5).must_succeed();
}
