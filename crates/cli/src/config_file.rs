//! Options of `causeway serve` in configuration files.
//!
//! A key of `[serve]` is a long option without its dashes. What files say takes the place of the built-in default: the
//! command line and variables count before it, and an option that excludes one of the files' takes its place.

use std::any::TypeId;
use std::error::Error as _;
use std::path::PathBuf;

use causeway_config::file::text::Value;
use causeway_config::file::{ConfigFileError, Entry, Section, Settings, keys};
use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::renamed;

/// The name of the command.
pub const SERVE: &str = "serve";

/// An entry that is an option, with its values as on a command line.
struct FileOption<'a> {
    entry: &'a Entry,
    option: Arg,
    values: Vec<String>,
}

/// The command line with what files say as defaults of `causeway serve`. `typed` is the command line as it was typed.
///
/// # Errors
/// What is wrong in the files: at least one error.
pub fn with_defaults(
    all: Command,
    settings: &Settings,
    typed: &ArgMatches,
) -> Result<Command, Vec<ConfigFileError>> {
    let serve = all.find_subcommand(SERVE).cloned().unwrap_or_default();
    let counting = counting_options(&serve, settings, typed)?;
    Ok(all.mut_subcommand(SERVE, |serve| {
        counting.into_iter().fold(serve, |serve, FileOption { option, values, .. }| {
            serve.mut_arg(option.get_id().as_str(), |option| option.default_values(values))
        })
    }))
}

/// What is wrong with the options in files.
pub fn errors(all: &Command, settings: &Settings) -> Vec<ConfigFileError> {
    let serve = all.find_subcommand(SERVE).cloned().unwrap_or_default();
    options(&serve, settings).err().unwrap_or_default()
}

/// The options that files give, with their values as on a command line; none where they cannot be read.
pub fn arguments<'a>(all: &Command, settings: &'a Settings) -> Vec<(&'a Entry, String)> {
    let serve = all.find_subcommand(SERVE).cloned().unwrap_or_default();
    let options = options(&serve, settings).unwrap_or_default();
    options.into_iter().map(|FileOption { entry, values, .. }| (entry, values.join(","))).collect()
}

/// Those of them that count beside what was typed; none where they cannot be read.
pub fn counting<'a>(all: &Command, settings: &'a Settings, typed: &ArgMatches) -> Vec<(&'a Entry, String)> {
    let serve = all.find_subcommand(SERVE).cloned().unwrap_or_default();
    let options = counting_options(&serve, settings, typed).unwrap_or_default();
    let untyped = options.into_iter().filter(|options| !is_typed(typed, &options.option));
    untyped.map(|FileOption { entry, values, .. }| (entry, values.join(","))).collect()
}

/// Whether an option has its value from the command line or a variable.
fn is_typed(typed: &ArgMatches, option: &Arg) -> bool {
    let source = typed.value_source(option.get_id().as_str());
    matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// The options that files give, without those that what was typed excludes.
fn counting_options<'a>(
    serve: &Command,
    settings: &'a Settings,
    typed: &ArgMatches,
) -> Result<Vec<FileOption<'a>>, Vec<ConfigFileError>> {
    let excludes = |one: &Arg, other: &Arg| {
        serve.get_arg_conflicts_with(one).iter().any(|excluded| excluded.get_id() == other.get_id())
    };
    let replaced = |option: &Arg| {
        let mut typed = serve.get_arguments().filter(|other| is_typed(typed, other));
        typed.any(|other| excludes(option, other) || excludes(other, option))
    };
    let options = options(serve, settings)?;
    Ok(options.into_iter().filter(|options| !replaced(&options.option)).collect())
}

