//! API coverage: every entry point of `cuda.h` and of the headers beside it, how it is carried out, and since which CUDA version.

use core::fmt;
use std::collections::HashMap;
use std::sync::LazyLock;

/// How an entry point is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Answered in the client from what it knows.
    Local,
    /// Sent without waiting for a reply.
    Posted,
    /// Sent, and its reply waited for.
    Called,
    /// Hand-written in the client: local, posted or called, as the arguments demand.
    Hand,
    /// An older name of another entry point with the same arguments.
    Same {
        /// The entry point that carries it out.
        target: &'static str,
    },
    /// Exported, answers `CUDA_ERROR_NOT_SUPPORTED`.
    Unsupported {
        /// Why.
        reason: &'static str,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Posted => "posted",
            Self::Called => "called",
            Self::Hand => "by hand",
            Self::Same { .. } => "older name",
            Self::Unsupported { .. } => "not supported",
        })
    }
}

/// The variant of an entry point for the per-thread default stream.
#[derive(Clone, Copy, Debug)]
pub struct PerThread {
    /// Exported symbol, `..._ptsz` or `..._ptds`.
    pub symbol: &'static str,
    /// CUDA version that brought it (11030 is 11.3).
    pub since: u32,
}

/// One entry point of the driver API.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Exported symbol.
    pub symbol: &'static str,
    /// The header that declares it.
    pub header: &'static str,
    /// The name by which `cuGetProcAddress` knows it.
    pub base: &'static str,
    /// CUDA version that brought this variant (11030 is 11.3).
    pub since: u32,
    /// Number of arguments.
    pub arguments: usize,
    /// How it is carried out.
    pub kind: Kind,
    /// Its variant for the per-thread default stream.
    pub per_thread: Option<PerThread>,
}

causeway_api_macros::coverage!();

/// What `cuGetProcAddress` finds for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The symbol to give.
    Found(&'static str),
    /// The name is known, but every variant is newer than the version asked for.
    TooOld,
    /// The name is not known.
    Unknown,
}

/// Finds the newest variant of `base` that CUDA `version` has, preferring the variant for the per-thread
/// default stream when `per_thread` is set.
pub fn lookup(base: &str, version: u32, per_thread: bool) -> Lookup {
    static BY_BASE: LazyLock<HashMap<&str, Vec<&Function>>> = LazyLock::new(|| {
        FUNCTIONS.iter().fold(HashMap::new(), |mut all, function| {
            all.entry(function.base).or_insert_with(Vec::new).push(function);
            all
        })
    });
    let variants = || BY_BASE.get(base).into_iter().flatten().copied();
    if per_thread {
        let newest = variants()
            .filter_map(|function| function.per_thread)
            .filter(|variant| variant.since <= version)
            .max_by_key(|variant| variant.since);
        if let Some(variant) = newest {
            return Lookup::Found(variant.symbol);
        }
    }
    match variants().filter(|function| function.since <= version).max_by_key(|function| function.since) {
        Some(function) => Lookup::Found(function.symbol),
        None if variants().next().is_some() => Lookup::TooOld,
        None => Lookup::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_variant_of_the_version_is_found() {
        assert_eq!(lookup("cuGetProcAddress", 11030, false), Lookup::Found("cuGetProcAddress"));
        assert_eq!(lookup("cuGetProcAddress", 12000, false), Lookup::Found("cuGetProcAddress_v2"));
        assert_eq!(lookup("cuMemAlloc", 13000, true), Lookup::Found("cuMemAlloc_v2"));
        assert_eq!(lookup("cuMemcpyHtoDAsync", 13000, true), Lookup::Found("cuMemcpyHtoDAsync_v2_ptsz"));
        assert_eq!(lookup("cuLibraryLoadData", 11080, false), Lookup::TooOld);
        assert_eq!(lookup("cuNoSuchThing", 13000, false), Lookup::Unknown);
        assert_eq!(lookup("", 0, false), Lookup::Unknown);
    }
}
