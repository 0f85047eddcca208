//! Keepalive of bulk lanes.
//!
//! Every [`INTERVAL`] something goes out on each connection on which nothing else has: a frame without messages, or
//! what a lane says of the chunks that have come. Both are what every peer understands. A peer that does the same
//! is given up when nothing comes ([`causeway_connection::keepalive`] decides). One thread does this alone, which
//! never waits for the peer: so it goes on while others are blocked in sending or busy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_connection::channel::{Socket, shut_down};
use causeway_connection::keepalive::{INTERVAL, KeepaliveTimeouts, Liveness, Traffic, Watch};
use causeway_connection::socket::{has_capacity, traffic};
use causeway_sync::fork::in_background;
use causeway_transport::{LinkError, Memory as _, Shared};

use super::{Lane, Lanes, WAKE_FIRST};

/// A connection of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Command,
    Lane(usize),
}

impl Lanes {
    pub(super) fn keep_alive_until_end(&self, link: &Arc<Shared>, timeouts: KeepaliveTimeouts) {
        let mut watch = Watch::new(timeouts);
        while link.check().is_ok() {
            {
                let _work = in_background();
                link.send_keepalive();
                self.send_keepalives(link);
            }
            let mut state = self.0.state.lock();
            if !state.over {
                self.0.end.wait_for(&mut state, INTERVAL);
            }
            drop(state);
            if self.0.commands.is_suspended() {
                // What is silent is known to be lost.
                watch = Watch::new(timeouts);
            } else if link.peer_keeps_alive() {
                self.drop_silent(link, &mut watch);
            }
        }
    }

    /// Sends something on each lane on which nothing has been sent since this was last called.
    fn send_keepalives(&self, link: &Arc<Shared>) {
        let lanes = self.0.open.read().clone();
        for (number, lane) in &lanes {
            let task = self.0.state.lock().schedule.take_keepalive(*number);
            let Some(task) = task else { continue };
            // Nobody else sends on the lane until the schedule hears that it is free again.
            let state = if has_capacity(&*lane.socket) {
                self.perform(link, &task)
            } else {
                let mut state = self.0.state.lock();
                state.schedule.sent(&task, true);
                state
            };
            // Others may have found no lane free meanwhile.
            if state.waiting > 0 && state.schedule.has_task() {
                self.0.progress.notify_all();
            }
            self.call(link, state, WAKE_FIRST);
        }
    }

    /// Gives up connections on which nothing has come for too long, or the link.
    fn drop_silent(&self, link: &Arc<Shared>, watch: &mut Watch<Name>) {
        let lanes = self.0.open.read().clone();
        let known = |name, socket: &Socket| Some((name, traffic(&**socket)?));
        let connections: Vec<(Name, Traffic)> = known(Name::Command, &self.0.commands.socket())
            .into_iter()
            .chain(lanes.iter().filter_map(|(number, lane)| known(Name::Lane(*number), &lane.socket)))
            .collect();
        match watch.look(Instant::now(), connections) {
            Liveness::Link(_) if self.is_resumable() => {
                self.0.commands.break_off();
                lanes.values().for_each(|lane| shut_down(&lane.socket));
            }
            Liveness::Link(silent) => {
                link.lose(LinkError::KeepaliveTimeout { seconds: silent.as_secs() });
            }
            Liveness::Connections(dead) => {
                for (name, silent) in dead {
                    self.give_up(link, &lanes, name, silent);
                }
            }
        }
    }

    fn give_up(&self, link: &Arc<Shared>, lanes: &BTreeMap<usize, Arc<Lane>>, name: Name, silent: Duration) {
        let seconds = silent.as_secs();
        match name {
            Name::Command if self.is_resumable() => self.0.commands.break_off(),
            Name::Command => {
                link.lose(LinkError::SilentConnection { connection: "connection for commands", seconds });
            }
            Name::Lane(number) => {
                lanes[&number].give_up(LinkError::SilentConnection { connection: "bulk lane", seconds });
            }
        }
    }
}
