//! perftest's programs, run beside, and their parsed results.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::case::{Case, Operation, Quantity, Setting};
use crate::endpoint::Endpoint;

/// How long one of them may take.
const PERFTEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Round trips of its latency tests.
const ROUND_TRIPS: u32 = 200;

/// Why there is no figure of perftest.
#[derive(Debug, Error)]
pub enum PerftestError {
    /// It is not installed.
    #[error(
        "{program} is not installed on {host}: it comes with perftest (`apt-get install perftest`, `dnf install perftest`)"
    )]
    NotInstalled {
        /// The program.
        program: &'static str,
        /// The machine.
        host: String,
    },
    /// It does not start.
    #[error("cannot run {program}: {cause}")]
    Start {
        /// The program.
        program: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// It fails.
    #[error("{program} failed: {output}")]
    Failed {
        /// The program.
        program: &'static str,
        /// Its last lines.
        output: String,
    },
}

/// The program that measures a case.
fn program(case: Case) -> &'static str {
    match (case.operation, case.quantity) {
        (Operation::Send, Quantity::Bandwidth) => "ib_send_bw",
        (Operation::Read, Quantity::Bandwidth) => "ib_read_bw",
        (Operation::Write, Quantity::Bandwidth) => "ib_write_bw",
        (Operation::Send, Quantity::Latency) => "ib_send_lat",
        (Operation::Read, Quantity::Latency) => "ib_read_lat",
        (Operation::Write, Quantity::Latency) => "ib_write_lat",
    }
}

/// The device that it goes over.
struct DevicePort<'a> {
    device: &'a str,
    gid: u32,
    is_iwarp: bool,
}

impl<'a> DevicePort<'a> {
    fn of(endpoint: &'a Endpoint) -> Self {
        Self { device: endpoint.device(), gid: endpoint.gid_index(), is_iwarp: endpoint.is_iwarp() }
    }
}

/// Bytes that each of its queue pairs carries of a message: perftest splits none, so that it is asked for
/// parts.
fn part(case: Case, setting: Setting) -> u64 {
    match case.quantity {
        Quantity::Bandwidth => case.bytes.div_ceil(setting.queue_pairs.into()),
        Quantity::Latency => case.bytes,
    }
}

/// Its arguments but for the server's address: as many messages as Causeway carries in a repetition, with the
/// same setting.
fn arguments(case: Case, setting: Setting, through: &DevicePort<'_>, port: u16) -> Vec<String> {
    let Setting { queue_pairs, capacity, mtu } = setting;
    let DevicePort { device, gid, is_iwarp } = *through;
    let mut options = vec![("-d", device.to_owned())];
    let mut number = |name, value: u32| options.push((name, value.to_string()));
    number("-p", port.into());
    if !is_iwarp {
        number("-x", gid);
        number("-m", mtu);
    }
    match case.quantity {
        Quantity::Bandwidth => {
            number("-q", queue_pairs);
            number("-t", capacity);
            number("-n", case.messages().max(5));
            if case.operation == Operation::Send {
                number("-r", (2 * capacity).clamp(64, 512));
            }
        }
        Quantity::Latency => number("-n", ROUND_TRIPS),
    }
    options.push(("-s", part(case, setting).to_string()));
    let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    // -R: iWARP's queue pairs are joined by rdma_cm alone.
    let manager = if is_iwarp { &["-R"][..] } else { &[] };
    // -F: a processor whose clock varies is no reason not to measure.
    let flags = if case.quantity == Quantity::Bandwidth { &["-F", "--report_gbits"][..] } else { &["-F"] };
    options.chain(flags.iter().chain(manager).map(|flag| (*flag).to_owned())).collect()
}

fn start(command: &mut Command, program: &'static str) -> Result<Child, PerftestError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => {
            PerftestError::NotInstalled { program, host: causeway_measure::machine::Machine::this().host }
        }
        _ => PerftestError::Start { program, cause },
    })
}

