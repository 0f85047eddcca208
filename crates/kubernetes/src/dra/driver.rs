//! Driver of a node: registers with the kubelet, and prepares claims for its containers.
//!
//! A kubelet finds the driver by a socket in its folder of plugins that register, and calls it there; so a kubelet that starts
//! anew finds it again. Calls may come several times and at the same time; each is carried out by a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
/// Interval at which the sockets are looked for.
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
        self.driver.in_progress.lock().unwrap_or_else(PoisonError::into_inner).remove(self.uid);
    }
}

impl Driver {
    /// A driver with this name.
    pub fn new(name: &str, cluster: Box<dyn Cluster>, prepared: PreparedClaims) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), cluster, prepared, in_progress: Mutex::default() })
    }

    fn begin<'a>(&'a self, uid: &'a str) -> Result<InProgress<'a>, String> {
        if self.in_progress.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned()) {
            Ok(InProgress { driver: self, uid })
        } else {
            Err("another call for the same claim is not finished; try again".to_owned())
        }
    }

    /// Prepares a claim. One that is prepared is as it was.
    ///
    /// # Errors
    /// Why not, as a sentence.
    fn prepare(&self, claim: &Claim) -> Result<Vec<RecordedDevice>, String> {
        check_names(claim)?;
        let _in_progress = self.begin(&claim.uid)?;
        if let Some(devices) = self.prepared.find(&claim.uid) {
            return Ok(devices);
        }
        let json = self.cluster.claim(claim)?;
        let devices = allocated_devices(&json, &claim.uid, &self.name).map_err(|error| error.to_string())?;
        let edits = self.cluster.edits(&devices)?;
        let recorded: Vec<_> = devices
            .into_iter()
            .map(|AllocatedDevice { request, pool, device, .. }| RecordedDevice { request, pool, device })
            .collect();
        self.prepared.add(&claim.uid, &recorded, &edits).map_err(|error| {
            format!("what a container gets cannot be written to this node's disk: {error}")
        })?;
        Ok(recorded)
    }

    /// Undoes that, also for a claim that is gone or was never prepared.
    fn unprepare(&self, claim: &Claim) -> Result<(), String> {
        check_names(claim)?;
        let _in_progress = self.begin(&claim.uid)?;
        let removed = self.prepared.remove(&claim.uid);
        removed
            .map_err(|error| format!("what a container got cannot be removed from this node's disk: {error}"))
    }

    fn prepare_all(&self, claims: &[Claim]) -> PrepareResponse {
        let prepared = |claim: &Claim| match self.prepare(claim) {
            Ok(devices) => {
                tracing::info!(claim = %ClaimLabel(claim), devices = devices.len(), "a claim is prepared");
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
                tracing::warn!(claim = %ClaimLabel(claim), "a claim is not prepared: {error}");
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
                "" => tracing::info!(claim = %ClaimLabel(claim), "a claim is not prepared any more"),
                error => tracing::warn!(claim = %ClaimLabel(claim), "a claim is still prepared: {error}"),
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
            return Err(format!("{name:?} is no {what} of a claim"));
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
        let damaged = |error| format!("the message for {method} cannot be understood: {error}");
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
            Status::new(Code::Internal, format!("no thread can be started for the call: {error}"))
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
                    let text = format!("the message for {method} cannot be understood: {error}");
                    Status::new(Code::InvalidArgument, text)
                })?;
                if status.is_registered {
                    tracing::info!(driver = self.info.name, "the kubelet knows the DRA driver");
                } else {
                    tracing::warn!(
                        driver = self.info.name,
                        "the kubelet does not register the DRA driver: {:?}",
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
            tracing::info!("a socket was removed, and is made anew");
            serving.shutdown().await;
        }
    }
}
