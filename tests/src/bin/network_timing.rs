//! `make net-test`: speed over networks of known rate and latency, beside iperf3 on the same network.
//!
//! Client and server run in two network namespaces of this machine, on the software GPU, with a key, as every
//! server has that other machines can reach. What is compared is measured in turns, since the speed of a
//! shared machine varies from minute to minute. A rate is the median of its turns; the time of a program,
//! which takes less than a scheduler's whim on a busy machine, is that of the quarter of its turns that were
//! disturbed least. Prints a report in Markdown.

use causeway_measure::statistics::percentile;
use causeway_tests::built::cuda_program;
use causeway_tests::client::through_run;
use causeway_tests::network::{Cable, Network, SERVER, Side};
use causeway_tests::process::{Running, run};
use causeway_tests::server::Server;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Turns in which rates are compared.
const RATE_TURNS: usize = 5;

/// Turns in which the time of a program is compared with what it takes on a network without delay.
const PROGRAM_TURNS: usize = 41;

/// How often iperf3 is tried before a measurement is given up.
const IPERF_TRIES: usize = 5;

/// The length of a copy.
const COPIED_MIB: u32 = 256;

/// The part of iperf3's rate that the bytes of a copy must reach.
///
/// Each copy is waited for: a round trip passes in which its first bytes, or the question for them, and the
/// answer to its last are under way. iperf3 streams for seconds and waits for nothing, so that round trip is
/// taken off the time of a copy before the two are compared. At 10 Gbit/s and 20 ms it is 8 % of the copy; a
/// network that is not filled shows in what is left.
const RATE_REQUIRED: f64 = 0.95;

/// Round trips that the program may take longer than without delay.
const ROUND_TRIPS_ALLOWED: f64 = 18.0;

/// A network with a server and an iperf3 at its far side.
struct Site {
    server: Server,
    _iperf: Running,
    network: Network,
}

impl Site {
    fn new(cable: Cable<'_>, folder: &Path) -> Result<Self, String> {
        let network = Network::lay(cable)?;
        let cache = folder.join("cache");
        let server = network.server(folder, &["--cache-dir", cache.to_str().ok_or("a strange folder")?]);
        let iperf = Running::start(&mut network.inside(Side::Server, Command::new("iperf3").arg("-s")));
        Ok(Self { server, _iperf: iperf, network })
    }

    fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = through_run(Some(&self.server.connect_string()), &cuda_program(name));
        command.args(arguments);
        self.network.inside(Side::Client, &command)
    }

    /// What iperf3 carries over `lanes` connections in 3 s, in MB/s: to the server, or from it.
    fn iperf(&self, lanes: u32, from_server: bool) -> f64 {
        let mut command = Command::new("iperf3");
        command.args(["-c", SERVER, "-t", "3", "-J", "-P", &lanes.to_string()]);
        if from_server {
            command.arg("-R");
        }
        // It refuses a client that comes while it is still busy with the one before.
        for _ in 0..IPERF_TRIES {
            let outcome = run(&mut self.network.inside(Side::Client, &command), LIMIT);
            let answer: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
            if let Some(rate) = answer["end"]["sum_received"]["bits_per_second"].as_f64() {
                return rate / 8e6;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        panic!("iperf3 does not measure anything");
    }

    /// The best of some copies, in MB/s: to the device, and from it.
    fn copies(&self, lanes: Option<u32>) -> [f64; 2] {
        let mut command = self.program("copy_rate", &[&COPIED_MIB.to_string(), "4"]);
        if let Some(lanes) = lanes {
            command.env("CAUSEWAY_LANES", lanes.to_string());
        }
        let outcome = run(&mut command, LIMIT).must_succeed();
        let best = outcome.stdout.lines().find_map(|line| line.strip_prefix("best ")).expect("a line");
        let words: Vec<_> = best.split(' ').collect();
        [words[1], words[3]].map(|word| word.parse().expect("a rate"))
    }

    /// Seconds of the whole command `causeway run ... many_launches`.
    fn many_launches(&self) -> f64 {
        run(&mut self.program("many_launches", &[]), LIMIT).must_succeed().took.as_secs_f64()
    }

    /// The round trips of that command, by name and number.
    fn round_trips(&self, folder: &Path) -> Vec<(String, u64)> {
        let counts = folder.join("counts");
        run(self.program("many_launches", &[]).env("CAUSEWAY_STATS", &counts), LIMIT).must_succeed();
        let text = std::fs::read(&counts).expect("the program has counted");
        let counts: Value = serde_json::from_slice(&text).expect("the counts are JSON");
        let mut named = vec![("connection and keys of `causeway run`'s check".to_owned(), 2)];
        let opening = counts["round_trips"]["opening"].as_array().expect("a list");
        named.extend(opening.iter().map(|step| (step.as_str().unwrap_or_default().to_owned(), 1)));
        let waits = counts["round_trips"]["all"].as_object().expect("waits by name");
        named.extend(waits.iter().map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default())));
        named
    }

    /// The shortest of ten round trips, in seconds.
    fn round_trip(&self) -> f64 {
        let mut command = Command::new("ping");
        command.args(["-c", "10", "-i", "0.1", "-q", SERVER]);
        let outcome = run(&mut self.network.inside(Side::Client, &command), LIMIT).must_succeed();
        let times = outcome.stdout.rsplit_once("= ").expect("ping sums up").1;
        times.split('/').next().and_then(|time| time.parse::<f64>().ok()).expect("a time") / 1e3
    }
}

fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5).expect("something was measured")
}

fn lower_quartile(values: &[f64]) -> f64 {
    percentile(values, 0.25).expect("something was measured")
}

fn verdict(is_met: bool, all_met: &mut bool) -> &'static str {
    *all_met &= is_met;
    if is_met { "yes" } else { "**no**" }
}

/// Compares copies with iperf3 on one network.
fn compare_rates(site: &Site, what: &str, lanes: u32, pin: bool, all_met: &mut bool) {
    let round_trip = site.round_trip();
    let copied = f64::from(COPIED_MIB << 20) / 1e6;
    let mut measured = [const { Vec::new() }; 2];
    let mut beside = [const { Vec::new() }; 2];
    for _ in 0..RATE_TURNS {
        for (direction, from_server) in [false, true].into_iter().enumerate() {
            beside[direction].push(site.iperf(lanes, from_server));
        }
        let copies = site.copies(pin.then_some(lanes));
        copies.into_iter().zip(&mut measured).for_each(|(rate, rates)| rates.push(rate));
    }
    for (direction, name) in ["to the device", "from the device"].into_iter().enumerate() {
        let under_way: Vec<_> =
            measured[direction].iter().map(|rate| copied / (copied / rate - round_trip)).collect();
        let ratio = median(
            &under_way.iter().zip(&beside[direction]).map(|(copy, iperf)| copy / iperf).collect::<Vec<_>>(),
        );
        println!(
            "| {what}, {lanes} connections, {name} | {:.0} | {:.0} | {:.0} | {ratio:.2} | {RATE_REQUIRED} | {} |",
            median(&measured[direction]),
            median(&under_way),
            median(&beside[direction]),
            verdict(ratio >= RATE_REQUIRED, all_met)
        );
    }
}

fn measure(folder: &Path) -> Result<bool, String> {
    let mut all_met = true;
    println!(
        "| copies of {COPIED_MIB} MiB | MB/s | without a round trip | iperf3 MB/s | ratio | required | met |\n\
         | --- | --- | --- | --- | --- | --- | --- |"
    );
    for rate in ["1gbit", "10gbit"] {
        let site = Site::new(Cable::Plain { rate: Some(rate) }, folder)?;
        compare_rates(&site, &format!("tc tbf {rate}"), 4, true, &mut all_met);
    }
    // The lanes that a session opens for this distance by itself.
    for (delay, lanes) in [("100", 4), ("1000", 4), ("10000", 16)] {
        let site = Site::new(Cable::Carried { arguments: &["-d", delay, "-r", "10000", "-g"] }, folder)?;
        compare_rates(&site, &format!("10 Gbit/s, {delay} us one way"), lanes, false, &mut all_met);
    }
    println!(
        "\n| 10,000 launches and 10 synchronisations | round trip ms | extra ms | extra round trips | allowed | met |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let near = Site::new(Cable::Carried { arguments: &["-d", "0", "-g"] }, folder)?;
    let mut named = Vec::new();
    for delay in ["100", "1000", "10000"] {
        let far = Site::new(Cable::Carried { arguments: &["-d", delay, "-g"] }, folder)?;
        // The first run of all leaves the image on the server.
        named = far.round_trips(folder);
        let turns: Vec<_> = (0..PROGRAM_TURNS).map(|_| (near.many_launches(), far.many_launches())).collect();
        let round_trip = far.round_trip();
        let extra = lower_quartile(&turns.iter().map(|turn| turn.1).collect::<Vec<_>>())
            - lower_quartile(&turns.iter().map(|turn| turn.0).collect::<Vec<_>>());
        let round_trips = extra / round_trip;
        println!(
            "| {delay} us one way | {:.2} | {:.1} | {round_trips:.1} | {ROUND_TRIPS_ALLOWED} | {} |",
            round_trip * 1e3,
            extra * 1e3,
            verdict(round_trips <= ROUND_TRIPS_ALLOWED, &mut all_met)
        );
    }
    println!("\nThe round trips, each by what is waited for:\n");
    named.iter().for_each(|(name, count)| println!("- {name}: {count}"));
    println!("- in all: {}", named.iter().map(|(_, count)| count).sum::<u64>());
    println!(
        "\nThe first session of an identity that brings an image has one more, in which the server asks for it."
    );
    Ok(all_met)
}

fn main() -> ExitCode {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    match measure(folder.path()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("no network can be made here: {why}");
            ExitCode::from(2)
        }
    }
}
