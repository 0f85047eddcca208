//! `causeway pool`: the GPUs of a pool of servers, for people and for batch systems.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use causeway_access::current_user;
use causeway_config::table::{CUDA_VISIBLE_DEVICES, ON};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;
use thiserror::Error;

use crate::duration::seconds;
use crate::pool::{self, Gpu, Held, Holder, Lease, Pool, PoolError, Request, ServerState, names};
use crate::server::KeyArguments;

/// Give each program or job free GPUs of a pool of servers.
///
/// A pool is a folder, /etc/causeway/pools/NAME or what a link there leads to, with a file `servers` that
/// lists servers, one on each line: HOST:PORT, unix:PATH, or a name of the configuration files. `causeway run
/// --on pool:NAME` takes a free GPU for as long as its program runs. Batch systems take GPUs for a job, and
/// release them when it has ended. All who use the pool on a machine, or on several by a file system that
/// they share, must be able to write to its folder.
///
/// Leases are advisory: servers do not know of them, and `--on HOST` bypasses them.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show which GPUs are free and who has the others.
    Status {
        /// Pools. Default: all of /etc/causeway/pools.
        #[arg(value_name = "POOL")]
        pools: Vec<String>,
        /// Print JSON, a line for each pool.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        keys: KeyArguments,
    },
    /// Acquire GPUs for a job, and print the variables that its programs need. A job that already has GPUs
    /// keeps them.
    Acquire {
        /// The pool.
        pool: String,
        /// Name of the job, such as slurm-7.
        #[arg(long)]
        job: String,
        /// Number of GPUs.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
        gpus: u16,
        /// User who owns the job. Default: this user.
        #[arg(long)]
        user: Option<String>,
        /// Maximum time to wait until enough GPUs are free (seconds, or 90s, 10m, 2h).
        #[arg(long, value_name = "TIME", default_value_t = 0, value_parser = seconds::<0, 86_400>)]
        wait: u32,
        #[command(flatten)]
        keys: KeyArguments,
    },
    /// Hold GPUs until standard input ends, and print the variables that programs need: for a program that cannot be
    /// started by `causeway run`, such as a service or a notebook.
    Hold {
        /// The pool: its name, or `pool:NAME:GPUS` as for `causeway run --on`.
        pool: String,
        /// Number of GPUs, if POOL does not say it.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
        gpus: u16,
        /// Maximum time to wait until enough GPUs are free (seconds, or 90s, 10m, 2h).
        #[arg(long, value_name = "TIME", default_value_t = 0, value_parser = seconds::<0, 86_400>)]
        wait: u32,
        #[command(flatten)]
        keys: KeyArguments,
    },
    /// Release the GPUs of a job. A job without GPUs is not an error.
    Release {
        /// The pool.
        pool: String,
        /// The job.
        #[arg(long, required_unless_present = "unless_listed", conflicts_with = "unless_listed")]
        job: Option<String>,
        /// Release the GPUs of all jobs whose names begin with this prefix and that standard input does not
        /// list, one per line: jobs whose end was missed.
        #[arg(long, value_name = "PREFIX")]
        unless_listed: Option<String>,
    },
}

