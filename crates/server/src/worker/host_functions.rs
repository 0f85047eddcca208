//! Host functions of the client: a stream stops at one, and goes on when the client says that the function
//! has returned.

use super::session::Session;
use causeway_api::handle::{Native, Stream};
use causeway_gpu::{CuResult, Gate};
use causeway_wire::codec::Encode;
use causeway_wire::message::WorkerMessage;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

/// Host functions of which the client says that they have returned before their gate is known. There is one
/// at a time unless the client invents them.
const MOST_EARLY: usize = 1024;

/// Streams that wait for host functions of the client, by the functions' tokens.
#[derive(Default)]
pub struct HostFunctions(Mutex<Gates>);

#[derive(Default)]
struct Gates {
    closed: FxHashMap<u64, Box<dyn Gate>>,
    /// The function has returned before the gate could be entered here.
    early: FxHashSet<u64>,
}

impl HostFunctions {
    /// Lets go of every stream.
    pub fn open_all(&self) {
        self.0.lock().closed.clear();
    }

    /// A host function of the client has returned: its stream goes on.
    pub fn returned(&self, token: u64) {
        let mut gates = self.0.lock();
        let gate = gates.closed.remove(&token);
        if gate.is_none() && gates.early.len() < MOST_EARLY {
            gates.early.insert(token);
        }
        drop(gates);
        if let Some(gate) = gate {
            gate.open();
        }
    }

    /// Puts a host function of the client into a stream: the client is told when the stream gets there, and
    /// the stream goes on when the client says that the function has returned.
    pub fn enqueue(&self, session: &Session, stream: Native<Stream>, token: u64) -> CuResult<()> {
        let link = session.link().clone();
        let gate = session.gpu().gate(
            stream,
            Box::new(move || {
                // A lost link is noticed by the receiving thread.
                let _ = link.send(|out| WorkerMessage::HostCall { token }.encode(out));
            }),
        )?;
        let mut gates = self.0.lock();
        if gates.early.remove(&token) {
            drop(gates);
            gate.open();
        } else {
            gates.closed.insert(token, gate);
        }
        Ok(())
    }
}
