//! Driver of a node: registers with the kubelet, and prepares claims for its containers.
//!
//! A kubelet finds the driver by a socket in its folder of plugins that register, and calls it there; so a kubelet that starts
//! anew finds it again. Calls may come several times and at the same time; each is carried out by a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message as _;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::dra::api::{
    Claim, Claims, GET_INFO, NOTIFY_STATUS, PLUGIN_TYPE, PluginInfo, PrepareResponse, PreparedClaim,
    PreparedDevice, Procedure, RegistrationStatus, UnprepareResponse, UnpreparedClaim, VERSIONS,
};
use crate::dra::claim::{AllocatedDevice, allocated_devices, is_plain_name};
use crate::dra::prepared::{PreparedClaims, RecordedDevice};
use crate::grpc::{Code, Reply, Service, Status, serve};
use crate::kubelet::{KubeletError, listen, run_until};

/// The most claims of one call.
const MAX_CLAIMS: usize = 1024;
/// How often is looked whether the sockets are still there.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a driver needs of the cluster and of the servers. Calls may take seconds.
pub trait Cluster: Send + Sync + 'static {
    /// The ResourceClaim as the API server has it.
    ///
    /// # Errors
    /// Why it cannot be had, as a sentence.
    fn claim(&self, claim: &Claim) -> Result<Vec<u8>, String>;

    /// What a container gets with these devices, as edits of the Container Device Interface.
    ///
    /// # Errors
    /// Why it would get nothing, as a sentence.
    fn edits(&self, devices: &[AllocatedDevice]) -> Result<Value, String>;
}

/// What responds to the kubelet.
pub struct Driver {
    name: String,
    cluster: Box<dyn Cluster>,
    prepared: PreparedClaims,
    /// Claims that a thread is at.
    in_progress: Mutex<BTreeSet<String>>,
}

/// A claim that no other thread is at while this lives.
struct InProgress<'a> {
    driver: &'a Driver,
    uid: &'a str,
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.driver.in_progress.lock().remove(self.uid);
    }
}

impl Driver {
    /// A driver with this name.
    pub fn new(name: &str, cluster: Box<dyn Cluster>, prepared: PreparedClaims) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), cluster, prepared, in_progress: Mutex::default() })
    }

    fn begin<'a>(&'a self, uid: &'a str) -> Result<InProgress<'a>, String> {
        if self.in_progress.lock().insert(uid.to_owned()) {
            Ok(InProgress { driver: self, uid })
        } else {
            Err("another call for the same claim is still running; try again".to_owned())
        }
    }

    /// Prepares a claim. One that is prepared is as it was, unless the scheduler has given it other devices since: a node
    /// that was lost for a while has not heard that the claim was given up, and another claim may have its former ones.
    ///
    /// # Errors
    /// Why not, as a sentence.
    fn prepare(&self, claim: &Claim) -> Result<Vec<RecordedDevice>, String> {
        check_names(claim)?;
        let _in_progress = self.begin(&claim.uid)?;
        let prepared = self.prepared.find(&claim.uid);
        let json = match (self.cluster.claim(claim), prepared.clone()) {
            (Ok(json), _) => json,
            // A kubelet that starts anew asks for all claims again, perhaps before the API server can be reached.
            (Err(error), Some(devices)) => {
                tracing::warn!(claim = %ClaimLabel(claim), "cannot check whether a claim has other devices: \
                    {error}");
                return Ok(devices);
            }
            (Err(error), None) => return Err(error),
        };
        let devices = allocated_devices(&json, &claim.uid, &self.name).map_err(|error| error.to_string())?;
        let record = |device: &AllocatedDevice| RecordedDevice {
            request: device.request.clone(),
            pool: device.pool.clone(),
            device: device.device.clone(),
        };
        let recorded: Vec<_> = devices.iter().map(record).collect();
        if prepared.as_ref() == Some(&recorded) {
            return Ok(recorded);
        }
        let edits = self.cluster.edits(&devices)?;
        self.prepared
            .add(&claim.uid, &recorded, &edits)
            .map_err(|error| format!("cannot write a container's files to this node's disk: {error}"))?;
        Ok(recorded)
    }

    /// Undoes that, also for a claim that is gone or was never prepared.
    fn unprepare(&self, claim: &Claim) -> Result<(), String> {
        check_names(claim)?;
        let _in_progress = self.begin(&claim.uid)?;
        let removed = self.prepared.remove(&claim.uid);
        removed.map_err(|error| format!("cannot remove a container's files from this node's disk: {error}"))
    }

    fn prepare_all(&self, claims: &[Claim]) -> PrepareResponse {
        let prepared = |claim: &Claim| match self.prepare(claim) {
            Ok(devices) => {
                tracing::info!(claim = %ClaimLabel(claim), devices = devices.len(), "claim prepared");
                let cdi_devices = vec![PreparedClaims::cdi_device(&claim.uid)];
                let device = |device: RecordedDevice| PreparedDevice {
                    requests: vec![device.request],
                    pool: device.pool,
                    device: device.device,
                    cdi_devices: cdi_devices.clone(),
                };
                PreparedClaim { devices: devices.into_iter().map(device).collect(), error: String::new() }
            }
            Err(error) => {
                tracing::warn!(claim = %ClaimLabel(claim), "cannot prepare a claim: {error}");
                PreparedClaim { devices: Vec::new(), error }
            }
        };
        let claims = claims.iter().map(|claim| (claim.uid.clone(), prepared(claim)));
        PrepareResponse { claims: claims.collect::<BTreeMap<_, _>>() }
    }

    fn unprepare_all(&self, claims: &[Claim]) -> UnprepareResponse {
        let unprepared = |claim: &Claim| {
            let error = self.unprepare(claim).err().unwrap_or_default();
            match error.as_str() {
                "" => tracing::info!(claim = %ClaimLabel(claim), "claim unprepared"),
                error => tracing::warn!(claim = %ClaimLabel(claim), "cannot unprepare a claim: {error}"),
            }
            UnpreparedClaim { error }
        };
        let claims = claims.iter().map(|claim| (claim.uid.clone(), unprepared(claim)));
        UnprepareResponse { claims: claims.collect::<BTreeMap<_, _>>() }
    }
}

