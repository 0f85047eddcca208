//! Trial: a small CUDA program of this machine that runs on a server.
//!
//! A small one is run: the process that `causeway bench` measures with, which uses our client library as any program
//! does. It compares what its kernel and its copies have written.

use causeway_access::Target;
use causeway_config::table::{LOG, VIA};
use causeway_doctor::checks::machine::{Outcome, Trial};
use causeway_doctor::checks::path::ServerPath;
use causeway_link::TransportChoice;
use causeway_measure::case::{Case, Path};
use causeway_measure::protocol::{Reply, Request};
use causeway_measure::worker_process::{Measurer as _, Process};

use crate::keys::hand_over;
use crate::{launch, library};

/// A kernel that stores what its arguments say, and copies of some pages.
const CASES: [Case; 3] = [
    Case::Launches { arguments: 16 },
    Case::Copy { path: Path::PageableToDevice, bytes: 1 << 16 },
    Case::Copy { path: Path::PageableFromDevice, bytes: 1 << 16 },
];

/// Runs the program, unless the way to the server says that there can be no session.
pub fn examine(
    target: &Target,
    via: TransportChoice,
    key_file: Option<&std::path::Path>,
    path: &ServerPath,
) -> Trial {
    let outcome = match (&path.used, &path.failure) {
        (Some(used), _) => match run(target, via, key_file) {
            Ok(device) => Outcome::Ran { device, via: used.clone() },
            Err(reason) => Outcome::Failed { reason: reason.trim_end_matches('.').to_owned() },
        },
        (None, reason) => {
            let reason = reason.as_deref().unwrap_or("the server opens no session");
            Outcome::NoSession { reason: reason.trim_end_matches('.').to_owned() }
        }
    };
    Trial { target: target.to_string(), outcome }
}

/// The GPU's name where the program has run, or why it has not.
fn run(target: &Target, via: TransportChoice, key_file: Option<&std::path::Path>) -> Result<String, String> {
    let folder = library::folder().map_err(|error| error.to_string())?;
    let own =
        std::env::current_exe().map_err(|cause| format!("cannot find the program causeway: {cause}"))?;
    let program =
        [own.into_os_string(), "measure".into(), "--library".into(), folder.join("libcuda.so.1").into()];
    let mut command = launch::command(&program, &folder);
    hand_over(&mut command, core::slice::from_ref(target), key_file).map_err(|error| error.to_string())?;
    // What it says on standard error is for who reads that of the doctor.
    command.env(VIA.name, via.to_string()).env_remove(LOG.name);
    let mut process = Process::start(command).map_err(|error| error.to_string())?;
    let device = process.introduction().device.clone();
    for case in CASES {
        match process.ask(&Request::Prepare { case }).map_err(|error| error.to_string())? {
            Reply::Prepared => {}
            Reply::Refused { reason } | Reply::Wrong { reason } | Reply::Unable { reason } => {
                return Err(format!("{case}: {reason}"));
            }
            other => return Err(format!("{case}: the program returned {other:?}")),
        }
    }
    process.end();
    Ok(device)
}
