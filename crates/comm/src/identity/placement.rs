//! Placement of the container, as the launcher says it.
//!
//! A tuple `[container, cores, sockets]`: the container's number on its host, the processors that it was made
//! with, and the sockets that these lie on. A container often sees all processors in its files, or none, so
//! that the launcher knows better.

use core::str::FromStr;
use std::path::Path;

use thiserror::Error;

use super::cores::{self, CoreRange, Cores, CoresError};

/// The most sockets of a host.
const MAX_SOCKETS: u16 = 64;

/// Why a tuple makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// There are not three parts.
    #[error("give [container, cores, sockets], such as [1, 0-3, 0]")]
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
}

/// What a launcher says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPlacement {
    /// The container's number on its host.
    pub container: u32,
    cores: Vec<CoreRange>,
    sockets: u64,
}

impl ContainerPlacement {
    /// The processors, with their nodes as the files below `root` say, and the launcher's sockets.
    pub(super) fn cores(&self, root: &Path) -> Cores {
        Cores { sockets: self.sockets, ..Cores::placed(&self.cores, root) }
    }
}

impl FromStr for ContainerPlacement {
    type Err = PlacementError;

    /// The first and the last part have no commas; a list between them may have some.
    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let shape = || PlacementError::Shape;
        let inner =
            text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']')).ok_or_else(shape)?;
        let (container, rest) = inner.split_once(',').ok_or_else(shape)?;
        let (cores, sockets) = rest.rsplit_once(',').ok_or_else(shape)?;
        let container = container.trim();
        let number = container.parse().ok().filter(|number| *number != u32::MAX);
        let no_sockets = || PlacementError::Sockets(sockets.trim().to_owned());
        let ranges = cores::parse(sockets).map_err(|_| no_sockets())?;
        if ranges.is_empty() || ranges.iter().any(|range| range.last >= MAX_SOCKETS) {
            return Err(no_sockets());
        }
        let numbers = ranges.iter().flat_map(|range| range.first..=range.last);
        Ok(Self {
            container: number.ok_or_else(|| PlacementError::Container(container.to_owned()))?,
            cores: cores::parse(cores).map_err(PlacementError::Cores)?,
            sockets: numbers.fold(0, |set, socket| set | 1 << socket),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_read() {
        let placement: ContainerPlacement = "[3, 0-3,8, 1]".parse().unwrap();
        let cores = placement.cores(Path::new("/nowhere"));
        assert_eq!((placement.container, cores.to_string().as_str(), cores.sockets), (3, "0-3,8", 2));
        assert_eq!("[0,0,0-1]".parse::<ContainerPlacement>().unwrap().sockets, 3);
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
        ] {
            let error = wrong.parse::<ContainerPlacement>().unwrap_err().to_string();
            assert!(error.contains(named), "{wrong}: {error}");
        }
    }
}
