//! TOML parser: keys and values with the lines where they stand.

use core::fmt;
use core::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigFileError, SourceLocation};
use super::section::Section;

/// A key with its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The table.
    pub section: Section,
    /// The key.
    pub key: String,
    /// The value's parts: one, or those of a list.
    pub values: Vec<Value>,
    /// Whether the value is a list.
    pub is_list: bool,
    /// Where it stands.
    pub location: SourceLocation,
}

impl fmt::Debug for Entry {
    /// Without the value, which may have a key in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.location, self.section, self.key)
    }
}

/// A value that is no list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// In quotation marks.
    Text(String),
    /// A whole number.
    Number(i64),
    /// `true` or `false`.
    Switch(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
            Self::Switch(is_on) => is_on.fmt(f),
        }
    }
}

/// A text with its file's name and the places of its lines.
struct Source<'a> {
    file: Arc<PathBuf>,
    text: &'a str,
}

impl Source<'_> {
    fn location(&self, span: &Range<usize>) -> SourceLocation {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        SourceLocation { file: Arc::clone(&self.file), line: Some(line) }
    }

    /// What helps with a text that is no TOML: the key that stands twice, or quotes about a text.
    fn hint(&self, span: &Range<usize>, cause: &str) -> String {
        if cause.starts_with("duplicate key") {
            let key = self.text.get(span.clone()).filter(|key| !key.is_empty() && key.len() < 80);
            return key.map_or_else(String::new, |key| format!(" `{key}`: leave one of them out"));
        }
        let start =
            self.text.get(..span.start).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
        let line = self.text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let Some((key, value)) = line.split_once('=') else { return String::new() };
        let (key, value) = (key.trim(), value.trim());
        let is_bare =
            value.starts_with(|first: char| first.is_alphabetic() || matches!(first, '/' | '~' | '@'));
        if !is_bare || value.contains('"') || key.starts_with('#') {
            return String::new();
        }
        // A key of a server may stand there.
        let value = if value.len() < 80 && !value.contains("://") { value } else { "..." };
        format!("; a text stands in quotes: {key} = \"{value}\"")
    }

    fn error_at(&self, span: &Range<usize>, section: Option<Section>, text: String) -> ConfigFileError {
        ConfigFileError { location: self.location(span), section, text }
    }
}

/// The entries of a file's text in their order, and what is wrong with its form. Whether keys are known is
/// not looked at here.
pub fn entries(file: &Arc<PathBuf>, text: &str) -> (Vec<Entry>, Vec<ConfigFileError>) {
    let source = Source { file: Arc::clone(file), text };
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    let document = match DeTable::parse(text) {
        Ok(document) => document.into_inner(),
        Err(error) => {
            let span = error.span().unwrap_or(text.len()..text.len());
            let cause = error.message().lines().collect::<Vec<_>>().join(", ");
            let hint = source.hint(&span, &cause);
            errors.push(source.error_at(&span, None, format!("this is not TOML: {cause}{hint}")));
            return (entries, errors);
        }
    };
    for (name, value) in &document {
        let section = match name.get_ref().as_ref() {
            "client" => Section::Client,
            "serve" => Section::Serve,
            "servers" => {
                servers(&source, value, &mut entries, &mut errors);
                continue;
            }
            other => {
                let text = match value.get_ref() {
                    DeValue::Table(_) => format!("[{other}] is no table that is known"),
                    _ => format!("`{other}` stands in no table"),
                };
                let text = format!("{text}: there are [client], [serve] and [servers.NAME]");
                errors.push(source.error_at(&name.span(), None, text));
                continue;
            }
        };
        match value.get_ref() {
            DeValue::Table(table) => table_of(&source, &section, table, &mut entries, &mut errors),
            other => errors.push(no_table(&source, &section, value, other)),
        }
    }
    entries.sort_by_key(|entry| entry.location.line);
    errors.sort_by_key(|error_at| error_at.location.line);
    (entries, errors)
}

fn no_table(
    source: &Source<'_>,
    section: &Section,
    value: &Spanned<DeValue<'_>>,
    found: &DeValue<'_>,
) -> ConfigFileError {
    let text = format!("{section} must be a table, and is a value of the kind {}", found.type_str());
    source.error_at(&value.span(), Some(section.clone()), text)
}

fn servers(
    source: &Source<'_>,
    value: &Spanned<DeValue<'_>>,
    entries: &mut Vec<Entry>,
    errors: &mut Vec<ConfigFileError>,
) {
    let Some(servers) = value.get_ref().as_table() else {
        let text = "[servers] must be a table of tables: write [servers.NAME]".to_owned();
        errors.push(source.error_at(&value.span(), Some(Section::Client), text));
        return;
    };
    for (name, server) in servers {
        let section = Section::Server(name.get_ref().to_string());
        match server.get_ref() {
            DeValue::Table(table) => table_of(source, &section, table, entries, errors),
            other => errors.push(no_table(source, &section, server, other)),
        }
    }
}

