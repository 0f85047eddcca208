//! Identity of a process: namespaces, processors, NUMA nodes.

mod cores;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fs, io};

pub use cores::{ContainerPlacement, CoreRange, Cores, CoresError, MAX_RANGES, PlacementError};

use crate::job;

/// The namespaces of a process, by the kernel's numbers; 0 where a number cannot be read. Numbers are equal
/// where the namespace is the same, but only within one host: two hosts number alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// Of process ids.
    pub pid: u32,
    /// Of System V objects.
    pub ipc: u32,
    /// Of networks and of abstract Unix sockets.
    pub net: u32,
    /// Of mounts.
    pub mnt: u32,
    /// Of users.
    pub user: u32,
    /// Of host names.
    pub uts: u32,
}

impl Namespaces {
    /// Those of the calling thread.
    pub fn of_this_thread() -> Self {
        Self::read(Path::new("/"), THIS_THREAD)
    }

    /// Reads `/proc/thread-self/ns` below a root: a thread may enter namespaces by itself, and those that it
    /// starts are in them, too. Or that of a process.
    fn read(root: &Path, process: &str) -> Self {
        let number = |kind: &str| {
            let found = fs::metadata(root.join("proc").join(process).join("ns").join(kind));
            // Namespaces have numbers of 32 bits.
            found.ok().and_then(|found| u32::try_from(found.ino()).ok()).unwrap_or(0)
        };
        Self {
            pid: number("pid"),
            ipc: number("ipc"),
            net: number("net"),
            mnt: number("mnt"),
            user: number("user"),
            uts: number("uts"),
        }
    }

    /// The numbers in the order of a slot.
    pub(crate) fn numbers(&self) -> [u32; 6] {
        [self.pid, self.ipc, self.net, self.mnt, self.user, self.uts]
    }

    /// Those of a slot.
    pub(crate) fn from_numbers([pid, ipc, net, mnt, user, uts]: [u32; 6]) -> Self {
        Self { pid, ipc, net, mnt, user, uts }
    }

