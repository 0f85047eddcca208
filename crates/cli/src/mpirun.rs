//! `causeway mpirun`: starts the ranks of an MPI program with the interposer and a job's nonce.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use causeway_comm::identity::container_placement;
use causeway_config::table::{COMM_CONTAINER, COMM_HOSTS, COMM_JOB, MPI_LIBRARY, SOCKET_DIR};
use clap::Args;
use thiserror::Error;

use crate::launch::{self, LaunchError};
use crate::library;

/// The interposer's file.
const NAME: &str = "libcauseway_mpi.so";

/// What stands in the interposer in front of the name of the MPI that it was built for, and behind that
/// (mpi/src/job.c).
const BUILT_FOR: (&str, &str) = ("causeway interposer for ", ".");

/// Settings of an MPI whose ranks are in containers of their own: it takes one launcher for one shared
/// memory. Open MPI's ranks share memory by files in a folder that all of them have, if one is named, and else use
/// the network; MPICH's always do. Other MPIs ignore it.
pub fn isolated(folder: Option<&OsStr>) -> Vec<(&'static str, OsString)> {
    let mut variables = vec![("OMPI_MCA_pml", "ob1".into()), ("MPIR_CVAR_NOLOCAL", "1".into())];
    let Some(folder) = folder.filter(|folder| !folder.is_empty()) else {
        variables.push(("OMPI_MCA_btl", "tcp,self".into()));
        return variables;
    };
    // Of 4 and of 5, for messages and for windows.
    let folders = [
        "OMPI_MCA_btl_vader_backing_directory",
        "OMPI_MCA_btl_sm_backing_directory",
        "OMPI_MCA_osc_sm_backing_directory",
        "OMPI_MCA_osc_rdma_backing_directory",
    ];
    variables.extend(folders.map(|name| (name, folder.to_owned())));
    // To read out of a peer's memory takes its process id, which is another process's here, if any: the bytes
    // would be that one's (seen with 4.1.4). Windows of 4 need one of these; 5 has the other setting.
    variables.push(("OMPI_MCA_btl_vader_single_copy_mechanism", "emulated".into()));
    variables.push(("OMPI_MCA_smsc", "^cma".into()));
    variables
}

/// Start an MPI program whose ranks send memory on GPUs.
///
/// The program is not changed: `libcauseway_mpi.so` stands between it and its MPI (`LD_PRELOAD`). After `--`
/// follows the MPI's own command line, to which the options are added that pass the library and the job's
/// secret to the ranks.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The interposer that was built for this MPI. If not given: libcauseway_mpi.so in mpi/openmpi-4,
    /// mpi/openmpi-5 or mpi/mpich, as the launcher's version says, of the folder of the program `causeway`, of
    /// ../lib/causeway (the package causeway-mpi, the archive, the wheel) or of /usr/lib/causeway.
    #[arg(long, value_name = "FILE", env = MPI_LIBRARY.name)]
    library: Option<PathBuf>,
    /// Each rank runs in a container of its own. Open MPI and MPICH assume that ranks of one launcher share
    /// memory, and fail in MPI_Init or at the first message if they do not. With this option Open MPI shares
    /// memory in the folder that CAUSEWAY_SOCKET_DIR names; without that variable it uses the network, as
    /// MPICH always does. Settings that are already in the environment take precedence.
    #[arg(long)]
    isolated: bool,
    /// The command line: mpirun, its options, the program.
    #[arg(required = true, trailing_var_arg = true, value_name = "MPIRUN")]
    command: Vec<OsString>,
}

/// Why there is no job.
#[derive(Debug, Error)]
pub enum MpirunError {
    /// It is not known how to hand things over.
    #[error(
        "{program} is not a supported MPI launcher (Open MPI's, MPICH's and Slurm's srun). The order is \
         `causeway run -- causeway mpirun -- mpirun -n 2 PROGRAM`; for another launcher, pass LD_PRELOAD and \
         CAUSEWAY_COMM_JOB to the ranks with its own options"
    )]
    Unknown {
        /// The launcher.
        program: String,
    },
    /// There is no interposer.
    #[error(
        "there is no interposer for {mpi} at {}: install the package causeway-mpi, or build it with `make mpi` of \
         the sources and name it by --library", paths(.looked_at)
    )]
    NoLibrary {
        /// The MPI.
        mpi: String,
        /// Where it was looked for.
        looked_at: Vec<PathBuf>,
    },
    /// There is nothing where the interposer is said to be.
    #[error("--library (CAUSEWAY_MPI_LIBRARY) names {}, and there is no such file", .0.display())]
    NoSuchFile(PathBuf),
    /// The launcher does not say which MPI its ranks have, and there are interposers for several.
    #[error(
        "srun does not report which MPI the ranks use: name its interposer with --library, one of {}", paths(.0)
    )]
    Several(Vec<PathBuf>),
    /// What is named is no library.
    #[error("--library names {}, which is no library: name the libcauseway_mpi.so that was built for this MPI", .0.display())]
    NotALibrary(PathBuf),
    /// The interposer was built for another MPI.
    #[error(
        "the interposer {} was built for {built_for}, and the launcher is {mpi}'s: build it with this MPI's mpicc \
         (`make mpi MPICC=...`)", path.display()
    )]
    OtherMpi {
        /// The file.
        path: PathBuf,
        /// What its MPI is called.
        built_for: &'static str,
        /// The launcher's MPI.
        mpi: &'static str,
    },
    /// There is no secret.
    #[error("cannot get random bytes for the job's secret: {0}")]
    Random(io::Error),
    /// The launcher does not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// The first paths of a list, so that a message stays short.
