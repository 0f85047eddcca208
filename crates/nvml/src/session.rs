//! Connections to the servers' monitors, one to each.
//!
//! They are opened by the first `nvmlInit` and closed by the last `nvmlShutdown`. One call at a time is under
//! way. A forked child lets go of its parent's connections and gets its own with its next calls, so that it
//! goes on as it would with a local driver. A lost connection stays lost until the program calls `nvmlInit`
//! again.

use crate::log::{self, Level};
use crate::servers::Servers;
use causeway_access::{Target, servers};
use causeway_api::calls::COMMANDS;
use causeway_api::nvml::request::{ArgumentValue, Call, Outcome};
use causeway_api::nvml::status::{self, Status};
use causeway_config::read::PROCESS;
use causeway_config::table::ON;
use causeway_config::{Component, check};
use causeway_connection::exchange::Exchange;
use causeway_link::{ConnectOptions, connect_monitor, describe_process};
use causeway_wire::codec::{Decoder, Encode as _};
use core::cell::RefCell;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// How long the server may take for one answer. Starting its library for the first client can take seconds.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Within this a server has seen that its monitor has ended, and starts another one.
const UNTIL_A_NEW_MONITOR: Duration = Duration::from_millis(200);

enum Connection {
    /// Not there yet, or left behind in the parent of a fork.
    None,
    Open(Box<Exchange>),
    Lost,
}

struct Sessions {
    /// `nvmlInit` less `nvmlShutdown`.
    users: u32,
    servers: Vec<Server>,
}

struct Server {
    target: Target,
    connection: Connection,
    /// How many devices it has; 0 where it is the only one, and the number is not needed.
    devices: u32,
}

static STATE: Mutex<Sessions> = Mutex::new(Sessions { users: 0, servers: Vec::new() });

fn state() -> MutexGuard<'static, Sessions> {
    // Nothing is left half done by a panic: a connection in an unknown state is replaced by `Lost` before it
    // is used.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `nvmlInit`: connects to each server, if that has not happened or the connection is lost.
pub fn initialise() -> Status {
    watch_forks();
    let mut state = state();
    if let Err(why) = state.connect() {
        log::write(Level::Error, format_args!("{why}"));
        return status::DRIVER_NOT_LOADED;
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
        state.servers.clear();
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

/// The servers that `nvmlInit` has connected to.
pub struct Connected;

impl Servers for Connected {
    fn counts(&self) -> Vec<u32> {
        state().servers.iter().map(|server| server.devices).collect()
    }

    fn forward(&self, server: usize, call: &Call) -> Result<Outcome, Status> {
        let mut state = state();
        if state.users == 0 {
            return Err(status::UNINITIALIZED);
        }
        state.servers.get_mut(server).ok_or(status::INVALID_ARGUMENT)?.forward(call)
    }
}

impl Sessions {
    /// Connects to each server that there is no connection to; the reason where that fails.
    fn connect(&mut self) -> Result<(), String> {
        if self.servers.is_empty() {
            let server = |target| Server { target, connection: Connection::None, devices: 0 };
            self.servers = targets()?.into_iter().map(server).collect();
        }
        let are_several = self.servers.len() > 1;
        let connected = self.servers.iter_mut().try_for_each(|server| {
            if matches!(server.connection, Connection::Open(_)) {
                return Ok(());
            }
            server.connection = Connection::Open(Box::new(server.connect()?));
            if are_several {
                server.devices = server.count_devices()?;
            }
            Ok(())
        });
        if connected.is_err() && self.users == 0 {
            self.servers.clear();
        }
        connected
    }
}

impl Server {
    fn connect(&self) -> Result<Exchange, String> {
        let hello = describe_process(COMMANDS, Vec::new());
        let connect = || connect_monitor(&self.target, &hello, &ConnectOptions::default());
        let connected = match connect() {
            // The server may not have seen yet that its monitor has ended, and have given this connection to it.
            Err(_) if matches!(self.connection, Connection::Lost) => {
                std::thread::sleep(UNTIL_A_NEW_MONITOR);
                connect()
            }
            connected => connected,
        };
        let exchange = connected.map_err(|cause| format!("GPU monitoring is unavailable: {cause}"))?;
        log::write(Level::Info, format_args!("asking {} about its GPUs", self.target));
        Ok(exchange)
    }

    fn count_devices(&mut self) -> Result<u32, String> {
        let function = "nvmlDeviceGetCount_v2".to_owned();
        let outcome =
            self.forward(&Call { function, arguments: vec![ArgumentValue::Buffer(size_of::<u32>() as u32)] });
        let count = outcome.ok().and_then(|outcome| outcome.written.into_iter().next());
        count
            .and_then(|count| count.bytes.try_into().ok())
            .map(u32::from_le_bytes)
            .ok_or_else(|| format!("the server at {} does not report how many GPUs it has", self.target))
    }

    /// Lets the server carry out a call.
    fn forward(&mut self, call: &Call) -> Result<Outcome, Status> {
        let mut exchange = match core::mem::replace(&mut self.connection, Connection::Lost) {
            Connection::Open(exchange) => exchange,
            Connection::Lost => return Err(status::GPU_IS_LOST),
            Connection::None => self.connect().map(Box::new).map_err(|why| {
                log::write(Level::Error, format_args!("{why}"));
                status::GPU_IS_LOST
            })?,
        };
        let why = match exchange.request(REPLY_TIMEOUT, |out| call.encode(out)) {
            Ok(Some(reply)) => {
                let mut input = Decoder::new(&reply);
                match input.value().and_then(|outcome| input.finish().map(|()| outcome)) {
                    Ok(outcome) => {
                        self.connection = Connection::Open(exchange);
                        return Ok(outcome);
                    }
                    Err(damage) => format!("its response is malformed: {damage}"),
                }
            }
            Ok(None) => "it ended the connection".to_owned(),
            Err(error) => error.to_string(),
        };
        log::write(
            Level::Error,
            format_args!("the connection to the monitoring server is lost ({why}); nvmlInit reconnects"),
        );
        Err(status::GPU_IS_LOST)
    }
}

fn targets() -> Result<Vec<Target>, String> {
    check(PROCESS, &[Component::Client]).map_err(|error| error.to_string())?;
    let on = PROCESS.text(&ON).ok_or(
        "no server is named, so there is no GPU to monitor. Set CAUSEWAY_ON=HOST:PORT, write `on` in a \
         configuration file, or start the program with `causeway run --on HOST:PORT -- PROGRAM`",
    )?;
    servers(&on, None).map_err(|cause| format!("{} cannot be used: {cause}", PROCESS.origin(&ON)))
}

thread_local! {
    /// The lock, from just before a fork until just after it.
    static HELD: RefCell<Option<MutexGuard<'static, Sessions>>> = const { RefCell::new(None) };
}

/// From here on forks happen between calls, and children leave the connections to their parents.
fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the functions stay mapped, because the library is linked with `-z nodelete`. Should the
        // system have no memory for the registration, children share their parent's connections; nothing else
        // depends on it.
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
        for server in &mut state.servers {
            if let Connection::Open(exchange) = core::mem::replace(&mut server.connection, Connection::None) {
                // SAFETY: the child owns its copy of the descriptor, and forgets the only thing that names
                // it.
                unsafe { libc::close(exchange.descriptor()) };
                core::mem::forget(exchange);
            }
        }
    });
}
