//! Endpoint pair: connection of both ends, and one repetition from the initiator.

use std::net::{IpAddr, SocketAddr};

use crate::case::{Case, MAX_MESSAGE_BYTES, Operation, Setting};
use crate::control::{Control, ControlError, Reply, Request};
use crate::endpoint::{Endpoint, EndpointError, Joined};
use crate::link::{Initiator, Intention, LinkFailure};
use crate::measure_error::MeasureError;
use crate::perftest;
use crate::results::Tool;

/// How often perftest is run again when it gives no figure.
const ATTEMPTS: usize = 3;

/// Both ends.
pub struct Endpoints<'a> {
    control: Control,
    endpoint: &'a Endpoint,
    to: SocketAddr,
    local: IpAddr,
    /// What joins them with each setting that was needed so far.
    joints: Vec<Joint<'a>>,
    /// Queue pairs joined so far.
    made: usize,
}

/// What joins the ends with one setting, as far as it was needed.
struct Joint<'a> {
    setting: Setting,
    /// With what the other end calls them: the so manieth that were joined.
    queue_pairs: Option<(usize, Joined<'a>)>,
    link: Option<Initiator>,
}

impl<'a> Endpoints<'a> {
    /// The other end is at `to`, this one has the address `local`.
    pub fn new(control: Control, endpoint: &'a Endpoint, to: SocketAddr, local: IpAddr) -> Self {
        Self { control, endpoint, to, local, joints: Vec::new(), made: 0 }
    }