fn paths(paths: &[PathBuf]) -> String {
    const MAX_NAMED: usize = 3;
    let named: Vec<_> = paths.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
    let more = match paths.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    named.join(" or ") + &more
}

/// A library that an interposer needs.
const COMM: &str = "libcauseway_comm.so";

/// Whether the loader finds the library that an interposer needs: beside it, or in the folders above, where packages have it,
/// or in one of its own. Ranks may have other folders, so that this is no error.
fn has_comm(library: &Path, own_folders: &[PathBuf]) -> bool {
    let folders = library.ancestors().skip(1).take(3).map(Path::to_owned);
    folders.chain(own_folders.iter().cloned()).any(|folder| folder.join(COMM).exists())
}

/// The folders in which the loader looks for any library.
fn loader_folders() -> Vec<PathBuf> {
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let triplet = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let fixed = ["/usr/lib64", "/usr/lib", "/usr/local/lib", triplet.as_str()].map(PathBuf::from);
    std::env::split_paths(&named).chain(fixed).collect()
}

impl MpirunError {
    /// The exit code: a shell's for a launcher that does not start, 125 for an error of our own.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Launch(error) => error.exit_code(),
            _ => 125,
        }
    }
}

/// A family of launchers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Open MPI's.
    OpenMpi,
    /// MPICH's Hydra, and Intel MPI's.
    Hydra,
    /// Slurm's srun, for ranks of any MPI.
    Slurm,
}

impl Family {
    /// By what a launcher prints about its version.
    fn of(text: &str) -> Option<Self> {
        if text.contains("Open MPI") || text.contains("OpenRTE") {
            Some(Self::OpenMpi)
        } else if text.contains("HYDRA") || text.contains("Intel(R) MPI") {
            Some(Self::Hydra)
        } else if text.starts_with("slurm ") || text.starts_with("slurm-wlm ") {
            Some(Self::Slurm)
        } else {
            None
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Hydra => "MPICH",
            Self::Slurm => "Slurm",
        }
    }

    /// The folders of the interposers for its ranks' MPI, which srun does not say. Open MPI's interface changes with
    /// the first number of its version; a folder without one is of whoever built for the MPI that is there.
    fn folders(self, major: Option<u32>) -> Vec<String> {
        let command: &[&str] = match (self, major) {
            (Self::OpenMpi, Some(major)) => return vec![format!("openmpi-{major}"), "openmpi".to_owned()],
            (Self::OpenMpi, None) => &["openmpi"],
            (Self::Hydra, _) => &["mpich"],
            (Self::Slurm, _) => &["openmpi-4", "openmpi-5", "openmpi", "mpich"],
        };
        command.iter().map(|&word| word.to_owned()).collect()
    }

    /// The options by which the ranks get the interposer, and the variables of these names. The nonce is a secret, and
    /// travels by its name alone: Hydra hands the whole environment over.
    fn options(self, preload: &OsStr, names: &[&str]) -> Vec<OsString> {
        match self {
            Self::OpenMpi => {
                let mut assignment = OsString::from("LD_PRELOAD=");
                assignment.push(preload);
                let mut options = vec!["-x".into(), assignment];
                options.extend(names.iter().flat_map(|name| ["-x".into(), name.into()]));
                options
            }
            Self::Hydra => ["-genv".into(), "LD_PRELOAD".into(), preload.to_owned()].into(),
            Self::Slurm => vec![exported("ALL".as_ref(), preload, names)],
        }
    }

