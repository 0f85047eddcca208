//! `causeway ranks`: messages and bytes of running MPI ranks by channel, and channels switched on and off.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use causeway_comm::Channel;
use causeway_comm::live::{self, LiveCount, LiveRank};
use clap::Args;
use serde_json::{Value, json};
use thiserror::Error;

use super::table::{bytes, short};
use crate::duration::fraction;

/// List the ranks of MPI jobs on this host whose messages of GPU memory Causeway carries, while they run: messages and
/// bytes by channel, and the channels that they may use.
///
/// Shows the ranks of one's own processes, in any container; root sees all.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Let the ranks use these channels alone, of those that CAUSEWAY_COMM_CHANNELS has for them, from their next message
    /// on: names with commas between them, or `all`. One that is switched off still carries what no other can.
    #[arg(long, value_name = "CHANNELS")]
    channels: Option<String>,
    /// The ranks of this job alone, by its number in the list.
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// The rank of this number alone.
    #[arg(long, value_name = "RANK")]
    rank: Option<u64>,
    /// Print it again after each interval (seconds, or 500ms, 90s, 10m), until the ranks have ended.
    #[arg(long, value_name = "TIME", value_parser = fraction::<3600>)]
    interval: Option<Duration>,
    /// Print JSON, a line for each rank.
    #[arg(long)]
    json: bool,
}

/// Why ranks are not listed.
#[derive(Debug, Error)]
pub enum RanksError {
    /// A name.
    #[error(transparent)]
    Channel(#[from] causeway_comm::UnknownChannel),
    /// None is there.
    #[error(
        "no rank of a job that `causeway mpirun` started runs here as this user, or none of those that are named: `causeway mpirun` \
         must be of this program's version"
    )]
    None,
    /// The processes of this host.
    #[error("the processes of this host cannot be listed: {0}")]
    Processes(#[source] io::Error),
    /// Nothing can be printed.
    #[error("standard output failed: {0}")]
    Print(#[source] io::Error),
}

/// Lists the ranks, or switches their channels.
pub fn ranks(arguments: &Arguments) -> Result<ExitCode, RanksError> {
    let channels = arguments.channels.as_deref().map(parse).transpose()?;
    let mut ranks = find(arguments)?;
    if ranks.is_empty() {
        return Err(RanksError::None);
    }
    if let Some(channels) = channels {
        ranks.iter().for_each(|rank| rank.allow(&channels));
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
    let Arguments { job, rank, .. } = arguments;
    let is_meant = |found: &LiveRank| {
        job.as_ref().is_none_or(|job| *job == name(found)) && rank.is_none_or(|rank| rank == found.rank())
    };
    Ok(live::ranks().map_err(RanksError::Processes)?.into_iter().filter(is_meant).collect())
}

fn parse(text: &str) -> Result<Vec<Channel>, RanksError> {
    if text == "all" {
        return Ok(Channel::ALL.to_vec());
    }
    Ok(text.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>()?)
}

/// What a job is called.
fn name(rank: &LiveRank) -> String {
    format!("{:016x}", rank.job())
}

/// What has carried messages: each channel, and the MPI.
fn counts(rank: &LiveRank) -> Vec<(&'static str, LiveCount)> {
    let channels = Channel::ALL.into_iter().map(|channel| (channel.name(), rank.count(Some(channel))));
    channels.chain([("mpi", rank.count(None)), ("gpudirect", rank.gpudirect())]).collect()
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
        "job {name}, rank {number} of {ranks}, process {process}: {counts}; may use {}",
        channels.join(",")
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
        "channels": rank.channels().into_iter().map(Channel::name).collect::<Vec<_>>(),
    })
}