/// A claim for a log.
struct ClaimLabel<'a>(&'a Claim);

impl core::fmt::Display for ClaimLabel<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}/{:?} ({:?})", self.0.namespace, self.0.name, self.0.uid)
    }
}

fn check_names(claim: &Claim) -> Result<(), String> {
    for (what, name) in [("UID", &claim.uid), ("namespace", &claim.namespace), ("name", &claim.name)] {
        if !is_plain_name(name) {
            return Err(format!("{name:?} is not a {what} of a claim"));
        }
    }
    Ok(())
}

/// The procedures of the driver, each call in a thread of its own.
struct DriverService(Arc<Driver>);

impl Service for DriverService {
    fn call(&self, method: &str, message: &[u8]) -> Result<Reply, Status> {
        let procedure = Procedure::of_path(method)
            .ok_or_else(|| Status::new(Code::Unimplemented, format!("a DRA driver has no {method}")))?;
        let damaged = |error| format!("malformed message for {method}: {error}");
        let claims =
            Claims::decode(message).map_err(|error| Status::new(Code::InvalidArgument, damaged(error)))?;
        let claims = claims.claims;
        if claims.len() > MAX_CLAIMS {
            let text =
                format!("{} claims in a call are too many; at most {MAX_CLAIMS} are prepared", claims.len());
            return Err(Status::new(Code::InvalidArgument, text));
        }
        let (send, receive) = oneshot::channel();
        let driver = Arc::clone(&self.0);
        let carry_out = move || {
            let reply = match procedure {
                Procedure::Prepare => driver.prepare_all(&claims).encode_to_vec(),
                Procedure::Unprepare => driver.unprepare_all(&claims).encode_to_vec(),
            };
            // A kubelet that has hung up asks again.
            let _ = send.send(reply);
        };
        std::thread::Builder::new().name("claims".to_owned()).spawn(carry_out).map_err(|error| {
            Status::new(Code::Internal, format!("cannot start a thread for the call: {error}"))
        })?;
        Ok(Reply::Later(receive))
    }
}

/// The procedures by which a kubelet registers the driver.
struct RegistrationService {
    info: PluginInfo,
}

