//! CPU affinity, NUMA nodes and sockets of a process, read from files or given by the launcher.

use core::fmt;
use core::str::FromStr;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use thiserror::Error;

/// How many ranges of processors a slot has room for.
pub const MAX_RANGES: usize = 4;

/// The highest number of a processor that is looked at.
const HIGHEST: u16 = 8191;

/// Nodes and sockets beyond these are left out of the sets.
const MAX_NODES: u32 = 64;

/// Processors from one to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// Why a list of processors makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no list of processors: write numbers up to {HIGHEST} and ranges in rising order, such as 0-3,8"
)]
pub struct CoresError(String);

/// Processors, and the nodes and sockets that have some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cores {
    pub(crate) ranges: [Option<CoreRange>; MAX_RANGES],
    /// Whether there are more ranges than these.
    pub cut: bool,
    /// NUMA nodes by bit; 0 when they are not known.
    pub nodes: u64,
    /// Processor packages by bit; 0 when they are not known.
    pub sockets: u64,
}

impl Cores {
    /// The processors that this process may use, with their nodes and sockets as the files below `root` say.
    pub(super) fn allowed(root: &Path) -> Self {
        Self::placed(&allowed_ranges(root, "self"), root)
    }

    /// These processors, with their nodes and sockets as the files below `root` say.
    pub(super) fn placed(ranges: &[CoreRange], root: &Path) -> Self {
        let within = |number: u16| ranges.iter().any(|range| (range.first..=range.last).contains(&number));
        let node_has_one = |node: &u32| {
            let path = root.join(format!("sys/devices/system/node/node{node}/cpulist"));
            let there = fs::read_to_string(path).ok().and_then(|list| parse(list.trim()).ok());
            there
                .is_some_and(|there| there.iter().any(|one| ranges.iter().any(|other| overlap(*one, *other))))
        };
        let package = |number: u16| {
            let path = format!("sys/devices/system/cpu/cpu{number}/topology/physical_package_id");
            fs::read_to_string(root.join(path)).ok()?.trim().parse::<u32>().ok()
        };
        let highest = ranges.iter().map(|range| range.last).max().unwrap_or(0);
        let numbers = if ranges.is_empty() { 0..0 } else { 0..highest + 1 };
        Self {
            nodes: bits((0..MAX_NODES).filter(node_has_one)),
            sockets: bits(numbers.filter(|number| within(*number)).filter_map(package)),
            ..Self::of_ranges(ranges)
        }
    }

    /// Ranges alone; those that find no room are cut off.
    pub(crate) fn of_ranges(ranges: &[CoreRange]) -> Self {
        let stored = core::array::from_fn(|at| ranges.get(at).copied());
        Self { ranges: stored, cut: ranges.len() > MAX_RANGES, nodes: 0, sockets: 0 }
    }

    /// The ranges.
    pub fn ranges(&self) -> impl Iterator<Item = CoreRange> + '_ {
        self.ranges.iter().flatten().copied()
    }

    /// How many processors there are in the ranges.
    pub fn count(&self) -> u32 {
        self.ranges().map(|range| u32::from(range.last - range.first) + 1).sum()
    }

    /// Whether a processor may be used by both, as far as the ranges tell.
    pub fn overlap(&self, other: &Self) -> bool {
        self.ranges().any(|one| other.ranges().any(|two| overlap(one, two)))
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ranges(&self.ranges().collect::<Vec<_>>(), f)?;
        if self.cut { f.write_str(",...") } else { Ok(()) }
    }
}

/// Writes them as the kernel does.
fn write_ranges(ranges: &[CoreRange], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, range) in ranges.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        match range {
            CoreRange { first, last } if first == last => write!(f, "{comma}{first}")?,
            CoreRange { first, last } => write!(f, "{comma}{first}-{last}")?,
        }
    }
    Ok(())
}

