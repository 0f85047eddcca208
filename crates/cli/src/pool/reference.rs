//! Pools in a list of servers: `pool:NAME` and `pool:NAME:GPUS`.

use super::error::{MAX_GPUS, PoolError};

/// What a pool begins with in a list of servers.
pub const PREFIX: &str = "pool:";

/// A pool in a list of servers.
#[derive(Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    /// The pool.
    pub name: &'a str,
    /// Number of GPUs.
    pub gpus: usize,
}

/// The pool that a list of servers is; nothing where it names none.
///
/// # Errors
/// When the pool is not all that it names, or its name makes no sense.
pub fn reference(list: &str) -> Result<Option<Reference<'_>>, PoolError> {
    let list = list.trim();
    let names_pool = |part: &str| part.trim().strip_prefix(PREFIX).is_some_and(|rest| !is_port(rest));
    if !list.split(',').any(names_pool) {
        return Ok(None);
    }
    if list.contains(',') {
        return Err(PoolError::NotAlone(list.to_owned()));
    }
    let rest = &list[PREFIX.len()..];
    let (name, gpus) = match rest.rsplit_once(':') {
        Some((name, gpus)) => (name, gpus.parse().ok().filter(|gpus| (1..=MAX_GPUS).contains(gpus))),
        None => (rest, Some(1)),
    };
    match gpus {
        Some(gpus) if is_name(name) => Ok(Some(Reference { name, gpus })),
        _ => Err(PoolError::Name(list.to_owned())),
    }
}

/// Whether it is a port of a host called `pool`.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether it names a pool, or is the path of its folder.
pub fn is_name(name: &str) -> bool {
    name.starts_with('/') || is_word(name)
}

/// Whether it can be part of a file's name.
pub fn is_word(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= 128 && !text.starts_with('.') && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_a_pool_and_how_many_gpus() {
        let found = |list| reference(list).map_err(|error| error.to_string());
        assert_eq!(found("box:1,local"), Ok(None));
        assert_eq!(found("pool:8308"), Ok(None), "a host of that name");
        assert_eq!(found("pool:lab"), Ok(Some(Reference { name: "lab", gpus: 1 })));
        assert_eq!(found(" pool:/shared/lab:4"), Ok(Some(Reference { name: "/shared/lab", gpus: 4 })));
        for wrong in ["pool:a/b", "pool:../x", "pool:lab:0", "pool:lab:x", "pool:.a"] {
            assert!(reference(wrong).is_err(), "{wrong}");
        }
        assert!(found("pool:lab,box").unwrap_err().contains("more than one"));
    }
}
