//! Addition of a named server to the text of a configuration file, which stays as it is otherwise.

use std::path::PathBuf;
use std::sync::Arc;

use super::error::{ConfigFileError, SourceLocation};
use super::keys::{ADDRESS, examine, wrong_name};
use super::section::Section;
use super::text::{Entry, Value, entries};

/// The text with a server of this name and address added behind its end; nothing where it has that server already.
///
/// # Errors
/// Where the text cannot be used, the name is none or taken, or the address cannot stand in a file.
pub fn with_server(
    file: &Arc<PathBuf>,
    text: &str,
    name: &str,
    address: &str,
) -> Result<Option<String>, ConfigFileError> {
    let section = Section::Server(name.to_owned());
    let failed = |line, text: String| ConfigFileError {
        location: SourceLocation { file: Arc::clone(file), line },
        section: Some(section.clone()),
        text,
    };
    if let Some(text) = wrong_name(name) {
        return Err(failed(None, text));
    }
    let found = examined(file, text)?;
    let mut own = found.iter().filter(|entry| entry.section == section);
    if let Some(first) = own.clone().next() {
        let is_same =
            |entry: &Entry| entry.key == ADDRESS && entry.values == [Value::Text(address.to_owned())];
        if own.any(is_same) {
            return Ok(None);
        }
        let text = format!("there is a server `{name}` already: choose another name, or remove it here");
        return Err(failed(first.location.line, text));
    }
    if address.contains(|letter: char| letter.is_control() || matches!(letter, '"' | '\\')) {
        return Err(failed(None, format!("the address {address:?} cannot stand in a configuration file")));
    }
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let gap = if text.is_empty() { "" } else { "\n" };
    let longer = format!("{text}{end}{gap}[servers.\"{name}\"]\n{ADDRESS} = \"{address}\"\n");
    examined(file, &longer)?;
    Ok(Some(longer))
}

/// What stands in a text, if nothing is wrong with it.
fn examined(file: &Arc<PathBuf>, text: &str) -> Result<Vec<Entry>, ConfigFileError> {
    let (entries, errors) = entries(file, text);
    match errors.into_iter().chain(entries.iter().filter_map(examine)).next() {
        Some(error) => Err(error),
        None => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(text: &str, name: &str, address: &str) -> Result<Option<String>, String> {
        with_server(&Arc::new("c.toml".into()), text, name, address).map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_is_added_once_and_the_rest_stays() {
        let first = add("", "box", "causeway://a:1").unwrap().unwrap();
        assert_eq!(first, "[servers.\"box\"]\naddress = \"causeway://a:1\"\n");
        assert_eq!(add(&first, "box", "causeway://a:1"), Ok(None));
        let mine = "# mine\n[client]\nlanes = 3 # three";
        let second = add(mine, "b.c", "causeway://[::1]:1?clear").unwrap().unwrap();
        assert!(second.starts_with(&format!("{mine}\n\n[servers.\"b.c\"]\n")), "{second}");
        assert_eq!(add(&second, "b.c", "causeway://[::1]:1?clear"), Ok(None));
    }

    #[test]
    fn nothing_is_added_where_it_would_not_be_read() {
        for (text, name, address, said) in [
            ("[servers.box]\naddress = \"b\"\n", "box", "a", "c.toml:2: there is a server `box` already"),
            ("", "local", "a", "no server can be called `local`"),
            ("", "a]\n[x", "a", "is no name for a server"),
            ("", "box", "a\"\nlanes = 3", "cannot stand in a configuration file"),
            ("[client]\nlanez = 3\n", "box", "a", "c.toml:2: [client] has no key `lanez`"),
            ("servers = { x = { address = \"b\" } }\n", "box", "a", "not TOML"),
            ("[client\n", "box", "a", "c.toml:1: this is not TOML"),
        ] {
            let error = add(text, name, address).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
