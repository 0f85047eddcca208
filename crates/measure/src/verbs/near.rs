//! The end that measures: `causeway bench verbs --to HOST`.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use thiserror::Error;

use super::case::{Case, Operation, Quantity, Setting};
use super::control::{Answer, Control, ControlError, Request, VERSION};
use super::endpoint::{Endpoint, EndpointError, Joined};
use super::perftest::{self, PerftestError};
use super::results::{Record, Run, Tool};
use super::sweep::{Varied, settings, sweep};
use crate::machine::{self, Machine};
use crate::statistics::Summary;

/// What is to be measured.
#[derive(Debug)]
pub struct Order {
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
    /// Whether perftest measures the same, in turns.
    pub perftest: bool,
    /// The command line.
    pub command: String,
    /// Causeway's version.
    pub version: String,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// Nobody answers.
    #[error("{to} cannot be reached: {cause}. Start `causeway bench verbs --listen` there first")]
    Connect {
        /// Where.
        to: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The other end fails.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// It speaks otherwise.
    #[error(
        "the other end is another version of causeway, whose bench verbs speaks version {0} and not {VERSION}"
    )]
    Version(u32),
    /// This end fails.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A case fails.
    #[error("{case} with {setting}: {cause}")]
    Case {
        /// What was measured.
        case: Case,
        /// With which setting.
        setting: Setting,
        /// What happened.
        cause: EndpointError,
    },
    /// perftest fails.
    #[error(transparent)]
    Perftest(#[from] PerftestError),
    /// Bytes were wrong.
    #[error("WRONG CONTENT: {case} with {setting}: what came is not what was sent")]
    Wrong {
        /// What was carried.
        case: Case,
        /// With which setting.
        setting: Setting,
    },
}

/// How often perftest is run again when it gives no figure.
const ATTEMPTS: usize = 3;

/// How long the other end may take to answer a connection.
const CONNECTING: Duration = Duration::from_secs(10);

/// Measures everything. Repetition i of a case is measured with every setting, and by perftest, before repetition i + 1 with any, so
/// that what disturbs the machines disturbs all alike.
pub fn measure(order: Order) -> Result<Run, MeasureError> {
    let Order { to, .. } = order;
    let connection =
        TcpStream::connect_timeout(&to, CONNECTING).map_err(|cause| MeasureError::Connect { to, cause })?;
    let local = connection.local_addr().map_err(ControlError::from)?.ip();
    let endpoint = Endpoint::open(order.device.as_deref(), local)?;
    let mut control = Control::new(connection).map_err(ControlError::from)?;
    let (far, far_mtu) = match control.ask(&Request::Hello { version: VERSION })? {
        Answer::Hello { version: VERSION, end, mtu } => (end, mtu),
        Answer::Hello { version, .. } => return Err(MeasureError::Version(version)),
        other => return Err(unexpected(&other)),
    };
    let mtu = endpoint.mtu().min(far_mtu);
    let sweeps: Vec<_> = order.varied.iter().map(|varied| sweep(*varied, mtu)).collect();
    let all = settings(&sweeps, Quantity::Bandwidth);
    let joined =
        all.iter().map(|setting| join(&mut control, &endpoint, *setting)).collect::<Result<Vec<_>, _>>()?;
    let mut ends =
        Ends { control, endpoint: &endpoint, joined, numbers: (0..all.len()).collect(), made: all.len() };
    let progress = progress(order.cases.len());
    let tools: &[Tool] = if order.perftest { &[Tool::Causeway, Tool::Perftest] } else { &[Tool::Causeway] };
    let mut records = Vec::new();
    let mut troubles = Vec::new();
    for case in &order.cases {
        progress.set_message(case.to_string());
        let mut measured = Vec::new();
        for setting in settings(&sweeps, case.quantity) {
            let index = all.iter().position(|one| *one == setting).expect("bandwidth has every setting");
            if ends.or_anew(index, &mut troubles, |ends| ends.check(index, *case))?.is_some() {
                measured.extend(tools.iter().map(|tool| (index, *tool, Vec::<f64>::new())));
            }
        }
        for _ in 0..order.repetitions {
            let mut lost = None;
            for (index, tool, samples) in &mut measured {
                let sample = match tool {
                    _ if lost == Some(*index) => None,
                    Tool::Causeway => {
                        let sample =
                            ends.or_anew(*index, &mut troubles, |ends| ends.repetition(*index, *case))?;
                        lost = lost.or(sample.is_none().then_some(*index));
                        sample
                    }
                    Tool::Perftest => ends.perftest(*case, all[*index], to)?,
                };
                samples.extend(sample);
            }
            measured.retain(|(index, _, _)| lost != Some(*index));
        }
        for (index, tool, samples) in measured {
            if let Some(summary) = Summary::of(&samples) {
                records.push(Record { case: *case, setting: all[index], tool, summary, samples });
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(Run {
        command: order.command,
        version: order.version,
        date: machine::now(),
        machine: Machine::this(),
        ends: [endpoint.end(), far],
        sweeps,
        records,
        troubles,
    })
}

fn progress(length: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    bar.with_style(style.expect("the template is one"))
}

fn unexpected(answer: &Answer) -> MeasureError {
    ControlError::Unexpected(format!("{answer:?}")).into()
}

fn join<'a>(
    control: &mut Control,
    endpoint: &'a Endpoint,
    setting: Setting,
) -> Result<Joined<'a>, MeasureError> {
    let mut joined = endpoint.queue_pairs(setting)?;
    let request = Request::Join { setting, queue_pairs: joined.ends(), memory: endpoint.memory() };
    match control.ask(&request)? {
        Answer::Joined { queue_pairs, memory } if queue_pairs.len() == joined.ends().len() => {
            joined.connect(&queue_pairs, memory)?;
            Ok(joined)
        }
        other => Err(unexpected(&other)),
    }
}

/// Says of an error what was measured.
fn of_case(case: Case, setting: Setting) -> impl FnOnce(EndpointError) -> MeasureError {
    move |cause| MeasureError::Case { case, setting, cause }
}

/// Both ends, joined.
struct Ends<'a> {
    control: Control,
    endpoint: &'a Endpoint,
    joined: Vec<Joined<'a>>,
    /// What the other end calls each of them: the so manieth that was joined.
    numbers: Vec<usize>,
    /// How many were joined.
    made: usize,
}

