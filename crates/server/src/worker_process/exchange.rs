//! Broker requests of a worker: exports, imports of other sessions, and tickets for workers of other servers.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use causeway_access::Endpoint;
use causeway_access::target::random_bytes;
use causeway_connection::keepalive::KeepaliveTimeouts;
use causeway_link::{Direction, Pacer};
use causeway_wire::codec::Decoder;
use causeway_wire::handshake::{LaneToken, SessionId};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::callers::IncomingPeer;
use super::slots::Slots;
use crate::activity::Activity;
use crate::heartbeat::ProgressCounter;
use crate::locks::{Mutex, rank};
use crate::protocol::control::Control;
#[cfg(any(test, feature = "fuzzing"))]
use crate::protocol::messages::KeepaliveSeconds;
use crate::protocol::messages::{
    self, Carried, CheckpointStart, NotTakenUp, ReleaseTimes, ToBroker, Token, UNLIMITED, WrittenState,
};
use crate::state_file::StateHeader;

/// How long a broker may take to write an image to its disk. Nobody waits for that but the thread that hands
/// it over.
const DISK_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a broker may take to answer where it only looks into a table or a folder.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// For how long a session that has no limit of device memory takes it without asking: a limit that is set meanwhile counts
/// from then on.
const UNLIMITED_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes among messages that go to the broker as one number, which keeps round trips out of most commands.
const INLINE_BATCH: u64 = 256 << 10;

/// The thread that takes commands waits in parts, and asks the broker between them: the rate may have changed.
const INLINE_PAUSE_PART: Duration = Duration::from_millis(100);

/// How long a session waits whose broker does not say.
const UNANSWERED_PAUSE: Duration = Duration::from_millis(100);

impl Pacer for Exchange {
    fn pause(&self, direction: Direction, bytes: usize) -> Duration {
        self.carried(Carried {
            is_received: direction == Direction::Received,
            is_bulk: true,
            bytes: bytes as u64,
        })
    }
}

/// What the broker answers: the bytes of what was exported and its descriptor, nothing when it has or takes
/// none.
type Response = Option<(Vec<u8>, Option<OwnedFd>)>;

/// A worker's access to what sessions export to each other. Its calls wait for the broker.
pub struct Exchange {
    control: Arc<Control>,
    session: SessionId,
    requests: Mutex<rank::Leaf, PendingRequests>,
    incoming_peers: (Sender<IncomingPeer>, Receiver<IncomingPeer>),
    progress: ProgressCounter,
    activity: Activity,
    /// How long workers of other servers may be silent.
    peer_keepalive: KeepaliveTimeouts,
    /// Whether there is a broker that says how much memory a session may have.
    is_accounted: bool,
    /// Until when no limit of device memory is known to hold.
    unlimited_until: Mutex<rank::Leaf, Option<Instant>>,
    release_times: ReleaseTimes,
    release_requests: (Sender<u32>, Receiver<u32>),
    checkpoint_requests: (Sender<CheckpointRequest>, Receiver<CheckpointRequest>),
    decisions: (Sender<NumberedDecision>, Receiver<NumberedDecision>),
    /// What of the session does not change; nothing of one without a broker.
    identity: OnceLock<StateHeader>,
    is_client_disconnected: AtomicBool,
    /// Whether the session's owner has switched GPUDirect off.
    is_gpudirect_off: AtomicBool,
    /// Whether the session's bandwidth is limited.
    is_paced: bool,
    /// Its slots at the GPUs, if it shares their time with others.
    slots: Option<Arc<Slots>>,
    /// Bytes among messages, to the client and from it, that the broker does not know of.
    inline_bytes: [AtomicU64; 2],
}

/// Where the session's state is to go, and where its client.
pub type CheckpointRequest = (CheckpointStart, OwnedFd);

/// A decision, and the number of the checkpoint that it is about; all, without a number.
type NumberedDecision = (Option<u32>, Decision);

/// The decision about a session that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The client may go.
    Proceed,
    /// It goes on here.
    Stay,
}

