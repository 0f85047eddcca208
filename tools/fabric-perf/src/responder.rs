//! Responder: `fabric-perf --listen`.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use thiserror::Error;

use crate::case::{Case, MAX_MESSAGE_BYTES, Operation, Setting};
use crate::control::{Control, ControlError, Reply, Request, VERSION};
use crate::endpoint::{Endpoint, EndpointError, Joined};
use crate::link::{self, LinkFailure};
use crate::perftest::{self, Server};

/// The most settings of one visitor: more than all sweeps have.
const MAX_JOINED_CONNECTIONS: usize = 64;

/// Why nobody is served.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {cause}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// This machine has no usable device.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No connection can be taken.
    #[error("cannot accept a connection: {0}")]
    Accept(io::Error),
}

/// Serves one visitor after the other; `say` gets a sentence for each, and when this end is ready. Returns
/// only with an error.
pub fn listen(address: SocketAddr, device: Option<&str>, say: impl Fn(&str)) -> ListenError {
    let listener = match TcpListener::bind(address) {
        Ok(listener) => listener,
        Err(cause) => return ListenError::Bind { address, cause },
    };
    // What is missing is told now, and not to the first visitor.
    if let Err(error) = Endpoint::open(device, address.ip()) {
        return error.into();
    }
    say(&format!("listening at {}", listener.local_addr().unwrap_or(address)));
    loop {
        let (connection, visitor) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(cause) => return ListenError::Accept(cause),
        };
        say(&format!("{visitor} measures"));
        match serve(connection, device) {
            Ok(()) | Err(ServeError::Control(ControlError::Ended)) => say(&format!("{visitor} is done")),
            Err(error) => say(&format!("{visitor}: {error}")),
        }
    }
}

/// Why a visitor was not served to the end.
#[derive(Debug, Error)]
enum ServeError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Link(#[from] LinkFailure),
    #[error(transparent)]
    Perftest(#[from] perftest::PerftestError),
    #[error("cannot determine the address of the connection: {0}")]
    Address(#[from] io::Error),
    #[error("{0}")]
    Senseless(&'static str),
}

fn serve(connection: TcpStream, device: Option<&str>) -> Result<(), ServeError> {
    let local = connection.local_addr()?.ip();
    let mut control = Control::new(connection)?;
    let outcome = Endpoint::open(device, local).map_err(ServeError::from).and_then(|endpoint| {
        let mut joined = Vec::new();
        loop {
            reply(&mut control, &endpoint, &mut joined)?;
        }
    });
    if let Err(error) = &outcome
        && !matches!(error, ServeError::Control(_))
    {
        // The visitor may have gone.
        let _ = control.send(&Reply::Refused { reason: error.to_string() });
    }
    outcome
}

/// Answers one request.
fn reply<'a>(
    control: &mut Control,
    endpoint: &'a Endpoint,
    joined: &mut Vec<Joined<'a>>,
) -> Result<(), ServeError> {
    match control.receive()? {
        Request::Hello { .. } => {
            let (end, mtu) = (endpoint.end(), endpoint.mtu());
            control.send(&Reply::Hello { version: VERSION, end, mtu })?;
        }
        Request::Join { setting, queue_pairs, memory } => {
            must_be_sane_setting(setting)?;
            if setting.queue_pairs as usize != queue_pairs.len() {
                return Err(ServeError::Senseless("another number of queue pairs was named than asked for"));
            }
            if joined.len() == MAX_JOINED_CONNECTIONS {
                return Err(ServeError::Senseless("more settings were asked for than any sweep has"));
            }
            let mut own = endpoint.queue_pairs(setting)?;
            own.connect(&queue_pairs, memory)?;
            control.send(&Reply::Joined { queue_pairs: own.ends(), memory: endpoint.memory() })?;
            joined.push(own);
        }
        Request::Work { joined: index, case, is_check } => {
            must_be_sane(case)?;
            let joined = joined
                .get(index)
                .ok_or(ServeError::Senseless("queue pairs were named that were not joined"))?;
            work(control, joined, case, is_check)?;
        }
        Request::Link { setting, by_rdma_cm } => {
            must_be_sane_setting(setting)?;
            let local = SocketAddr::new(control.connection().local_addr()?.ip(), 0);
            let listener = TcpListener::bind(local)?;
            control.send(&Reply::Listening { port: listener.local_addr()?.port() })?;
            // It ends when the other end goes.
            drop(link::respond(&listener, setting, endpoint.device_for_links(), by_rdma_cm)?);
        }
        Request::Perftest { case, setting } => {
            must_be_sane(case)?;
            must_be_sane_setting(setting)?;
            run_perftest(control, endpoint, case, setting)?;
        }
        Request::Finished => return Err(ServeError::Senseless("an end came without a beginning")),
    }
    Ok(())
}

fn must_be_sane_setting(setting: Setting) -> Result<(), ServeError> {
    if setting.is_sane() {
        Ok(())
    } else {
        Err(ServeError::Senseless("a setting that makes no sense was asked for"))
    }
}

fn must_be_sane(case: Case) -> Result<(), ServeError> {
    if (1..=MAX_MESSAGE_BYTES).contains(&case.bytes) {
        Ok(())
    } else {
        Err(ServeError::Senseless("messages of a length were asked for that this end has no memory for"))
    }
}

fn work(control: &mut Control, joined: &Joined<'_>, case: Case, is_check: bool) -> Result<(), ServeError> {
    if is_check || case.waits_for_marks() {
        joined.forget(case.bytes);
    }
    let is_read = case.operation == Operation::Read;
    let digest = (is_check && is_read).then(|| joined.digest_of_source(case.bytes));
    control.send(&Reply::Ready { digest })?;
    let part = match is_check {
        true if case.operation == Operation::Send => joined.receive(case.bytes, 1),
        true => Ok(()),
        false => joined.take_part(case),
    };
    finished(control)?;
    if let Err(error) = part {
        // These queue pairs are lost; others are not.
        return Ok(control.send(&Reply::Refused { reason: error.to_string() })?);
    }
    let digest = (is_check && !is_read).then(|| joined.digest_of_sink(case.bytes));
    Ok(control.send(&Reply::Done { digest })?)
}

fn finished(control: &mut Control) -> Result<(), ServeError> {
    match control.receive()? {
        Request::Finished => Ok(()),
        _ => Err(ServeError::Senseless("something else was asked for before the end of a repetition")),
    }
}

fn run_perftest(
    control: &mut Control,
    endpoint: &Endpoint,
    case: Case,
    setting: Setting,
) -> Result<(), ServeError> {
    let server = Server::start(endpoint, case, setting)?;
    control.send(&Reply::Listening { port: server.port() })?;
    finished(control)?;
    server.end();
    Ok(control.send(&Reply::Done { digest: None })?)
}