/// The processors that a process may use, by its folder in `/proc` below `root`; none where that is not known.
pub(super) fn allowed_ranges(root: &Path, process: &str) -> Vec<CoreRange> {
    let status = fs::read_to_string(root.join("proc").join(process).join("status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(|list| parse(list.trim()).ok()).unwrap_or_default()
}

/// What two lists have in common.
fn intersection(one: &[CoreRange], other: &[CoreRange]) -> Vec<CoreRange> {
    let common = |a: CoreRange, b: CoreRange| {
        overlap(a, b).then(|| CoreRange { first: a.first.max(b.first), last: a.last.min(b.last) })
    };
    one.iter().flat_map(|a| other.iter().filter_map(move |b| common(*a, *b))).collect()
}

fn overlap(one: CoreRange, two: CoreRange) -> bool {
    one.first <= two.last && two.first <= one.last
}

/// A set of small numbers; larger ones are left out.
fn bits(numbers: impl Iterator<Item = u32>) -> u64 {
    numbers.filter(|number| *number < u64::BITS).fold(0, |set, number| set | 1 << number)
}

/// Reads a list such as `0-3,8,10-11`, as the kernel and launchers write it.
pub(super) fn parse(text: &str) -> Result<Vec<CoreRange>, CoresError> {
    let wrong = || CoresError(text.to_owned());
    let mut ranges: Vec<CoreRange> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u16>().ok().filter(|number| *number <= HIGHEST);
        let (Some(first), Some(last)) = (number(first), number(last)) else { return Err(wrong()) };
        if last < first || ranges.last().is_some_and(|before| before.last >= first) {
            return Err(wrong());
        }
        ranges.push(CoreRange { first, last });
    }
    Ok(ranges)
}

/// The most sockets of a host.
const MAX_SOCKETS: u16 = 64;

/// Why a tuple makes no sense.
#[derive(Debug, Error)]
pub enum PlacementError {
    /// There are not three parts.
    #[error("give [container, cores, sockets], such as [1, 0-3, 0], or the path of a file with that")]
    Shape,
    /// The first is no number.
    #[error("{0:?} is no container's number: give one below 4294967295")]
    Container(String),
    /// The second is no list.
    #[error("it has no cores: {0}")]
    Cores(CoresError),
    /// The third is no list.
    #[error("{0:?} are no sockets: give their numbers, 0 to 63, such as 0 or 0-1")]
    Sockets(String),
    /// What stands behind it is no scope.
    #[error(
        "[container, cores, sockets] is followed by {0:?}: `causeway mpirun` writes @ and 16 hexadecimal \
         digits there"
    )]
    Scope(String),
    /// A file that is named instead cannot be read.
    #[error("cannot read the file: {0}")]
    Unreadable(#[source] io::Error),
}

/// What a launcher says.
///
/// A tuple `[container, cores, sockets]`: the container's number on its host, the processors that it was made
/// with, and the sockets that these lie on. A container often sees all processors in its files, or none, so
/// that the launcher knows better. Behind it may stand `@` and a number of certain namespaces: then it counts in these
/// alone, and not in processes that inherit the variable elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPlacement {
    /// The container's number on its host.
    pub container: u32,
    cores: Vec<CoreRange>,
    sockets: u64,
    scope: Option<u64>,
}

impl ContainerPlacement {
    /// Of a container that is known by a number of its namespaces. None where it has no processors, or these no sockets.
    pub(super) fn within(scope: u64, cores: Vec<CoreRange>, root: &Path) -> Option<Self> {
        let sockets = Cores::placed(&cores, root).sockets;
        // Any number that is its alone, below the highest, which is none.
        let container = (scope >> 33) as u32;
        (sockets != 0).then_some(Self { container, cores, sockets, scope: Some(scope) })
    }

    /// Whether it counts in namespaces of this number.
    pub(super) fn is_for(&self, scope: Option<u64>) -> bool {
        self.scope.is_none() || self.scope == scope
    }

