//! A kubelet as device plugins see it: registration, the list of devices, allocation.

use causeway_kubernetes::device_plugin::api::{
    ALLOCATE, AllocateRequest, AllocateResponse, ContainerPreference, DeviceIds, DeviceList, Empty,
    KUBELET_SOCKET, LIST_AND_WATCH, PREFERRED_ALLOCATION, PreferenceRequest, PreferenceResponse, REGISTER,
    RegisterRequest,
};
use causeway_kubernetes::grpc::frame::{Messages, encode};
use causeway_kubernetes::grpc::{CallError, Code, Reply, Service, Status, call, serve};
use prost::Message;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// How long anything may take. The machine may be busy with other tests.
const LIMIT: Duration = Duration::from_secs(60);

/// A running kubelet, which ends with this value.
#[derive(Debug)]
pub struct Kubelet {
    folder: PathBuf,
    registered: Receiver<RegisterRequest>,
    end: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// Takes registrations, after it has refused some.
struct Registrar {
    registered: Mutex<Sender<RegisterRequest>>,
    refusals: AtomicU32,
}

impl Service for Registrar {
    fn call(&self, method: &str, message: &[u8]) -> Result<Reply, Status> {
        assert_eq!(method, REGISTER);
        let left = |left: u32| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok() {
            return Err(Status::new(Code::FailedPrecondition, "the kubelet is not ready: 100 %"));
        }
        let request = RegisterRequest::decode(message).expect("the plugin's request is one");
        self.registered.lock().unwrap().send(request).expect("the test waits for it");
        Ok(Reply::Message(Empty {}.encode_to_vec()))
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("the system has what it takes")
}

impl Kubelet {
    /// Starts a kubelet with this folder of device plugins, as one starts: it removes all sockets from the folder. It
    /// refuses the first `refusals` registrations.
    ///
    /// # Panics
    /// When the socket cannot be made.
    pub fn start(folder: &Path, refusals: u32) -> Self {
        for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
            fs::remove_file(entry.path()).expect("only sockets are there");
        }
        let (sender, registered) = channel();
        let (end, ended) = oneshot::channel();
        let registrar = Registrar { registered: Mutex::new(sender), refusals: AtomicU32::new(refusals) };
        let socket = folder.join(KUBELET_SOCKET);
        let (ready, is_ready) = channel();
        let thread = spawn(move || {
            runtime().block_on(async move {
                let listener = UnixListener::bind(socket).expect("the socket can be made");
                ready.send(()).expect("it is waited for");
                let server = tokio::spawn(serve(listener, Arc::new(registrar)));
                let _ = ended.await;
                server.abort();
            });
        });
        is_ready.recv().expect("the thread lives");
        Self { folder: folder.to_owned(), registered, end: Some((end, thread)) }
    }

    /// Waits for a plugin to make itself known.
    ///
    /// # Panics
    /// When none does.
    #[track_caller]
    pub fn registration(&self) -> RegisterRequest {
        self.registered.recv_timeout(LIMIT).expect("a plugin registers")
    }

    /// The devices of a plugin, and again whenever they change.
    pub fn watch(&self, endpoint: &str) -> Receiver<DeviceList> {
        let socket = self.folder.join(endpoint);
        let (sender, devices) = channel();
        spawn(move || runtime().block_on(watch(&socket, &sender)));
        devices
    }

    /// Which of its free devices a plugin would take for a container.
    ///
    /// # Panics
    /// When it does not say.
    #[track_caller]
    pub fn preference(&self, endpoint: &str, available: &[String], count: i32) -> Vec<String> {
        let container = ContainerPreference { available: available.to_vec(), required: Vec::new(), count };
        let request = PreferenceRequest { containers: vec![container] }.encode_to_vec();
        let answer = self.call(endpoint, PREFERRED_ALLOCATION, &request).expect("the plugin answers");
        PreferenceResponse::decode(answer).expect("it is an answer").containers.remove(0).ids
    }

    /// What a container gets with devices of a plugin.
    ///
    /// # Errors
    /// When the plugin refuses.
    pub fn allocate(&self, endpoint: &str, ids: &[String]) -> Result<AllocateResponse, CallError> {
        let request = AllocateRequest { containers: vec![DeviceIds { ids: ids.to_vec() }] };
        let answer = self.call(endpoint, ALLOCATE, &request.encode_to_vec())?;
        Ok(AllocateResponse::decode(answer).expect("it is an answer"))
    }

    /// Calls a procedure of a plugin.
    ///
    /// # Errors
    /// When the plugin refuses.
    pub fn call(&self, endpoint: &str, method: &str, message: &[u8]) -> Result<bytes::Bytes, CallError> {
        runtime().block_on(call(&self.folder.join(endpoint), method, message, LIMIT))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.end.take() {
            let _ = end.send(());
            let _ = thread.join();
        }
    }
}

/// Follows a plugin's list of devices until one of both has ended.
async fn watch(socket: &Path, devices: &Sender<DeviceList>) {
    let stream = UnixStream::connect(socket).await.expect("the plugin listens");
    let (requests, connection) = h2::client::handshake(stream).await.expect("the plugin speaks HTTP/2");
    tokio::spawn(connection);
    let request = http::Request::builder()
        .method("POST")
        .uri(format!("http://localhost{LIST_AND_WATCH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let mut requests = requests.ready().await.expect("the plugin takes calls");
    let (response, mut sending) = requests.send_request(request.body(()).unwrap(), false).unwrap();
    sending.send_data(encode(&Empty {}.encode_to_vec()), true).unwrap();
    let mut body = response.await.expect("the plugin answers").into_body();
    let mut messages = Messages::default();
    while let Some(Ok(piece)) = body.data().await {
        messages.push(&piece);
        let _ = body.flow_control().release_capacity(piece.len());
        while let Some(message) = messages.take().expect("the plugin sends messages") {
            let list = DeviceList::decode(message).expect("it is a list of devices");
            if devices.send(list).is_err() {
                return;
            }
        }
    }
}
