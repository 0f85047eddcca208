//! Libraries that a program is linked to: where a loader finds them, and which of them have GPU code.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use causeway_gpu_software::Options;

use super::finding::{FileCheck, Lacking};
use super::images;
use crate::elf::{Dynamic, Elf};
use crate::stand_ins;

/// Where loaders look at last, and where the CUDA toolkit is.
const SYSTEM: [&str; 8] = [
    "/usr/local/cuda/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
    "/usr/lib64",
    "/usr/lib",
];

/// How NVIDIA's libraries with kernels in them are called.
const WITH_KERNELS: [&str; 9] = [
    "libcudnn",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcutensor",
    "libnccl",
    "libnpp",
    "libnvjpeg",
];

/// The most libraries that are followed from one program.
const MAX_LIBRARIES: usize = 1024;

/// Looks at the libraries that a program is linked to, and at those that these are linked to. `environment` is what
/// LD_LIBRARY_PATH says.
pub fn add(check: &mut FileCheck, dynamic: &Dynamic, environment: &str, options: &Options) {
    let mut known = BTreeSet::new();
    let mut waiting = VecDeque::new();
    let mut enqueue = |dynamic: &Dynamic, by: &Path, waiting: &mut VecDeque<(String, Option<PathBuf>)>| {
        for name in &dynamic.needed {
            if known.len() < MAX_LIBRARIES && known.insert(name.clone()) {
                waiting.push_back((name.clone(), find(name, &dynamic.folders, by, environment)));
            }
        }
    };
    enqueue(dynamic, &check.path, &mut waiting);
    while let Some((name, path)) = waiting.pop_front() {
        if stand_ins::has(&name) {
            continue;
        }
        let Some(path) = path else {
            if WITH_KERNELS.iter().any(|prefix| name.starts_with(prefix)) {
                let reason = "was not found, so it is unknown whether the software GPU runs its kernels: \
                     install it, or name its folder in LD_LIBRARY_PATH";
                check.add(Lacking::Library { name, path: None, reason: reason.to_owned() });
            }
            continue;
        };
        match look_into(&path, options) {
            Ok(found) => {
                if let Some(reason) = reason(&found.check) {
                    check.add(Lacking::Library { name, path: Some(path.clone()), reason });
                }
                enqueue(&found.dynamic, &path, &mut waiting);
            }
            Err(cause) => {
                let reason = format!("cannot be read: {cause}");
                check.add(Lacking::Library { name, path: Some(path), reason });
            }
        }
    }
}

/// A library's code, and what it is linked to.
struct Found {
    check: FileCheck,
    dynamic: Dynamic,
}

fn look_into(path: &Path, options: &Options) -> io::Result<Found> {
    let mut check = FileCheck::new(path.to_owned());
    let Some(elf) = Elf::open(path)? else { return Ok(Found { check, dynamic: Dynamic::default() }) };
    let sections = elf.sections()?;
    images::for_each(&elf, &sections, |form, image| check.add_image(form, image, options))?;
    Ok(Found { check, dynamic: elf.dynamic(&sections)? })
}

/// What a library lacks, in short.
fn reason(check: &FileCheck) -> Option<String> {
    let mut parts = Vec::new();
    if check.machine_code_images == check.images && check.images > 0 {
        parts.push("has only machine code, which the software GPU cannot run".to_owned());
    } else if check.machine_code_images > 0 {
        parts.push(format!(
            "has {} of {} modules only as machine code, which the software GPU cannot run",
            check.machine_code_images, check.images
        ));
    }
    let lacking = check.lacking.len();
    if lacking > 0 {
        parts.push(format!(
            "has PTX, of which the software GPU rejects {lacking} kernels or modules: `causeway check {}` \
             names them",
            check.path.display()
        ));
    }
    (!parts.is_empty()).then(|| parts.join(", and "))
}

/// Where a loader finds a library.
fn find(name: &str, folders: &[String], by: &Path, environment: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let origin = by.parent().unwrap_or(Path::new("")).to_string_lossy().into_owned();
    let own = folders
        .iter()
        .map(|folder| PathBuf::from(folder.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin)));
    let of_environment = environment.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let all = own.chain(of_environment).chain(SYSTEM.iter().map(PathBuf::from));
    all.map(|folder| folder.join(name)).find(|path| path.is_file())
}
