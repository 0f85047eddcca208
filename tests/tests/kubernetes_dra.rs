//! Dynamic Resource Allocation: GPUs of servers are published, and a kubelet gives claims theirs.

use causeway_kubernetes::dra::api::{
    Claim, Claims, GET_INFO, NOTIFY_STATUS, PluginInfo, PrepareResponse, PreparedClaim, Procedure,
    RegistrationStatus, UnprepareResponse,
};
use causeway_kubernetes::grpc::call;
use causeway_tests::api_server::ApiServer;
use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::process::{Running, eventually, run};
use causeway_tests::server::{Server, forget_environment};
use prost::Message as _;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const DRIVER: &str = "gpu.causeway.dev";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// `causeway kubernetes dra` for a server whose key is in this file.
fn dra(address: &str, key: &Path, api: &ApiServer, more: &[&str]) -> Command {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(["kubernetes", "dra", "--on", address, "--api-server", api.address()]);
    command.arg("--key-file").arg(key).args(more);
    command
}

/// A node: the kubelet's folder, and that for container engines.
struct Node {
    folder: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("kubelet/plugins_registry")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, address: &str, key: &Path, api: &ApiServer) -> Running {
        let mut command = dra(address, key, api, &[]);
        command.arg("--kubelet-folder").arg(self.path("kubelet")).arg("--cdi-folder").arg(self.path("cdi"));
        Running::start(&mut command)
    }

    /// As a kubelet that sees the driver's socket: asks it who it is, and where it is called.
    fn register(&self) -> PluginInfo {
        let socket = self.path("kubelet/plugins_registry").join(format!("{DRIVER}-reg.sock"));
        eventually("the driver registers", LIMIT, || socket.exists());
        let info = PluginInfo::decode(calls(&socket, GET_INFO, &[]).unwrap().as_slice()).unwrap();
        let status = RegistrationStatus { is_registered: true, error: String::new() };
        assert!(calls(&socket, NOTIFY_STATUS, &status.encode_to_vec()).unwrap().is_empty());
        info
    }

    fn prepare(&self, claims: &[Claim]) -> PrepareResponse {
        let message = Claims { claims: claims.to_vec() }.encode_to_vec();
        let socket = self.path("kubelet/plugins").join(DRIVER).join("dra.sock");
        let reply = calls(&socket, &Procedure::Prepare.path(), &message).unwrap();
        PrepareResponse::decode(reply.as_slice()).unwrap()
    }

    fn unprepare(&self, claim: &Claim) -> String {
        let message = Claims { claims: vec![claim.clone()] }.encode_to_vec();
        let socket = self.path("kubelet/plugins").join(DRIVER).join("dra.sock");
        // As a kubelet of an older release does.
        let method = Procedure::Unprepare.path().replace(".v1.", ".v1beta1.");
        let reply = calls(&socket, &method, &message).unwrap();
        let mut reply = UnprepareResponse::decode(reply.as_slice()).unwrap();
        reply.claims.remove(&claim.uid).expect("each claim has an entry").error
    }

    /// The container edits of a claim, if it is prepared.
    fn edits(&self, claim: &Claim) -> Option<Value> {
        let file = self.path("cdi").join(format!("causeway.dev-claim-{}.json", claim.uid));
        let text: Value = serde_json::from_slice(&std::fs::read(file).ok()?).unwrap();
        assert_eq!(text["devices"][0]["name"], claim.uid.as_str());
        Some(text["devices"][0]["containerEdits"].clone())
    }
}

fn calls(socket: &Path, method: &str, message: &[u8]) -> Result<Vec<u8>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reply = runtime.block_on(call(socket, method, message, LIMIT));
    reply.map(Into::into).map_err(|error| error.to_string())
}

fn claim(uid: &str) -> Claim {
    Claim { namespace: "default".into(), uid: uid.into(), name: format!("claim-{uid}") }
}

/// Has the API server know a claim, with a device if the scheduler has given it one.
fn allocate(api: &ApiServer, claim: &Claim, device: Option<(&str, &str)>) {
    let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{}", claim.name);
    let mut object = json!({ "metadata": { "name": claim.name, "uid": claim.uid } });
    if let Some((pool, device)) = device {
        let result = json!({ "request": "gpu", "driver": DRIVER, "pool": pool, "device": device });
        object["status"] = json!({ "allocation": { "devices": { "results": [result] } } });
    }
    api.set(&path, Some(object));
}

