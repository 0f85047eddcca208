//! Control messages between broker and worker.
//!
//! The broker reads exactly one request from a connection, and the client says no more before it is
//! answered. So a connection is its descriptor and the state of its encryption, and both fit into one
//! message on the worker's control socket.

mod confinement;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod restart;
mod to_broker;
mod to_monitor;
mod to_worker;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use causeway_connection::channel::Connection;
use causeway_connection::record::ConnectionKeys;
use causeway_sandbox::JailError;
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use thiserror::Error;

use super::control::Control;

pub use restart::{
    ListenerAddress, PROTOCOL, RemainingSession, RestartMessage, RestartQuery, RestartReply, SessionRequest,
};
pub use to_broker::{Carried, NotTakenUp, ToBroker, Token, UNLIMITED, WrittenState};
pub use to_monitor::{ToMonitor, WorkerOf};
pub use to_worker::{CheckpointStart, KeepaliveSeconds, ReleaseTimes, SessionStart, ToWorker};

/// Why a broker and a worker do not understand each other.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The control socket failed.
    #[error("the control connection between broker and worker failed: {0}")]
    Io(#[from] io::Error),
    /// A message makes no sense.
    #[error("a message between broker and worker is malformed: {0}")]
    Damaged(#[from] DecodeError),
    /// A message that must carry a descriptor has none.
    #[error("a message between broker and worker lacks its descriptor")]
    NoDescriptor,
    /// The other process does not start.
    #[error("cannot start the process: {0}")]
    NotStarted(io::Error),
    /// The sandbox has no jail for it.
    #[error(transparent)]
    NoJail(#[from] JailError),
    /// The other process has ended.
    #[error("the other end of the control connection is closed")]
    Closed,
}

/// Sends a message, and with it a connection's descriptor.
pub fn send(control: &Control, message: &impl Encode, socket: Option<&OwnedFd>) -> Result<(), ControlError> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    Ok(control.send(&bytes, socket.map(|socket| socket.as_fd()))?)
}

/// Sends a message to all of these, of whom none holds up the others: `wait` waits at most for so long, and
/// says whether to go on with those that take nothing yet. One that has ended needs no message.
pub fn send_to_all(controls: &[Arc<Control>], message: &impl Encode, mut wait: impl FnMut(Duration) -> bool) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let mut waiting: Vec<_> = controls.iter().collect();
    loop {
        waiting.retain(|control| matches!(control.try_send(&bytes), Ok(false)));
        if waiting.is_empty() || !wait(RETRY_INTERVAL) {
            return;
        }
    }
}

/// How often a message is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Receives a message, and the descriptor that came with it.
pub fn receive<T: for<'a> Decode<'a>>(control: &Control) -> Result<(T, Option<OwnedFd>), ControlError> {
    let (bytes, descriptor) = control.receive()?.ok_or(ControlError::Closed)?;
    let mut input = Decoder::new(&bytes);
    let message = input.value()?;
    input.finish()?;
    Ok((message, descriptor))
}

/// Takes an answered connection apart, for handing it over.
pub fn take_apart(connection: Connection) -> io::Result<(OwnedFd, Option<ConnectionKeys>)> {
    let socket = OwnedFd::from(connection.socket().try_clone()?);
    Ok((socket, connection.into_keys().map_err(io::Error::other)?))
}

#[cfg(test)]
mod tests {
    use causeway_api::calls::COMMANDS;
    use causeway_wire::handshake::{Abilities, ClientHello, LaneToken, Locality, OwnVersion, SessionId};

    use super::*;
    use crate::back_end::GpuChoice;

    #[test]
    fn a_process_that_takes_nothing_does_not_hold_up_messages_to_others() {
        let end = ToWorker::End { text: "the server is being stopped".to_owned() };
        let (stuck, stuck_process) = Control::pair().unwrap();
        while stuck.try_send(&[7; 1024]).unwrap() {}
        let (gone, _) = Control::pair().unwrap();
        let (works, process) = Control::pair().unwrap();
        let controls = [stuck, gone, works].map(Arc::new);
        let mut pauses = 0;
        send_to_all(&controls, &end, |_| {
            pauses += 1;
            assert!(process.has_message(false), "the message came before anything was waited for");
            // Now it goes on, and gets the message as well.
            while stuck_process.has_message(false) {
                stuck_process.receive().unwrap();
            }
            true
        });
        assert_eq!(pauses, 1);
        for told in [stuck_process, process] {
            assert!(matches!(receive::<ToWorker>(&told), Ok((ToWorker::End { .. }, None))));
        }
    }

    #[test]
    fn a_session_start_survives_the_control_connection_with_its_descriptor() {
        let (broker, worker) = Control::pair().unwrap();
        let hello = ClientHello {
            offer: OwnVersion::new(COMMANDS).offer,
            pid: 7,
            host: "host".into(),
            program: "program".into(),
            environment: vec![("CUDA_VISIBLE_DEVICES".into(), "1".into())],
            lanes: 3,
            abilities: Abilities::ours(&COMMANDS),
            user: "ada".into(),
            job: "slurm 7".into(),
            fork: None,
        };
        let gpu = GpuChoice::Auto { allows_software: true };
        let locality = Locality { boot_id: "b".into(), sockets: vec!["@causeway-1".into()] };
        let start = SessionStart {
            hello: hello.clone(),
            version: 1,
            session: SessionId([1; 16]),
            token: LaneToken([2; 32]),
            lanes: 2,
            gpu,
            keeps_images: true,
            locality: locality.clone(),
            keys: None,
            keepalive: KeepaliveSeconds { connection: 4, client: 5, resume: 6 },
            release: ReleaseTimes { idle: 7, returns_within: 8 },
            is_paced: true,
            is_time_shared: true,
        };
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        send(&broker, &ToWorker::Start(Box::new(start)), Some(&file)).unwrap();
        let (message, descriptor) = receive(&worker).unwrap();
        let ToWorker::Start(start) = message else { panic!("another message") };
        assert_eq!((start.hello, start.lanes, start.gpu), (hello, 2, gpu));
        assert_eq!((start.keeps_images, start.locality), (true, locality));
        assert_eq!(start.keepalive, KeepaliveSeconds { connection: 4, client: 5, resume: 6 });
        assert_eq!(start.release, ReleaseTimes { idle: 7, returns_within: 8 });
        assert!(
            start.is_paced
                && start.is_time_shared
                && start.token == LaneToken([2; 32])
                && descriptor.is_some()
        );
        send(&worker, &ToBroker::ClientDisconnected, None).unwrap();
        assert_eq!(receive::<ToBroker>(&broker).unwrap().0, ToBroker::ClientDisconnected);
        let carried = Carried { is_received: true, is_bulk: false, bytes: 9 };
        send(&worker, &ToBroker::Carried { number: 3, carried }, None).unwrap();
        assert_eq!(receive::<ToBroker>(&broker).unwrap().0, ToBroker::Carried { number: 3, carried });
        for message in [ToBroker::SlotRequest { device: 2 }, ToBroker::SlotEnded { device: 3, lease: 4 }] {
            send(&worker, &message, None).unwrap();
            assert_eq!(receive::<ToBroker>(&broker).unwrap().0, message);
        }
        send(&broker, &ToWorker::SlotRecalled { device: 6, lease: 5 }, None).unwrap();
        let recalled = receive::<ToWorker>(&worker).unwrap().0;
        assert!(matches!(recalled, ToWorker::SlotRecalled { device: 6, lease: 5 }));
        drop(worker);
        assert!(matches!(receive::<ToBroker>(&broker), Err(ControlError::Closed)));
    }
}
