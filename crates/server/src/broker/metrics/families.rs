//! Prometheus metric definitions.
//!
//! The book's page "Watching it run" lists the families; a test compares.

use std::collections::BTreeMap;

use causeway_wire::status::DeviceStatus;

use super::text::Page;
use crate::activity::Counts;
use crate::broker::shared::Shared;
use crate::broker::totals::{Outcome, Refusal, via_label};

/// All that carries a session, as labels.
const VIAS: [&str; 4] = ["tcp", "shm", "verbs", "none"];

/// The page of a server.
pub fn page(shared: &Shared) -> String {
    let mut page = Page::default();
    server(&mut page, shared);
    // Sessions that end meanwhile are counted among neither, for one page, rather than among both.
    let ended = shared.totals.activity();
    let open = shared.sessions.activity();
    sessions(&mut page, shared, &open);
    work(&mut page, &added_up(ended, &open));
    devices(&mut page, &shared.gpus.now(&shared.monitor));
    page.finish()
}

fn server(page: &mut Page, shared: &Shared) {
    let version = env!("CARGO_PKG_VERSION");
    page.gauge("causeway_build_info", "The server's release.").sample(&[("version", version)], 1);
    page.gauge("causeway_uptime_seconds", "For how long the server has been running.")
        .sample(&[], shared.totals.running().as_secs_f64());
    page.gauge("causeway_draining", "1 while no new sessions are taken because the server ends.")
        .sample(&[], u8::from(shared.drain.is_started()));
    let (started, failed) = shared.totals.workers();
    page.counter("causeway_worker_starts_total", "Processes started for clients.").sample(&[], started);
    page.counter("causeway_worker_start_failures_total", "Processes for clients that could not be started.")
        .sample(&[], failed);
    page.histogram(
        "causeway_session_start_seconds",
        "From a client's request for a session to its worker's answer.",
    )
    .times(&[], &shared.totals.starts());
    let mut refusals = page.counter("causeway_refusals_total", "Callers that were turned away.");
    for why in Refusal::ALL {
        refusals.sample(&[("reason", why.label())], shared.totals.refusals(why));
    }
}

fn sessions(page: &mut Page, shared: &Shared, open: &[Counts]) {
    let mut now = page.gauge("causeway_sessions", "Open sessions.");
    for via in VIAS {
        let count = open.iter().filter(|counts| via_label(counts) == via).count();
        now.sample(&[("transport", via)], count);
    }
    page.gauge("causeway_sessions_limit", "Sessions that there may be.")
        .sample(&[], shared.admission.max_sessions());
    for name in renamed("causeway_sessions_started_total", "causeway_sessions_begun_total") {
        page.counter(name, "Sessions that have started.").sample(&[], shared.totals.sessions_started());
    }
    let (released, bytes) = shared.sessions.released();
    page.gauge(
        "causeway_sessions_released",
        "Open sessions whose device memory is on the host, since they are idle.",
    )
    .sample(&[], released);
    page.gauge("causeway_released_memory_bytes", "Device memory of sessions that is on the host.")
        .sample(&[], bytes);
    let (releases, returns) = shared.totals.memory_moves();
    page.histogram("causeway_memory_release_seconds", "How long device memory took to go to the host.")
        .times(&[], &releases);
    page.histogram(
        "causeway_memory_return_seconds",
        "How long device memory took to come back from the host.",
    )
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
    for via in VIAS {
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
    for name in renamed("causeway_call_duration_seconds", "causeway_call_seconds") {
        let text = "From the arrival of a command to its reply, where that does not wait for the GPU.";
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

fn devices(page: &mut Page, devices: &[DeviceStatus]) {
    page.gauge("causeway_devices", "Devices of which the monitor tells.").sample(&[], devices.len());
    let labels = |device: &DeviceStatus| (device.index.to_string(), device.uuid.to_string());
    let mut info = page.gauge("causeway_device_info", "What a device is.");
    for device in devices {
        let (index, uuid) = labels(device);
        info.sample(&[("device", &index), ("uuid", &uuid), ("name", &device.name)], 1);
    }
    let mut total = page.gauge("causeway_device_memory_bytes", "Memory of a device.");
    for device in devices {
        let (index, uuid) = labels(device);
        total.sample(&[("device", &index), ("uuid", &uuid)], device.memory_total);
    }
    let mut used = page.gauge("causeway_device_memory_used_bytes", "Memory of a device that is in use.");
    for device in devices {
        let (index, uuid) = labels(device);
        used.sample(&[("device", &index), ("uuid", &uuid)], device.memory_used);
    }
    let mut busy = page.gauge("causeway_device_utilization_ratio", "Part of the time in which kernels ran.");
    for device in devices {
        let (index, uuid) = labels(device);
        if let Some(percent) = device.utilisation {
            busy.sample(&[("device", &index), ("uuid", &uuid)], f64::from(percent) / 100.0);
        }
    }
}
