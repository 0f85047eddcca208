//! Keys of configuration files, and the values that they take.
//!
//! A key is the name of a variable or of an option, without what they begin with: `CAUSEWAY_LANES` and
//! `lanes`, `--key-file` and `key-file`.

use super::error::ConfigFileError;
use super::section::Section;
use super::text::{Entry, Value};
use crate::table::{ALL, CONFIG, KEY_FILE, ON, PIPELINE, RENAMED, VIA};
use crate::variable::{Component, Values, Variable};

/// The key of a named server that says where it is.
pub const ADDRESS: &str = "address";

/// The key of a named server that says that nothing is encrypted, as `--clear` does.
pub const CLEAR: &str = "clear";

/// The variables that can have a value of their own for a named server.
pub static OF_ONE_SERVER: &[&Variable] = &[&KEY_FILE, &VIA, &PIPELINE];

/// What stands for the GPUs of this machine itself where a server is named.
pub const LOCAL: &str = "local";

/// What stands for a private server with the software GPU.
pub const SOFTWARE: &str = "software";

impl Variable {
    /// What it is called in configuration files; nothing where it has no place there.
    pub fn key(&self) -> Option<String> {
        let concerns = |components: &Component| {
            matches!(components, Component::Client | Component::Worker | Component::Run | Component::Server)
        };
        let is_there = self.components.iter().any(concerns) && self.name != CONFIG.name;
        is_there.then(|| key_of(self.name)).flatten()
    }

    /// Whether a key is that of the variable, by its name or by a former one.
    pub(super) fn has_key(&self, key: &str) -> bool {
        let mut former = RENAMED.iter().filter(|(_, variable)| *variable == self);
        let is_key = |known: Option<String>| known.is_some_and(|known| known == key);
        self.key().is_some() && (is_key(self.key()) || former.any(|(name, _)| is_key(key_of(name))))
    }

    /// Whether the key may stand in a section.
    pub fn stands_in(&self, section: &Section) -> bool {
        let concerns = |components: &Component| match section {
            Section::Client => matches!(components, Component::Client | Component::Worker | Component::Run),
            Section::Serve => *components == Component::Server,
            Section::Server(_) => false,
        };
        let is_of_one = matches!(section, Section::Server(_)) && OF_ONE_SERVER.contains(&self);
        self.key().is_some() && (is_of_one || self.components.iter().any(concerns))
    }
}

/// What a variable of this name is called in configuration files.
fn key_of(name: &str) -> Option<String> {
    Some(name.strip_prefix("CAUSEWAY_")?.to_ascii_lowercase().replace('_', "-"))
}

/// The variable that a key of a section is for.
pub fn variable(section: &Section, key: &str) -> Option<&'static Variable> {
    let is_it = |variable: &&&Variable| variable.stands_in(section) && variable.has_key(key);
    ALL.iter().find(is_it).copied()
}

/// All keys that a section may have, but for options of `causeway serve`, which that command knows.
pub fn all(section: &Section) -> impl Iterator<Item = String> {
    let own: &[&str] = if matches!(section, Section::Server(_)) { &[ADDRESS, CLEAR] } else { &[] };
    let of_table =
        ALL.iter().filter(|variable| variable.stands_in(section)).filter_map(|variable| variable.key());
    own.iter().map(|key| (*key).to_owned()).chain(of_table).collect::<Vec<_>>().into_iter()
}

