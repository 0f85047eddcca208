//! Runs random programs of asynchronous CUDA work and compares what they give with a model.

mod campaign;

use causeway_model::generate::{Profile, Setting, generate};
use causeway_model::session::{self, Options};
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Length {
    /// Mostly small buffers and 5 to 40 operations.
    Small,
    /// Also buffers of a few MiB and up to 120 operations.
    Long,
}

/// Random programs of asynchronous CUDA work, run on the CUDA driver that the dynamic linker finds and
/// compared with a model of memory. Ends with status 1 if any program went wrong.
#[derive(Parser, Debug)]
#[command(name = "causeway-model")]
struct Arguments {
    /// Seeds, from the first to before the last.
    #[arg(long, value_parser = parse_seeds, default_value = "0..1000")]
    seeds: (u64, u64),
    /// Stop after so many seconds even if seeds are left.
    #[arg(long)]
    seconds: Option<u64>,
    /// How long programs and their buffers are.
    #[arg(long, value_enum, default_value = "small")]
    profile: Length,
    /// Processes that run programs at the same time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Devices to use at most.
    #[arg(long, default_value_t = 2)]
    devices: usize,
    /// Leave something out: managed, pools, values; upload-waits (that a synchronous copy from locked memory
    /// to a device returns when all is done); host-order (that streams put what touches the same host memory
    /// in order); host-sources (that they put what reads host memory behind what wrote it: NVIDIA's driver
    /// reads up to 16 KiB at once where the legacy default stream alone gives the order).
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// The driver's library.
    #[arg(long, default_value = "libcuda.so.1")]
    library: PathBuf,
    /// Seconds that a program may take before it counts as hung.
    #[arg(long, default_value_t = 20)]
    limit: u64,
    /// Programs to reduce at the end, of those that went wrong.
    #[arg(long, default_value_t = 1)]
    reduce: usize,
    /// Seconds that each reduction may take.
    #[arg(long, default_value_t = 120)]
    reduce_seconds: u64,
    /// Stop at the first program that goes wrong.
    #[arg(long)]
    first: bool,
    /// Run the program of this seed only.
    #[arg(long)]
    only: Option<u64>,
    /// Keep only these operations of the program: 0-3,7.
    #[arg(long)]
    keep: Option<String>,
    /// Run the program so many times.
    #[arg(long, default_value_t = 1)]
    times: usize,
    /// Print the program of this seed and run nothing. Without a driver at hand, --devices and --without must
    /// be those of the run that is meant.
    #[arg(long)]
    describe: Option<u64>,
    /// Answer requests on standard input: what the process starts itself for.
    #[arg(long, hide = true)]
    session: bool,
}

fn parse_seeds(text: &str) -> Result<(u64, u64), String> {
    let (first, last) = text.split_once("..").ok_or("two numbers with .. between them")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok((number(first)?, number(last)?))
}

impl Arguments {
    fn profile(&self) -> Profile {
        match self.profile {
            Length::Small => Profile::Small,
            Length::Long => Profile::Long,
        }
    }

    fn options(&self, limit: u64) -> Options {
        let mut arguments = vec![
            "--session".to_owned(),
            format!("--library={}", self.library.display()),
            format!("--devices={}", self.devices),
            format!("--profile={}", if self.profile() == Profile::Small { "small" } else { "long" }),
        ];
        if !self.without.is_empty() {
            arguments.push(format!("--without={}", self.without.join(",")));
        }
        Options { arguments, limit: Duration::from_secs(limit) }
    }

    /// Prints a program, whose features are those of the command line.
    fn describe(&self, seed: u64) {
        let has = |name: &str| !self.without.iter().any(|other| other == name);
        let setting = Setting {
            devices: self.devices,
            managed: has("managed"),
            pools: has("pools"),
            values: has("values"),
            uploads_wait: has("upload-waits"),
            host_order: has("host-order"),
            host_sources: has("host-sources"),
            profile: self.profile(),
        };
        let program = generate(seed, &setting);
        match self.keep.as_deref().and_then(session::parse_list) {
            Some(kept) => print!("{}", program.keep(&kept)),
            None => print!("{program}"),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.describe {
        arguments.describe(seed);
        return ExitCode::SUCCESS;
    }
    let result = if arguments.session {
        session::serve(&arguments.library, arguments.devices, &arguments.without, arguments.profile())
            .map(|()| true)
    } else {
        campaign::run(&arguments)
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("causeway-model: {error}");
            ExitCode::from(2)
        }
    }
}
