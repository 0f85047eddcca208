//! Values of environment variables and configuration files, checked.
//!
//! A variable takes precedence over the user's file, and that over the machine's; options of the command line
//! take precedence over all, in the programs that have options. A variable that is set and empty hides what files
//! say, and counts as not set.

use core::fmt::Display;
use core::str::FromStr;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use thiserror::Error;

use crate::duration::whole_seconds;
use crate::file::{Entry, FilesError, Section, Settings, candidates};
use crate::size::Size;
use crate::table::{ALL, RENAMED};
use crate::variable::{Component, Variable, switch};

/// A value that cannot be used, of a variable or of a key in a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name}{}{} cannot be used: {expected}", if *is_variable { "=" } else { " = " }, printable(value))]
pub struct ValueError {
    /// The variable, or file, line and key.
    name: String,
    is_variable: bool,
    value: String,
    expected: String,
}

/// Why what is set cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A value makes no sense.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A configuration file has an error.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// What a process is, so that it acts on the sections of configuration files that concern it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// It uses servers: `[client]` and `[servers.NAME]`. What every process is that does not say otherwise.
    Client,
    /// It is a server: `[serve]`.
    Server,
    /// It is a server's worker, which gets what concerns it from the server, as variables.
    Worker,
}

static ROLE: AtomicU8 = AtomicU8::new(Role::Client as u8);

/// Says what this process is. To be called before anything else is read.
pub fn act_as(role: Role) {
    ROLE.store(role as u8, Ordering::Relaxed);
}

/// The section that variables of this process have their values in.
fn section() -> Option<Section> {
    match ROLE.load(Ordering::Relaxed) {
        role if role == Role::Client as u8 => Some(Section::Client),
        role if role == Role::Server as u8 => Some(Section::Serve),
        _ => None,
    }
}

/// What the configuration files of this process say. They are read once, at the first query.
pub fn files() -> &'static Settings {
    static FILES: OnceLock<Settings> = OnceLock::new();
    FILES.get_or_init(|| match section() {
        Some(_) => Settings::read(&candidates::of_process()),
        None => Settings::default(),
    })
}

/// The variables whose values come from files, for processes that this one starts and that read none.
pub fn from_files() -> Vec<(&'static str, OsString)> {
    let is_set = |variable: &Variable| std::env::var_os(variable.name).is_some();
    let value = |variable: &&'static Variable| Some((variable.name, PROCESS.raw(variable)?));
    ALL.iter().copied().filter(|variable| !is_set(variable)).filter_map(|variable| value(&variable)).collect()
}

/// Variables with their values: those of this process and its configuration files, or invented ones.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    variables: &'a dyn Fn(&str) -> Option<OsString>,
    /// Whether this process's files count where a variable is not set.
    has_files: bool,
    /// The named server whose own settings count before those of all.
    server: Option<&'a str>,
}

/// A value in one line of bounded length: a worker has variables from its client, and logs what is wrong.
fn printable(value: &str) -> String {
    const MAX_PRINTED_LEN: usize = 200;
    value
        .chars()
        .take(MAX_PRINTED_LEN)
        .flat_map(|letter| if letter.is_control() { letter.escape_default().collect() } else { vec![letter] })
        .collect()
}

/// The value of a variable of this process, by its name or by a former one.
fn of_process(name: &str) -> Option<OsString> {
    let former = || RENAMED.iter().find(|(_, variable)| variable.name == name);
    std::env::var_os(name).or_else(|| std::env::var_os(former()?.0))
}

/// The environment and the configuration files of this process.
pub const PROCESS: Environment<'static> =
    Environment { variables: &of_process, has_files: true, server: None };

impl<'a> Environment<'a> {
    /// Variables that a function knows by their names; no files.
    pub fn of(values: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { variables: values, has_files: false, server: None }
    }

    /// The same for a server: where it has a name in the files, what stands there counts before what stands
    /// there for all.
    pub fn of_server(self, name: Option<&'a str>) -> Self {
        Self { server: name, ..self }
    }

