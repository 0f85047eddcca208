use super::*;
use Channel::{Bar, Ipc, Loopback, Staged, Tcp, Vmm};
use Traffic::{Bandwidth, Latency};

/// A start and so many bytes a nanosecond, both ways.
fn cost(start: f64, rate: f64) -> Cost {
    let curve = |start: f64| Curve::new([(1, start), (1 << 30, start + (1 << 30) as f64 / rate)]).unwrap();
    Cost { latency: curve(start), gap: curve(start / 4.0) }
}

fn unmeasured(channels: &[Channel]) -> Scheduler {
    Scheduler::new(channels.iter().map(|channel| (*channel, None)))
}

#[test]
fn the_published_table_is_the_start() {
    let mut scheduler = unmeasured(&[Bar, Loopback, Ipc]);
    let expected = [
        (1, Bar, Bar),
        (16, Bar, Bar),
        (17, Loopback, Loopback),
        (16 << 10, Loopback, Loopback),
        ((16 << 10) + 1, Ipc, Loopback),
        (512 << 10, Ipc, Loopback),
        ((512 << 10) + 1, Ipc, Ipc),
        (1 << 40, Ipc, Ipc),
    ];
    for (bytes, latency, bandwidth) in expected {
        for (traffic, channel) in [(Latency, latency), (Bandwidth, bandwidth)] {
            let choice = scheduler.choose(bytes, traffic);
            assert_eq!(choice, Some(Choice { channel, reason: Reason::Published }), "{bytes} {traffic:?}");
        }
    }
}

#[test]
fn what_is_not_there_is_replaced() {
    let mut isolated = unmeasured(&[Tcp, Staged, Vmm]);
    for bytes in [0, 1 << 10, 1 << 30] {
        let choice = isolated.choose(bytes, Latency);
        assert_eq!(choice, Some(Choice { channel: Vmm, reason: Reason::InsteadOfPublished }));
    }
    let only = unmeasured(&[Tcp]).choose(8, Latency);
    assert_eq!(only, Some(Choice { channel: Tcp, reason: Reason::Only }));
    assert_eq!(unmeasured(&[]).choose(8, Latency), None);
}

#[test]
fn measured_costs_decide_when_all_are_known() {
    let mut scheduler = Scheduler::new([(Staged, Some(cost(1_000.0, 20.0))), (Vmm, None)]);
    assert_eq!(scheduler.choose(8, Latency).map(|choice| choice.reason), Some(Reason::InsteadOfPublished));
    scheduler.measured(Vmm, cost(5_000.0, 390.0));
    let channel = |scheduler: &mut Scheduler, bytes| {
        let choice = scheduler.choose(bytes, Latency).unwrap();
        assert_eq!(choice.reason, Reason::Cheapest);
        choice.channel
    };
    assert_eq!(channel(&mut scheduler, 1 << 10), Staged);
    assert_eq!(channel(&mut scheduler, 1 << 20), Vmm);
}

#[test]
fn what_messages_take_corrects_what_was_measured() {
    let mut scheduler =
        Scheduler::new([(Staged, Some(cost(1_000.0, 20.0))), (Vmm, Some(cost(1_500.0, 390.0)))]);
    assert_eq!(scheduler.choose(64, Latency).unwrap().channel, Staged);
    // One that is twice as slow is chance; many are not.
    scheduler.observe(Staged, 64, Latency, 2_000.0);
    assert_eq!(scheduler.choose(64, Latency).unwrap().channel, Staged);
    for _ in 0..100 {
        scheduler.observe(Staged, 64, Latency, 4_000.0);
    }
    assert_eq!(scheduler.choose(64, Latency).unwrap().channel, Vmm);
    // Other sizes and the other kind of traffic are not concerned.
    assert_eq!(scheduler.choose(1_000, Latency).unwrap().channel, Staged);
    assert_eq!(scheduler.choose(64, Bandwidth).unwrap().channel, Staged);
    for nonsense in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
        scheduler.observe(Vmm, 64, Latency, nonsense);
    }
    assert_eq!(scheduler.choose(64, Latency).unwrap().channel, Vmm);
}

#[test]
fn a_small_advantage_changes_nothing() {
    let mut scheduler =
        Scheduler::new([(Ipc, Some(cost(1_000.0, 390.0))), (Vmm, Some(cost(1_010.0, 390.0)))]);
    assert_eq!(scheduler.choose(64, Latency).unwrap().channel, Ipc);
    for _ in 0..100 {
        scheduler.observe(Ipc, 64, Latency, 1_040.0);
    }
    assert_eq!(scheduler.choose(64, Latency), Some(Choice { channel: Ipc, reason: Reason::Kept }));
    for _ in 0..100 {
        scheduler.observe(Ipc, 64, Latency, 1_200.0);
    }
    assert_eq!(scheduler.choose(64, Latency), Some(Choice { channel: Vmm, reason: Reason::Cheapest }));
}