    /// A number that the processes in these namespaces of this host have, and no others; none where one is not known.
    fn scope(&self, boot: u64) -> Option<u64> {
        let numbers = self.numbers();
        let is_known = boot != 0 && !numbers.contains(&0);
        let bytes = numbers.map(u32::to_le_bytes).concat();
        let hash = blake3::hash(&[&boot.to_le_bytes()[..], &bytes].concat());
        is_known.then(|| hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// Whether all are known and the same: one container, as an engine makes them.
    pub fn all_shared(&self, other: &Self) -> bool {
        self == other && self.numbers().iter().all(|number| *number != 0)
    }
}

/// The folder of the calling thread in `/proc`.
const THIS_THREAD: &str = "thread-self";

/// A hash of the boot id, 0 when it cannot be read.
fn boot_hash(root: &Path) -> u64 {
    let hash = |text: Vec<u8>| {
        let hash = blake3::hash(text.trim_ascii());
        hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    fs::read(root.join("proc/sys/kernel/random/boot_id")).map_or(0, hash)
}

/// The placement of the container in which a process is (without one: this thread), for the processes in it alone: with these
/// processors, or else those that the process may use. None where the files below a root do not say where that is.
///
/// # Errors
/// When the list of processors makes no sense.
pub fn container_placement(
    root: &Path,
    process: Option<u32>,
    processors: Option<&str>,
) -> Result<Option<ContainerPlacement>, CoresError> {
    let process = process.map_or_else(|| THIS_THREAD.to_owned(), |number| number.to_string());
    let ranges = match processors {
        Some(list) => cores::parse(list)?,
        None => cores::allowed_ranges(root, &process),
    };
    let scope = Namespaces::read(root, &process).scope(boot_hash(root));
    Ok(scope.and_then(|scope| ContainerPlacement::within(scope, ranges, root)))
}

/// Whether two numbers are those of one namespace, as far as is known.
pub(crate) fn shared(a: u32, b: u32) -> bool {
    a == b && a != 0
}

/// A GPU by the 16 bytes of its UUID, which are the same in every container.
pub type GpuId = [u8; 16];

/// Who a process is and where it runs, as its slot says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// A random number, by which a rank knows that it shares a process with another.
    pub process: u64,
    /// The process id as the process itself sees it. It means something in its PID namespace only.
    pub pid: u32,
    /// A hash of the boot id, 0 when it cannot be read. Some engines show another one in each container, so
    /// that one which differs proves nothing.
    pub boot: u64,
    /// Its namespaces.
    pub namespaces: Namespaces,
    /// Processors that it may use, with their NUMA nodes and sockets.
    pub cores: Cores,
    /// The number that a launcher has given to its container.
    pub container: Option<u32>,
    /// Whether the process's network namespace has an address besides the loopback's.
    pub has_address: bool,
    /// The rank's first GPU and how many it uses.
    pub gpus: Option<(GpuId, u8)>,
}

impl Identity {
    /// This process. What a launcher says (`placement`) counts before what the kernel says, unless it is of another
    /// container.
    ///
    /// # Errors
    /// When the kernel gives no random number.
    pub fn of_this_process(placement: Option<&ContainerPlacement>) -> io::Result<Self> {
        Self::read(Path::new("/"), placement)
    }

    /// The same, of a file system below another root.
    ///
    /// # Errors
    /// As [`Identity::of_this_process`].
    pub fn read(root: &Path, placement: Option<&ContainerPlacement>) -> io::Result<Self> {
        let (boot, namespaces) = (boot_hash(root), Namespaces::read(root, THIS_THREAD));
        let placement = placement.filter(|placement| placement.is_for(namespaces.scope(boot)));
        Ok(Self {
            process: u64::from_le_bytes(job::random()?),
            pid: std::process::id(),
            boot,
            namespaces,
            cores: placement.map_or_else(|| Cores::allowed(root), |placement| placement.cores(root)),
            container: placement.map(|placement| placement.container),
            has_address: has_address(root),
            gpus: None,
        })
    }
}

/// Whether the network namespace has an address but the loopback's: in `fib_trie` every local one stands in
/// front of a line that says so, in `if_inet6` a line is an address with its interface behind it.
fn has_address(root: &Path) -> bool {
    let read = |file: &str| fs::read_to_string(root.join("proc/self/net").join(file)).unwrap_or_default();
    let trie = read("fib_trie");
    let lines: Vec<&str> = trie.lines().map(str::trim).collect();
    let of_version_4 = lines.windows(2).any(|pair| {
        pair[1].starts_with("/32 host LOCAL")
            && pair[0].strip_prefix("|-- ").is_some_and(|address| !address.starts_with("127."))
    });
    of_version_4 || read("if_inet6").lines().any(|line| !line.trim_end().ends_with(" lo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_somewhere() {
        let identity = Identity::of_this_process(None).unwrap();
        assert!(identity.namespaces.all_shared(&identity.namespaces));
        assert!(identity.boot != 0 && identity.cores.count() > 0);
        assert_ne!(identity.process, Identity::of_this_process(None).unwrap().process);
    }

    #[test]
    fn addresses_are_found_in_what_the_kernel_lists() {
        let root = tempfile::tempdir().unwrap();
        let net = root.path().join("proc/self/net");
        fs::create_dir_all(&net).unwrap();
        assert!(!has_address(root.path()));
        let trie = |address: &str| {
            format!("Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- {address}\n        /32 host LOCAL\n")
        };
        fs::write(net.join("fib_trie"), trie("127.0.0.1")).unwrap();
        fs::write(net.join("if_inet6"), "00000000000000000000000000000001 01 80 10 80       lo\n").unwrap();
        assert!(!has_address(root.path()));
        fs::write(net.join("fib_trie"), trie("10.0.0.1")).unwrap();
        assert!(has_address(root.path()));
        fs::write(net.join("fib_trie"), "").unwrap();
        fs::write(net.join("if_inet6"), "fe800000000000000000000000000001 02 40 20 80     eth0\n").unwrap();
        assert!(has_address(root.path()));
    }

    #[test]
    fn a_placement_counts_in_its_own_container_alone() {
        let made =
            container_placement(Path::new("/"), None, None).unwrap().expect("this process has sockets");
        let read: ContainerPlacement = made.to_string().parse().unwrap();
        assert_eq!(read, made);
        let own = Identity::of_this_process(Some(&read)).unwrap();
        assert_eq!(own.container, Some(made.container));
        let by_number = container_placement(Path::new("/"), Some(std::process::id()), None).unwrap();
        assert_eq!(by_number.as_ref(), Some(&made));
        let (text, scope) =
            made.to_string().rsplit_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let other = u64::from_str_radix(&scope, 16).unwrap() ^ 1;
        let other: ContainerPlacement = format!("{text}@{other:016x}").parse().unwrap();
        assert_eq!(Identity::of_this_process(Some(&other)).unwrap().container, None);
        // What is of no container in particular counts everywhere.
        let everywhere: ContainerPlacement = text.parse().unwrap();
        assert_eq!(Identity::of_this_process(Some(&everywhere)).unwrap().container, Some(made.container));
        assert!(container_placement(Path::new("/nowhere"), None, Some("0-3")).unwrap().is_none());
        assert!(container_placement(Path::new("/"), None, Some("3-0")).is_err());
    }

    #[test]
    fn namespaces_that_cannot_be_read_are_shared_with_nobody() {
        let nowhere = tempfile::tempdir().unwrap();
        let unknown = Namespaces::read(nowhere.path(), THIS_THREAD);
        assert_eq!(unknown, Namespaces::default());
        assert!(!unknown.all_shared(&unknown) && !shared(0, 0) && shared(1, 1));
    }
}
