//! Rates of sessions between two status replies.

use std::collections::HashMap;
use std::time::Duration;

use causeway_wire::handshake::SessionId;
use causeway_wire::status::{Activity, ServerStatus, SessionStatus};

/// What a session does a second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Commands.
    pub commands: f64,
    /// Launches.
    pub launches: f64,
    /// Bytes to devices.
    pub to_device: f64,
    /// Bytes from devices.
    pub from_device: f64,
    /// The part of the time in which replies waited for the GPU; more than 1 where several threads wait.
    pub waiting: f64,
}

impl Rates {
    /// Between two counts.
    pub fn between(before: &Activity, now: &Activity, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        // What goes backwards is another session's, or a worker's lie.
        let rate = |before: u64, now: u64| {
            if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
        };
        Self {
            commands: rate(commands(before), commands(now)),
            launches: rate(before.launches, now.launches),
            to_device: rate(before.bytes_to_device, now.bytes_to_device),
            from_device: rate(before.bytes_from_device, now.bytes_from_device),
            waiting: rate(before.wait_time, now.wait_time) / 1e9,
        }
    }

    /// The sum of all.
    pub fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, rates| Self {
            commands: sum.commands + rates.commands,
            launches: sum.launches + rates.launches,
            to_device: sum.to_device + rates.to_device,
            from_device: sum.from_device + rates.from_device,
            waiting: sum.waiting + rates.waiting,
        })
    }
}

fn commands(activity: &Activity) -> u64 {
    activity.posted.saturating_add(activity.called)
}

/// The rates of every session of `now`, in its order. One that is new has done all that it has done since it
/// began.
pub fn of_sessions(before: Option<&ServerStatus>, now: &ServerStatus) -> Vec<Rates> {
    let known: HashMap<SessionId, &SessionStatus> =
        before.iter().flat_map(|status| &status.sessions).map(|session| (session.session, session)).collect();
    let passed = before.map_or(0, |before| now.running.saturating_sub(before.running));
    let rates = now.sessions.iter().map(|session| match known.get(&session.session) {
        Some(before) => Rates::between(&before.activity, &session.activity, Duration::from_millis(passed)),
        None => {
            let open = Duration::from_millis(session.open);
            Rates::between(&Activity::default(), &session.activity, open)
        }
    });
    rates.collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use causeway_wire::status::{DeviceStatus, GpuDirectStatus, ReleaseStatus, SessionOwner};

    /// A status with sessions that have done so much.
    pub fn status(running: u64, sessions: &[(u8, u64)]) -> ServerStatus {
        let session = |(number, done): &(u8, u64)| SessionStatus {
            session: SessionId([*number; 16]),
            program: format!("program{number}").into(),
            host: "node".into(),
            process: 100 + u32::from(*number),
            peer: "10.0.0.1:5".into(),
            worker: 7,
            via: "tcp".into(),
            open: 2000,
            activity: Activity {
                posted: *done,
                called: *done,
                launches: *done,
                bytes_to_device: *done << 20,
                wait_time: *done * 1_000_000,
                ..Activity::default()
            },
            release: ReleaseStatus::default(),
            owner: SessionOwner::default(),
            group: causeway_wire::text::Printable::default(),
            gpudirect: GpuDirectStatus::default(),
            parent: None,
        };
        let device = DeviceStatus {
            index: 0,
            name: "NVIDIA H200".into(),
            uuid: "GPU-1".into(),
            memory_total: 141 << 30,
            memory_used: 70 << 30,
            utilisation: Some(40),
        };
        ServerStatus {
            release: "0.2.0".into(),
            running,
            max_sessions: 256,
            sessions_started: 9,
            sessions: sessions.iter().map(session).collect(),
            devices: vec![device],
            ..ServerStatus::default()
        }
    }

    #[test]
    fn rates_are_what_was_done_between_two_answers() {
        let (before, now) = (status(1000, &[(1, 10), (2, 5)]), status(3000, &[(2, 25), (3, 4)]));
        let rates = of_sessions(Some(&before), &now);
        assert_eq!((rates[0].commands, rates[0].launches), (20.0, 10.0));
        assert_eq!(rates[0].to_device, 10.0 * 1048576.0);
        assert_eq!(rates[1].launches, 2.0, "a new session's since it began");
        let sum = Rates::sum(rates.iter().copied());
        assert_eq!(sum.launches, 12.0);
        assert!((sum.waiting - 0.012).abs() < 1e-9);
    }

    #[test]
    fn counts_that_go_backwards_and_no_time_are_no_rates() {
        let rates = of_sessions(Some(&status(1000, &[(1, 10)])), &status(3000, &[(1, 3)]));
        assert_eq!(rates[0], Rates::default());
        let rates = of_sessions(Some(&status(1000, &[(1, 10)])), &status(1000, &[(1, 30)]));
        assert_eq!(rates[0], Rates::default());
    }
}