/// One of its programs that waits for a client, and is ended with this value.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts it, and waits until it listens.
    pub fn start(endpoint: &Endpoint, case: Case, setting: Setting) -> Result<Self, PerftestError> {
        let program = program(case);
        let failed = |cause| PerftestError::Start { program, cause };
        // A port that is free now is the best guess at one that is free in a moment.
        let port = TcpListener::bind("0.0.0.0:0").and_then(|free| free.local_addr()).map_err(failed)?.port();
        let mut command = Command::new(program);
        command.args(arguments(case, setting, &DevicePort::of(endpoint), port));
        let mut server = Self { child: start(&mut command, program)?, port };
        let deadline = Instant::now() + PERFTEST_TIMEOUT;
        while !listens(port) {
            if server.child.try_wait().map_err(failed)?.is_some() || Instant::now() > deadline {
                return Err(PerftestError::Failed { program, output: server.remaining_output() });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn remaining_output(&mut self) -> String {
        // It ends by itself when its client does; else there is nothing more to expect of it.
        let _ = self.child.kill();
        let mut output = String::new();
        for pipe in [
            self.child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn io::Read>),
            self.child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn io::Read>),
        ]
        .into_iter()
        .flatten()
        {
            let _ = io::Read::read_to_string(&mut io::BufReader::new(pipe), &mut output);
        }
        tail(&output)
    }

    /// Ends it.
    pub fn end(mut self) {
        self.remaining_output();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether somebody listens at a TCP port of this machine.
fn listens(port: u16) -> bool {
    // A line of the table is `sl local_address rem_address st ...`; state 0A is listening.
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let is_port = words.next().is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
            is_port && words.nth(1) == Some("0A")
        })
    })
}

/// Runs it as the client of a server, and returns its sample in the case's unit; none where it could not
/// tell, as happens when it misjudges the processor's clock.
pub fn measure(
    endpoint: &Endpoint,
    case: Case,
    setting: Setting,
    server: IpAddr,
    port: u16,
) -> Result<Option<f64>, PerftestError> {
    let program = program(case);
    let mut command = Command::new(program);
    command.args(arguments(case, setting, &DevicePort::of(endpoint), port));
    command.arg(server.to_string());
    let output = start(&mut command, program)?
        .wait_with_output()
        .map_err(|cause| PerftestError::Start { program, cause })?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let all = format!("{printed}\n{}", String::from_utf8_lossy(&output.stderr));
        return Err(PerftestError::Failed { program, output: tail(&all) });
    }
    Ok(sample(case.quantity, part(case, setting), &printed))
}

/// The last lines that say something.
fn tail(output: &str) -> String {
    let lines: Vec<_> = output.lines().filter(|line| line.chars().any(char::is_alphanumeric)).collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}

/// The figure in what it says: the average bandwidth, or the typical latency.
fn sample(quantity: Quantity, bytes: u64, output: &str) -> Option<f64> {
    let numbers =
        |line: &str| -> Option<Vec<f64>> { line.split_whitespace().map(|word| word.parse().ok()).collect() };
    let plots =
        output.lines().rev().filter_map(numbers).find(|plots| plots.first() == Some(&(bytes as f64)))?;
    let value = match quantity {
        // bytes, iterations, peak, average (Gbit/s), messages (millions a second)
        Quantity::Bandwidth => plots.get(3)? / 8.0,
        // bytes, iterations, least, most, typical, average, deviation, 99 %, 99.9 % (us)
        Quantity::Latency => *plots.get(4)?,
    };
    (value.is_finite() && value > 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(operation: Operation, quantity: Quantity, bytes: u64) -> Case {
        Case { operation, quantity, bytes }
    }

    #[test]
    fn figures_are_found_in_what_it_says() {
        let bandwidth = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n \
            65536      256              2.48               1.60   \t\t   0.003052\n-----\n";
        let found = sample(Quantity::Bandwidth, 65536, bandwidth).unwrap();
        assert!((found - 0.2).abs() < 1e-9, "{found}");
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n \
            2       200          21.31          107.26       26.42    \t       27.64       \t5.10\t\t53.05   \t\t107.26\n";
        let found = sample(Quantity::Latency, 2, latency);
        assert_eq!(found, Some(26.42));
        for nothing in ["", " 2 200 0.00 0.00 0.00 0.00\n", " 2 200 inf inf inf inf\n"] {
            assert_eq!(sample(Quantity::Latency, 2, nothing), None);
        }
    }

    #[test]
    fn the_same_setting_is_asked_for() {
        let setting = Setting { queue_pairs: 2, capacity: 16, mtu: 1024 };
        let through = DevicePort { device: "rxe1", gid: 1, is_iwarp: false };
        let text = |operation, quantity| {
            arguments(case(operation, quantity, 4096), setting, &through, 5000).join(" ")
        };
        assert_eq!(
            text(Operation::Send, Quantity::Bandwidth),
            "-d rxe1 -p 5000 -x 1 -m 1024 -q 2 -t 16 -n 1024 -r 64 -s 2048 -F --report_gbits"
        );
        assert_eq!(
            text(Operation::Read, Quantity::Latency),
            "-d rxe1 -p 5000 -x 1 -m 1024 -n 200 -s 4096 -F"
        );
    }
}
