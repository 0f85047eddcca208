//! Prometheus metric definitions.
//!
//! The book's page "Watching it run" lists the families; a test compares.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use causeway_link::TransportKind;

use super::foreign_names;
use super::http::Response;
use super::peer_memory;
use super::text::{Family, Page};
use crate::activity::Counts;
use crate::admission::Source;
use crate::broker::gpus::MeasuredDevice;
use crate::broker::refusal::Refusal;
use crate::broker::sessions::OwnedSession;
use crate::broker::shared::Shared;
use crate::broker::totals::{NO_TRANSPORT, Outcome, via_label};

/// All that carries a session, as labels.
fn transport_labels() -> impl Iterator<Item = &'static str> {
    TransportKind::ALL.into_iter().map(TransportKind::name).chain([NO_TRANSPORT])
}

/// The answer of a server to a caller who asks for a path.
pub fn respond(path: &str, shared: &Shared) -> Response {
    match path {
        "/metrics" => Response::metrics(page(shared)),
        foreign_names::OTEL => Response::metrics(foreign_names::otel(&shared.gpus.measured(&shared.monitor))),
        foreign_names::DCGM => {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            Response::metrics(foreign_names::dcgm(&shared.gpus.measured(&shared.monitor), &host))
        }
        "/healthz" => Response::plain(200, "ok"),
        "/readyz" => match shared.not_ready() {
            None => Response::plain(200, "ready"),
            Some(why) => Response::plain(503, &why),
        },
        "/" => Response::plain(
            200,
            "/metrics, /metrics/otel, /metrics/dcgm, /healthz and /readyz are answered here",
        ),
        _ => Response::plain(
            404,
            "only /metrics, /metrics/otel, /metrics/dcgm, /healthz and /readyz are answered here",
        ),
    }
}

/// The page of a server.
fn page(shared: &Shared) -> Page {
    let mut page = Page::default();
    server(&mut page, shared);
    // Sessions that end meanwhile are counted among neither, for one page, rather than among both.
    let ended = shared.totals.activity();
    let open = shared.sessions.activity();
    sessions(&mut page, shared, &open);
    work(&mut page, &added_up(ended, &open));
    devices(&mut page, &shared.gpus.measured(&shared.monitor));
    if shared.config.metrics_sessions {
        owners(&mut page, shared.sessions.owned());
    }
    if let Some(add) = shared.config.further_metrics {
        add(&mut page);
    }
    peer_memory::families(&mut page, Path::new(peer_memory::FOLDER));
    page
}

/// The most sessions that are named.
const MAX_NAMED: usize = 512;
/// Those of one peer, so that none hides the others'.
const MAX_NAMED_PER_PEER: usize = 64;

/// The sessions that are named, the oldest ones, and how many are not.
fn named(open: Vec<OwnedSession>) -> (Vec<OwnedSession>, usize) {
    let count = open.len();
    let mut of_peer: HashMap<Source, usize> = HashMap::new();
    // Numbers are shown in part, and Prometheus takes no page with one sample twice.
    let mut numbers = HashSet::new();
    let mut named = open;
    named.retain(|session| {
        let held = of_peer.entry(session.source).or_default();
        let fits = *held < MAX_NAMED_PER_PEER && numbers.len() < MAX_NAMED;
        let is_named = fits && numbers.insert(session.session.to_string());
        *held += usize::from(is_named);
        is_named
    });
    let unnamed = count - named.len();
    (named, unnamed)
}

/// The open sessions one by one, and whose they are.
fn owners(page: &mut Page, open: Vec<OwnedSession>) {
    let (named, unnamed) = named(open);
    page.gauge(
        "causeway_sessions_unnamed",
        "Open sessions that are not listed here, since there are too many.",
    )
    .sample(&[], unnamed);
    let mut info = page.gauge("causeway_session_info", "Owner of an open session.");
    for OwnedSession { session, owner, .. } in &named {
        let (client, user, job) = (&owner.client, &owner.user, &owner.job);
        let session = session.to_string();
        info.sample(&[("session", &session), ("client", client), ("user", user), ("job", job)], 1);
    }
    let mut launches =
        page.counter("causeway_session_launches_total", "Launches of kernels and graphs of an open session.");
    for OwnedSession { session, counts, .. } in &named {
        launches.sample(&[("session", &session.to_string())], counts.launches);
    }
    let mut bytes = page.counter("causeway_session_copy_bytes_total", "Bytes of copies of an open session.");
    for OwnedSession { session, counts, .. } in &named {
        let session = session.to_string();
        bytes.sample(&[("session", &session), ("direction", "to_device")], counts.bytes_to_device);
        bytes.sample(&[("session", &session), ("direction", "from_device")], counts.bytes_from_device);
    }
    let text = "Bytes of copies of an open session that network cards have made by GPUDirect.";
    let mut direct = page.counter("causeway_session_gpudirect_bytes_total", text);
    for OwnedSession { session, counts, .. } in &named {
        let session = session.to_string();
        direct.sample(&[("session", &session), ("direction", "to_device")], counts.gpudirect_to_device);
        direct.sample(&[("session", &session), ("direction", "from_device")], counts.gpudirect_from_device);
    }
}

