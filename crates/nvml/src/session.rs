//! The connection to the server's monitor.
//!
//! It is opened by the first `nvmlInit` and closed by the last `nvmlShutdown`. One call at a time is under way. A forked child
//! lets go of its parent's connection and gets one of its own with its next call, so that it goes on as it would with a local
//! driver. A lost connection stays lost until the program calls `nvmlInit` again.

use crate::log::{self, Level};
use causeway_api::coverage::FINGERPRINT;
use causeway_api::nvml::request::{Call, Outcome};
use causeway_api::nvml::status::{self, Status};
use causeway_fabric::exchange::Exchange;
use causeway_fabric::{ConnectOptions, Target, connect_monitor, describe_process};
use causeway_wire::codec::{Decoder, Encode as _};
use core::cell::RefCell;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// How long the server may take for one answer. Starting its library for the first client can take seconds.
const PATIENCE: Duration = Duration::from_secs(60);

enum Connection {
    /// Not there yet, or left behind in the parent of a fork.
    None,
    Open(Box<Exchange>),
    Lost,
}

struct State {
    /// `nvmlInit` less `nvmlShutdown`.
    users: u32,
    connection: Connection,
}

static STATE: Mutex<State> = Mutex::new(State { users: 0, connection: Connection::None });

fn state() -> MutexGuard<'static, State> {
    // Nothing is left half done by a panic: a connection in an unknown state is replaced by `Lost` before it is used.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `nvmlInit`: connects, if that has not happened or the connection is lost.
pub fn initialise() -> Status {
    watch_forks();
    let mut state = state();
    if !matches!(state.connection, Connection::Open(_)) {
        match connect() {
            Ok(exchange) => state.connection = Connection::Open(Box::new(exchange)),
            Err(why) => {
                log::write(Level::Error, format_args!("{why}"));
                return status::DRIVER_NOT_LOADED;
            }
        }
    }
    state.users += 1;
    status::SUCCESS
}

/// `nvmlShutdown`: the last one closes the connection.
pub fn shut_down() -> Status {
    let mut state = state();
    if state.users == 0 {
        return status::UNINITIALIZED;
    }
    state.users -= 1;
    if state.users == 0 {
        state.connection = Connection::None;
    }
    status::SUCCESS
}

/// Whether the program has called `nvmlInit`.
pub fn is_initialised() -> bool {
    state().users > 0
}

/// The answer of a function that the program may not or cannot use.
pub fn refuse(function: &str, refusal: Status) -> Status {
    let status = if is_initialised() { refusal } else { status::UNINITIALIZED };
    log::write(Level::Trace, format_args!("{function} = {status}"));
    status
}

/// Lets the server carry out a call.
pub fn ask(call: &Call) -> Result<Outcome, Status> {
    let mut state = state();
    if state.users == 0 {
        return Err(status::UNINITIALIZED);
    }
    let mut exchange = match core::mem::replace(&mut state.connection, Connection::Lost) {
        Connection::Open(exchange) => exchange,
        Connection::Lost => return Err(status::GPU_IS_LOST),
        Connection::None => connect().map(Box::new).map_err(|why| {
            log::write(Level::Error, format_args!("{why}"));
            status::GPU_IS_LOST
        })?,
    };
    let why = match exchange.ask(PATIENCE, |out| call.encode(out)) {
        Ok(Some(answer)) => {
            let mut input = Decoder::new(&answer);
            match input.value().and_then(|outcome| input.finish().map(|()| outcome)) {
                Ok(outcome) => {
                    state.connection = Connection::Open(exchange);
                    return Ok(outcome);
                }
                Err(damage) => format!("its answer is damaged: {damage}"),
            }
        }
        Ok(None) => "it ended the connection".to_owned(),
        Err(error) => error.to_string(),
    };
    log::write(
        Level::Error,
        format_args!("the server that tells of the GPUs is lost ({why}); nvmlInit connects again"),
    );
    Err(status::GPU_IS_LOST)
}

fn connect() -> Result<Exchange, String> {
    let on = std::env::var("CAUSEWAY_ON").ok().filter(|text| !text.trim().is_empty()).ok_or(
        "no server is named, so there is no GPU to tell of. Set CAUSEWAY_ON=HOST:PORT, or start the program with \
         `causeway run --on HOST:PORT -- PROGRAM`",
    )?;
    // Of several servers the first one's GPUs are told of.
    let target =
        Target::list(&on).map_err(|cause| format!("CAUSEWAY_ON cannot be used: {cause}"))?.swap_remove(0);
    let hello = describe_process(FINGERPRINT, Vec::new());
    let exchange = connect_monitor(&target, &hello, &ConnectOptions::default())
        .map_err(|cause| format!("nothing can be told of the GPUs: {cause}"))?;
    log::write(Level::Info, format_args!("asking {target} about its GPUs"));
    Ok(exchange)
}

thread_local! {
    /// The lock, from just before a fork until just after it.
    static HELD: RefCell<Option<MutexGuard<'static, State>>> = const { RefCell::new(None) };
}

/// From here on forks happen between calls, and children leave the connection to their parents.
fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the functions stay mapped, because the library is linked with `-z nodelete`. Should the system have no
        // memory for the registration, children share their parent's connection; nothing else depends on it.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    });
}

extern "C" fn before_fork() {
    // A thread that forks in the middle of its own end goes without.
    let _ = HELD.try_with(|held| *held.borrow_mut() = Some(state()));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(|held| held.borrow_mut().take());
}

extern "C" fn in_child() {
    let _ = HELD.try_with(|held| {
        let Some(mut state) = held.borrow_mut().take() else { return };
        if let Connection::Open(exchange) = core::mem::replace(&mut state.connection, Connection::None) {
            // SAFETY: the child owns its copy of the descriptor, and forgets the only thing that names it.
            unsafe { libc::close(exchange.descriptor()) };
            core::mem::forget(exchange);
        }
    });
}
