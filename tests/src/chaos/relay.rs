//! Relay that carries out a schedule of faults.

use super::boundaries::{Parser, Session};
use super::{Carries, Direction, Fault, Point, Schedule, Scope};
use causeway_access::Target;
use causeway_connection::dial_here;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the server may take to accept a connection.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How often it is looked whether a stall is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The relay, on a loopback port. Its threads end with the process.
#[derive(Debug)]
pub struct Chaos {
    target: Target,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    plan: Mutex<Plan>,
    connections: Mutex<Vec<Arc<Connection>>>,
    session: Arc<Mutex<Session>>,
}

#[derive(Debug, Default)]
struct Plan {
    faults: VecDeque<(Point, Fault)>,
    /// Ends of what the first of these counts that have gone by.
    ends: u64,
    /// Until when new connections are refused.
    away_until: Option<Instant>,
    /// How many faults have happened.
    happened: u64,
    /// How many schedules there have been: a fault that has waited for its byte is not the next one's.
    schedules: u64,
    /// Faults of this schedule that wait for their byte.
    pending: usize,
}

#[derive(Debug)]
struct Connection {
    /// The client's and the server's.
    sockets: [TcpStream; 2],
    fate: Mutex<Fate>,
}

#[derive(Debug)]
struct Fate {
    carries: Carries,
    stalled_until: Option<Instant>,
    /// Directions that are forwarded.
    pumps: u32,
    has_ended: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Chaos {
    /// Starts relaying to `server`.
    ///
    /// When no port can be listened on.
    pub fn on(server: &Target) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let state = Arc::<State>::default();
        let (theirs, behind) = (Arc::clone(&state), server.clone());
        std::thread::spawn(move || {
            for (number, front) in (1..).zip(listener.incoming().flatten()) {
                let is_away = lock(&theirs.plan).away_until.is_some_and(|until| Instant::now() < until);
                if is_away {
                    continue;
                }
                let Ok(back) = dial_here(&behind.endpoint, TIMEOUT) else { continue };
                theirs.join(number, front, back);
            }
        });
        Self { target: Target::tcp("127.0.0.1", port, server.protection, server.key.clone()), state }
    }

    /// Where clients connect to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// From here on these faults happen, and no earlier ones that have not.
    pub fn set(&self, schedule: &Schedule) {
        let mut plan = lock(&self.state.plan);
        plan.faults = schedule.0.iter().cloned().collect();
        plan.ends = 0;
        plan.schedules += 1;
        plan.pending = 0;
    }

    /// How many of the faults have not happened.
    pub fn left(&self) -> usize {
        let plan = lock(&self.state.plan);
        plan.faults.len() + plan.pending
    }

    /// How many sessions have begun.
    pub fn sessions(&self) -> usize {
        lock(&self.state.session).begun
    }

    /// How many faults have happened, of all schedules.
    pub fn happened(&self) -> u64 {
        lock(&self.state.plan).happened
    }
}

impl State {
    fn join(self: &Arc<Self>, number: u64, front: TcpStream, back: TcpStream) {
        // What is split is not put together again.
        let _ = (front.set_nodelay(true), back.set_nodelay(true));
        let fate = Fate { carries: Carries::Handshake, stalled_until: None, pumps: 2, has_ended: false };
        let connection = Arc::new(Connection { sockets: [front, back], fate: Mutex::new(fate) });
        {
            let mut connections = lock(&self.connections);
            connections.retain(|connection| !lock(&connection.fate).has_ended);
            connections.push(Arc::clone(&connection));
        }
        for parser in Parser::pair(&self.session, number) {
            let pump = Pump {
                state: Arc::clone(self),
                connection: Arc::clone(&connection),
                parser,
                pending: None,
                to_split: 0,
                is_half_closed: false,
                has_begun: false,
            };
            std::thread::spawn(move || pump.run());
        }
    }

    /// The connections that a fault on this one concerns.
    fn concerned(&self, scope: Scope, this: &Arc<Connection>) -> Vec<Arc<Connection>> {
        let connections = lock(&self.connections);
        let is_concerned = |connection: &&Arc<Connection>| match scope {
            Scope::This => Arc::ptr_eq(connection, this),
            Scope::All => true,
            Scope::Lanes => lock(&connection.fate).carries == Carries::Lane,
        };
        connections.iter().filter(is_concerned).cloned().collect()
    }
}