/// The only slice, when it has this many devices.
fn slice(api: &ApiServer, pool: &str, devices: usize) -> Value {
    let path = format!("{SLICES}/{DRIVER}-{pool}");
    let count = || Some(api.get(&path)?["spec"]["devices"].as_array()?.len());
    eventually(&format!("a slice with {devices} GPUs is published"), LIMIT, || count() == Some(devices));
    api.get(&path).unwrap()
}

fn pool_of(server: &Server) -> String {
    server.target().endpoint.to_string().replace(['.', ':'], "-")
}

/// Runs a program as a container with these edits.
fn in_container(edits: &Value, program: &Path) {
    let mut command = Command::new(program);
    forget_environment(&mut command);
    let folder = tempfile::tempdir().unwrap();
    for mount in edits["mounts"].as_array().unwrap() {
        let (inside, outside) =
            (mount["containerPath"].as_str().unwrap(), mount["hostPath"].as_str().unwrap());
        assert_eq!(mount["options"][0], "ro");
        if inside.contains(".so") {
            let name = Path::new(inside).file_name().unwrap();
            std::os::unix::fs::symlink(outside, folder.path().join(name)).unwrap();
        }
    }
    for variable in edits["env"].as_array().unwrap() {
        let (name, value) = variable.as_str().unwrap().split_once('=').unwrap();
        command.env(name, value);
    }
    run(command.env("LD_LIBRARY_PATH", folder.path()), LIMIT).must_succeed();
}