impl Service for RegistrationService {
    fn call(&self, method: &str, message: &[u8]) -> Result<Reply, Status> {
        match method {
            GET_INFO => Ok(Reply::Message(self.info.encode_to_vec())),
            NOTIFY_STATUS => {
                let status = RegistrationStatus::decode(message).map_err(|error| {
                    let text = format!("malformed message for {method}: {error}");
                    Status::new(Code::InvalidArgument, text)
                })?;
                if status.is_registered {
                    tracing::info!(driver = self.info.name, "DRA driver registered with the kubelet");
                } else {
                    tracing::warn!(
                        driver = self.info.name,
                        "the kubelet did not register the DRA driver: {:?}",
                        status.error
                    );
                }
                Ok(Reply::Message(Vec::new()))
            }
            _ => Err(Status::new(Code::Unimplemented, format!("a registration has no {method}"))),
        }
    }
}

/// Where a kubelet finds the driver.
#[derive(Debug, Clone)]
pub struct Sockets {
    /// The driver's own folder, `/var/lib/kubelet/plugins/DRIVER`.
    pub folder: PathBuf,
    /// The kubelet's folder of plugins that register, `/var/lib/kubelet/plugins_registry`.
    pub registry: PathBuf,
}

impl Sockets {
    fn of_driver(&self) -> PathBuf {
        self.folder.join("dra.sock")
    }

    fn of_registration(&self, driver: &str) -> PathBuf {
        self.registry.join(format!("{driver}-reg.sock"))
    }

    /// Serves the kubelet until `end`, which is called in a thread of its own, returns, or something fails that time
    /// does not mend.
    ///
    /// # Errors
    /// When a folder is not there, or a socket cannot be made.
    pub fn serve_until(
        &self,
        driver: &Arc<Driver>,
        end: impl FnOnce() + Send + 'static,
    ) -> Result<(), KubeletError> {
        let (sockets, own) = (self.clone(), Arc::clone(driver));
        let outcome = run_until(async move { sockets.run(&own).await }, end);
        // The kubelet takes a driver whose socket has gone for one that is no longer there.
        for path in [self.of_registration(&driver.name), self.of_driver()] {
            let _ = fs::remove_file(path);
        }
        outcome
    }