/// The options that files give, each of which can be used, alone and with the others.
fn options<'a>(serve: &Command, settings: &'a Settings) -> Result<Vec<FileOption<'a>>, Vec<ConfigFileError>> {
    let (mut options, mut errors) = (Vec::new(), Vec::new());
    for entry in settings.of_section(&Section::Serve) {
        match option(serve, entry) {
            Ok(found) => options.extend(found),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty()
        && let Err(error) = parse(serve, options.iter().flat_map(words))
    {
        let first = options.first().map(|option| option.entry);
        errors
            .extend(first.map(|first| error_at(first, format!("[serve] cannot be used: {}", cause(&error)))));
    }
    if errors.is_empty() { Ok(options) } else { Err(errors) }
}

/// The option that an entry is; nothing where it is a variable's.
fn option<'a>(serve: &Command, entry: &'a Entry) -> Result<Option<FileOption<'a>>, ConfigFileError> {
    let mut known =
        serve.get_arguments().filter(|option| !matches!(option.get_id().as_str(), "help" | "version"));
    let long = renamed::current(SERVE, &entry.key);
    let Some(option) = known.find(|option| option.get_long() == Some(long)).cloned() else {
        if keys::variable(&Section::Serve, &entry.key).is_some() {
            return Ok(None);
        }
        return Err(error_at(entry, keys::unknown(&Section::Serve, &entry.key, all_keys(serve))));
    };
    let wrong = |cause: String| {
        let text = entry.values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
        error_at(entry, format!("{} = {text} cannot be used: {cause}", entry.key))
    };
    let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
    let accepts_several = matches!(option.get_action(), ArgAction::Append);
    if entry.is_list && !accepts_several {
        return Err(wrong("a list is not allowed here".to_owned()));
    }
    let is_path = option.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    let text = |value: &Value| match value {
        Value::Text(path) if is_path => entry.path(path),
        other => other.to_string(),
    };
    let values: Vec<_> = entry.values.iter().map(text).collect();
    let found = FileOption { entry, option, values };
    if is_flag {
        return match entry.values.as_slice() {
            [Value::Switch(true)] => Ok(Some(found)),
            [Value::Switch(false)] => Ok(None),
            _ => Err(wrong("give true or false".to_owned())),
        };
    }
    if entry.values.iter().any(|value| matches!(value, Value::Switch(_))) {
        return Err(wrong("this must be a text or a number".to_owned()));
    }
    parse(serve, words(&found)).map_err(|error| wrong(cause(&error)))?;
    Ok(Some(found))
}

/// All keys that may stand in `[serve]`.
pub fn all_keys(serve: &Command) -> impl Iterator<Item = String> {
    let options =
        serve.get_arguments().filter_map(Arg::get_long).filter(|name| !matches!(*name, "help" | "version"));
    options.map(str::to_owned).chain(keys::all(&Section::Serve))
}

/// An option on a command line.
fn words(found: &FileOption<'_>) -> Vec<String> {
    let name = found.option.get_long().unwrap_or_default();
    if matches!(found.option.get_action(), ArgAction::SetTrue) {
        return vec![format!("--{name}")];
    }
    found.values.iter().map(|value| format!("--{name}={value}")).collect()
}

/// Tries words as those of the command; variables do not count.
fn parse(serve: &Command, arguments: impl IntoIterator<Item = String>) -> Result<ArgMatches, clap::Error> {
    let alone = serve.clone().mut_args(|option| option.env(None::<&str>));
    alone.try_get_matches_from([SERVE.to_owned()].into_iter().chain(arguments))
}