/// Why the command fails.
#[derive(Debug, Error)]
pub enum PoolCommandError {
    /// The pool cannot be used.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// There is no pool.
    #[error(
        "there is no pool: write the addresses of its servers, a line for each, to /etc/causeway/pools/NAME/servers"
    )]
    None,
    /// The list of jobs cannot be read.
    #[error("cannot read the list of jobs from standard input: {0}")]
    Read(io::Error),
    /// Standard input, whose end is waited for, cannot be read.
    #[error("cannot read standard input, so the GPUs are free again: {0}")]
    Hold(#[source] io::Error),
    /// The reader of what is printed is gone.
    #[error("cannot print: {0}")]
    Print(#[source] io::Error),
}

/// Does what is asked for.
pub fn pool(arguments: &Arguments) -> Result<ExitCode, PoolCommandError> {
    let mut out = io::stdout().lock();
    let mut print = |text: String| writeln!(out, "{text}").map_err(PoolCommandError::Print);
    match &arguments.action {
        Action::Status { pools, json, keys } => {
            let pools = if pools.is_empty() { names() } else { pools.clone() };
            if pools.is_empty() {
                return Err(PoolCommandError::None);
            }
            for name in pools {
                let pool = Pool::of(&name)?;
                let states = keys.query(&pool.servers()?);
                let leases = pool.leases()?;
                let text =
                    if *json { to_json(&pool, &states, &leases) } else { table(&pool, &states, &leases) };
                print(text)?;
            }
        }
        Action::Acquire { pool, job, gpus, user: of_user, wait, keys } => {
            let request = Request {
                holder: Holder::Job(job.clone()),
                user: of_user.clone().unwrap_or_else(current_user),
                gpus: usize::from(*gpus),
            };
            let held = acquire(pool, &request, *wait, keys)?;
            print(variables(&held.lease))?;
        }
        Action::Hold { pool, gpus, wait, keys } => {
            let named = pool::reference(pool)?;
            let (name, gpus) = match &named {
                Some(reference) => (reference.name, reference.gpus),
                None => (pool.as_str(), usize::from(*gpus)),
            };
            let request = Request { holder: Holder::this_process(), user: current_user(), gpus };
            let held = acquire(name, &request, *wait, keys)?;
            print(variables(&held.lease))?;
            // Its end is that of the program that has its other end.
            io::copy(&mut io::stdin(), &mut io::sink()).map_err(PoolCommandError::Hold)?;
        }
        Action::Release { pool, job: Some(job), .. } => {
            if Pool::of(pool)?.release(job)? {
                print(format!("the GPUs of the job {job} are free"))?;
            } else {
                // No error: a job's epilogue may come twice, or for a job that took none.
                let _ = writeln!(io::stderr(), "causeway: the job {job} has no GPUs of the pool {pool}");
            }
        }
        Action::Release { pool, job: None, unless_listed } => {
            let prefix = unless_listed.as_deref().unwrap_or_default();
            let list = io::read_to_string(io::stdin()).map_err(PoolCommandError::Read)?;
            let jobs: HashSet<String> = list.split_whitespace().map(str::to_owned).collect();
            for ended in Pool::of(pool)?.release_unless_among(prefix, &jobs)? {
                print(format!("{ended} has ended: its GPUs are free"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn acquire(pool: &str, request: &Request, wait: u32, keys: &KeyArguments) -> Result<Held, PoolError> {
    let wait = Duration::from_secs(u64::from(wait));
    Pool::of(pool)?.acquire(request, |servers| keys.query(servers), wait)
}

/// The variables that the programs of a lease need, one on each line.
fn variables(lease: &Lease) -> String {
    format!("{}={}\n{}={}", ON.name, lease.on, CUDA_VISIBLE_DEVICES.name, lease.devices)
}

/// How many GPUs of a server are taken.
fn taken(leases: &[Lease], server: &str) -> usize {
    let gpus = leases.iter().flat_map(|lease| &lease.gpus);
    gpus.filter(|gpu| gpu.server == server).count()
}

/// A time of a lease without fractions of a second; as it stands where it is none.
fn whole_seconds(time: &str) -> String {
    time.parse::<Timestamp>().map_or_else(|_| time.to_owned(), |time| format!("{time:.0}"))
}

fn table(pool: &Pool, states: &[ServerState], leases: &[Lease]) -> String {
    let mut lines = Vec::new();
    let (mut free, mut all) = (0, 0);
    for state in states {
        let line = match &state.devices {
            Ok(devices) => {
                let devices = *devices as usize;
                let of_server = devices.saturating_sub(taken(leases, &state.server));
                (free, all) = (free + of_server, all + devices);
                format!("  {}: {of_server} of {devices} GPUs free", state.server)
            }
            Err(_) => format!("  {}", state.reason().unwrap_or_default()),
        };
        lines.push(line);
    }
    lines.insert(0, format!("{}: {free} of {all} GPUs free", pool.name()));
    for Lease { holder, user, since, gpus, .. } in leases {
        let gpus: Vec<_> = gpus.iter().map(|Gpu { server, index }| format!("{server} GPU {index}")).collect();
        lines.push(format!("  {user}, {holder}, since {}: {}", whole_seconds(since), gpus.join(", ")));
    }
    lines.join("\n")
}

fn to_json(pool: &Pool, states: &[ServerState], leases: &[Lease]) -> String {
    let servers = states.iter().map(|state| {
        json!({
            "server": state.server,
            "gpus": state.devices.as_ref().ok(),
            "taken": taken(leases, &state.server),
            "error": state.devices.as_ref().err(),
        })
    });
    let of_lease = |lease: &Lease| {
        let gpus = lease.gpus.iter().map(|gpu| json!({ "server": gpu.server, "device": gpu.index }));
        json!({
            "holder": lease.holder.to_string(),
            "user": lease.user,
            "since": lease.since,
            "gpus": gpus.collect::<Vec<_>>(),
        })
    };
    let leases: Vec<_> = leases.iter().map(of_lease).collect();
    json!({ "pool": pool.name(), "servers": servers.collect::<Vec<_>>(), "leases": leases }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_leases_have_no_fractions() {
        assert_eq!(whole_seconds("2026-11-29T20:15:07.123456789Z"), "2026-11-29T20:15:07Z");
        assert_eq!(whole_seconds("yesterday"), "yesterday");
    }
}