#[derive(Default)]
struct PendingRequests {
    newest: u32,
    open: HashMap<u32, Sender<Response>>,
}

impl Exchange {
    pub(super) fn new(
        control: Arc<Control>,
        session: SessionId,
        activity: Activity,
        peer_keepalive: KeepaliveTimeouts,
        release_times: ReleaseTimes,
        (is_paced, is_time_shared): (bool, bool),
    ) -> Arc<Self> {
        let slots = is_time_shared.then(|| Slots::new(Arc::clone(&control)));
        Arc::new(Self {
            control,
            session,
            requests: Mutex::default(),
            incoming_peers: unbounded(),
            progress: ProgressCounter::default(),
            activity,
            peer_keepalive,
            is_accounted: true,
            unlimited_until: Mutex::default(),
            release_times,
            release_requests: unbounded(),
            checkpoint_requests: unbounded(),
            decisions: unbounded(),
            identity: OnceLock::new(),
            is_client_disconnected: AtomicBool::new(false),
            is_gpudirect_off: AtomicBool::new(false),
            is_paced,
            slots,
            inline_bytes: Default::default(),
        })
    }

    /// That of a session without a broker.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn alone() -> Arc<Self> {
        let (control, _) = Control::pair().expect("a pair of sockets");
        let keepalive = KeepaliveSeconds::default().of_peer();
        let times = ReleaseTimes::default();
        let (control, session) = (Arc::new(control), SessionId([0; 16]));
        let exchange = Self::new(control, session, Activity::alone(), keepalive, times, (false, false));
        let mut exchange = Arc::into_inner(exchange).expect("no other owner yet");
        exchange.is_accounted = false;
        Arc::new(exchange)
    }

    /// How long workers of other servers may be silent.
    pub fn peer_keepalive(&self) -> KeepaliveTimeouts {
        self.peer_keepalive
    }

    /// The session, a ticket with which the worker of another server can come to it, and what shows that
    /// server's broker that this server is where the client found it; nothing when there are too many.
    pub fn ticket(&self) -> Option<(SessionId, LaneToken, [u8; 32])> {
        let ticket = LaneToken(random_bytes());
        let (proof, _) =
            self.request(|number| ToBroker::Ticket { number, ticket }, None, EXCHANGE_TIMEOUT)?;
        Some((self.session, ticket, proof.try_into().unwrap_or_default()))
    }

    /// Has the broker connect to another server.
    ///
    /// # Errors
    /// With the broker's words, where it does not connect there or cannot.
    pub fn dial(&self, endpoint: &Endpoint, timeout: Duration, proof: [u8; 32]) -> io::Result<OwnedFd> {
        let address = endpoint.to_string();
        let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let request = |number| ToBroker::Dial { number, address, milliseconds, proof };
        match self.request(request, None, timeout + EXCHANGE_TIMEOUT) {
            Some((_, Some(connection))) => Ok(connection),
            Some((why, None)) => Err(io::Error::other(String::from_utf8_lossy(&why).into_owned())),
            None => Err(io::Error::other("the server's broker does not answer")),
        }
    }

    /// The session's slots at the GPUs, if it shares their time with others.
    pub fn slots(&self) -> Option<&Arc<Slots>> {
        self.slots.as_ref()
    }

    /// The reply to the broker when it asks whether commands go on.
    pub fn progress(&self) -> &ProgressCounter {
        &self.progress
    }

    /// What the broker reads of what this session does.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Whether network cards may access the session's device memory in copies from now on.
    pub fn allows_gpudirect(&self) -> bool {
        !self.is_gpudirect_off.load(Ordering::Relaxed)
    }

    /// Has copies use GPUDirect or staging from the next one on. Nothing else is ordered by it.
    pub(super) fn allow_gpudirect(&self, is_on: bool) {
        self.is_gpudirect_off.store(!is_on, Ordering::Relaxed);
    }

    /// The connections of other servers' workers, as they come.
    pub fn incoming_peers(&self) -> Receiver<IncomingPeer> {
        self.incoming_peers.1.clone()
    }

    /// Takes in a connection of another server's worker.
    pub(super) fn peer_connected(&self, caller: IncomingPeer) {
        // The receiving end is here, too, so that the channel is open.
        let _ = self.incoming_peers.0.send(caller);
    }

    /// Exports something under a token; false when the broker does not take it.
    pub fn export(&self, token: Token, bytes: Vec<u8>, descriptor: Option<OwnedFd>) -> bool {
        self.request(
            |number| ToBroker::Export { number, token, bytes },
            descriptor.as_ref(),
            EXCHANGE_TIMEOUT,
        )
        .is_some()
    }

    /// What another session, or this one, has exported under a token.
    pub fn find(&self, token: Token) -> Response {
        self.request(|number| ToBroker::Find { number, token }, None, EXCHANGE_TIMEOUT)
    }

    /// Takes back what this session has exported.
    pub fn withdraw(&self, token: Token) {
        // Without a broker there is nothing to take back.
        let _ = messages::send(&self.control, &ToBroker::Withdraw { token }, None);
    }

    /// The file of an image that an earlier session has left.
    pub fn find_image(&self, hash: [u8; 32], length: u64) -> Option<OwnedFd> {
        self.request(|number| ToBroker::FindImage { number, hash, length }, None, EXCHANGE_TIMEOUT)?.1
    }

    /// Leaves an image, in sealed memory, for later sessions. Returns when it is kept, or will not be.
    pub fn keep_image(&self, hash: [u8; 32], memory: &OwnedFd) {
        let request = |number| ToBroker::KeepImage { number, hash };
        self.request(request, Some(memory), DISK_TIMEOUT);
    }

    /// Asks for more device memory, of a device that the broker alone divides up if it has a `capacity`; false when
    /// the session may have no more. Where there is no limit it asks once in `UNLIMITED_INTERVAL`, since the round trip
    /// takes longer than the driver's own pools do.
    pub fn reserve(&self, bytes: u64, capacity: u64) -> bool {
        if !self.is_accounted {
            return true;
        }
        if self.is_unlimited() {
            // Without a broker there are no accounts.
            let _ = messages::send(&self.control, &ToBroker::Take { bytes }, None);
            return true;
        }
        let request = |number| ToBroker::Reserve { number, bytes, capacity };
        let Some((reply, _)) = self.request(request, None, EXCHANGE_TIMEOUT) else { return false };
        if reply == UNLIMITED {
            *self.unlimited_until.lock() = Some(Instant::now() + UNLIMITED_INTERVAL);
        }
        true
    }

    /// Whether the broker has said a moment ago that there is no limit of device memory.
    fn is_unlimited(&self) -> bool {
        self.unlimited_until.lock().is_some_and(|end| Instant::now() < end)
    }

    /// The session has less device memory than before.
    pub fn release(&self, bytes: u64) {
        // Without a broker there are no accounts.
        let _ = messages::send(&self.control, &ToBroker::Release { bytes }, None);
    }

    /// How many bytes of device memory the session may have, and how many of them are left.
    pub fn memory_info(&self, capacity: u64) -> Option<(u64, u64)> {
        if self.is_unlimited() {
            return None;
        }
        let request = |number| ToBroker::MemoryInfo { number, capacity };
        let (bytes, _) = self.request(request, None, EXCHANGE_TIMEOUT)?;
        Decoder::new(&bytes).value().ok()
    }

    /// Bytes of a copy travel among messages, which count where the bandwidth is limited.
    pub fn count_inline(&self, direction: Direction, bytes: u64) {
        if self.is_paced {
            self.inline_bytes[usize::from(direction == Direction::Received)]
                .fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Waits if more bytes have travelled among messages than may in that time, until they may have, or something `is_due`.
    /// Called by the thread that takes commands, between them.
    pub fn pace_messages(&self, is_due: impl Fn() -> bool) {
        if !self.is_paced {
            return;
        }
        for (counted, is_received) in self.inline_bytes.iter().zip([false, true]) {
            let bytes = counted.load(Ordering::Relaxed);
            if bytes >= INLINE_BATCH {
                counted.fetch_sub(bytes, Ordering::Relaxed);
                let carried = |bytes| self.carried(Carried { is_received, is_bulk: false, bytes });
                let mut left = carried(bytes);
                while !left.is_zero() && !is_due() {
                    let started_at = Instant::now();
                    sleep(left.min(INLINE_PAUSE_PART));
                    left = left.saturating_sub(started_at.elapsed());
                    if !left.is_zero() {
                        // Sooner where the rate has become higher. What others have carried meanwhile they wait for.
                        left = left.min(carried(0));
                    }
                }
            }
        }
    }

    /// Tells the broker what the session has carried; how long it is to wait.
    fn carried(&self, carried: Carried) -> Duration {
        let response = self.request(|number| ToBroker::Carried { number, carried }, None, EXCHANGE_TIMEOUT);
        let nanoseconds = response.and_then(|(bytes, _)| Decoder::new(&bytes).value().ok());
        // A worker without a broker ends soon.
        nanoseconds.map_or(UNANSWERED_PAUSE, Duration::from_nanos)
    }

    /// When the session's device memory is released.
    pub fn release_times(&self) -> ReleaseTimes {
        self.release_times
    }

    /// The numbers of what the broker asks for: to release device memory now.
    pub fn release_requests(&self) -> Receiver<u32> {
        self.release_requests.1.clone()
    }

    /// The broker asks for the release of device memory.
    pub(super) fn release_requested(&self, number: u32) {
        // The receiving end is here, too, so that the channel is open.
        let _ = self.release_requests.0.send(number);
    }

    /// Says what has come of a request of the broker's for release.
    pub fn report_release(&self, number: u32, refused: Option<String>) {
        // Without a broker it is not waited for.
        let _ = messages::send(&self.control, &ToBroker::ReleaseOutcome { number, refused }, None);
    }

    /// Tells the broker why the memory of the idle session is not released.
    pub fn release_refused(&self, why: &str) {
        // Without a broker it is not shown.
        let _ = messages::send(&self.control, &ToBroker::ReleaseRefused { text: why.to_owned() }, None);
    }

    /// Asks whether device memory of so many bytes may go to the host, which takes `host_bytes` there, or to a file,
    /// which is the result.
    ///
    /// # Errors
    /// Why not, in the broker's words.
    pub fn may_suspend(
        &self,
        bytes: u64,
        host_bytes: u64,
        needs_file: bool,
    ) -> Result<Option<OwnedFd>, String> {
        let request = |number| ToBroker::Suspend { number, bytes, host_bytes, needs_file };
        match self.request(request, None, EXCHANGE_TIMEOUT) {
            Some((why, file)) if why.is_empty() => Ok(file),
            Some((why, _)) => Err(String::from_utf8_lossy(&why).into_owned()),
            None => {
                // It may still answer that the memory may go, which it does not now.
                self.stays_resident();
                Err("the server's broker does not answer".to_owned())
            }
        }
    }

    /// Device memory has gone.
    pub fn suspended(&self, bytes: u64, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Without a broker there are no accounts.
        let _ = messages::send(&self.control, &ToBroker::Suspended { bytes, nanoseconds }, None);
    }

    /// Device memory that might have gone stays.
    pub fn stays_resident(&self) {
        // Without a broker there are no accounts.
        let _ = messages::send(&self.control, &ToBroker::StaysResident, None);
    }

    /// Asks whether the device has the memory again that this session had; without an answer of the broker it is
    /// tried.
    ///
    /// # Errors
    /// Why not, in the broker's words.
    pub fn reclaim(&self, capacity: u64) -> Result<(), String> {
        match self.request(|number| ToBroker::Reclaim { number, capacity }, None, EXCHANGE_TIMEOUT) {
            Some((why, _)) if !why.is_empty() => Err(String::from_utf8_lossy(&why).into_owned()),
            _ => Ok(()),
        }
    }

    /// Device memory has come back.
    pub fn returned(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Without a broker there are no accounts.
        let _ = messages::send(&self.control, &ToBroker::Returned { nanoseconds }, None);
    }

    /// What of the session does not change.
    pub fn identity(&self) -> Option<&StateHeader> {
        self.identity.get()
    }

    /// Says what of the session does not change; once.
    pub(super) fn set_identity(&self, identity: StateHeader) {
        // It is said once.
        let _ = self.identity.set(identity);
    }

    /// Whether the broker wants the session's state.
    pub fn has_checkpoint_request(&self) -> bool {
        !self.checkpoint_requests.1.is_empty()
    }

    /// What the broker wants of the session's state.
    pub fn take_checkpoint_request(&self) -> Option<CheckpointRequest> {
        self.checkpoint_requests.1.try_recv().ok()
    }

    /// The broker wants the session's state.
    pub(super) fn checkpoint_requested(&self, request: CheckpointRequest) {
        // The receiving end is here, too, so that the channel is open.
        let _ = self.checkpoint_requests.0.send(request);
    }

    /// The decision about the session that is held for the checkpoint `number`; nothing where there is none
    /// for so long.
    pub fn decision(&self, number: u32, timeout: Duration) -> Option<Decision> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.decisions.1.recv_deadline(deadline) {
                Ok((about, decision)) if about.is_none_or(|about| about == number) => return Some(decision),
                // It is of one that is over.
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// It has been decided of a checkpoint, or of all.
    pub(super) fn decided(&self, number: Option<u32>, decision: Decision) {
        // The receiving end is here, too, so that the channel is open.
        let _ = self.decisions.0.send((number, decision));
    }

    /// Says what has come of the state that was wanted, or why there is none.
    pub fn report_checkpoint(&self, number: u32, outcome: Result<WrittenState, String>) {
        // Without a broker it is not waited for.
        let _ = messages::send(&self.control, &ToBroker::Checkpointed { number, outcome }, None);
    }

    /// Says that the session whose state was wanted is held.
    pub fn report_quiet(&self, number: u32) {
        // Without a broker it is not waited for.
        let _ = messages::send(&self.control, &ToBroker::Quiet { number }, None);
    }

    /// Says that the client has come back.
    pub fn report_return(&self, text: &str) {
        // Without a broker there is no reader.
        let _ = messages::send(&self.control, &ToBroker::ClientReturned { text: text.to_owned() }, None);
    }

    /// Says whether the session was taken up, or why not.
    pub fn report_restored(&self, refused: Option<NotTakenUp>) {
        // Without a broker there is no reader.
        let _ = messages::send(&self.control, &ToBroker::Restored { refused }, None);
    }

    /// Says that the client has come to the session that was taken up.
    pub fn report_arrival(&self) {
        // Without a broker there is no reader.
        let _ = messages::send(&self.control, &ToBroker::Arrived, None);
    }

    /// The client has gone.
    pub(super) fn client_disconnected(&self) {
        self.is_client_disconnected.store(true, Ordering::Relaxed);
    }

    /// Whether the client is known to have gone.
    pub fn is_client_disconnected(&self) -> bool {
        self.is_client_disconnected.load(Ordering::Relaxed)
    }

    fn request(
        &self,
        request: impl FnOnce(u32) -> ToBroker,
        descriptor: Option<&OwnedFd>,
        timeout: Duration,
    ) -> Response {
        let (sender, receiver) = bounded(1);
        let number = {
            let mut requests = self.requests.lock();
            requests.newest = requests.newest.wrapping_add(1);
            let number = requests.newest;
            requests.open.insert(number, sender);
            number
        };
        let sent = messages::send(&self.control, &request(number), descriptor);
        let response = sent.ok().and_then(|()| receiver.recv_timeout(timeout).ok()).flatten();
        self.requests.lock().open.remove(&number);
        response
    }

    /// Takes in an answer of the broker.
    pub(super) fn answered(&self, number: u32, bytes: Option<Vec<u8>>, descriptor: Option<OwnedFd>) {
        if let Some(asker) = self.requests.lock().open.remove(&number) {
            // Whoever asked may have lost patience.
            let _ = asker.send(bytes.map(|bytes| (bytes, descriptor)));
        }
    }
}
