//! Profiles: storage of what `causeway tune` has measured.
//!
//! A profile belongs to a pair of client and server and the module between them. It is a small JSON file in
//! the user's configuration folder; the plans in it are written in the language of
//! [`language`](super::language), so that a person can read them, and change them.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use causeway_config::file::candidates::is_absent;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::language::PipelineError;
use super::table::Table;
use causeway_config::TransportKind;

/// The form of the file that is written and read.
pub const FORM: u32 = 1;

/// The most bytes of a file that are read.
const MAX_BYTES: u64 = 1 << 20;

/// Which pair a profile is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The host of the server's address, as the user writes it.
    pub server: String,
    /// UUID of the server's first device, as nvidia-smi writes it.
    pub device: String,
    /// The module that joins the two.
    pub module: String,
    /// The client's host name: the folder may be shared by several machines.
    pub client: String,
}

/// What was measured for one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// `to-device` or `from-device`.
    pub direction: String,
    /// Bytes of the copy.
    pub bytes: u64,
    /// The built-in plan, and the one that was chosen.
    pub plans: [String; 2],
    /// What each of them carried, in bytes a second.
    pub rates: [f64; 2],
}

/// A profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The form of the file, [`FORM`].
    pub form: u32,
    /// Whom it is for.
    pub pair: Pair,
    /// The server's first device, for people.
    pub device_name: String,
    /// When it was measured, in seconds since 1970.
    pub measured_at: u64,
    /// The plans, in the language of `CAUSEWAY_PIPELINE`.
    pub pipeline: String,
    /// What they follow from.
    pub sizes: Vec<Measured>,
}

/// Why a profile cannot be used or kept.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// There is no home folder.
    #[error("there is no folder for profiles: neither XDG_CONFIG_HOME nor HOME is set")]
    NoFolder,
    /// The file cannot be read.
    #[error("the profile {} cannot be read: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The file is no profile.
    #[error("the profile {} is damaged ({cause}) and not used; `causeway tune` creates a new one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The file cannot be written.
    #[error("cannot write {}, so no profile is stored: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

/// The folder where profiles are kept: `causeway/profiles` in `$XDG_CONFIG_HOME`, or in `~/.config`.
pub fn folder() -> Result<PathBuf, ProfileError> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home_dir| home_dir.join(".config")));
    Ok(config.ok_or(ProfileError::NoFolder)?.join("causeway/profiles"))
}

/// Makes the folder if it is not there, and finds out whether a profile can be written to it.
pub fn prepare(folder: &Path) -> Result<(), ProfileError> {
    let probe = folder.join(format!(".probe.{}", std::process::id()));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::File::create(&probe))
        .and_then(|_| std::fs::remove_file(&probe))
        .map_err(|cause| ProfileError::Write { path: folder.to_owned(), cause })
}

impl Pair {
    /// The pair of this machine and a server.
    pub fn of_this_host(server: &str, device: &str, module: TransportKind) -> Self {
        Self {
            server: server.to_owned(),
            device: device.to_owned(),
            module: module.name().to_owned(),
            client: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        }
    }

    /// The name of the file for it.
    pub fn file_name(&self) -> String {
        let Self { server, device, module, client } = self;
        let plain = |text: &str| -> String {
            let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-');
            text.chars().take(48).map(|letter| if is_allowed(letter) { letter } else { '_' }).collect()
        };
        format!("{}_{}_{}_{}.json", plain(server), plain(device), plain(module), plain(client))
    }
}