impl Ends<'_> {
    /// Does something with queue pairs. Where they fail in it, that is noted, they are made anew, and there is no outcome.
    fn or_anew<T>(
        &mut self,
        index: usize,
        troubles: &mut Vec<String>,
        something: impl FnOnce(&mut Self) -> Result<T, MeasureError>,
    ) -> Result<Option<T>, MeasureError> {
        match something(self) {
            Err(error @ MeasureError::Case { .. }) => {
                troubles.push(error.to_string());
                // The other end may have waited longer, and says so.
                match self.end() {
                    Ok(_) | Err(MeasureError::Control(ControlError::Refused(_))) => {}
                    Err(other) => return Err(other),
                }
                self.joined[index] = join(&mut self.control, self.endpoint, self.joined[index].setting())?;
                self.numbers[index] = self.made;
                self.made += 1;
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    fn begin(&mut self, index: usize, case: Case, is_check: bool) -> Result<Option<u64>, MeasureError> {
        let joined = self.numbers[index];
        match self.control.ask(&Request::Work { joined, case, is_check })? {
            Answer::Ready { digest } => Ok(digest),
            other => Err(unexpected(&other)),
        }
    }

    fn end(&mut self) -> Result<Option<u64>, MeasureError> {
        match self.control.ask(&Request::Finished)? {
            Answer::Done { digest } => Ok(digest),
            other => Err(unexpected(&other)),
        }
    }

    /// Carries one message and compares its content.
    fn check(&mut self, index: usize, case: Case) -> Result<(), MeasureError> {
        let joined = &self.joined[index];
        let setting = joined.setting();
        joined.forget(case.bytes);
        let begun = self.begin(index, case, true)?;
        let joined = &self.joined[index];
        joined.stream(case.operation, case.bytes, 1).map_err(of_case(case, setting))?;
        let (sent, came) = match case.operation {
            Operation::Read => (begun, Some(joined.digest_of_sink(case.bytes))),
            Operation::Send | Operation::Write => (Some(joined.digest_of_source(case.bytes)), None),
        };
        let came = came.or(self.end()?);
        if sent.is_some() && sent == came { Ok(()) } else { Err(MeasureError::Wrong { case, setting }) }
    }

    /// One repetition, as a sample in the case's unit.
    fn repetition(&mut self, index: usize, case: Case) -> Result<f64, MeasureError> {
        if case.waits_for_marks() {
            self.joined[index].forget(case.bytes);
        }
        self.begin(index, case, false)?;
        let joined = &self.joined[index];
        let seconds = joined.measure(case).map_err(of_case(case, joined.setting()))?;
        self.end()?;
        Ok(case.sample(seconds))
    }

    /// The same by perftest; nothing where it gives no figure, however often it is asked.
    fn perftest(
        &mut self,
        case: Case,
        setting: Setting,
        to: SocketAddr,
    ) -> Result<Option<f64>, MeasureError> {
        for _ in 0..ATTEMPTS {
            let port = match self.control.ask(&Request::Perftest { case, setting })? {
                Answer::Listening { port } => port,
                other => return Err(unexpected(&other)),
            };
            let sample = perftest::measure(self.endpoint, case, setting, to.ip(), port)?;
            self.end()?;
            if sample.is_some() {
                return Ok(sample);
            }
        }
        Ok(None)
    }
}