    /// The processors, with their nodes as the files below `root` say, and the launcher's sockets. Of a rank that is
    /// bound to some of the container's processors it is these.
    pub(super) fn cores(&self, root: &Path) -> Cores {
        let bound = intersection(&self.cores, &allowed_ranges(root, "self"));
        let placed = Cores::placed(if bound.is_empty() { &self.cores } else { &bound }, root);
        let sockets = placed.sockets & self.sockets;
        let is_known = !bound.is_empty() && sockets != 0;
        Cores { sockets: if is_known { sockets } else { self.sockets }, ..placed }
    }

    /// What a variable says: a tuple, or the path of a file with one. None where there is no such file: an engine that does
    /// not run the hooks of a device writes none.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn named(text: &str) -> Result<Option<Self>, PlacementError> {
        if !text.starts_with('/') {
            return text.parse().map(Some);
        }
        let mut tuple = String::new();
        match fs::File::open(text).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut tuple)) {
            Ok(_) => tuple.parse().map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(PlacementError::Unreadable(error)),
        }
    }
}

/// What is read of a file with a tuple, which has one line: a list of all processors is not as long.
const MAX_FILE_BYTES: u64 = 64 << 10;

impl fmt::Display for ContainerPlacement {
    /// Sockets that are no range are written as the range in which they are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, ", self.container)?;
        write_ranges(&self.cores, f)?;
        let (first, last) = (self.sockets.trailing_zeros() as u16, self.sockets.ilog2() as u16);
        f.write_str(", ")?;
        write_ranges(&[CoreRange { first, last }], f)?;
        f.write_str("]")?;
        self.scope.map_or(Ok(()), |scope| write!(f, "@{scope:016x}"))
    }
}

impl FromStr for ContainerPlacement {
    type Err = PlacementError;

