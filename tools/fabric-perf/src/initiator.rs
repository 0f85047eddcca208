//! The end that measures: `fabric-perf --to HOST`.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use causeway_measure::machine::{self, Machine};
use causeway_measure::run::progress_bar;
use causeway_measure::schedule::interleaved;
use causeway_measure::statistics::Summary;

use crate::case::{Case, Setting};
use crate::control::{Control, ControlError, Reply, Request, VERSION};
use crate::endpoint::{Endpoint, EndpointError};
use crate::endpoints::Endpoints;
use crate::measure_error::MeasureError;
use crate::results::{Record, Run, Tool};
use crate::sweep::{Varied, settings, sweep};

/// What is to be measured.
#[derive(Debug)]
pub struct SweepSpec {
    /// The other end.
    pub to: SocketAddr,
    /// The device of this end, if it is named.
    pub device: Option<String>,
    /// What differs.
    pub varied: Vec<Varied>,
    /// What is measured with each setting.
    pub cases: Vec<Case>,
    /// How often.
    pub repetitions: u32,
    /// What measures them, in turns.
    pub tools: Vec<Tool>,
    /// The command line.
    pub command: String,
}

/// How long the other end may take to answer a connection.
const CONNECTING: Duration = Duration::from_secs(10);

/// Measures everything. Repetition i of a case is measured with every setting, and by perftest, before
/// repetition i + 1 with any, so that what disturbs the machines disturbs all alike.
pub fn measure(order: SweepSpec) -> Result<Run, MeasureError> {
    let SweepSpec { to, .. } = order;
    let connection =
        TcpStream::connect_timeout(&to, CONNECTING).map_err(|cause| MeasureError::Connect { to, cause })?;
    let local = connection.local_addr().map_err(ControlError::from)?.ip();
    let endpoint = Endpoint::open(order.device.as_deref(), local)?;
    let mut control = Control::new(connection).map_err(ControlError::from)?;
    let (far, far_mtu) = match control.ask(&Request::Hello { version: VERSION })? {
        Reply::Hello { version: VERSION, end, mtu } => (end, mtu),
        Reply::Hello { version, .. } => return Err(MeasureError::Version(version)),
        other => return Err(MeasureError::unexpected(&other)),
    };
    let mtu = endpoint.mtu().min(far_mtu);
    let sweeps: Vec<_> = order.varied.iter().map(|varied| sweep(*varied, mtu)).collect();
    let mut ends = Endpoints::new(control, &endpoint, to, local);
    let progress = progress_bar();
    progress.set_length(order.cases.len() as u64);
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    let mut tools = order.tools.clone();
    if endpoint.is_iwarp() && tools.contains(&Tool::Verbs) {
        tools.retain(|tool| *tool != Tool::Verbs);
        errors.push(EndpointError::Iwarp(endpoint.device().to_owned()).to_string());
    }
    for case in &order.cases {
        progress.set_message(case.to_string());
        let mut measured: Vec<(Setting, Tool, Vec<f64>)> = Vec::new();
        for setting in settings(&sweeps, case.quantity) {
            for tool in tools.iter().copied().filter(|tool| tool.measures(case.operation)) {
                let is_right = ends.check(setting, tool, *case);
                if or_error(is_right, &mut errors)?.is_some() {
                    measured.push((setting, tool, Vec::new()));
                }
            }
        }
        // What fails once is not tried for ever.
        interleaved(order.repetitions, measured.len(), |_, index| {
            let (setting, tool, samples) = &mut measured[index];
            let sample = or_error(ends.sample(*setting, *tool, *case), &mut errors)?;
            samples.extend(sample.flatten());
            Ok::<_, MeasureError>(sample.is_some())
        })?;
        for (setting, tool, samples) in measured {
            if let Some(summary) = Summary::of(&samples) {
                records.push(Record { case: *case, setting, tool, summary, samples });
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(Run {
        command: order.command,
        version: env!("CARGO_PKG_VERSION"),
        date: machine::now(),
        machine: Machine::this(),
        ends: [endpoint.end(), far],
        sweeps,
        records,
        errors,
    })
}

/// What fails with one case is noted, and there is no outcome of it; the next one may go well.
fn or_error<T>(
    outcome: Result<T, MeasureError>,
    errors: &mut Vec<String>,
) -> Result<Option<T>, MeasureError> {
    match outcome {
        Err(error @ (MeasureError::Case { .. } | MeasureError::Link { case: Some(_), .. })) => {
            errors.push(error.to_string());
            Ok(None)
        }
        other => other.map(Some),
    }
}