impl Profile {
    /// The profile of a pair in `folder`; nothing when there is none.
    pub fn find(folder: &Path, pair: &Pair) -> Result<Option<Self>, ProfileError> {
        let path = folder.join(pair.file_name());
        match Self::read(&path) {
            Ok(profile) if profile.pair == *pair => Ok(Some(profile)),
            // Two names became one when they were shortened: it is another pair's.
            Ok(_) => Ok(None),
            Err(ProfileError::Read { cause, .. }) if is_absent(&path, &cause) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let unreadable = |cause| ProfileError::Read { path: path.to_owned(), cause };
        let damaged = |cause: String| ProfileError::Damaged { path: path.to_owned(), cause };
        let length = std::fs::metadata(path).map_err(unreadable)?.len();
        if length > MAX_BYTES {
            return Err(damaged(format!("it has {length} bytes")));
        }
        let text = std::fs::read(path).map_err(unreadable)?;
        let profile: Self = serde_json::from_slice(&text).map_err(|cause| damaged(cause.to_string()))?;
        if profile.form != FORM {
            return Err(damaged(format!("its form is {}, and this release knows {FORM}", profile.form)));
        }
        profile.table().map_err(|cause| damaged(cause.to_string()))?;
        Ok(profile)
    }

    /// Its plans.
    pub fn table(&self) -> Result<Table, PipelineError> {
        Table::parse(&self.pipeline)
    }

    /// Writes it to `folder`, which is made if it is not there, in place of an older one of the pair; where
    /// it lies.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, ProfileError> {
        let path = folder.join(self.pair.file_name());
        let failed = |cause| ProfileError::Write { path: path.clone(), cause };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut text = serde_json::to_vec_pretty(self).map_err(|cause| failed(cause.into()))?;
        text.push(b'\n');
        // A program that starts meanwhile finds the old file or the new one, never half of one.
        let fresh = folder.join(format!(".{}.{}", self.pair.file_name(), std::process::id()));
        let written = std::fs::File::create(&fresh)
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| std::fs::rename(&fresh, &path));
        written.map_err(|cause| {
            // What is left of it is of no use; a failure to remove it changes nothing.
            let _ = std::fs::remove_file(&fresh);
            failed(cause)
        })?;
        Ok(path)
    }

    /// Every profile in `folder`, by file name, and what is wrong with those that cannot be used.
    pub fn all(folder: &Path) -> Result<Vec<Result<Self, ProfileError>>, ProfileError> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(cause) if is_absent(folder, &cause) => return Ok(Vec::new()),
            Err(cause) => return Err(ProfileError::Read { path: folder.to_owned(), cause }),
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        Ok(paths.iter().map(|path| Self::read(path)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile {
            form: FORM,
            pair: Pair::of_this_host("gpu-server.example", "GPU-1", TransportKind::Tcp),
            device_name: "NVIDIA H200".into(),
            measured_at: 1,
            pipeline: "tcp to-device 1M..: 8x4M".into(),
            sizes: vec![Measured {
                direction: "to-device".into(),
                bytes: 1 << 20,
                plans: ["a".into(), "b".into()],
                rates: [1e9, 2e9],
            }],
        }
    }

    #[test]
    fn a_profile_is_found_by_its_pair_only() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a/b");
        let profile = profile();
        assert_eq!(Profile::find(&below, &profile.pair).unwrap(), None);
        let path = profile.write(&below).unwrap();
        assert_eq!(Profile::find(&below, &profile.pair).unwrap(), Some(profile.clone()));
        let other = Pair { module: "shm".into(), ..profile.pair.clone() };
        assert_eq!(Profile::find(&below, &other).unwrap(), None);
        // The same file name, another pair.
        let alike = Pair { server: "gpu-server/example".into(), ..profile.pair.clone() };
        let strange = Pair { server: "gpu-server_example".into(), ..profile.pair.clone() };
        assert_eq!(alike.file_name(), strange.file_name());
        Profile { pair: alike.clone(), ..profile }.write(&below).unwrap();
        assert_eq!(Profile::find(&below, &strange).unwrap(), None);
        let all = Profile::all(&below).unwrap();
        assert!(all.len() == 2 && all.iter().all(Result::is_ok) && path.starts_with(&below));
    }

    #[test]
    fn damaged_profiles_are_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let good = serde_json::to_string(&profile()).unwrap();
        let path = folder.path().join(profile().pair.file_name());
        for (text, reason) in [
            (String::new(), "damaged"),
            (good[..good.len() / 2].to_owned(), "damaged"),
            (good.replace("\"form\":1", "\"form\":7"), "its form is 7"),
            (good.replace("8x4M", "8x4Q"), "is invalid"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Profile::find(folder.path(), &profile().pair).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("causeway tune"), "{error}");
        }
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(MAX_BYTES + 1).unwrap();
        assert!(matches!(Profile::read(&path), Err(ProfileError::Damaged { .. })));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for error in [profile().write(file.path()).map(drop), prepare(file.path())] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("cannot write"), "{error}");
        }
        assert!(prepare(&tempfile::tempdir().unwrap().path().join("new")).is_ok());
    }
}