fn server(page: &mut Page, shared: &Shared) {
    let version = env!("CARGO_PKG_VERSION");
    page.gauge("causeway_build_info", "The server's release.").sample(&[("version", version)], 1);
    page.gauge("causeway_uptime_seconds", "Time since the server was started.")
        .sample(&[], shared.totals.running().as_secs_f64());
    page.gauge("causeway_draining", "1 while new sessions are refused because the server is being drained.")
        .sample(&[], u8::from(shared.drain.is_started()));
    let (started, failed) = shared.totals.workers();
    page.counter("causeway_worker_starts_total", "Processes started for clients.").sample(&[], started);
    page.counter("causeway_worker_start_failures_total", "Processes for clients that could not be started.")
        .sample(&[], failed);
    page.histogram(
        "causeway_session_start_seconds",
        "From a client's request for a session to its worker's response.",
    )
    .times(&[], &shared.totals.starts());
    let mut refusals = page.counter("causeway_refusals_total", "Refused connections.");
    for why in Refusal::ALL {
        refusals.sample(&[("reason", why.label())], shared.totals.refusals(why));
    }
}

fn sessions(page: &mut Page, shared: &Shared, open: &[Counts]) {
    let mut now = page.gauge("causeway_sessions", "Open sessions.");
    for via in transport_labels() {
        let count = open.iter().filter(|counts| via_label(counts) == via).count();
        now.sample(&[("transport", via)], count);
    }
    page.gauge("causeway_sessions_limit", "Maximum number of sessions.")
        .sample(&[], shared.admission.max_sessions());
    for name in renamed("causeway_sessions_started_total", "causeway_sessions_begun_total") {
        page.counter(name, "Sessions that have started.").sample(&[], shared.totals.sessions_started());
    }
    let (released, bytes) = shared.sessions.released();
    page.gauge("causeway_sessions_released", "Open idle sessions whose device memory is on the host.")
        .sample(&[], released);
    page.gauge("causeway_released_memory_bytes", "Device memory of sessions that is on the host.")
        .sample(&[], bytes);
    let (releases, returns) = shared.totals.memory_moves();
    page.histogram("causeway_memory_release_seconds", "Time to move device memory to the host.")
        .times(&[], &releases);
    page.histogram("causeway_memory_return_seconds", "Time to move device memory back from the host.")
        .times(&[], &returns);
    let mut ended = page.counter("causeway_sessions_ended_total", "Sessions that have ended.");
    for outcome in Outcome::ALL {
        ended.sample(&[("outcome", outcome.label())], shared.totals.ended(outcome));
    }
}