#[test]
fn a_claim_gets_a_gpu_that_was_published() {
    let (node, keys, api) = (Node::new(), tempfile::tempdir().unwrap(), ApiServer::start());
    let key = keys.path().join("key");
    let server = Server::start_with_key(&key);
    let (address, pool) = (server.target().address(), pool_of(&server));
    // Of a server that is no longer named.
    let old = json!({ "metadata": { "name": format!("{DRIVER}-old"), "labels": { "app.kubernetes.io/managed-by": "causeway" } },
                      "spec": { "driver": DRIVER } });
    api.set(&format!("{SLICES}/{DRIVER}-old"), Some(old));
    let publisher = Running::start(&mut dra(&address, &key, &api, &["--publish"]));
    let published = slice(&api, &pool, 1);
    let spec = &published["spec"];
    assert_eq!(
        (&spec["pool"]["name"], &spec["allNodes"], &spec["driver"]),
        (&json!(pool), &json!(true), &json!(DRIVER))
    );
    let device = spec["devices"][0]["name"].as_str().unwrap();
    eventually("the old slice is removed", LIMIT, || api.get(&format!("{SLICES}/{DRIVER}-old")).is_none());

    let mut driver = node.start(&address, &key, &api);
    let info = node.register();
    assert_eq!((info.kind.as_str(), info.name.as_str()), ("DRAPlugin", DRIVER));
    assert_eq!(info.versions, ["v1.DRAPlugin", "v1beta1.DRAPlugin"]);
    assert_eq!(Path::new(&info.endpoint), node.path("kubelet/plugins").join(DRIVER).join("dra.sock"));
    driver.must_print("DRA driver registered with the kubelet", LIMIT);

    let (good, unknown, waiting, elsewhere) = (claim("u-1"), claim("u-2"), claim("u-3"), claim("u-4"));
    allocate(&api, &good, Some((&pool, device)));
    allocate(&api, &waiting, None);
    allocate(&api, &elsewhere, Some(("nowhere", device)));
    let missing = claim("u-5");
    allocate(&api, &missing, Some((&pool, "gpu-none")));
    let mut hostile = claim("../u-6");
    hostile.name = "x".into();
    let all = [&good, &unknown, &waiting, &elsewhere, &missing, &hostile].map(Clone::clone);
    let replies = node.prepare(&all).claims;
    let prepared = &replies["u-1"];
    assert_eq!(prepared.error, "");
    assert_eq!(
        (prepared.devices[0].pool.as_str(), prepared.devices[0].device.as_str()),
        (pool.as_str(), device)
    );
    assert_eq!(prepared.devices[0].requests, ["gpu"]);
    assert_eq!(prepared.devices[0].cdi_devices, ["causeway.dev/claim=u-1"]);
    for (uid, expected) in [
        ("u-2", "has no claim default/claim-u-2"),
        ("u-3", "is not allocated"),
        ("u-4", "the pool nowhere is not one of this driver's servers"),
        ("u-5", "does not list the GPU gpu-none"),
        ("../u-6", "is not a UID of a claim"),
    ] {
        let PreparedClaim { error, devices } = &replies[uid];
        assert!(error.contains(expected) && devices.is_empty(), "{uid}: {error}");
    }
    in_container(&node.edits(&good).expect("it is described"), &cuda_program("vector_add"));
    assert!(node.edits(&waiting).is_none());

    // Again, and after the driver has started anew, though neither claim nor server is there any more.
    assert_eq!(node.prepare(core::slice::from_ref(&good)).claims["u-1"], *prepared);
    driver.signal(Signal::KILL);
    driver.finish(LIMIT);
    server.kill();
    assert_eq!(
        slice(&api, &pool, 0)["spec"]["pool"]["generation"],
        2,
        "nobody is given a GPU that cannot be had"
    );
    api.set(&format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{}", good.name), None);
    let mut driver = node.start(&address, &key, &api);
    driver.must_print("waiting for the kubelet", LIMIT);
    node.register();
    assert_eq!(node.prepare(core::slice::from_ref(&good)).claims["u-1"], *prepared);
    let late = claim("u-7");
    allocate(&api, &late, Some((&pool, device)));
    let error = node.prepare(core::slice::from_ref(&late)).claims["u-7"].error.clone();
    assert!(error.contains("nothing listens at"), "{error}");
    for _ in 0..2 {
        assert_eq!(node.unprepare(&good), "");
        assert!(node.edits(&good).is_none());
    }
    assert_eq!(node.unprepare(&unknown), "");

    driver.signal(Signal::TERM);
    driver.finish(LIMIT).must_succeed();
    assert_eq!(std::fs::read_dir(node.path("kubelet/plugins_registry")).unwrap().count(), 0);
    drop(publisher);
}

#[test]
fn a_key_that_was_revoked_is_reported_before_the_container_starts() {
    let (node, keys, api) = (Node::new(), tempfile::tempdir().unwrap(), ApiServer::start());
    let (key, copy) = (keys.path().join("key"), keys.path().join("copy"));
    let server = Server::start_with_key(&key);
    std::fs::copy(&key, &copy).unwrap();
    let _driver = node.start(&server.target().address(), &copy, &api);
    node.register();
    // The server makes a new key.
    std::fs::remove_file(&key).unwrap();
    let claim = claim("u-1");
    allocate(&api, &claim, Some((&pool_of(&server), "gpu-any")));
    let revoked = || {
        let error = node.prepare(core::slice::from_ref(&claim)).claims["u-1"].error.clone();
        error.contains("key").then_some(error)
    };
    eventually("the server refuses the key", LIMIT, || revoked().is_some());
    assert!(node.edits(&claim).is_none());
    // A kubelet that says nonsense gets an error, and the driver goes on.
    let socket = node.path("kubelet/plugins").join(DRIVER).join("dra.sock");
    let said = calls(&socket, &Procedure::Prepare.path(), &[0xff; 9]).unwrap_err();
    assert!(said.contains("code 3"), "{said}");
    let said =
        calls(&socket, "/k8s.io.kubelet.pkg.apis.dra.v9.DRAPlugin/NodePrepareResources", &[]).unwrap_err();
    assert!(said.contains("code 12"), "{said}");
    // What removes its sockets, such as a node that is cleaned up, is followed.
    let registration = node.path("kubelet/plugins_registry").join(format!("{DRIVER}-reg.sock"));
    std::fs::remove_file(&registration).unwrap();
    eventually("the driver listens again", LIMIT, || registration.exists());
    node.register();
}

#[test]
fn what_cannot_work_is_reported_before_anything_is_done() {
    let (node, keys, api) = (Node::new(), tempfile::tempdir().unwrap(), ApiServer::start());
    let key = keys.path().join("key");
    std::fs::write(&key, "0".repeat(64)).unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, permissions).unwrap();
    let (none, file) = (node.path("none"), node.path("file"));
    std::fs::write(&file, "").unwrap();
    for (on, words, expected) in [
        ("a", vec!["--kubelet-folder", none.to_str().unwrap()], "there is no folder"),
        ("a,a", vec!["--publish"], "is named twice"),
        ("a", vec!["--driver", "GPU"], "such as gpu.causeway.dev"),
        ("a", vec!["--node-label", "x"], "LABEL=VALUE"),
        ("a", vec!["--publish", "--api-token", "/t"], "others could read the token"),
        ("a", vec!["--publish", "--api-ca", file.to_str().unwrap()], "has no certificate"),
    ] {
        let outcome = run(&mut dra(on, &key, &api, &words), LIMIT);
        let failed = outcome.code().is_some_and(|code| code != 0);
        assert!(failed && outcome.stderr.contains(expected), "{words:?}: {outcome}");
    }
}
