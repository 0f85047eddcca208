//! Passing of servers' keys to a started program.
//!
//! Neither by its arguments nor by its environment, which other users of the machine, or everything that the program starts,
//! may read: by a key file that only its user can open.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use causeway_access::keys::file::{self, KeyFileError, Line};
use causeway_access::servers::{KEY_FILE_VARIABLE, ServersError, servers as find};
use causeway_access::{Target, private_folder};
use causeway_config::table::ON;
use thiserror::Error;

/// What the names of the files begin with.
const PREFIX: &str = "keys-";

/// How long a file stays after the last program was started with it. Such a program may start others as long as it runs.
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why a program would not find the keys.
#[derive(Debug, Error)]
pub enum HandOverError {
    /// A key file cannot be read or written.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The servers' own addresses make no sense.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// There is no folder for the file.
    #[error("cannot find a folder for the servers' keys that only this user can access: {0}")]
    Folder(std::io::Error),
}

/// Sets the servers that a program is to use, and sees to it that it finds their keys. `named` is the key file that the user
/// has named, if any.
pub fn hand_over(
    command: &mut Command,
    servers: &[Target],
    named: Option<&Path>,
) -> Result<(), HandOverError> {
    command.env_remove(KEY_FILE_VARIABLE);
    let list = |text: fn(&Target) -> String| servers.iter().map(text).collect::<Vec<_>>().join(",");
    // What configuration files say of a server by its name, the program reads itself. What has no name or is not as the
    // files say it is told by its address.
    for (references, has_names) in [(list(Target::reference), true), (list(Target::address), false)] {
        // A file that cannot be read matters only if it is needed, and then it was read before.
        let found = find(&references, named.map(PathBuf::from)).unwrap_or_default();
        let is_same = |(found, server): (&Target, &Target)| {
            *found == Target { name: server.name.clone().filter(|_| has_names), ..server.clone() }
        };
        command.env(ON.name, references);
        if found.len() == servers.len() && found.iter().zip(servers).all(is_same) {
            if let Some(named) = named {
                let named = std::path::absolute(named).unwrap_or_else(|_| named.to_owned());
                command.env(KEY_FILE_VARIABLE, named);
            }
            return Ok(());
        }
    }
    command.env(KEY_FILE_VARIABLE, keep(servers)?);
    Ok(())
}

/// Writes the servers' keys to a file in a folder that only this user can enter. Its name depends on what is in it, so that
/// programs that are started with the same keys use the same file. It stays as long as the folder does, and a month after the
/// last of them was started.
pub fn keep(servers: &[Target]) -> Result<PathBuf, HandOverError> {
    let line =
        |server: &Target| Some(Line { server: Some(server.endpoint.clone()), key: server.key.clone()? });
    let lines: Vec<_> = servers.iter().filter_map(line).collect();
    let content: Vec<u8> = lines
        .iter()
        .flat_map(|line| [format!("{:?}", line.server).as_bytes(), line.key.bytes()].concat())
        .collect();
    let digest = digest(&SHA256, &content);
    let name: String = digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = private_folder().map_err(HandOverError::Folder)?;
    forget_old(&folder, KEEP);
    let path = folder.join(format!("{PREFIX}{name}"));
    file::write(&path, &lines)?;
    Ok(path)
}

/// Removes the files that no program was started with for as long as `age`.
fn forget_old(folder: &Path, age: Duration) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let changed = entry.metadata().and_then(|data| data.modified());
        if is_ours && changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|since| since >= age)) {
            // Another command may be doing the same.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::Key;

    #[test]
    fn neither_arguments_nor_environment_hold_a_key_and_the_file_does() {
        let key = Key::generate();
        let text = key.to_text();
        let servers = Target::list(&format!("causeway://{}@a:1?clear,unix:/x", *text)).unwrap();
        let mut command = Command::new("program");
        hand_over(&mut command, &servers, None).unwrap();
        let variables: Vec<_> =
            command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?))).collect();
        assert!(variables.iter().all(|(_, value)| !value.contains(&**text)), "{variables:?}");
        let value = |wanted| variables.iter().find(|(name, _)| *name == wanted).unwrap().1;
        assert_eq!(value("CAUSEWAY_ON"), "causeway://a:1?clear,unix:/x");
        let path = PathBuf::from(value(KEY_FILE_VARIABLE));
        assert_eq!(find(value("CAUSEWAY_ON"), Some(path.clone())).unwrap(), servers);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn only_old_files_with_keys_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["keys-1", "other.sock"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let left = || std::fs::read_dir(folder.path()).unwrap().count();
        forget_old(folder.path(), KEEP);
        assert_eq!(left(), 2);
        forget_old(folder.path(), Duration::ZERO);
        assert!(left() == 1 && folder.path().join("other.sock").exists());
    }

    #[test]
    fn a_file_that_the_user_named_is_named_to_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        file::load_or_create(&path).unwrap();
        let servers = find("a:1", Some(path.clone())).unwrap();
        let mut command = Command::new("program");
        hand_over(&mut command, &servers, Some(&path)).unwrap();
        let named = command.get_envs().find(|(name, _)| *name == KEY_FILE_VARIABLE).unwrap().1;
        assert_eq!(named, Some(path.as_os_str()));
    }
}
