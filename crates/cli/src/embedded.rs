//! How does a command bring its own server?

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use causeway_api::coverage::FINGERPRINT;
use causeway_fabric::Target;
use causeway_server::broker::{Broker, BrokerConfig, GpuChoice, RunningBroker, StartError};

use crate::logging::{self, Format, Level};

/// How long workers get to end by themselves when their client has ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// A server with the software GPU on a free loopback port, for the life of one command.
pub struct Embedded {
    broker: Option<RunningBroker>,
    target: Target,
}

impl Embedded {
    /// Starts the server. It says nothing unless something fails, or `verbose` is set.
    pub fn start(verbose: bool) -> Result<Self, StartError> {
        let level = if verbose { Level::Info } else { Level::Error };
        let logging = logging::Options { log: Format::Text, log_level: level };
        logging::start(&logging);
        let broker = Broker::start(BrokerConfig {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            gpu: GpuChoice::Cpu,
            worker_arguments: logging.of_worker(),
            ..BrokerConfig::new(FINGERPRINT)
        })?;
        Ok(Self { target: broker.target().clone(), broker: Some(broker) })
    }

    /// Where it listens.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let Some(broker) = self.broker.take() else { return };
        let deadline = Instant::now() + PATIENCE;
        while broker.sessions() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        broker.stop();
    }
}