/// What a parser says, in short.
fn cause(error: &clap::Error) -> String {
    if let Some(cause) = error.source() {
        return cause.to_string();
    }
    if error.kind() == ErrorKind::InvalidValue
        && let Some(clap::error::ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
    {
        return format!("give one of {}", values.join(", "));
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

fn error_at(entry: &Entry, text: String) -> ConfigFileError {
    ConfigFileError { location: entry.location.clone(), section: Some(Section::Serve), text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_config::file::candidates::Candidate;
    use clap::CommandFactory as _;

    /// The values of an option of `causeway serve` by these words and a file with this text.
    fn values(text: &str, arguments: &[&str], option: &str) -> Result<Vec<String>, Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, text).unwrap();
        let settings = Settings::read(&[Candidate { path: path.clone(), must_be_there: true }]);
        assert_eq!(settings.errors, []);
        // The variables of whoever runs the tests do not count.
        let all = crate::Arguments::command()
            .mut_subcommand(SERVE, |serve| serve.mut_args(|arg| arg.env(None::<&str>)));
        let arguments = || ["causeway", SERVE].iter().chain(arguments);
        let typed = all.clone().try_get_matches_from(arguments()).unwrap();
        let (_, typed) = typed.subcommand().unwrap();
        let all = with_defaults(all, &settings, typed).map_err(|errors| {
            let prefix = format!("{}:", path.display());
            errors.iter().map(|error_at| error_at.to_string().replace(&prefix, "")).collect::<Vec<_>>()
        })?;
        let matches = all.try_get_matches_from(arguments()).unwrap();
        let (_, matches) = matches.subcommand().unwrap();
        let raw = matches.get_raw(option).into_iter().flatten();
        let folder = format!("{}/", folder.path().display());
        Ok(raw.map(|value| value.to_string_lossy().replace(&folder, "")).collect())
    }

    #[test]
    fn options_count_before_files_and_files_before_defaults() {
        let file = "[serve]\nlisten = \"a:1\"\nmax-sessions = 7\nclear = true\npeers = [\"10.0.0.1\", \"10.0.0.2\"]\n\
                    cache-dir = \"images\"\nshm-staging = \"64M\"\n";
        let of = |arguments: &[&str], option| values(file, arguments, option).unwrap();
        assert_eq!(of(&[], "listen"), ["a:1"]);
        assert_eq!(of(&["--listen", "b:2"], "listen"), ["b:2"]);
        assert_eq!(of(&[], "max_sessions"), ["7"]);
        assert_eq!(of(&[], "clear"), ["true"]);
        assert_eq!(of(&[], "peers"), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(of(&[], "cache_dir"), ["images"], "beside the file");
        assert_eq!(of(&[], "cache_size"), ["16G"]);
        assert_eq!(values("", &[], "clear").unwrap(), ["false"]);
        assert_eq!(values("[serve]\nclear = false\n", &[], "clear").unwrap(), ["false"]);
    }

    #[test]
    fn what_is_typed_takes_the_place_of_what_it_excludes() {
        let open = "[serve]\ninsecure-no-key = true\n";
        assert_eq!(values(open, &[], "insecure_no_key").unwrap(), ["true"]);
        assert_eq!(values(open, &["--key-file", "k"], "insecure_no_key").unwrap(), ["false"]);
        let closed = "[serve]\nkey-file = \"k\"\n";
        assert_eq!(values(closed, &["--insecure-no-key"], "key_file").unwrap(), [""; 0]);
    }

    #[test]
    fn mistakes_are_named_with_line_and_key() {
        for (text, expected) in [
            ("[serve]\nlisen = \"a:1\"\n", "2: [serve] has no key `lisen`: is `listen` meant?"),
            ("[serve]\nhelp = true\n", "2: [serve] has no key `help`"),
            ("[serve]\nclear = \"yes\"\n", "2: clear = yes cannot be used: give true or false"),
            (
                "[serve]\n\nmax-sessions = \"many\"\n",
                "3: max-sessions = many cannot be used: give a whole number",
            ),
            ("[serve]\nlisten = [\"a:1\"]\n", "2: listen = a:1 cannot be used: a list is not allowed here"),
            ("[serve]\ngpu = \"tpu\"\n", "2: gpu = tpu cannot be used: `tpu` is not a kind of GPU"),
            ("[serve]\nlog-level = \"loud\"\n", "2: log-level = loud cannot be used: give one of"),
            ("[serve]\nlisten = true\n", "2: listen = true cannot be used: this must be a text or a number"),
            ("[serve]\nclear = true\ninsecure-no-key = true\n", "2: [serve] cannot be used: the argument"),
        ] {
            let found = values(text, &[], "listen").unwrap_err();
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
        }
    }
}