    fn joint(&mut self, setting: Setting) -> &mut Joint<'a> {
        let known = self.joints.iter().position(|joint| joint.setting == setting);
        let index = known.unwrap_or_else(|| {
            self.joints.push(Joint { setting, queue_pairs: None, link: None });
            self.joints.len() - 1
        });
        &mut self.joints[index]
    }

    /// Carries one message and compares its content.
    pub fn check(&mut self, setting: Setting, tool: Tool, case: Case) -> Result<(), MeasureError> {
        let is_right = match tool {
            Tool::Verbs => self.with_queue_pairs(setting, |ends, number, joined| {
                ends.check_queue_pairs(number, joined, case)
            })?,
            Tool::Link => {
                let content = self.endpoint.content(case.bytes);
                self.with_link(setting, case, |link| link.check(case.operation, content))?
            }
            Tool::Perftest => true,
        };
        if is_right { Ok(()) } else { Err(MeasureError::Wrong { case, setting }) }
    }

    /// One repetition by a tool, as a sample in the case's unit; nothing where perftest gives no figure.
    pub fn sample(&mut self, setting: Setting, tool: Tool, case: Case) -> Result<Option<f64>, MeasureError> {
        let seconds = match tool {
            Tool::Verbs => {
                self.with_queue_pairs(setting, |ends, number, joined| ends.repetition(number, joined, case))?
            }
            Tool::Link => {
                let content = self.endpoint.content(case.bytes);
                self.with_link(setting, case, |link| link.measure(case, content))?
            }
            Tool::Perftest => return self.perftest(case, setting),
        };
        Ok(Some(case.sample(seconds)))
    }

    /// Does something with the queue pairs of a setting. Those that fail in it are given up: the next ones
    /// are new.
    fn with_queue_pairs<T>(
        &mut self,
        setting: Setting,
        something: impl FnOnce(&mut Self, usize, &Joined<'a>) -> Result<T, MeasureError>,
    ) -> Result<T, MeasureError> {
        let (number, joined) = match self.joint(setting).queue_pairs.take() {
            Some(known) => known,
            None => self.join(setting)?,
        };
        let outcome = something(self, number, &joined);
        if let Err(MeasureError::Case { .. }) = &outcome {
            // The other end may have waited longer, and says so.
            match self.end() {
                Ok(_) | Err(MeasureError::Control(ControlError::Refused(_))) => {}
                Err(other) => return Err(other),
            }
        } else {
            self.joint(setting).queue_pairs = Some((number, joined));
        }
        outcome
    }

    fn join(&mut self, setting: Setting) -> Result<(usize, Joined<'a>), MeasureError> {
        let mut joined = self.endpoint.queue_pairs(setting)?;
        let request = Request::Join { setting, queue_pairs: joined.ends(), memory: self.endpoint.memory() };
        match self.control.ask(&request)? {
            Reply::Joined { queue_pairs, memory } if queue_pairs.len() == joined.ends().len() => {
                joined.connect(&queue_pairs, memory)?;
                self.made += 1;
                Ok((self.made - 1, joined))
            }
            other => Err(MeasureError::unexpected(&other)),
        }
    }

    /// Does something with the link of a setting. One that fails in it is given up: the next one is new.
    fn with_link<T>(
        &mut self,
        setting: Setting,
        case: Case,
        something: impl FnOnce(&mut Initiator) -> Result<T, LinkFailure>,
    ) -> Result<T, MeasureError> {
        let mut link = match self.joint(setting).link.take() {
            Some(link) => link,
            None => self.make_link(setting)?,
        };
        let outcome = something(&mut link);
        if outcome.is_ok() {
            self.joint(setting).link = Some(link);
        }
        outcome.map_err(|cause| MeasureError::Link { case: Some(case), setting, cause })
    }

    fn make_link(&mut self, setting: Setting) -> Result<Initiator, MeasureError> {
        let failed = |cause| MeasureError::Link { case: None, setting, cause };
        let intention =
            Intention::new(setting, self.endpoint.device_for_links(), self.local).map_err(failed)?;
        let by_rdma_cm = intention.by_rdma_cm();
        let request = Request::Link { setting, by_rdma_cm };
        let port = match self.control.ask(&request)? {
            Reply::Listening { port } => port,
            other => return Err(MeasureError::unexpected(&other)),
        };
        let link = intention.join(SocketAddr::new(self.to.ip(), port)).map_err(failed)?;
        // SAFETY: the endpoint outlives what joins it.
        unsafe { link.register(self.endpoint.source(), MAX_MESSAGE_BYTES as usize) }.map_err(failed)?;
        Ok(link)
    }

    fn begin(&mut self, number: usize, case: Case, is_check: bool) -> Result<Option<u64>, MeasureError> {
        match self.control.ask(&Request::Work { joined: number, case, is_check })? {
            Reply::Ready { digest } => Ok(digest),
            other => Err(MeasureError::unexpected(&other)),
        }
    }

    fn end(&mut self) -> Result<Option<u64>, MeasureError> {
        match self.control.ask(&Request::Finished)? {
            Reply::Done { digest } => Ok(digest),
            other => Err(MeasureError::unexpected(&other)),
        }
    }

    fn check_queue_pairs(
        &mut self,
        number: usize,
        joined: &Joined<'_>,
        case: Case,
    ) -> Result<bool, MeasureError> {
        joined.forget(case.bytes);
        let started = self.begin(number, case, true)?;
        joined.stream(case.operation, case.bytes, 1).map_err(of_case(case, joined.setting()))?;
        let ended = self.end()?;
        let (sent, received) = match case.operation {
            Operation::Read => (started, Some(joined.digest_of_sink(case.bytes))),
            Operation::Send | Operation::Write => (Some(joined.digest_of_source(case.bytes)), ended),
        };
        Ok(sent.is_some() && sent == received)
    }

    /// The seconds of one message or round trip.
    fn repetition(&mut self, number: usize, joined: &Joined<'_>, case: Case) -> Result<f64, MeasureError> {
        if case.waits_for_marks() {
            joined.forget(case.bytes);
        }
        self.begin(number, case, false)?;
        let seconds = joined.measure(case).map_err(of_case(case, joined.setting()))?;
        self.end()?;
        Ok(seconds)
    }

    /// The same by perftest; nothing where it gives no figure, however often it is asked.
    fn perftest(&mut self, case: Case, setting: Setting) -> Result<Option<f64>, MeasureError> {
        for _ in 0..ATTEMPTS {
            let port = match self.control.ask(&Request::Perftest { case, setting })? {
                Reply::Listening { port } => port,
                other => return Err(MeasureError::unexpected(&other)),
            };
            let sample = perftest::measure(self.endpoint, case, setting, self.to.ip(), port)?;
            self.end()?;
            if sample.is_some() {
                return Ok(sample);
            }
        }
        Ok(None)
    }
}

/// Says of an error what was measured.
fn of_case(case: Case, setting: Setting) -> impl FnOnce(EndpointError) -> MeasureError {
    move |cause| MeasureError::Case { case, setting, cause }
}