fn table_of(
    source: &Source<'_>,
    section: &Section,
    table: &DeTable<'_>,
    entries: &mut Vec<Entry>,
    errors: &mut Vec<ConfigFileError>,
) {
    for (key, value) in table {
        let (list, is_list) = match value.get_ref() {
            DeValue::Array(list) => (list.iter().collect::<Vec<_>>(), true),
            _ => (vec![value], false),
        };
        let values: Result<Vec<_>, _> = list.into_iter().map(|value| plain(value.get_ref())).collect();
        let key_text = key.get_ref().to_string();
        match values {
            Ok(values) => entries.push(Entry {
                section: section.clone(),
                key: key_text,
                values,
                is_list,
                location: source.location(&key.span()),
            }),
            Err(kind) => {
                let text = format!(
                    "{section} {key_text} is a value of the kind {kind}: give a text, a number or true or false"
                );
                errors.push(source.error_at(&value.span(), Some(section.clone()), text));
            }
        }
    }
}

/// A value that is no list and no table, or else its kind.
fn plain(value: &DeValue<'_>) -> Result<Value, &'static str> {
    match value {
        DeValue::String(text) => Ok(Value::Text(text.to_string())),
        DeValue::Boolean(is_on) => Ok(Value::Switch(*is_on)),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::Number)
            .map_err(|_| "number that is too large"),
        other => Err(other.type_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<Entry>, Vec<ConfigFileError>) {
        entries(&Arc::new(PathBuf::from("c.toml")), text)
    }

    #[test]
    fn keys_and_values_are_found_with_their_lines() {
        let text = "# mine\n[client]\non = [\"a\", \"b:1\"]\nlanes = 0x1_0\n\n[servers.box]\nclear = true\n";
        let (entries, errors) = read(text);
        assert_eq!(errors, []);
        let found: Vec<_> = entries
            .iter()
            .map(|entry| {
                let values = entry.values.iter().map(Value::to_string).collect::<Vec<_>>().join(",");
                (format!("{} {}", entry.section, entry.key), values, entry.location.line.unwrap())
            })
            .collect();
        let expected =
            [("[client] on", "a,b:1", 3), ("[client] lanes", "16", 4), ("[servers.box] clear", "true", 7)];
        assert_eq!(found, expected.map(|(key, value, line)| (key.to_owned(), value.to_owned(), line)));
    }

    #[test]
    fn what_has_no_form_is_named_with_its_line() {
        for (text, expected) in [
            ("[client\n", "c.toml:1: this is not TOML: "),
            (
                "\n[client]\nlanes = 1\nlanes = 2\n",
                "c.toml:4: this is not TOML: duplicate key `lanes`: leave one",
            ),
            ("\n[cleint]\n", "c.toml:2: [cleint] is no table that is known: there are [client], [serve] and"),
            ("on = \"a\"\n", "c.toml:1: `on` stands in no table: there are [client]"),
            ("client = 1\n", "c.toml:1: [client] must be a table, and is a value of the kind integer"),
            ("servers = [1]\n", "c.toml:1: [servers] must be a table of tables"),
            ("[servers]\na = 1\n", "c.toml:2: [servers.a] must be a table"),
            ("[client]\nlanes = 1.5\n", "c.toml:2: [client] lanes is a value of the kind float: give a text"),
            ("[client]\non = [{}]\n", "c.toml:2: [client] on is a value of the kind table"),
        ] {
            let (_, errors) = read(text);
            assert_eq!(errors.len(), 1, "{text}");
            let found = errors[0].to_string();
            assert!(found.starts_with(expected), "{text}: {found}");
        }
    }

    #[test]
    fn a_text_without_quotes_is_shown_with_them_unless_it_may_be_a_key() {
        let message = |text: &str| read(text).1[0].to_string();
        let found = message("[client]\nvia = tcp\nlanes = 1\n");
        assert!(
            found.starts_with("c.toml:2: this is not TOML: ") && found.ends_with(": via = \"tcp\""),
            "{found}"
        );
        let found = message("[servers.a]\naddress = causeway://SECRET@a\n");
        assert!(found.ends_with("a text stands in quotes: address = \"...\""), "{found}");
        assert!(!message("[client\n").contains("quotes"));
    }

    #[test]
    fn a_value_is_not_in_what_is_logged() {
        let (entries, _) = read("[servers.a]\naddress = \"causeway://SECRET@a\"\n");
        assert_eq!(format!("{entries:?}"), "[c.toml:2: [servers.a] address]");
    }
}