    /// The launcher's arguments behind its name.
    fn arguments(self, preload: &OsStr, names: &[&str], arguments: &[OsString]) -> Vec<OsString> {
        let options = self.options(preload, names);
        match self {
            // Each program of the command line has an environment of its own.
            Self::OpenMpi => {
                let mut command = options.clone();
                for word in arguments {
                    command.push(word.clone());
                    if word == ":" {
                        command.extend(options.iter().cloned());
                    }
                }
                command
            }
            Self::Hydra => [&options[..], arguments].concat(),
            // The last one of several options counts.
            Self::Slurm => {
                match arguments.iter().position(|word| word.as_encoded_bytes().starts_with(EXPORT)) {
                    Some(at) => {
                        let mut command = arguments.to_vec();
                        let value = &command[at].to_string_lossy()[EXPORT.len()..];
                        command[at] = exported(value.as_ref(), preload, names);
                        command
                    }
                    None => [&options[..], arguments].concat(),
                }
            }
        }
    }
}

/// The option by which srun passes the environment to ranks.
const EXPORT: &[u8] = b"--export=";

/// That option for what the user wants, and what ranks need of us.
fn exported(exported_variables: &OsStr, preload: &OsStr, names: &[&str]) -> OsString {
    let mut option = OsString::from("--export=");
    if !exported_variables.is_empty() && exported_variables != "NONE" && exported_variables != "NIL" {
        option.push(exported_variables);
        option.push(",");
    }
    option.push("LD_PRELOAD=");
    option.push(preload);
    for name in names {
        option.push(",");
        option.push(name);
    }
    option
}

/// Becomes the launcher; returns only when that fails.
///
/// # Errors
/// When there is no interposer for the MPI, or the launcher does not start.
pub fn mpirun(arguments: &Arguments) -> Result<ExitCode, MpirunError> {
    let launcher = &arguments.command[0];
    let (family, library) = interposer(launcher, arguments.library.as_deref())?;
    if !has_comm(&library, &loader_folders()) {
        // Without a standard error it cannot be said.
        let _ = writeln!(
            io::stderr(),
            "causeway: warning: there is no {COMM} beside {}, so the ranks cannot start: copy it there",
            library.display()
        );
    }
    let mut preload = library.into_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let mut command = Command::new(launcher);
    let mut names = vec![COMM_JOB.name];
    if std::env::var_os(COMM_HOSTS.name).is_some() {
        names.push(COMM_HOSTS.name);
    }
    // What is said already counts. Ranks that start elsewhere see that this is not said of them.
    if std::env::var_os(COMM_CONTAINER.name).is_none()
        && let Ok(Some(placement)) = container_placement(Path::new("/"), None, None)
    {
        command.env(COMM_CONTAINER.name, placement.to_string());
        names.push(COMM_CONTAINER.name);
    }
    command.args(family.arguments(&preload, &names, &arguments.command[1..]));
    if arguments.isolated {
        let variables = isolated(std::env::var_os(SOCKET_DIR.name).as_deref());
        command.envs(variables.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()));
    }
    command.env(COMM_JOB.name, nonce().map_err(MpirunError::Random)?);
    Err(launch::become_program(command).into())
}

/// The interposer for a launcher's MPI: the one that is named, or the one in the usual place.
///
/// # Errors
/// When the launcher is of no MPI that is known, or there is no interposer.
pub fn interposer(launcher: &OsStr, named: Option<&Path>) -> Result<(Family, PathBuf), MpirunError> {
    let LauncherVersion { family, major } = query_version(launcher)?;
    let library = match named {
        Some(named) if named.is_file() && !is_elf(named) => {
            return Err(MpirunError::NotALibrary(named.to_owned()));
        }
        Some(named) if named.is_file() => named.to_owned(),
        Some(named) => return Err(MpirunError::NoSuchFile(named.to_owned())),
        None => find(family, major, &library::folders())?,
    };
    match built_for(&library) {
        Some(other) if other != family && family != Family::Slurm => {
            let (built_for, mpi) = (other.name(), family.name());
            Err(MpirunError::OtherMpi { path: library, built_for, mpi })
        }
        _ => Ok((family, library)),
    }
}

/// Whether a file begins as a library does. The loader only warns of another one, and the ranks would run without it.
fn is_elf(path: &Path) -> bool {
    let mut start = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"\x7fELF"
}

/// The MPI that an interposer was built for, if it was built for one alone.
fn built_for(library: &Path) -> Option<Family> {
    let content = fs::read(library).ok()?;
    let (before, behind) = BUILT_FOR;
    let families = [Family::OpenMpi, Family::Hydra];
    families.into_iter().find(|family| {
        let text = [before, family.name(), behind].concat();
        content.windows(text.len()).any(|at| at == text.as_bytes())
    })
}