    /// The first and the last part have no commas; a list between them may have some.
    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let shape = || PlacementError::Shape;
        let (tuple, behind) =
            text.trim().strip_prefix('[').and_then(|text| text.split_once(']')).ok_or_else(shape)?;
        let scope = match behind.strip_prefix('@') {
            _ if behind.is_empty() => None,
            Some(digits) if digits.len() == 16 => u64::from_str_radix(digits, 16).ok(),
            _ => None,
        };
        if scope.is_none() && !behind.is_empty() {
            return Err(PlacementError::Scope(behind.to_owned()));
        }
        let inner = tuple;
        let (container, rest) = inner.split_once(',').ok_or_else(shape)?;
        let (cores, sockets) = rest.rsplit_once(',').ok_or_else(shape)?;
        let container = container.trim();
        let number = container.parse().ok().filter(|number| *number != u32::MAX);
        let no_sockets = || PlacementError::Sockets(sockets.trim().to_owned());
        let ranges = parse(sockets).map_err(|_| no_sockets())?;
        if ranges.is_empty() || ranges.iter().any(|range| range.last >= MAX_SOCKETS) {
            return Err(no_sockets());
        }
        let numbers = ranges.iter().flat_map(|range| range.first..=range.last);
        Ok(Self {
            container: number.ok_or_else(|| PlacementError::Container(container.to_owned()))?,
            cores: parse(cores).map_err(PlacementError::Cores)?,
            sockets: numbers.fold(0, |set, socket| set | 1 << socket),
            scope,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets with four processors each, a node a socket.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: String, text: String| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for node in 0..2 {
            let list = format!("{}-{}\n", node * 4, node * 4 + 3);
            write(format!("sys/devices/system/node/node{node}/cpulist"), list);
        }
        for number in 0..8 {
            let path = format!("sys/devices/system/cpu/cpu{number}/topology/physical_package_id");
            write(path, format!("{}\n", number / 4));
        }
        write("proc/self/status".into(), "Name:\tx\nCpus_allowed_list:\t2-4,7\n".into());
        root
    }

    #[test]
    fn nodes_and_sockets_follow_from_the_processors() {
        let root = machine();
        let cores = Cores::allowed(root.path());
        assert_eq!((cores.to_string().as_str(), cores.count()), ("2-4,7", 4));
        assert_eq!((cores.nodes, cores.sockets), (0b11, 0b11));
        let near = Cores::placed(&parse("0-3").unwrap(), root.path());
        assert_eq!((near.nodes, near.sockets), (1, 1));
        assert!(near.overlap(&cores) && !near.overlap(&Cores::placed(&parse("4-7").unwrap(), root.path())));
    }

    #[test]
    fn what_is_not_known_is_nothing() {
        let root = tempfile::tempdir().unwrap();
        let cores = Cores::allowed(root.path());
        assert_eq!((cores.count(), cores.nodes, cores.sockets, cores.to_string().as_str()), (0, 0, 0, ""));
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for wrong in ["a", "3-1", "1-", "-", "0-9999", "4,2", "0-3,3"] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("0-3,8"), "{error}");
        }
        assert_eq!(parse("").unwrap(), []);
        let many = Cores::of_ranges(&parse("0,2,4,6,8").unwrap());
        assert!(many.cut && many.to_string() == "0,2,4,6,...");
    }

    #[test]
    fn tuples_are_read() {
        let placement: ContainerPlacement = "[3, 0-3,8, 1]".parse().unwrap();
        let cores = placement.cores(Path::new("/nowhere"));
        assert_eq!((placement.container, cores.to_string().as_str(), cores.sockets), (3, "0-3,8", 2));
        assert_eq!("[0,0,0-1]".parse::<ContainerPlacement>().unwrap().sockets, 3);
    }

    #[test]
    fn a_rank_that_is_bound_has_the_part_of_the_container_that_is_its_own() {
        // The machine's process may use 2-4 and 7.
        let root = machine();
        let cores = |tuple: &str| tuple.parse::<ContainerPlacement>().unwrap().cores(root.path());
        let near = cores("[1, 0-3, 0]");
        assert_eq!((near.to_string().as_str(), near.nodes, near.sockets), ("2-3", 1, 1));
        let both = cores("[1, 0-7, 0-1]");
        assert_eq!((both.to_string().as_str(), both.nodes, both.sockets), ("2-4,7", 3, 3));
        // What the launcher says counts where the two have nothing in common.
        let other = cores("[1, 5-6, 1]");
        assert_eq!((other.to_string().as_str(), other.nodes, other.sockets), ("5-6", 2, 2));
        let made = ContainerPlacement::within(u64::MAX, parse("0-2,7").unwrap(), root.path()).unwrap();
        assert_eq!(made.to_string(), "[2147483647, 0-2,7, 0-1]@ffffffffffffffff");
        assert!(ContainerPlacement::within(1, parse("9").unwrap(), root.path()).is_none());
    }

    #[test]
    fn a_tuple_may_stand_in_a_file_that_need_not_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("container");
        let text = path.to_str().unwrap();
        assert_eq!(ContainerPlacement::named(text).unwrap(), None);
        fs::write(&path, "[7, 0-3, 0]\n").unwrap();
        assert_eq!(ContainerPlacement::named(text).unwrap().unwrap().container, 7);
        fs::write(&path, "[7, 0-3").unwrap();
        assert!(ContainerPlacement::named(text).is_err());
        assert!(ContainerPlacement::named(folder.path().to_str().unwrap()).is_err(), "a folder");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (wrong, named) in [
            ("1, 0-3, 0", "[1, 0-3, 0]"),
            ("[1, 0]", "[container, cores, sockets]"),
            ("[x, 0-3, 0]", "\"x\""),
            ("[4294967295, 0, 0]", "4294967295"),
            ("[1, 3-0, 0]", "3-0"),
            ("[1, 0-3, 64]", "\"64\""),
            ("[1, 0-3, ]", "sockets"),
            ("[1, 0-3, 0]@12", "\"@12\""),
            ("[1, 0-3, 0] x", "\" x\""),
        ] {
            let error = wrong.parse::<ContainerPlacement>().unwrap_err().to_string();
            assert!(error.contains(named), "{wrong}: {error}");
        }
    }
}
