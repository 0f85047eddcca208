//! One rank of a job, in whatever container it has been started, for `tests/containers.rs`.
//!
//! `rank_in_container NONCE RANK RANKS FOLDERS serve`: joins, prints `ready`, and gives everybody who comes a
//! memfd, until standard input ends. `... connect PEER`: joins, looks for another rank and prints what lies
//! between the two, a line each. `... doctor SECONDS`: what the doctor finds with whoever comes with the same
//! nonce, and has the same folder as the first of FOLDERS. FOLDERS stand between colons; `sysv` among them
//! means System V memory.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use causeway_comm::board::BoardLocations;
use causeway_comm::bootstrap::{self, BootstrapListener, Connection};
use causeway_comm::channels::{Channel, Ends, Gpu, Joined};
use causeway_comm::doctor::{self, Facts};
use causeway_comm::pair::ConnectedPeer;
use causeway_comm::settings::Settings;
use causeway_comm::{Board, Identity, Job, Pair};

const CONTENT: &[u8] = b"memory of the rank that serves";

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nonce, rank, ranks, folders, what @ ..] = arguments.as_slice() else {
        return Err("too few arguments".into());
    };
    if let [what, seconds] = what
        && what == "doctor"
    {
        return doctor(nonce, folders.split(':').next(), seconds.parse()?);
    }
    let nonce = u128::from_str_radix(nonce, 16)?.to_le_bytes();
    let job = Job::new(nonce, ranks.parse()?)?;
    let mut locations = BoardLocations { folders: Vec::new(), system_v: false };
    for folder in folders.split(':').filter(|folder| !folder.is_empty()) {
        if folder == "sysv" {
            locations.system_v = true
        } else {
            locations.folders.push(PathBuf::from(folder))
        }
    }
    let identity = Identity::of_this_process(Settings::from_environment()?.placement.as_ref())?;
    let board = Board::join(&job, rank.parse()?, 0, identity, &locations)?;
    match what {
        [what] if what == "serve" => serve(&job, &board),
        [what, peer] if what == "meet" => connect(&job, &board, peer.parse()?),
        _ => Err("serve, or meet PEER".into()),
    }
}

fn serve(job: &Job, board: &Board) -> Result<(), Failure> {
    let mut listener = BootstrapListener::open(job, board)?;
    for error in board.refused() {
        println!("refused {error}");
    }
    let name = c"memory";
    let memory: File = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?.into();
    (&memory).write_all(CONTENT)?;
    let stop = listener.stopper();
    std::thread::spawn(move || {
        // It ends with the test, whatever it says.
        let _ = std::io::stdin().read(&mut [0]);
        stop.stop();
    });
    println!("ready");
    let mut queued: Vec<Connection> = Vec::new();
    while let Some(arrival) = listener.arrival() {
        match arrival {
            Ok(connection) => {
                connection.send(&[0; 16], Some(memory.as_fd()))?;
                println!("came {}", connection.peer);
                queued.push(connection);
            }
            Err(error) => println!("stranger {error}"),
        }
    }
    Ok(board.forget_names()?)
}

fn connect(job: &Job, board: &Board, rank: u32) -> Result<(), Failure> {
    let scan = board.scan();
    println!("local count {} order {:?}", scan.local_count(), scan.local_order(board.slot().rank));
    for doubt in &scan.disbelieved {
        println!("disbelieved {} on {}: {}", doubt.rank, doubt.medium, doubt.why);
    }
    let outcome = match scan.get(rank) {
        Some(peer) => bootstrap::connect(job, board.slot(), peer),
        None => Err(Vec::new()),
    };
    let pair = Pair::of(board.slot(), scan.get(rank), ConnectedPeer::of(&outcome));
    println!("place {}", pair.locality);
    println!("media {}", pair.media.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    println!("processes {:?}", pair.processes);
    println!("reach into {}", pair.process_access.as_ref().map_or_else(String::as_str, |()| "yes"));
    println!("memory {}", pair.memory.as_ref().map_or_else(|why| format!("no: {why}"), ToString::to_string));
    if let Ok(connection) = &outcome {
        let mut content = vec![0; CONTENT.len()];
        match connection.receive()? {
            Some((_, Some(memory))) => File::from(memory).read_exact_at(&mut content, 0)?,
            _ => return Err("no descriptor came".into()),
        }
        println!("descriptor {}", if content == CONTENT { "came whole" } else { "is another" });
        let live = scan.get(rank).is_some_and(|peer| board.lives(peer));
        println!("lives {live} ended {}", connection.has_ended());
    }
    if scan.get(rank).is_some() {
        board.forget_names()?;
    }
    // Two GPUs that can do everything, on a host without cards and without gdrdrv.
    let gpu = Gpu { ipc: true, export: true, gpudirect: true };
    let ends = Ends {
        own: Some(gpu),
        peer: Some(gpu),
        joined: Joined::Peers,
        bar: Err("there is no /dev/gdrdrv".to_owned()),
        rdma: Err("this host has none".to_owned()),
    };
    for channel in Channel::ALL {
        match channel.probe(&pair, &ends) {
            Ok(()) => println!("channel {channel}: yes"),
            Err(missing) => println!("channel {channel}: {missing}"),
        }
    }
    Ok(())
}

fn doctor(word: &str, folder: Option<&str>, seconds: u64) -> Result<(), Failure> {
    let folder = folder.filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let settings = Settings { folder, ..Settings::from_environment()? };
    let own = Facts { gpu: None, has_gdrdrv: false, has_rdma: false };
    let found = doctor::rendezvous(word, &settings, own, Duration::from_secs(seconds))?;
    println!("came {} heard {}", found.found_peer, found.peer == Some(own));
    println!("place {}", found.pair.locality);
    for (channel, outcome) in &found.channels {
        match outcome {
            Ok(()) => println!("channel {channel}: yes"),
            Err(missing) => println!("channel {channel}: {missing}"),
        }
        let advice = outcome.as_ref().err().and_then(|missing| channel.advice(missing));
        if let Some(advice) = advice {
            println!("advice {channel}: {advice}");
        }
    }
    Ok(())
}
