//! Values of the command line: numbers of bytes, users and groups of this machine.

use causeway_config::Size;
use causeway_config::size::SizeError;
use nix::unistd::{Group, User};

/// A number of bytes on the command line.
pub fn size(text: &str) -> Result<u64, SizeError> {
    text.parse().map(|Size(bytes)| bytes)
}

/// A user by name or number.
pub fn user(text: &str) -> Result<u32, String> {
    by_name(text, "user", |name| Ok(User::from_name(name)?.map(|user| user.uid.as_raw())))
}

/// A group by name or number.
pub fn group(text: &str) -> Result<u32, String> {
    by_name(text, "group", |name| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw())))
}

fn by_name(
    text: &str,
    kind: &str,
    find: impl FnOnce(&str) -> nix::Result<Option<u32>>,
) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match find(text) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(format!("this machine has no {kind} `{text}`")),
        Err(cause) => Err(format!("the {kind} `{text}` cannot be looked up: {cause}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!((user("0"), user("root"), group("root")), (Ok(0), Ok(0), Ok(0)));
        assert!(user("no such user").unwrap_err().contains("no user `no such user`"));
    }
}