    /// The value of a variable as it is, be it empty.
    pub fn raw(&self, variable: &Variable) -> Option<OsString> {
        debug_assert!(ALL.contains(&variable), "{} is not in the table", variable.name);
        (self.variables)(variable.name).or_else(|| Some(self.in_files(variable)?.0))
    }

    /// What files say of a variable.
    fn in_files(&self, variable: &Variable) -> Option<(OsString, &'static Entry)> {
        // Most variables that are asked for often, such as NVIDIA's, have no place there.
        if !self.has_files || !variable.name.starts_with("CAUSEWAY_") {
            return None;
        }
        let section = section()?;
        let files = files();
        let own =
            self.server.filter(|_| section == Section::Client).map(|name| Section::Server(name.to_owned()));
        let of_own = own.and_then(|own| files.value(&own, variable));
        of_own.or_else(|| files.value(&section, variable).filter(|_| variable.stands_in(&section)))
    }

    /// What says what a variable's value is: its name, or file, line and key.
    pub fn origin(&self, variable: &Variable) -> String {
        match self.in_files(variable) {
            Some((_, entry)) if (self.variables)(variable.name).is_none() => {
                format!("{}: {}", entry.location, entry.key)
            }
            _ => variable.name.to_owned(),
        }
    }

    /// The value of a variable without blanks around it; one that is empty then is as none.
    pub fn text(&self, variable: &Variable) -> Option<String> {
        let text = self.raw(variable)?.to_string_lossy().trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The path that a variable holds; an empty one is as none.
    pub fn path(&self, variable: &Variable) -> Option<PathBuf> {
        self.raw(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    fn wrong(&self, variable: &Variable, value: String, expected: String) -> ValueError {
        let is_variable = (self.variables)(variable.name).is_some();
        ValueError { name: self.origin(variable), is_variable, value, expected }
    }

    /// The text of a variable that the table admits.
    fn admitted(&self, variable: &Variable) -> Result<Option<String>, ValueError> {
        match self.text(variable) {
            Some(text) if !variable.values.admits(&text) => {
                let expected = variable.values.expected().unwrap_or_default();
                Err(self.wrong(variable, text, format!("give {expected}")))
            }
            other => Ok(other),
        }
    }

    /// The value of a variable in a form of its own; what the form says of a text that it does not
    /// know is part of the error.
    pub fn parsed<T: FromStr>(&self, variable: &Variable) -> Result<Option<T>, ValueError>
    where
        T::Err: Display,
    {
        let Some(text) = self.admitted(variable)? else { return Ok(None) };
        text.parse().map(Some).map_err(|cause: T::Err| self.wrong(variable, text.clone(), cause.to_string()))
    }

    /// The word in a variable that holds one of some.
    pub fn word(&self, variable: &Variable) -> Result<Option<String>, ValueError> {
        self.admitted(variable)
    }

    /// The number in a variable that holds one.
    pub fn number(&self, variable: &Variable) -> Result<Option<u64>, ValueError> {
        self.parsed(variable)
    }

    /// The seconds in a variable that holds a time.
    pub fn seconds(&self, variable: &Variable) -> Result<Option<u64>, ValueError> {
        Ok(self.admitted(variable)?.as_deref().and_then(|text| whole_seconds(text, 0, u64::MAX)))
    }

    /// The bytes in a variable that holds a size.
    pub fn size(&self, variable: &Variable) -> Result<Option<u64>, ValueError> {
        Ok(self.parsed(variable)?.map(|Size(bytes)| bytes))
    }

    /// Whether a switch is on; one that is not set is off.
    pub fn is_on(&self, variable: &Variable) -> Result<bool, ValueError> {
        Ok(self.admitted(variable)?.as_deref().and_then(switch).unwrap_or(false))
    }
}

/// Checks every variable that these act on, as far as the table says what may be in it, and the configuration
/// files as far as they concern this process: what is wrong is reported before anything is done, and never passed
/// over. Who acts on nothing is not held up.
pub fn check(environment: Environment<'_>, components: &[Component]) -> Result<(), ConfigError> {
    if environment.has_files && !components.is_empty() {
        let is_server = section() == Some(Section::Serve);
        files().check(|section| (*section == Section::Serve) == is_server)?;
    }
    let mut concerned =
        ALL.iter().filter(|variable| variable.components.iter().any(|one| components.contains(one)));
    concerned.try_for_each(|variable| Ok(environment.admitted(variable).map(drop)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{CORES, DEDUP, LANES, LIB_DIR, RESUME_TIMEOUT, SHM_STAGING, VERBS_MTU, VIA};

    /// What is found where these variables are set.
    fn with<T>(values: &[(&str, &str)], found: impl FnOnce(Environment<'_>) -> T) -> T {
        let value = |name: &str| {
            values.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        found(Environment::of(&value))
    }

    #[test]
    fn what_is_set_is_read() {
        let set = [
            ("CAUSEWAY_LANES", " 7 "),
            ("CAUSEWAY_DEDUP", "on"),
            ("CAUSEWAY_SHM_STAGING", "64M"),
            ("CAUSEWAY_CORES", " "),
            ("CAUSEWAY_RESUME_TIMEOUT", "5m"),
        ];
        with(&set, |environment| {
            assert_eq!(environment.number(&LANES), Ok(Some(7)));
            assert_eq!(environment.is_on(&DEDUP), Ok(true));
            assert_eq!(environment.size(&SHM_STAGING), Ok(Some(64 << 20)));
            assert_eq!(environment.number(&CORES), Ok(None));
            assert_eq!(environment.seconds(&RESUME_TIMEOUT), Ok(Some(300)));
            assert_eq!(environment.path(&LIB_DIR), None);
            assert_eq!(check(environment, &[Component::Client, Component::Server]), Ok(()));
        });
    }

    #[test]
    fn what_cannot_be_used_is_named_with_what_can() {
        for (name, value, expected) in [
            ("CAUSEWAY_LANES", "foo", "give a number from 1 to 32"),
            ("CAUSEWAY_LANES", "33", "give a number from 1 to 32"),
            ("CAUSEWAY_VIA", "pigeon", "give auto, shm, verbs or tcp"),
            ("CAUSEWAY_SYNC", "maybe", "give on (or 1) or off (or 0)"),
            ("CAUSEWAY_VERBS_MTU", "1500", "give 256, 512, 1024, 2048 or 4096"),
            (
                "CAUSEWAY_RESUME_TIMEOUT",
                "500ms",
                "give a time from 0 to 1d: whole seconds, or a number with ms, s, m, h or d, such as 10m",
            ),
            ("CAUSEWAY_VERBS_STAGING", "1K", "give a size from 1M to 4G"),
        ] {
            let error =
                with(&[(name, value)], |environment| check(environment, &[Component::Client])).unwrap_err();
            assert_eq!(error.to_string(), format!("{name}={value} cannot be used: {expected}"));
        }
    }

    #[test]
    fn a_value_stays_one_line() {
        let forged = [("CAUSEWAY_LANES", "1\n\u{1b}[31mcauseway: all is well")];
        let error =
            with(&forged, |environment| check(environment, &[Component::Client])).unwrap_err().to_string();
        assert!(error.starts_with(r"CAUSEWAY_LANES=1\n\u{1b}[31mcauseway"), "{error}");
        let long = "9".repeat(5000);
        let error =
            with(&[("CAUSEWAY_LANES", &long)], |environment| check(environment, &[Component::Client]));
        assert!(error.unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn nobody_is_held_up_by_what_others_act_on() {
        let checked = |components| {
            with(&[("CAUSEWAY_SHM_STAGING", "much")], |environment| check(environment, &[components]))
        };
        assert_eq!(checked(Component::Client), Ok(()));
        assert!(checked(Component::Server).is_err());
    }

    #[test]
    fn a_form_of_its_own_says_what_is_wrong() {
        let found = with(&[("CAUSEWAY_VIA", "tcp")], |environment| environment.parsed::<u8>(&VIA));
        assert_eq!(
            found.unwrap_err().to_string(),
            "CAUSEWAY_VIA=tcp cannot be used: invalid digit found in string"
        );
        let mtu = with(&[("CAUSEWAY_VERBS_MTU", "2048")], |environment| environment.number(&VERBS_MTU));
        assert_eq!(mtu, Ok(Some(2048)));
    }
}
