//! Name of this process' user: as its variables have it, or the file of users.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};

/// The file of users. Whoever is only in a directory service is not in it: asking that may take long, and
/// loads libraries into the program.
const USERS: &str = "/etc/passwd";

/// Bytes of the file that are read at most.
const MAX_BYTES: u64 = 4 << 20;

/// The user of this process by name, or else by number.
pub fn current_user() -> String {
    let variable = |name: &str| std::env::var_os(name).filter(|name| !name.is_empty());
    match ["USER", "LOGNAME"].into_iter().find_map(variable) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => {
            let user = rustix::process::getuid().as_raw();
            let users = File::open(USERS).map(|file| BufReader::new(file.take(MAX_BYTES)));
            let name = users.ok().and_then(|users| name_of(user, users.lines().map_while(Result::ok)));
            name.unwrap_or_else(|| user.to_string())
        }
    }
}

/// The name of a user in lines of such a file.
fn name_of(user: u32, mut lines: impl Iterator<Item = String>) -> Option<String> {
    lines.find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (!name.is_empty() && number.parse() == Ok(user)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_number() {
        let file =
            "root:x:0:0:root:/root:/bin/sh\n# comment\n:x:7:\nada:x:1000:1000::/home/ada:\nada2:x:1000:\n";
        let of = |user| name_of(user, file.lines().map(str::to_owned));
        assert_eq!((of(0).as_deref(), of(1000).as_deref()), (Some("root"), Some("ada")));
        assert_eq!((of(7), of(1001)), (None, None));
    }
}