impl Connection {
    fn end(&self, by_reset: bool) {
        lock(&self.fate).has_ended = true;
        for socket in &self.sockets {
            if by_reset {
                reset(socket);
            }
            // An error means that it has ended already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn wait_while_stalled(&self) {
        loop {
            let fate = lock(&self.fate);
            let is_stalled = fate.stalled_until.is_some_and(|until| Instant::now() < until);
            if !is_stalled || fate.has_ended {
                return;
            }
            drop(fate);
            std::thread::sleep(CHECK_INTERVAL);
        }
    }
}

/// Has the kernel forget a connection, which it tells the other end.
fn reset(socket: &TcpStream) {
    // SAFETY: an address of the family "unspecified", which only its family is read of, of a length that is
    // the type's.
    unsafe {
        let mut address: libc::sockaddr = std::mem::zeroed();
        address.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
        libc::connect(socket.as_raw_fd(), &raw const address, size_of::<libc::sockaddr>() as libc::socklen_t);
    }
}

/// One direction of a connection.
struct Pump {
    state: Arc<State>,
    connection: Arc<Connection>,
    parser: Parser,
    /// After so many bytes more this happens, unless another schedule has begun.
    pending: Option<(u64, Fault, u64)>,
    /// So many bytes go on one by one.
    to_split: usize,
    is_half_closed: bool,
    has_begun: bool,
}

impl Pump {
    fn run(mut self) {
        let connection = Arc::clone(&self.connection);
        let [client, server] = &connection.sockets;
        match self.parser.direction() {
            Direction::ToClient => self.forward(server, client),
            Direction::ToServer | Direction::Both => self.forward(client, server),
        }
        connection.wait_while_stalled();
        let to = if self.parser.direction() == Direction::ToClient { client } else { server };
        // An error means that it has ended already.
        let _ = to.shutdown(Shutdown::Write);
        let mut fate = lock(&connection.fate);
        fate.pumps -= 1;
        fate.has_ended |= fate.pumps == 0;
    }

    fn forward(&mut self, mut from: &TcpStream, to: &TcpStream) {
        let mut piece = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            let mut done = 0;
            for (at, fault) in self.faults(&piece[..count]) {
                if !self.write(to, &piece[done..at]) {
                    return self.connection.end(false);
                }
                done = at;
                self.perform(&fault, to);
            }
            if !self.write(to, &piece[done..count]) {
                return self.connection.end(false);
            }
        }
    }

    /// The faults that happen in these bytes, each behind so many of them.
    fn faults(&mut self, bytes: &[u8]) -> Vec<(usize, Fault)> {
        // A connection begins where a step of the handshake would end.
        let beginning = (!std::mem::replace(&mut self.has_begun, true)).then_some((0, Carries::Handshake));
        let ends = beginning.into_iter().chain(self.parser.take(bytes));
        lock(&self.connection.fate).carries = self.parser.carries();
        let mut found = Vec::new();
        let mut plan = lock(&self.state.plan);
        if let Some((left, fault, schedule)) =
            self.pending.take().filter(|pending| pending.2 == plan.schedules)
        {
            match usize::try_from(left) {
                Ok(left) if left <= bytes.len() => {
                    plan.pending -= 1;
                    found.push((left, fault));
                }
                _ => self.pending = Some((left - bytes.len() as u64, fault, schedule)),
            }
        }
        for (at, carries) in ends {
            let Some((point, _)) = plan.faults.front() else { break };
            if point.of != carries || point.direction != self.parser.direction() {
                continue;
            }
            let (wanted, behind) = (point.ends, point.bytes);
            plan.ends += 1;
            if plan.ends < wanted {
                continue;
            }
            plan.ends = 0;
            let Some((_, fault)) = plan.faults.pop_front() else { break };
            let at = at as u64 + behind;
            match usize::try_from(at) {
                Ok(at) if at <= bytes.len() => found.push((at, fault)),
                _ => {
                    plan.pending += 1;
                    self.pending = Some((at - bytes.len() as u64, fault, plan.schedules));
                }
            }
        }
        found.sort_by_key(|(at, _)| *at);
        found
    }

    /// Writes bytes; whether that was possible.
    fn write(&mut self, mut to: &TcpStream, bytes: &[u8]) -> bool {
        if self.is_half_closed {
            return true;
        }
        self.connection.wait_while_stalled();
        let (one_by_one, rest) = bytes.split_at(bytes.len().min(self.to_split));
        self.to_split -= one_by_one.len();
        one_by_one.chunks(1).all(|byte| to.write_all(byte).is_ok()) && to.write_all(rest).is_ok()
    }

    fn perform(&mut self, fault: &Fault, to: &TcpStream) {
        lock(&self.state.plan).happened += 1;
        let concerned = |scope| self.state.concerned(scope, &self.connection);
        match fault {
            Fault::Cut(scope) => concerned(*scope).iter().for_each(|connection| connection.end(false)),
            Fault::Reset(scope) => concerned(*scope).iter().for_each(|connection| connection.end(true)),
            Fault::Away(time) => {
                lock(&self.state.plan).away_until = Some(Instant::now() + *time);
                concerned(Scope::All).iter().for_each(|connection| connection.end(false));
            }
            Fault::HalfClose => {
                self.is_half_closed = true;
                let _ = to.shutdown(Shutdown::Write);
            }
            Fault::Stall(scope, time) => {
                let until = Some(Instant::now() + *time);
                concerned(*scope).iter().for_each(|connection| lock(&connection.fate).stalled_until = until);
            }
            Fault::Split(bytes) => self.to_split = *bytes,
            Fault::Call(_, call) => {
                let call = Arc::clone(call);
                std::thread::spawn(move || call());
            }
        }
    }
}
