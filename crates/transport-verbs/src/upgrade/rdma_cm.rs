//! Upgrade by rdma_cm.

use std::net::SocketAddr;
use std::time::Instant;

use causeway_ibverbs::{Libraries, Listener, Route};
use causeway_wire::handshake::VerbsEnd;

use crate::endpoint::{Counts, Prepared, port_of};
use crate::error::UpgradeError;
use crate::settings::Settings;
use crate::upgrade::connect::ended;
use crate::upgrade::connect::path_settings;
use causeway_connection::channel::Connection;

/// Ports that are tried for a connection of rdma_cm. With a tenth of all ports in use, one session in 10^8
/// finds none.
const MAX_PORTS: u32 = 8;

/// Connects to the worker, once for each queue pair.
pub(super) fn connect_by_rdma_cm(
    libraries: Libraries,
    settings: &Settings,
    setup: &Connection,
    worker: &VerbsEnd,
    deadline: Instant,
) -> Result<Prepared, UpgradeError> {
    let server = setup.socket().peer_addr().map_err(ended)?.ip();
    let server = SocketAddr::new(server.to_canonical(), worker.manager_port);
    let mut prepared: Option<Prepared> = None;
    for number in 0..worker.queue_pairs {
        with_other_ports(|| {
            let route = Route::resolve(libraries, None, server, deadline)?;
            let so_far = match &mut prepared {
                Some(prepared) => prepared,
                None => {
                    let local = port_of(route.device().clone(), settings)?;
                    let limits = local.device.limits()?;
                    let counts = Counts::agree(settings, &limits, worker.queue_pairs, worker.depth);
                    prepared.insert(Prepared::new(local, settings, counts)?)
                }
            };
            let queue_pair = route.queue_pair(&so_far.domain, &so_far.completions, so_far.capacity())?;
            so_far.add(queue_pair)?;
            let path = path_settings(so_far, worker);
            match route.connect(&introduction(number, &worker.gid), &path, deadline) {
                // The queue pair keeps the connection.
                Ok(_) => Ok(()),
                Err(error) => {
                    so_far.give_up_last();
                    Err(error.into())
                }
            }
        })?;
    }
    prepared.ok_or(UpgradeError::Protocol("it wants no queue pairs"))
}

/// Takes in the client's connections, one for each queue pair.
pub(super) fn accept_by_rdma_cm(
    listener: &mut Listener,
    prepared: &mut Prepared,
    own: &VerbsEnd,
    deadline: Instant,
) -> Result<(), UpgradeError> {
    for number in 0..own.queue_pairs {
        let expected = introduction(number, &own.gid);
        let request = loop {
            let request = listener.next(deadline)?;
            if request.private_data().starts_with(&expected) {
                break request;
            }
            request.reject();
        };
        let queue_pair = request.queue_pair(&prepared.domain, &prepared.completions, prepared.capacity())?;
        prepared.add(queue_pair)?;
        let settings = path_settings(prepared, own);
        // The queue pair keeps the connection.
        drop(listener.accept(request, &[], &settings, deadline)?);
    }
    Ok(())
}

/// Tries something for which rdma_cm chooses a port, again with another one where that port is not free.
pub(super) fn with_other_ports<T>(
    mut attempt: impl FnMut() -> Result<T, UpgradeError>,
) -> Result<T, UpgradeError> {
    let mut left = MAX_PORTS;
    loop {
        left -= 1;
        match attempt() {
            Err(UpgradeError::Manager(error)) if left > 0 && error.is_port_taken() => {}
            done => return done,
        }
    }
}

/// What a request to rdma_cm carries: which queue pair it is, and what only the worker has told.
fn introduction(number: u32, secret: &[u8; 16]) -> [u8; 17] {
    let mut bytes = [number as u8; 17];
    bytes[1..].copy_from_slice(secret);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_ibverbs::ManagerError;
    use std::io;

    fn refused(code: i32) -> UpgradeError {
        ManagerError::Step { step: "connect to the peer", source: io::Error::from_raw_os_error(code) }.into()
    }

    fn heard(status: i32) -> UpgradeError {
        ManagerError::Event { step: "connect to the peer", event: "RDMA_CM_EVENT_CONNECT_ERROR", status }
            .into()
    }

    /// Attempts of which each ends with the next of these errors, and succeeds when there are none left: what
    /// came of it, and how many there were.
    fn attempts(errors: Vec<UpgradeError>) -> (Result<(), String>, usize) {
        let mut errors = errors.into_iter();
        let mut count = 0;
        let outcome = with_other_ports(|| {
            count += 1;
            errors.next().map_or(Ok(()), Err)
        });
        (outcome.map_err(|error| error.to_string()), count)
    }

    #[test]
    fn a_port_that_tcp_has_is_left_to_it_and_another_one_tried() {
        assert_eq!(attempts(vec![]), (Ok(()), 1));
        assert_eq!(attempts(vec![refused(libc::EADDRINUSE), heard(-libc::EADDRINUSE)]), (Ok(()), 3));
    }

    #[test]
    fn ports_are_not_tried_for_ever() {
        let taken = (0..100).map(|_| refused(libc::EADDRINUSE)).collect();
        let (outcome, count) = attempts(taken);
        assert_eq!(count, MAX_PORTS as usize);
        assert!(outcome.unwrap_err().contains("a port that TCP has in use"));
    }

    #[test]
    fn what_another_port_does_not_mend_is_an_error_at_once() {
        let silent = UpgradeError::from(ManagerError::TimedOut { step: "connect to the peer" });
        for error in [refused(libc::EHOSTUNREACH), heard(-libc::ETIMEDOUT), silent, UpgradeError::NoDevice] {
            let (outcome, count) = attempts(vec![error]);
            assert!(outcome.is_err() && count == 1, "{outcome:?}");
        }
    }
}
