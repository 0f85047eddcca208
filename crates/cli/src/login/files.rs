//! Files of a login: the key that is being enrolled, and what is kept of the server afterwards.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use causeway_access::keys::file::{self, KeyFileError, Line};
use causeway_access::target::invitation_id;
use causeway_access::{ClientName, Invitation, Key, Target};
use causeway_config::file::with_server;
use causeway_config::table::CONFIG;

use super::error::LoginError;

/// The key that is to be enrolled with an invitation, in a file until all is done.
pub struct PendingKey {
    /// The key.
    pub key: Key,
    /// Whether an earlier command has made it, which may have enrolled it.
    pub is_earlier: bool,
    path: PathBuf,
}

impl PendingKey {
    /// The one of an invitation, which is made if it is not there.
    pub fn of(invitation: &Invitation) -> Result<Self, KeyFileError> {
        let target = invitation.enrolment_target();
        let secret = target.key.expect("an invitation has a secret");
        let name = secret.client().expect("an invitation names its client");
        let id: String = invitation_id(&secret).0.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::in_file(name, file::configuration()?.join(format!("login-{id}")))
    }

    fn in_file(name: ClientName, path: PathBuf) -> Result<Self, KeyFileError> {
        let known = match file::read(&path) {
            Err(KeyFileError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => None,
            read => read?.into_iter().next().filter(|line| line.key.client() == Some(name)),
        };
        if let Some(Line { key, .. }) = known {
            return Ok(Self { key, is_earlier: true, path });
        }
        let key = Key::generate_for(name);
        file::write(&path, &[Line { server: None, key: key.clone() }])?;
        Ok(Self { key, is_earlier: false, path })
    }

    /// Removes the file if this command has made it and has not enrolled the key. One of an earlier command stays, since the
    /// server may have it; its path.
    pub fn discard_new(self) -> Option<String> {
        if self.is_earlier {
            return Some(self.path.display().to_string());
        }
        self.discard();
        None
    }

    /// Removes the file: the key is kept elsewhere, or counts nowhere.
    pub fn discard(self) {
        // One that stays is found and removed by the next login with the same invitation.
        let _ = fs::remove_file(self.path);
    }
}

/// A server that gets a name, and whose key is kept.
pub struct NewServer {
    name: String,
    server: Target,
    /// The configuration file, where links to it lead.
    config: Arc<PathBuf>,
}

impl NewServer {
    /// A server by its name here.
    pub fn new(name: &str, server: &Target) -> Result<Self, LoginError> {
        let config = match std::env::var_os(CONFIG.name) {
            Some(named) if named.is_empty() => return Err(LoginError::NoConfigFile),
            Some(named) => PathBuf::from(named),
            None => file::configuration()?.join("config.toml"),
        };
        let config = fs::canonicalize(&config).unwrap_or(config);
        Ok(Self { name: name.to_owned(), server: server.clone(), config: Arc::new(config) })
    }

    /// Whether the name can be kept. Nothing is changed.
    pub fn check_name(&self) -> Result<(), LoginError> {
        self.new_config().map(drop)
    }

    /// Whether name and key can be kept. Nothing is changed.
    pub fn check(&self, key: &Key) -> Result<(), LoginError> {
        let mut lines = match file::read(&file::list_path()?) {
            Err(KeyFileError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        self.add_key(&mut lines, key)?;
        self.new_config().map(drop)
    }

    /// Keeps the key, and then the name: a name without a key would be an error of every command that uses it.
    pub fn keep(&self, key: &Key) -> Result<(), LoginError> {
        file::update_list(|lines| self.add_key(lines, key))?;
        let _lock = file::lock(&file::list_path()?.with_extension("lock"))?;
        match self.new_config()? {
            Some(text) => self.write_config(&text).map_err(|cause| self.config_failed("written", cause)),
            None => Ok(()),
        }
    }

    fn add_key(&self, lines: &mut Vec<Line>, key: &Key) -> Result<(), LoginError> {
        let server = Some(self.server.endpoint.clone());
        match lines.iter().find(|line| line.server == server) {
            Some(line) if line.key == *key => {}
            Some(_) => return Err(LoginError::HasKey(self.server.endpoint.to_string())),
            None => lines.push(Line { server, key: key.clone() }),
        }
        Ok(())
    }

    /// What the configuration file is to say; nothing where it says so already.
    fn new_config(&self) -> Result<Option<String>, LoginError> {
        let text = match fs::read_to_string(&*self.config) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|cause| self.config_failed("read", cause))?,
        };
        Ok(with_server(&self.config, &text, &self.name, &self.server.address())?)
    }

    /// Writes a draft beside the file, which takes its place when it is complete.
    fn write_config(&self, text: &str) -> io::Result<()> {
        let draft = self.config.with_extension(format!("new-{}", std::process::id()));
        let mode = fs::metadata(&*self.config).map_or(0o600, |data| data.permissions().mode() & 0o777);
        // One of an earlier process of this number.
        let _ = fs::remove_file(&draft);
        let written =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.set_permissions(fs::Permissions::from_mode(mode))?;
                file.sync_all()?;
                fs::rename(&draft, &*self.config)
            });
        // It is not there where it was renamed.
        let _ = fs::remove_file(&draft);
        written
    }

    fn config_failed(&self, action: &'static str, cause: io::Error) -> LoginError {
        LoginError::ConfigIo { path: self.config.display().to_string(), action, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_an_earlier_command_may_have_enrolled_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (name, path): (ClientName, _) = ("ada".parse().unwrap(), folder.path().join("login-1"));
        let pending = || PendingKey::in_file(name, path.clone()).unwrap();
        assert_eq!((pending().discard_new(), path.exists()), (None, false));
        let first = pending();
        let again = pending();
        assert!(!first.is_earlier && again.is_earlier && again.key == first.key);
        assert_eq!((again.discard_new(), path.exists()), (Some(path.display().to_string()), true));
        assert!(pending().key == first.key);
    }
}