/// What a launcher says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LauncherVersion {
    family: Family,
    /// The first number of its version.
    major: Option<u32>,
}

impl LauncherVersion {
    fn of(text: &str) -> Option<Self> {
        let family = Family::of(text)?;
        let major = text.split_whitespace().find_map(|word| word.split_once('.')?.0.parse().ok());
        Some(Self { family, major })
    }
}

fn query_version(launcher: &OsStr) -> Result<LauncherVersion, MpirunError> {
    let version = Command::new(launcher).arg("--version").output();
    let text = version.map(|version| String::from_utf8_lossy(&version.stdout).into_owned());
    match text {
        Ok(text) => LauncherVersion::of(&text)
            .ok_or_else(|| MpirunError::Unknown { program: launcher.to_string_lossy().into_owned() }),
        Err(cause) => Err(launch::not_started(launcher)(cause).into()),
    }
}

fn no_library(family: Family, major: Option<u32>, looked_at: Vec<PathBuf>) -> MpirunError {
    let mpi = match (family, major) {
        (Family::OpenMpi, Some(major)) => format!("{} {major}", family.name()),
        _ => family.name().to_owned(),
    };
    MpirunError::NoLibrary { mpi, looked_at }
}

/// The interposer in one of the usual places. The first folder that there is counts; but of srun's ranks it is not known
/// which they need.
fn find(family: Family, major: Option<u32>, folders: &[PathBuf]) -> Result<PathBuf, MpirunError> {
    let of = |folder: String| folders.iter().map(move |root| root.join("mpi").join(&folder).join(NAME));
    let candidates: Vec<Vec<PathBuf>> =
        family.folders(major).into_iter().map(|folder| of(folder).collect()).collect();
    let is_there = |candidate: &&PathBuf| candidate.is_file();
    let mut found: Vec<PathBuf> =
        candidates.iter().filter_map(|each| each.iter().find(is_there)).cloned().collect();
    match found.len() {
        0 => Err(no_library(family, major, candidates.concat())),
        2.. if family == Family::Slurm => Err(MpirunError::Several(found)),
        _ => Ok(found.swap_remove(0)),
    }
}

