//! What does an environment say, and is it something that can be used?

use core::fmt::Display;
use core::str::FromStr;
use std::ffi::OsString;
use std::path::PathBuf;

use thiserror::Error;

use crate::size::Size;
use crate::table::ALL;
use crate::variable::{Variable, Who, switch};

/// A variable that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name}={} cannot be used: {expected}", shown(value))]
pub struct ValueError {
    name: &'static str,
    value: String,
    expected: String,
}

/// Variables with their values: those of this process, or invented ones.
#[derive(Clone, Copy)]
pub struct Environment<'a>(&'a dyn Fn(&str) -> Option<OsString>);

/// A value in one line of bounded length: a worker has variables from its client, and logs what is wrong.
fn shown(value: &str) -> String {
    const MOST: usize = 200;
    value
        .chars()
        .take(MOST)
        .flat_map(|letter| if letter.is_control() { letter.escape_default().collect() } else { vec![letter] })
        .collect()
}

fn of_process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The environment of this process.
pub const PROCESS: Environment<'static> = Environment(&of_process);

impl<'a> Environment<'a> {
    /// Variables that a function knows by their names.
    pub fn of(values: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self(values)
    }

    /// The value of a variable as it is, be it empty.
    pub fn raw(&self, variable: &Variable) -> Option<OsString> {
        debug_assert!(ALL.contains(&variable), "{} is not in the table", variable.name);
        (self.0)(variable.name)
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

    /// The text of a variable that the table admits.
    fn admitted(&self, variable: &Variable) -> Result<Option<String>, ValueError> {
        match self.text(variable) {
            Some(text) if !variable.values.admits(&text) => {
                Err(wrong(variable, text, variable.values.expected().unwrap_or_default()))
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
        text.parse().map(Some).map_err(|cause: T::Err| ValueError {
            name: variable.name,
            value: text.clone(),
            expected: cause.to_string(),
        })
    }

    /// The word in a variable that holds one of some.
    pub fn word(&self, variable: &Variable) -> Result<Option<String>, ValueError> {
        self.admitted(variable)
    }

    /// The number in a variable that holds one.
    pub fn number(&self, variable: &Variable) -> Result<Option<u64>, ValueError> {
        self.parsed(variable)
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

fn wrong(variable: &Variable, value: String, expected: String) -> ValueError {
    ValueError { name: variable.name, value, expected: format!("give {expected}") }
}

/// Checks every variable that these act on, as far as the table says what may be in it: what is wrong is
/// told before
/// anything is done, and never passed over.
pub fn check(environment: Environment<'_>, who: &[Who]) -> Result<(), ValueError> {
    let concerned = ALL.iter().filter(|variable| variable.who.iter().any(|one| who.contains(one)));
    concerned.into_iter().try_for_each(|variable| environment.admitted(variable).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{CORES, DEDUP, LANES, LIB_DIR, SHM_STAGING, VERBS_MTU, VIA};

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
        ];
        with(&set, |environment| {
            assert_eq!(environment.number(&LANES), Ok(Some(7)));
            assert_eq!(environment.is_on(&DEDUP), Ok(true));
            assert_eq!(environment.size(&SHM_STAGING), Ok(Some(64 << 20)));
            assert_eq!(environment.number(&CORES), Ok(None));
            assert_eq!(environment.path(&LIB_DIR), None);
            assert_eq!(check(environment, &[Who::Client, Who::Server]), Ok(()));
        });
    }

    #[test]
    fn what_cannot_be_used_is_named_with_what_can() {
        for (name, value, expected) in [
            ("CAUSEWAY_LANES", "foo", "give a number from 1 to 32"),
            ("CAUSEWAY_LANES", "33", "give a number from 1 to 32"),
            ("CAUSEWAY_VIA", "pigeon", "give auto, tcp, shm or verbs"),
            ("CAUSEWAY_SYNC", "maybe", "give on (or 1) or off (or 0)"),
            ("CAUSEWAY_VERBS_MTU", "1500", "give 256, 512, 1024, 2048 or 4096"),
            ("CAUSEWAY_VERBS_STAGING", "1K", "give a size from 1M to 4G"),
        ] {
            let error = with(&[(name, value)], |environment| check(environment, &[Who::Client])).unwrap_err();
            assert_eq!(error.to_string(), format!("{name}={value} cannot be used: {expected}"));
        }
    }

    #[test]
    fn a_value_stays_one_line() {
        let forged = [("CAUSEWAY_LANES", "1\n\u{1b}[31mcauseway: all is well")];
        let error = with(&forged, |environment| check(environment, &[Who::Client])).unwrap_err().to_string();
        assert!(error.starts_with(r"CAUSEWAY_LANES=1\n\u{1b}[31mcauseway"), "{error}");
        let long = "9".repeat(5000);
        let error = with(&[("CAUSEWAY_LANES", &long)], |environment| check(environment, &[Who::Client]));
        assert!(error.unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn nobody_is_held_up_by_what_others_act_on() {
        let checked =
            |who| with(&[("CAUSEWAY_SHM_STAGING", "much")], |environment| check(environment, &[who]));
        assert_eq!(checked(Who::Client), Ok(()));
        assert!(checked(Who::Server).is_err());
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