/// What all sessions have done, by what carries them.
fn added_up(mut ended: BTreeMap<&'static str, Counts>, open: &[Counts]) -> BTreeMap<&'static str, Counts> {
    for counts in open {
        ended.entry(via_label(counts)).or_default().merge(counts);
    }
    // A series that comes and goes is hard to take the rate of.
    for via in transport_labels() {
        ended.entry(via).or_default();
    }
    ended
}

fn work(page: &mut Page, done: &BTreeMap<&'static str, Counts>) {
    let mut calls = page.counter("causeway_commands_total", "Commands of clients.");
    for (via, counts) in done {
        calls.sample(&[("transport", via), ("kind", "posted")], counts.posted);
        calls.sample(&[("transport", via), ("kind", "called")], counts.called);
    }
    let mut failed = page.counter("causeway_commands_failed_total", "Commands that failed.");
    for (via, counts) in done {
        failed.sample(&[("transport", via)], counts.failed);
    }
    let mut launches = page.counter("causeway_launches_total", "Launches of kernels and graphs.");
    for (via, counts) in done {
        launches.sample(&[("transport", via)], counts.launches);
    }
    let mut copies = page.counter("causeway_copies_total", "Copies between clients and devices.");
    for (via, counts) in done {
        copies.sample(&[("transport", via), ("direction", "to_device")], counts.copies_to_device);
        copies.sample(&[("transport", via), ("direction", "from_device")], counts.copies_from_device);
    }
    let mut bytes = page.counter("causeway_copy_bytes_total", "Bytes of copies between clients and devices.");
    for (via, counts) in done {
        bytes.sample(&[("transport", via), ("direction", "to_device")], counts.bytes_to_device);
        bytes.sample(&[("transport", via), ("direction", "from_device")], counts.bytes_from_device);
    }
    let text =
        "Bytes of these copies that network cards have made by GPUDirect; over verbs the others were staged.";
    let mut direct = page.counter("causeway_gpudirect_bytes_total", text);
    for (via, counts) in done {
        direct.sample(&[("transport", via), ("direction", "to_device")], counts.gpudirect_to_device);
        direct.sample(&[("transport", via), ("direction", "from_device")], counts.gpudirect_from_device);
    }
    for name in renamed("causeway_call_duration_seconds", "causeway_call_seconds") {
        let text = "From the arrival of a command that does not wait for the GPU to its reply.";
        let mut times = page.histogram(name, text);
        for (via, counts) in done {
            times.times(&[("transport", via)], &counts.calls);
        }
    }
    for name in renamed("causeway_wait_duration_seconds", "causeway_wait_seconds") {
        let mut times =
            page.histogram(name, "From the arrival of a command that waits for the GPU to its reply.");
        for (via, counts) in done {
            times.times(&[("transport", via)], &counts.waits);
        }
    }
}

/// The name of a metric, and its former name, which goes with version 0.4.
fn renamed(name: &'static str, former: &'static str) -> [&'static str; 2] {
    [name, former]
}

fn devices(page: &mut Page, devices: &[MeasuredDevice]) {
    page.gauge("causeway_devices", "Devices that the monitor reports.").sample(&[], devices.len());
    let labels = |device: &MeasuredDevice| (device.status.index.to_string(), device.status.uuid.to_string());
    let mut info = page.gauge("causeway_device_info", "Information about a device.");
    for device in devices {
        let (index, uuid) = labels(device);
        info.sample(&[("device", &index), ("uuid", &uuid), ("name", &device.status.name)], 1);
    }
    let sample = |mut family: Family<'_>, value: &dyn Fn(&MeasuredDevice) -> Option<f64>| {
        for device in devices {
            let (index, uuid) = labels(device);
            if let Some(value) = value(device) {
                family.sample(&[("device", &index), ("uuid", &uuid)], value);
            }
        }
    };
    sample(page.gauge("causeway_device_memory_bytes", "Memory of a device."), &|device| {
        Some(device.status.memory_total as f64)
    });
    let used = page.gauge("causeway_device_memory_used_bytes", "Memory of a device that is in use.");
    sample(used, &|device| Some(device.status.memory_used as f64));
    let busy = page.gauge("causeway_device_utilization_ratio", "Fraction of time in which kernels ran.");
    sample(busy, &MeasuredDevice::utilization_ratio);
    let temperature = page.gauge("causeway_device_temperature_celsius", "Temperature of a device.");
    sample(temperature, &|device| device.sensors.temperature.map(f64::from));
    let power = page.gauge("causeway_device_power_watts", "Power that a device draws.");
    sample(power, &MeasuredDevice::watts);
    let energy = page.counter(
        "causeway_device_energy_joules_total",
        "Energy that a device has used since its driver was loaded.",
    );
    sample(energy, &MeasuredDevice::joules);
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::handshake::SessionId;
    use causeway_wire::status::SessionOwner;

    fn sessions(of: u32, numbers: core::ops::Range<u32>, owner: &SessionOwner) -> Vec<OwnedSession> {
        let session = |number: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            let source = Source::User(of);
            OwnedSession { session: SessionId(id), source, owner: owner.clone(), counts: Counts::default() }
        };
        numbers.map(session).collect()
    }

    #[test]
    fn no_peer_hides_the_sessions_of_others() {
        let owner = SessionOwner::default();
        let mut open = sessions(1, 0..200, &owner);
        open.extend(sessions(2, 200..203, &owner));
        // The same number again, as it is shown.
        open.extend(sessions(3, 202..203, &owner));
        let (few, unnamed) = named(open);
        assert_eq!((few.len(), unnamed), (MAX_NAMED_PER_PEER + 3, 200 - MAX_NAMED_PER_PEER + 1));
        let many = (0..20).flat_map(|of| sessions(of, of * 100..of * 100 + 60, &owner)).collect();
        assert_eq!(named(many).0.len(), MAX_NAMED);
    }

    #[test]
    fn hostile_names_neither_forge_samples_nor_fill_pages() {
        let job = format!("\"}} 7\ncauseway_draining 1\\{}", "x".repeat(5000));
        let owner = SessionOwner::new("ada", "eve\u{1b}[2J\"", &job);
        let mut page = Page::default();
        owners(&mut page, sessions(1, 5..6, &owner));
        let text = page.finish();
        assert!(text.lines().all(|line| !line.starts_with("causeway_draining")), "{text}");
        let info = text.lines().find(|line| line.starts_with("causeway_session_info")).unwrap();
        assert!(info.len() < 300 && !info.contains('\u{1b}') && info.ends_with("} 1"), "{info}");
        let user = "session=\"00000005\",client=\"ada\",user=\"eve\\\\u001b[2J\\\"\",job=\"\\\"} 7\\\\ncauseway_draining";
        assert!(info.contains(user), "{info}");
    }
}
