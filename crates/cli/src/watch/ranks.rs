//! `causeway ranks`: messages and bytes of running MPI ranks by channel, and channels and GPUDirect
//! switched on and off.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use causeway_comm::Channel;
use causeway_comm::live::{self, LiveCount, LiveRank};
use causeway_server::broker::metrics::{self, Page, Respond, Response};
use clap::Args;
use serde_json::{Value, json};
use thiserror::Error;

use super::query::Switch;
use super::table::{bytes, short};
use crate::duration::fraction;
use crate::rank_metrics::{add_families, by_channel, name};
use crate::serve::metrics_address;

/// List the ranks of MPI jobs on this host whose messages of GPU memory Causeway carries, while they run:
/// messages and bytes by channel, and the channels that they may use.
///
/// Lists the ranks of your own processes, in any container; root sees all.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Restrict the ranks to these channels, among those of CAUSEWAY_COMM_CHANNELS, from their next message
    /// on: names separated by commas, or `all`. A channel that is switched off still carries what no other
    /// can.
    #[arg(long, value_name = "CHANNELS")]
    channels: Option<String>,
    /// Let RDMA devices access the memory of the ranks' GPUs where they can, or stage data through host
    /// memory, from the ranks' next message on. Each rank decides for its own end, as sender and as receiver.
    #[arg(long, value_enum)]
    gpudirect: Option<Switch>,
    /// List only the ranks of this job, given by its number in the list.
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// List only the rank with this number.
    #[arg(long, value_name = "RANK")]
    rank: Option<u64>,
    /// Print the list again after each interval (seconds, or 500ms, 90s, 10m), until the ranks have ended.
    #[arg(long, value_name = "TIME", value_parser = fraction::<3600>)]
    interval: Option<Duration>,
    /// Print JSON, a line for each rank.
    #[arg(long)]
    json: bool,
    /// Address of a metrics endpoint, HOST:PORT or :PORT, which serves /metrics in Prometheus' format until
    /// this command ends. It has no authentication: use a loopback address, or one of a monitoring network.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["channels", "gpudirect", "interval", "json"])]
    metrics: Option<String>,
}

