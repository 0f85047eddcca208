//! Settings of all configuration files together.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use super::candidates::{self, Candidate};
use super::error::{ConfigFileError, FilesError, SourceLocation};
use super::keys::{self, ADDRESS, CLEAR};
use super::section::Section;
use super::text::{self, Entry, Value};
use crate::variable::Variable;

/// Everything that stands in the files of a process.
#[derive(Debug, Default)]
pub struct Settings {
    /// The files that were read, the one that counts first in front.
    pub files: Vec<Arc<PathBuf>>,
    /// What stands in them, in the same order: of one key in several files the first entry counts.
    entries: Vec<Entry>,
    /// What is wrong in them.
    pub errors: Vec<ConfigFileError>,
}

/// A server that has a name in the files.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// The name.
    pub name: &'a str,
    settings: &'a Settings,
}

impl Settings {
    /// Reads files, of which the first counts first.
    pub fn read(candidates: &[Candidate]) -> Self {
        let mut all = Self::default();
        for candidate in candidates {
            let found = match candidates::read(candidate) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) => {
                    all.errors.push(error);
                    continue;
                }
            };
            let (entries, errors) = text::entries(&found.file, &found.text);
            let wrong = |entry: &Entry| keys::examine(entry).or_else(|| found.exposed_key(entry));
            let mut errors: Vec<_> = errors.into_iter().chain(entries.iter().filter_map(wrong)).collect();
            errors.sort_by_key(|error| error.location.line);
            all.errors.extend(errors);
            all.entries.extend(entries);
            all.files.push(found.file);
        }
        all.errors.extend(all.without_address());
        all
    }

    /// Named servers of which no file says where they are.
    fn without_address(&self) -> Vec<ConfigFileError> {
        let first =
            |name: &str| self.entries.iter().find(|entry| entry.section == Section::Server(name.to_owned()));
        let lacking = self.servers().filter(|server| server.entry(ADDRESS).is_none());
        let error = |server: Named<'_>| {
            let location: SourceLocation = first(server.name)?.location.clone();
            let section = Some(Section::Server(server.name.to_owned()));
            let text = format!(
                "[servers.{}] has no `{ADDRESS}`: give HOST:PORT, unix:PATH, vsock:CID:PORT or a connect string",
                server.name
            );
            Some(ConfigFileError { location, section, text })
        };
        lacking.filter_map(error).collect()
    }

    /// The entry that counts for a key.
    pub fn entry(&self, section: &Section, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.section == *section && entry.key == key)
    }

    /// The entries of a section that count, each key once, in the order of the files.
    pub fn of_section<'a>(&'a self, section: &'a Section) -> impl Iterator<Item = &'a Entry> {
        let of_section = self.entries.iter().filter(move |entry| entry.section == *section);
        of_section
            .filter(|entry| self.entry(section, &entry.key).is_some_and(|first| core::ptr::eq(first, *entry)))
    }

    /// What a section says of a variable: its text, and where it stands.
    pub fn value(&self, section: &Section, variable: &Variable) -> Option<(OsString, &Entry)> {
        let entry =
            self.entries.iter().find(|entry| entry.section == *section && variable.has_key(&entry.key))?;
        Some((keys::value_of(variable, entry).ok()?.into(), entry))
    }

    /// The servers that have names, in the order of the files.
    pub fn servers(&self) -> impl Iterator<Item = Named<'_>> {
        let mut names: Vec<&str> = Vec::new();
        for entry in &self.entries {
            if let Section::Server(name) = &entry.section
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names.into_iter().map(|name| Named { name, settings: self })
    }

    /// The server of this name.
    pub fn server<'a>(&'a self, name: &str) -> Option<Named<'a>> {
        self.servers().find(|server| server.name == name)
    }

    /// Whether the files can be used by whom these sections concern.
    ///
    /// # Errors
    /// For errors in these sections, and for files that cannot be used at all.
    pub fn check(&self, concerned: impl Fn(&Section) -> bool) -> Result<(), FilesError> {
        let is_reported = |error: &&ConfigFileError| error.section.as_ref().is_none_or(&concerned);
        let errors: Vec<_> = self.errors.iter().filter(is_reported).cloned().collect();
        if errors.is_empty() { Ok(()) } else { Err(FilesError { errors }) }
    }
}

