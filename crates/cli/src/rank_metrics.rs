//! Metrics of MPI ranks: messages and bytes by channel, by GPUDirect and by staging, for Prometheus.

use causeway_comm::Channel;
use causeway_comm::live::{self, LiveCount, LiveRank};
use causeway_server::broker::metrics::Page;

/// Adds the ranks on this host that this process may look at, for a server whose metrics name sessions and their owners.
pub fn add_found(page: &mut Page) {
    // Where there is no /proc there are none.
    add_families(page, &live::ranks().unwrap_or_default());
}

/// Adds families of these ranks.
pub fn add_families(page: &mut Page, ranks: &[LiveRank]) {
    let mut messages = page.counter(
        "causeway_rank_messages_total",
        "Messages that a rank has received by a channel, or sent with the MPI (mpi).",
    );
    let labels = |rank: &LiveRank| (name(rank), rank.rank().to_string());
    for rank in ranks {
        let (job, number) = labels(rank);
        for (channel, count) in by_channel(rank) {
            messages.sample(&[("job", &job), ("rank", &number), ("channel", channel)], count.messages);
        }
    }
    let mut bytes = page.counter("causeway_rank_message_bytes_total", "Bytes of these messages.");
    for rank in ranks {
        let (job, number) = labels(rank);
        for (channel, count) in by_channel(rank) {
            bytes.sample(&[("job", &job), ("rank", &number), ("channel", channel)], count.bytes);
        }
    }
    for (family, help, count) in [
        (
            "causeway_rank_gpudirect_bytes_total",
            "Bytes that RDMA devices have moved straight between the memory of two GPUs.",
            LiveRank::gpudirect as fn(&LiveRank) -> LiveCount,
        ),
        (
            "causeway_rank_staged_bytes_total",
            "Bytes that a channel has brought through host memory, at one end or both.",
            LiveRank::staged,
        ),
    ] {
        let mut family = page.counter(family, help);
        for rank in ranks {
            let (job, number) = labels(rank);
            family.sample(&[("job", &job), ("rank", &number)], count(rank).bytes);
        }
    }
    let help = "1 for each channel that a rank may use now, and for GPUDirect.";
    let mut allowed = page.gauge("causeway_rank_channel_allowed", help);
    for rank in ranks {
        let (job, number) = labels(rank);
        let may_use = rank.channels();
        let channels = Channel::ALL.map(|channel| (channel.name(), may_use.contains(&channel)));
        for (channel, is_allowed) in channels.into_iter().chain([("gpudirect", rank.allows_gpudirect())]) {
            let labels = [("job", job.as_str()), ("rank", number.as_str()), ("channel", channel)];
            allowed.sample(&labels, u8::from(is_allowed));
        }
    }
}

/// What a job is called.
pub fn name(rank: &LiveRank) -> String {
    format!("{:016x}", rank.job())
}

/// What has carried messages: each channel, and the MPI.
pub fn by_channel(rank: &LiveRank) -> impl Iterator<Item = (&'static str, LiveCount)> {
    let channels = Channel::ALL.into_iter().map(|channel| (channel.name(), rank.count(Some(channel))));
    channels.chain([("mpi", rank.count(None))])
}
