//! JSON of servers and their sessions.

use causeway_wire::status::{DeviceStatus, ServerStatus, SessionStatus};
use serde_json::{Value, json};

use super::by::{By, Sum, Sums};
use super::rates::Rates;

/// A server that answers, as JSON. Sizes are in bytes, times in seconds.
pub fn server(name: &str, status: &ServerStatus, rates: &[Rates]) -> Value {
    let sessions: Vec<_> =
        status.sessions.iter().zip(rates).map(|(session, rates)| of(session, rates)).collect();
    json!({
        "server": name,
        "release": &*status.release,
        "process": status.process,
        "running_seconds": seconds(status.running),
        "draining": status.is_draining,
        "max_sessions": status.max_sessions,
        "sessions_started": status.sessions_started,
        "refused": status.refused,
        "sessions": sessions,
        "devices": status.devices.iter().map(device).collect::<Vec<_>>(),
    })
}

/// The sums of sessions that have something in common, as JSON.
pub fn sums(name: &str, by: &[By], sums: &Sums) -> Value {
    let row = |(names, sum): (&Vec<String>, &Sum)| {
        let done = &sum.activity;
        let mut row = json!({
            "sessions": sum.sessions,
            "launches": done.launches,
            "wait_seconds": done.wait_time as f64 / 1e9,
            "bytes_to_device": done.bytes_to_device,
            "bytes_from_device": done.bytes_from_device,
            "released_bytes": sum.released,
        });
        for (by, name) in by.iter().zip(names) {
            row[by.field()] = Value::from(name.as_str());
        }
        row
    };
    json!({ "server": name, "by": sums.iter().map(row).collect::<Vec<_>>() })
}

/// A server that does not answer, as JSON.
pub fn silent(name: &str, why: &str) -> Value {
    json!({ "server": name, "error": why })
}

fn of(session: &SessionStatus, rates: &Rates) -> Value {
    let done = &session.activity;
    json!({
        "session": session.session.to_string(),
        "program": &*session.program,
        "host": &*session.host,
        "process": session.process,
        "peer": &*session.peer,
        "client": &*session.owner.client,
        "group": &*session.group,
        "user": &*session.owner.user,
        "job": &*session.owner.job,
        "worker": session.worker,
        "parent": session.parent.map(|parent| parent.to_string()),
        "via": &*session.via,
        "open_seconds": seconds(session.open),
        "posted": done.posted,
        "called": done.called,
        "failed": done.failed,
        "launches": done.launches,
        "waits": done.waits,
        "wait_seconds": done.wait_time as f64 / 1e9,
        "bytes_to_device": done.bytes_to_device,
        "bytes_from_device": done.bytes_from_device,
        "gpudirect": session.gpudirect.is_available.then(|| gpudirect(session)),
        "state": if session.release.released.is_some() { "released" } else { "open" },
        "released_bytes": session.release.released.map(|(bytes, _)| bytes),
        "released_seconds": session.release.released.map(|(_, since)| seconds(since)),
        "release_refused": (!session.release.refused.is_empty()).then_some(&*session.release.refused),
        "per_second": {
            "commands": rates.commands,
            "launches": rates.launches,
            "bytes_to_device": rates.to_device,
            "bytes_from_device": rates.from_device,
            "waiting": rates.waiting,
        },
    })
}

/// What network cards have copied, and what of all copies was staged.
fn gpudirect(session: &SessionStatus) -> Value {
    let (direct, done) = (session.gpudirect, session.activity);
    json!({
        "on": direct.is_on,
        "bytes_to_device": direct.bytes_to_device,
        "bytes_from_device": direct.bytes_from_device,
        "staged_bytes_to_device": done.bytes_to_device.saturating_sub(direct.bytes_to_device),
        "staged_bytes_from_device": done.bytes_from_device.saturating_sub(direct.bytes_from_device),
    })
}

fn device(device: &DeviceStatus) -> Value {
    json!({
        "device": device.index,
        "name": &*device.name,
        "uuid": &*device.uuid,
        "memory_bytes": device.memory_total,
        "memory_used_bytes": device.memory_used,
        "utilization_percent": device.utilisation,
    })
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1e3
}