impl<'a> Named<'a> {
    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.settings.entry(&Section::Server(self.name.to_owned()), key)
    }

    /// Its address as it is written in the file; a key may be in it.
    pub fn address(&self) -> Option<&'a str> {
        match self.entry(ADDRESS)?.values.as_slice() {
            [Value::Text(address)] => Some(address.trim()),
            _ => None,
        }
    }

    /// Where the file says where it is.
    pub fn location(&self) -> Option<&'a SourceLocation> {
        self.entry(ADDRESS).map(|entry| &entry.location)
    }

    /// Whether nothing is to be encrypted.
    pub fn is_clear(&self) -> bool {
        matches!(self.entry(CLEAR).map(|entry| entry.values.as_slice()), Some([Value::Switch(true)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{KEY_FILE, LANES, ON, SHM_STAGING, SYNC, VIA};
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    /// Files of these texts, the first of which counts first.
    fn files(folder: &Path, texts: &[&str]) -> Settings {
        let candidates: Vec<_> = (0..texts.len())
            .map(|number| Candidate { path: folder.join(format!("{number}.toml")), must_be_there: true })
            .collect();
        for (candidate, text) in candidates.iter().zip(texts) {
            fs::write(&candidate.path, text).unwrap();
            fs::set_permissions(&candidate.path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        Settings::read(&candidates)
    }

    fn errors(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let settings = files(folder.path(), &[text]);
        let prefix = format!("{}/0.toml:", folder.path().display());
        settings.errors.iter().map(|error| error.to_string().replace(&prefix, "")).collect()
    }

    #[test]
    fn of_several_files_the_first_counts_key_by_key() {
        let folder = tempfile::tempdir().unwrap();
        let user = "[client]\non = [\"box\", \"other:1\"]\nsync = true\n[servers.box]\nvia = \"tcp\"\n";
        let system = "[client]\nlanes = 7\nsync = false\n[servers.box]\naddress = \"box.lab:9\"\nvia = \"shm\"\n\
                      key-file = \"keys/box\"\nclear = true\n[serve]\nshm-staging = \"64M\"\n";
        let settings = files(folder.path(), &[user, system]);
        assert_eq!(settings.errors, []);
        let value = |section: &Section, variable| {
            settings.value(section, variable).map(|(text, _)| text.into_string().unwrap())
        };
        let client = |variable| value(&Section::Client, variable);
        assert_eq!(client(&ON).as_deref(), Some("box,other:1"));
        assert_eq!(client(&SYNC).as_deref(), Some("on"));
        assert_eq!(client(&LANES).as_deref(), Some("7"));
        assert_eq!(client(&VIA), None);
        assert_eq!(value(&Section::Serve, &SHM_STAGING).as_deref(), Some("64M"));
        let server = settings.server("box").unwrap();
        assert_eq!((server.address(), server.is_clear()), (Some("box.lab:9"), true));
        let section = Section::Server("box".to_owned());
        assert_eq!(value(&section, &VIA).as_deref(), Some("tcp"));
        let keys = folder.path().join("keys/box").display().to_string();
        assert_eq!(value(&section, &KEY_FILE), Some(keys));
        let (_, entry) = settings.value(&Section::Client, &LANES).unwrap();
        assert!(entry.location.to_string().ends_with("1.toml:2"), "{}", entry.location);
        assert!(settings.server("nobody").is_none());
    }

    #[test]
    fn mistakes_are_named_with_line_and_key_and_what_to_do() {
        for (text, expected) in [
            ("[client]\nlane = 4\n", "2: [client] has no key `lane`: is `lanes` meant?"),
            (
                "[client]\nbeauty = 4\n",
                "2: [client] has no key `beauty`: `causeway config example` shows all",
            ),
            ("[client]\nlanes = 99\n", "2: lanes = 99 cannot be used: give a number from 1 to 32"),
            ("[client]\nlanes = true\n", "2: lanes = true cannot be used: give a number from 1 to 32"),
            ("[client]\nlanes = [1]\n", "2: lanes = 1 cannot be used: a list is not allowed here"),
            ("[client]\nvia = \"pigeon\"\n", "2: via = pigeon cannot be used: give auto, shm, verbs or tcp"),
            ("[client]\nsync = 2\n", "2: sync = 2 cannot be used: give on (or 1) or off (or 0)"),
            ("[client]\nshm-staging = \"1M\"\n", "2: [client] has no key `shm-staging`"),
            (
                "[serve]\nshm-staging = \"1K\"\n",
                "2: shm-staging = 1K cannot be used: give a size from 1M to 16G",
            ),
            ("[servers.a]\nvia = \"tcp\"\n", "2: [servers.a] has no `address`: give HOST:PORT"),
            (
                "[client]\non = [\"unix:@a\", \"b, KEY@a\"]\n",
                "2: [client] on has a key in it, and the file can",
            ),
            ("[servers.a]\naddress = 1\n", "2: [servers.a] address must be a text"),
            ("[servers.a]\naddress = \"a\"\nclear = 1\n", "3: [servers.a] clear must be true or false"),
            ("[servers.a]\naddress = \"a\"\nlanes = 1\n", "3: [servers.a] has no key `lanes`"),
            ("[servers.local]\naddress = \"a\"\n", "2: no server can be called `local`"),
            ("[servers.\"a b\"]\naddress = \"a\"\n", "2: `a b` is no name for a server"),
            (
                "[servers.a]\naddress = \"causeway://KEY@a\"\n",
                "2: [servers.a] address has a key in it, and the file can",
            ),
        ] {
            let found = errors(text);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
        }
        assert_eq!(errors("[serve]\nlisten = \"a:1\"\n"), [""; 0], "an option is the command's");
    }

    #[test]
    fn a_key_may_stand_in_a_file_that_nobody_else_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        fs::write(&path, "[servers.a]\naddress = \"causeway://KEY@a\"\n").unwrap();
        for (mode, count) in [(0o600, 0), (0o640, 1), (0o604, 1)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let settings = Settings::read(&[Candidate { path: path.clone(), must_be_there: true }]);
            assert_eq!(settings.errors.len(), count, "{mode:o}");
            assert!(settings.errors.iter().all(|error| !error.to_string().contains("KEY@")));
        }
    }

    #[test]
    fn nobody_is_held_up_by_a_mistake_about_others() {
        let folder = tempfile::tempdir().unwrap();
        let settings = files(folder.path(), &["[client]\nlanes = 99\nvia = 1\n"]);
        assert!(settings.check(|section| *section == Section::Serve).is_ok());
        let error = settings.check(|section| *section != Section::Serve).unwrap_err().to_string();
        assert!(error.contains("0.toml:2: lanes = 99") && error.contains("(and one more error"), "{error}");
        let settings = files(folder.path(), &["[client\n"]);
        assert!(settings.check(|section| *section == Section::Serve).is_err());
    }
}