/// What is wrong with an entry, as far as the table can say it. In `[serve]` a key that the table does not
/// have may be an option, which only the command knows.
pub fn examine(entry: &Entry) -> Option<ConfigFileError> {
    let wrong = |text: String| {
        Some(ConfigFileError { location: entry.location.clone(), section: Some(entry.section.clone()), text })
    };
    let Entry { section, key, .. } = entry;
    if let Section::Server(name) = section {
        if let Some(text) = wrong_name(name) {
            return wrong(text);
        }
        match key.as_str() {
            ADDRESS => {
                let is_text =
                    matches!(entry.values.as_slice(), [Value::Text(text)] if !text.trim().is_empty());
                let text = || {
                    format!("{section} {ADDRESS} must be a text: HOST:PORT, unix:PATH or a connect string")
                };
                return if is_text && !entry.is_list { None } else { wrong(text()) };
            }
            CLEAR => {
                let is_switch = matches!(entry.values.as_slice(), [Value::Switch(_)]) && !entry.is_list;
                let text = || format!("{section} {CLEAR} must be true or false");
                return if is_switch { None } else { wrong(text()) };
            }
            _ => {}
        }
    }
    match variable(section, key) {
        Some(variable) => value_of(variable, entry).err().and_then(wrong),
        None if *section == Section::Serve => None,
        None => wrong(unknown(section, key, all(section))),
    }
}

/// Says that a section has no such key, and which one may be meant.
pub fn unknown(section: &Section, key: &str, known: impl Iterator<Item = String>) -> String {
    let known: Vec<String> = known.collect();
    let likely = known.iter().map(|other| (strsim::damerau_levenshtein(key, other), other)).min();
    let hint = match likely {
        Some((distance, other)) if distance <= 1 + key.len() / 4 => format!("is `{other}` meant?"),
        _ => "`causeway config example` shows all".to_owned(),
    };
    format!("{section} has no key `{key}`: {hint}")
}

/// Why a server cannot have this name.
pub(super) fn wrong_name(name: &str) -> Option<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if name == LOCAL || name == SOFTWARE {
        let meaning = if name == LOCAL { "the GPUs of this machine itself" } else { "the software GPU" };
        Some(format!("no server can be called `{name}`, which means {meaning}"))
    } else if name.is_empty() || !name.chars().all(is_plain) {
        Some(format!("`{name}` is no name for a server: use letters, digits, `-`, `_` and `.`"))
    } else {
        None
    }
}

/// The text that a variable would have for what stands in an entry, or why there is none.
pub fn value_of(variable: &Variable, entry: &Entry) -> Result<String, String> {
    let texts: Vec<String> = entry.values.iter().map(Value::to_string).collect();
    let printable = texts.join(", ");
    let wrong = |cause: String| Err(format!("{} = {printable} cannot be used: {cause}", entry.key));
    if entry.is_list && variable != &ON {
        return wrong("a list is not allowed here".to_owned());
    }
    let text = match (variable.values, entry.values.as_slice()) {
        (Values::Switch, [Value::Switch(is_on)]) => (if *is_on { "on" } else { "off" }).to_owned(),
        (_, values) if values.iter().any(|value| matches!(value, Value::Switch(_))) => {
            let expected = variable.values.expected().unwrap_or_else(|| "a text".to_owned());
            return wrong(format!("give {expected}"));
        }
        (Values::Path, [Value::Text(path)]) => entry.path(path),
        _ => texts.join(","),
    };
    if text.contains('\0') {
        return wrong("a NUL cannot stand here".to_owned());
    }
    match variable.values.expected() {
        Some(expected) if !text.is_empty() && !variable.values.admits(text.trim()) => {
            wrong(format!("give {expected}"))
        }
        _ => Ok(text),
    }
}

impl Entry {
    /// A path that stands here: `~/` is the home directory, and what is not absolute begins at the file's
    /// folder.
    pub fn path(&self, path: &str) -> String {
        let home_dir = || std::env::var("HOME").ok().filter(|home_dir| !home_dir.is_empty());
        if let (Some(rest), Some(home_dir)) = (path.strip_prefix("~/"), home_dir()) {
            return format!("{home_dir}/{rest}");
        }
        let folder = self.location.file.parent().filter(|_| !path.is_empty());
        folder.map_or_else(|| path.to_owned(), |folder| folder.join(path).to_string_lossy().into_owned())
    }
}