/// Why ranks are not listed.
#[derive(Debug, Error)]
pub enum RanksError {
    /// A name.
    #[error(transparent)]
    Channel(#[from] causeway_comm::UnknownChannel),
    /// None is there.
    #[error(
        "no rank of a job that `causeway mpirun` started runs here as this user, or none of those named: \
         `causeway mpirun` must have this program's version"
    )]
    None,
    /// The processes of this host.
    #[error("cannot list the processes of this host: {0}")]
    Processes(#[source] io::Error),
    /// No address.
    #[error(transparent)]
    Address(#[from] crate::serve::ServeError),
    /// The address of metrics cannot be used.
    #[error("cannot serve metrics at {0}: {1}")]
    Metrics(SocketAddr, #[source] io::Error),
    /// Nothing can be printed.
    #[error("standard output failed: {0}")]
    Print(#[source] io::Error),
}

/// Lists the ranks, or switches their channels.
pub fn ranks(arguments: &Arguments) -> Result<ExitCode, RanksError> {
    if let Some(address) = &arguments.metrics {
        return serve(metrics_address(address)?, arguments);
    }
    let channels = arguments.channels.as_deref().map(parse).transpose()?;
    let mut ranks = find(arguments)?;
    if ranks.is_empty() {
        return Err(RanksError::None);
    }
    if let Some(channels) = channels {
        ranks.iter().for_each(|rank| rank.allow(&channels));
    }
    if let Some(switch) = arguments.gpudirect {
        ranks.iter().for_each(|rank| rank.allow_gpudirect(switch == Switch::On));
    }
    loop {
        let mut out = io::stdout().lock();
        for rank in &ranks {
            let line = if arguments.json { to_json(rank).to_string() } else { to_text(rank) };
            writeln!(out, "{line}").map_err(RanksError::Print)?;
        }
        drop(out);
        let Some(interval) = arguments.interval else { return Ok(ExitCode::SUCCESS) };
        std::thread::sleep(interval);
        ranks = find(arguments)?;
        if ranks.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn find(arguments: &Arguments) -> Result<Vec<LiveRank>, RanksError> {
    let found = live::ranks().map_err(RanksError::Processes)?;
    Ok(found.into_iter().filter(|rank| is_selected(rank, arguments.job.as_deref(), arguments.rank)).collect())
}

fn is_selected(found: &LiveRank, job: Option<&str>, rank: Option<u64>) -> bool {
    job.is_none_or(|job| job == name(found)) && rank.is_none_or(|rank| rank == found.rank())
}

/// The ranks on this host below a heading, for `causeway top` and `causeway sessions`; nothing where there
/// are none.
pub fn table() -> Vec<String> {
    // Where processes cannot be listed there is nothing to show beside the servers.
    let ranks = live::ranks().unwrap_or_default();
    let heading = (!ranks.is_empty()).then(|| "Ranks of MPI jobs on this host:".to_owned());
    heading.into_iter().chain(ranks.iter().map(to_text)).collect()
}

/// Answers HTTP with the ranks that run at each time.
fn serve(address: SocketAddr, arguments: &Arguments) -> Result<ExitCode, RanksError> {
    let failed = |error| RanksError::Metrics(address, error);
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let own = listener.local_addr().map_err(failed)?;
    // Nobody ends it but a signal.
    let (_stop, stopped) = UnixStream::pair().map_err(failed)?;
    writeln!(io::stdout(), "metrics: http://{own}/metrics").map_err(RanksError::Print)?;
    let (job, rank) = (arguments.job.clone(), arguments.rank);
    let respond: Arc<Respond> = Arc::new(move |path: &str| match path {
        "/metrics" => match live::ranks() {
            Ok(mut ranks) => {
                ranks.retain(|found| is_selected(found, job.as_deref(), rank));
                let mut page = Page::default();
                add_families(&mut page, &ranks);
                Response::metrics(page)
            }
            Err(error) => Response::plain(503, &RanksError::Processes(error).to_string()),
        },
        "/healthz" => Response::plain(200, "ok"),
        "/" => Response::plain(200, "/metrics and /healthz are answered here"),
        _ => Response::plain(404, "only /metrics and /healthz are answered here"),
    });
    metrics::serve(&listener, &stopped, &respond);
    Ok(ExitCode::SUCCESS)
}

fn parse(text: &str) -> Result<Vec<Channel>, RanksError> {
    if text == "all" {
        return Ok(Channel::ALL.to_vec());
    }
    Ok(text.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>()?)
}

/// The same, and which of them used GPUDirect, and which passed through host memory.
fn counts(rank: &LiveRank) -> Vec<(&'static str, LiveCount)> {
    by_channel(rank).chain([("gpudirect", rank.gpudirect()), ("through_host", rank.staged())]).collect()
}

fn to_text(rank: &LiveRank) -> String {
    let count = |(name, LiveCount { messages, bytes: sum }): (&str, LiveCount)| {
        format!("{name} {} ({})", short(messages as f64), bytes(sum as f64))
    };
    let counts: Vec<_> =
        counts(rank).into_iter().filter(|(_, count)| count.messages > 0).map(count).collect();
    let counts = if counts.is_empty() { "no messages".to_owned() } else { counts.join(", ") };
    let channels: Vec<_> = rank.channels().into_iter().map(Channel::name).collect();
    let (name, number, ranks, process) = (name(rank), rank.rank(), rank.ranks(), rank.process);
    format!(
        "job {name}, rank {number} of {ranks}, process {process}: {counts}; may use {}{}",
        channels.join(","),
        if rank.allows_gpudirect() { "" } else { ", without GPUDirect" }
    )
}

fn to_json(rank: &LiveRank) -> Value {
    let count = |(name, LiveCount { messages, bytes }): (&str, LiveCount)| {
        (name.to_owned(), json!({ "messages": messages, "bytes": bytes }))
    };
    json!({
        "job": name(rank),
        "rank": rank.rank(),
        "ranks": rank.ranks(),
        "process": rank.process,
        "messages": counts(rank).into_iter().map(count).collect::<serde_json::Map<_, _>>(),
        "gpudirect": rank.allows_gpudirect(),
        "channels": rank.channels().into_iter().map(Channel::name).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use causeway_comm::settings::Settings;
    use causeway_comm::{Job, World};
    use causeway_config::Environment;

    use super::*;

    /// A rank of this process, without a GPU, that has counted something; and the number of its job.
    fn rank(folder: &std::path::Path) -> (World, String) {
        let nonce = Job::random_nonce().unwrap();
        let set = |name: &str| match name {
            "CAUSEWAY_SOCKET_DIR" => Some(OsString::from(folder)),
            "CAUSEWAY_CACHE_DIR" => Some(OsString::new()),
            "CAUSEWAY_COMM_CHANNELS" => Some(OsString::from("vmm,staged,rdma")),
            _ => None,
        };
        let world = World::join(nonce, 1, 2, Settings::read(Environment::of(&set)).unwrap()).unwrap();
        world.count_mapped(0, Channel::Vmm, 1000);
        world.count_mapped(0, Channel::Vmm, 24);
        (world, format!("{:016x}", Job::new(nonce, 2).unwrap().tag()))
    }

    fn arguments(job: &str) -> Arguments {
        Arguments {
            channels: None,
            gpudirect: None,
            job: Some(job.to_owned()),
            rank: None,
            interval: None,
            json: false,
            metrics: None,
        }
    }

    #[test]
    fn a_rank_is_shown_everywhere_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (world, job) = rank(folder.path());
        let found = find(&arguments(&job)).unwrap();
        let text = format!("job {job}, rank 1 of 2, process {}: vmm 2 (1.0 KiB)", std::process::id());
        let may_use = "may use vmm,staged,rdma";
        assert_eq!(to_text(&found[0]), format!("{text}; {may_use}"));
        let table = table();
        assert_eq!(table[0], "Ranks of MPI jobs on this host:");
        assert!(table.iter().any(|line| line.starts_with(&text)), "{table:?}");
        let mut page = Page::default();
        add_families(&mut page, &found);
        let page = page.finish();
        for line in [
            format!("causeway_rank_messages_total{{job=\"{job}\",rank=\"1\",channel=\"vmm\"}} 2"),
            format!("causeway_rank_message_bytes_total{{job=\"{job}\",rank=\"1\",channel=\"vmm\"}} 1024"),
            format!("causeway_rank_message_bytes_total{{job=\"{job}\",rank=\"1\",channel=\"mpi\"}} 0"),
            format!("causeway_rank_staged_bytes_total{{job=\"{job}\",rank=\"1\"}} 0"),
            format!("causeway_rank_channel_allowed{{job=\"{job}\",rank=\"1\",channel=\"ipc\"}} 0"),
            format!("causeway_rank_channel_allowed{{job=\"{job}\",rank=\"1\",channel=\"gpudirect\"}} 1"),
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
        }
        drop(world);
        assert!(find(&arguments(&job)).unwrap().is_empty());
    }

    #[test]
    fn channels_and_gpudirect_are_switched_each_for_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (_world, job) = rank(folder.path());
        let switch = |channels: Option<&str>, gpudirect| {
            let channels = channels.map(str::to_owned);
            ranks(&Arguments { channels, gpudirect, ..arguments(&job) }).unwrap();
            to_text(&find(&arguments(&job)).unwrap()[0])
        };
        let off = switch(None, Some(Switch::Off));
        assert!(off.ends_with("may use vmm,staged,rdma, without GPUDirect"), "{off}");
        let fewer = switch(Some("rdma"), None);
        assert!(fewer.ends_with("may use rdma, without GPUDirect"), "{fewer}");
        let all = switch(Some("all"), Some(Switch::On));
        assert!(all.ends_with("may use vmm,staged,rdma"), "{all}");
        let json = to_json(&find(&arguments(&job)).unwrap()[0]);
        assert_eq!((&json["gpudirect"], &json["messages"]["vmm"]["bytes"]), (&json!(true), &json!(1024)));
        let other = Arguments { rank: Some(0), ..arguments(&job) };
        assert!(matches!(ranks(&other), Err(RanksError::None)));
    }
}