/// A secret that all ranks of this job share, and no other process has.
fn nonce() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_no_library_is_distinguished_from_one() {
        assert!(is_elf(&std::env::current_exe().unwrap()));
        assert!(!is_elf(Path::new("/etc/passwd")) && !is_elf(Path::new("/")));
    }

    #[test]
    fn launchers_are_known_by_what_they_say() {
        assert_eq!(Family::of("mpirun.openmpi (OpenRTE) 4.1.4\n"), Some(Family::OpenMpi));
        assert_eq!(Family::of("mpirun (Open MPI) 5.0.11\n"), Some(Family::OpenMpi));
        assert_eq!(Family::of("HYDRA build details:\n    Version: 4.0.2\n"), Some(Family::Hydra));
        assert_eq!(Family::of("slurm 22.05.8\n"), Some(Family::Slurm));
        assert_eq!(Family::of("slurm-wlm 22.05.8\n"), Some(Family::Slurm), "Debian's");
        assert_eq!(Family::of("ls (GNU coreutils) 9.1\n"), None);
    }

    #[test]
    fn the_version_of_a_launcher_says_which_interposer_its_ranks_need() {
        let folder = tempfile::tempdir().unwrap();
        let folders = ["bin", "lib/causeway"].map(|name| folder.path().join(name));
        let put = |name: &str| {
            let path = folder.path().join(name).join(NAME);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let find_for = |text: &str| {
            let version = LauncherVersion::of(text).unwrap();
            find(version.family, version.major, &folders).map_err(|error| error.to_string())
        };
        let (four, five) = ("mpirun.openmpi (OpenRTE) 4.1.4\n", "mpirun (Open MPI) 5.0.11\n");
        let error = find_for(five).unwrap_err();
        assert!(error.contains("for Open MPI 5 at") && error.contains("package causeway-mpi"), "{error}");
        let of_four = put("lib/causeway/mpi/openmpi-4");
        let of_mpich = put("lib/causeway/mpi/mpich");
        assert_eq!(find_for(four).as_ref(), Ok(&of_four));
        assert_eq!(find_for("HYDRA build details:\n    Version:    4.0.2\n").as_ref(), Ok(&of_mpich));
        assert!(find_for(five).unwrap_err().contains("mpi/openmpi-5/libcauseway_mpi.so"));
        // A folder without a version serves where there is none with it.
        let built = put("bin/mpi/openmpi");
        assert_eq!(find_for(five).as_ref(), Ok(&built));
        assert_eq!(find_for(four).as_ref(), Ok(&of_four));
        let error = find_for("slurm 22.05.8\n").unwrap_err();
        assert!(error.contains("--library") && error.contains("openmpi-4"), "{error}");
    }

    #[test]
    fn errors_say_what_was_looked_for_and_what_to_type() {
        let unknown = MpirunError::Unknown { program: "python3".into() }.to_string();
        assert!(unknown.starts_with("python3 is not a supported MPI launcher"), "{unknown}");
        assert!(unknown.contains("`causeway run -- causeway mpirun -- mpirun -n 2 PROGRAM`"), "{unknown}");
        let many: Vec<PathBuf> = (0..7).map(|number| PathBuf::from(format!("/{number}"))).collect();
        assert_eq!(paths(&many), "/0 or /1 or /2 (and 4 more)");
        let error = interposer(OsStr::new("/bin/true"), Some(Path::new("/nonexistent.so"))).unwrap_err();
        assert!(error.to_string().contains("/bin/true is not a supported MPI launcher"), "{error}");
    }

    #[test]
    fn the_library_of_an_interposer_is_looked_for_beside_it_and_above() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("mpi/mpich").join(NAME);
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        let other = folder.path().join("other");
        fs::create_dir(&other).unwrap();
        assert!(!has_comm(&library, std::slice::from_ref(&other)));
        for path in [other.join(COMM), folder.path().join(COMM), folder.path().join("mpi/mpich").join(COMM)] {
            fs::write(&path, "").unwrap();
            assert!(has_comm(&library, std::slice::from_ref(&other)), "{}", path.display());
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn an_interposer_says_which_mpi_it_was_built_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let found = |content: &str| {
            fs::write(&path, content).unwrap();
            built_for(&path)
        };
        assert_eq!(found("\x7fELF ... causeway interposer for Open MPI.\0"), Some(Family::OpenMpi));
        assert_eq!(found("causeway interposer for MPICH."), Some(Family::Hydra));
        assert_eq!(found("causeway interposer for the standard ABI."), None);
        assert_eq!(found("of another release"), None);
    }

    #[test]
    fn isolated_ranks_share_memory_where_they_share_a_folder() {
        let variables = |folder: &str| isolated(Some(OsStr::new(folder)));
        let has =
            |variables: &[(&str, OsString)], name, value| variables.contains(&(name, OsString::from(value)));
        for alone in [isolated(None), variables("")] {
            assert!(has(&alone, "OMPI_MCA_btl", "tcp,self"), "{alone:?}");
        }
        let together = variables("/shared");
        assert!(has(&together, "OMPI_MCA_btl_sm_backing_directory", "/shared"), "{together:?}");
        assert!(!together.iter().any(|(name, _)| *name == "OMPI_MCA_btl"), "{together:?}");
    }

    fn variables(family: Family, arguments: &str) -> String {
        let arguments: Vec<OsString> = arguments.split(' ').map(OsString::from).collect();
        let command = family.arguments(OsStr::new("/a.so"), &[COMM_JOB.name], &arguments);
        command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_program_of_a_command_line_has_the_interposer() {
        let options = "-x LD_PRELOAD=/a.so -x CAUSEWAY_COMM_JOB";
        assert_eq!(
            variables(Family::OpenMpi, "-n 1 a : -n 2 b"),
            format!("{options} -n 1 a : {options} -n 2 b")
        );
        // What is said once holds for all.
        assert_eq!(variables(Family::Hydra, "-n 1 a : -n 2 b"), "-genv LD_PRELOAD /a.so -n 1 a : -n 2 b");
    }

    #[test]
    fn srun_exports_what_the_user_and_the_ranks_need() {
        let ours = "LD_PRELOAD=/a.so,CAUSEWAY_COMM_JOB";
        assert_eq!(variables(Family::Slurm, "-n 2 a"), format!("--export=ALL,{ours} -n 2 a"));
        assert_eq!(variables(Family::Slurm, "--export=A,B=1 a"), format!("--export=A,B=1,{ours} a"));
        assert_eq!(variables(Family::Slurm, "--export=NONE a"), format!("--export={ours} a"));
    }

    #[test]
    fn the_secret_is_in_no_argument() {
        for family in [Family::OpenMpi, Family::Hydra, Family::Slurm] {
            let options = family.options(OsStr::new("/lib/a.so"), &[COMM_JOB.name, COMM_HOSTS.name]);
            assert!(options.iter().any(|option| option.to_string_lossy().contains("/lib/a.so")));
            assert!(options.iter().all(|option| !option.to_string_lossy().contains("JOB=")));
        }
        assert_eq!(nonce().unwrap().len(), 32);
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }
}