    async fn run(&self, driver: &Arc<Driver>) -> Result<(), KubeletError> {
        if !self.registry.is_dir() {
            return Err(KubeletError::NoFolder(self.registry.clone()));
        }
        fs::create_dir_all(&self.folder).map_err(KubeletError::socket(&self.folder))?;
        let (own, registration) = (self.of_driver(), self.of_registration(&driver.name));
        let info = PluginInfo {
            kind: PLUGIN_TYPE.to_owned(),
            name: driver.name.clone(),
            endpoint: own.display().to_string(),
            versions: VERSIONS.map(str::to_owned).to_vec(),
        };
        let mut serving = tokio::task::JoinSet::new();
        loop {
            // The kubelet calls the driver as soon as it sees the other socket.
            let listener = listen(&own)?;
            serving.spawn(serve(listener, Arc::new(DriverService(Arc::clone(driver)))));
            let listener = listen(&registration)?;
            serving.spawn(serve(listener, Arc::new(RegistrationService { info: info.clone() })));
            tracing::info!(socket = %registration.display(), "waiting for the kubelet");
            while own.exists() && registration.exists() {
                sleep(INTERVAL).await;
            }
            tracing::info!("a socket was removed; creating it again");
            serving.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs::read_dir;

    /// A cluster whose API server says what is here, or cannot be reached.
    #[derive(Clone, Default)]
    struct FakeCluster(Arc<Mutex<Option<String>>>);

    impl FakeCluster {
        fn allocate(&self, uid: &str, device: &str) {
            let results = json!([{ "request": "gpu", "driver": "d.example", "pool": "p", "device": device }]);
            let allocation = json!({ "devices": { "results": results } });
            let claim = json!({ "metadata": { "uid": uid }, "status": { "allocation": allocation } });
            *self.0.lock() = Some(claim.to_string());
        }
    }

    impl Cluster for FakeCluster {
        fn claim(&self, _: &Claim) -> Result<Vec<u8>, String> {
            let found = self.0.lock().clone();
            found.map(String::into_bytes).ok_or_else(|| "unreachable".to_owned())
        }

        fn edits(&self, devices: &[AllocatedDevice]) -> Result<Value, String> {
            Ok(
                json!({ "env": devices.iter().map(|device| format!("D={}", device.device)).collect::<Vec<_>>() }),
            )
        }
    }

    fn claim(uid: &str) -> Claim {
        Claim { namespace: "n".into(), uid: uid.into(), name: "c".into() }
    }

    #[test]
    fn a_claim_that_was_allocated_anew_gets_its_new_devices() {
        let folder = tempfile::tempdir().unwrap();
        let (records, cdi) = (folder.path().join("claims"), folder.path().join("cdi"));
        let cluster = FakeCluster::default();
        let start = || {
            let prepared = PreparedClaims::open(&records, &cdi).unwrap();
            Driver::new("d.example", Box::new(cluster.clone()), prepared)
        };
        let device_of = |prepared: Vec<RecordedDevice>| prepared[0].device.clone();
        let described = || fs::read_to_string(cdi.join("causeway.dev-claim-u.json")).unwrap();
        assert_eq!(start().prepare(&claim("u")).unwrap_err(), "unreachable");
        cluster.allocate("u", "gpu-1");
        assert_eq!(device_of(start().prepare(&claim("u")).unwrap()), "gpu-1");
        // The API server cannot be reached, and then has given the claim another GPU.
        *cluster.0.lock() = None;
        assert_eq!(device_of(start().prepare(&claim("u")).unwrap()), "gpu-1");
        cluster.allocate("u", "gpu-2");
        assert_eq!(device_of(start().prepare(&claim("u")).unwrap()), "gpu-2");
        assert!(described().contains("D=gpu-2") && !described().contains("gpu-1"), "{}", described());
        // A claim that is another one now, or has no devices, gets none of those from before.
        cluster.allocate("v", "gpu-3");
        assert!(start().prepare(&claim("u")).unwrap_err().contains("has UID v"));
        *cluster.0.lock() = Some(json!({ "metadata": { "uid": "u" } }).to_string());
        assert!(start().prepare(&claim("u")).unwrap_err().contains("not allocated"));
    }

    #[test]
    fn hostile_names_touch_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (records, cdi) = (folder.path().join("claims"), folder.path().join("cdi"));
        let cluster = FakeCluster::default();
        let driver = Driver::new(
            "d.example",
            Box::new(cluster.clone()),
            PreparedClaims::open(&records, &cdi).unwrap(),
        );
        fs::write(folder.path().join("other.json"), "kept").unwrap();
        for uid in
            ["../other", "..", ".hidden", "a/../../other", "", "a\u{0}b", "u,v", "u=v", &"u".repeat(254)]
        {
            cluster.allocate(uid, "gpu-1");
            assert!(driver.prepare(&claim(uid)).unwrap_err().contains("is not a UID"), "{uid}");
            assert!(driver.unprepare(&claim(uid)).is_err(), "{uid}");
            let named = Claim { name: uid.to_owned(), ..claim("u") };
            assert!(driver.prepare(&named).unwrap_err().contains("is not a name"), "{uid}");
        }
        assert!(folder.path().join("other.json").exists());
        assert_eq!(read_dir(&cdi).unwrap().count() + read_dir(&records).unwrap().count(), 0);
        // Names of pools and devices are no paths; they are only compared and recorded.
        cluster.allocate("u", "../../gpu-1");
        assert_eq!(driver.prepare(&claim("u")).unwrap()[0].device, "../../gpu-1");
        assert_eq!(read_dir(&cdi).unwrap().count(), 1);
    }

    #[test]
    fn calls_for_one_claim_at_the_same_time_leave_it_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (records, cdi) = (folder.path().join("claims"), folder.path().join("cdi"));
        let cluster = FakeCluster::default();
        cluster.allocate("u", "gpu-1");
        let prepared = PreparedClaims::open(&records, &cdi).unwrap();
        let driver = Driver::new("d.example", Box::new(cluster), prepared);
        let claims = vec![claim("u"), claim("u")];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        for prepared in driver.prepare_all(&claims).claims.values() {
                            let is_whole = prepared.devices.len() == 1 && prepared.error.is_empty();
                            assert!(is_whole || prepared.error.contains("try again"), "{prepared:?}");
                        }
                        driver.unprepare_all(&claims[..1]);
                    }
                });
            }
        });
        assert!(driver.in_progress.lock().is_empty());
        assert_eq!(driver.unprepare_all(&claims[..1]).claims["u"].error, "");
        assert_eq!(read_dir(&cdi).unwrap().count() + read_dir(&records).unwrap().count(), 0);
    }
}
