//! `causeway config`: what configuration files and variables set.

use std::io::{self, Write as _};
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use causeway_access::keys::clients::{Clients, ClientsError};
use causeway_access::keys::file::KeyFileError;
use causeway_access::servers::{LOCAL, SOFTWARE, names_instead, parts};
use causeway_access::{Endpoint, Target};
use causeway_config::file::{ConfigFileError, Named, Section, Settings, SourceLocation};
use causeway_config::read::{PROCESS, files};
use causeway_config::table::{ALL, DRIVER, NVML, ON, PIPELINE};
use causeway_config::{Variable, document};
use causeway_pipeline::Table;
use causeway_server::broker::read_clients;
use clap::{Args, Command, Subcommand};
use serde_json::{Value, json};

use crate::{config_file, own_server, serve};

/// Show, check or print an example of the configuration.
///
/// ~/.config/causeway/config.toml takes precedence over /etc/causeway/*.toml, and among these the last by
/// name; variables take precedence over files, and options over variables. CAUSEWAY_CONFIG names one file to
/// read instead of all these; if it is empty, none is read.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print all settings, and where each is set. Servers' keys are not printed.
    Show {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Report errors in the files, and in the list of clients of this machine's server, with line and key.
    /// The exit code is 1 if there are any.
    Check {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a configuration file with every key, each commented out.
    Example,
}

/// Does what was asked.
pub fn config(arguments: &Arguments, all: &Command) -> io::Result<ExitCode> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut code = ExitCode::SUCCESS;
    match arguments.action {
        Action::Show { json: true } => writeln!(out, "{:#}", json_of_settings(files()))?,
        Action::Show { json: false } => write!(out, "{}", text_of_settings(files()))?,
        Action::Check { json } => {
            let errors = errors(files(), all);
            if json {
                writeln!(out, "{:#}", checked(files(), &errors))?;
            } else {
                write!(out, "{}", text_of(files(), &errors))?;
            }
            if !errors.is_empty() {
                code = ExitCode::FAILURE;
            }
        }
        Action::Example => write!(out, "{}", example(all))?,
    }
    out.flush()?;
    Ok(code)
}

/// Everything that is wrong in the files.
fn errors(settings: &Settings, all: &Command) -> Vec<ConfigFileError> {
    let mut errors = settings.errors.clone();
    // What the table knows to be wrong in [serve] is told once.
    if settings.check(|section| *section == Section::Serve).is_ok() {
        let wrong = config_file::errors(all, settings);
        // What `causeway serve` reads itself says something only where the options can be read.
        let read = if wrong.is_empty() { config_file::arguments(all, settings) } else { Vec::new() };
        errors.extend(wrong);
        errors.extend(serve::check_entries(&read));
    }
    errors.extend(missing_libraries(settings));
    errors.extend(wrong_clients(settings));
    errors.extend(unknown_servers(settings));
    for server in settings.servers() {
        if let (Some(address), Some(location)) = (server.address(), server.location())
            && let Err(cause) = address.parse::<Target>()
        {
            let section = Some(Section::Server(server.name.to_owned()));
            let text = format!("[servers.{}] address cannot be used: {cause}", server.name);
            errors.push(ConfigFileError { location: location.clone(), section, text });
        }
    }
    let of_servers = settings.servers().map(|server| Section::Server(server.name.to_owned()));
    errors.extend(
        [Section::Client].into_iter().chain(of_servers).filter_map(|section| wrong_plans(settings, section)),
    );
    errors
}

/// What is wrong in the list of clients of this machine's server.
fn wrong_clients(settings: &Settings) -> Option<ConfigFileError> {
    let configured = settings.of_section(&Section::Serve).find(|entry| entry.key == "key-file");
    let named =
        configured.and_then(|entry| entry.values.first()).map(|value| PathBuf::from(value.to_string()));
    // Without a home there is no server.
    let clients = Clients::path_in_folder_of(&own_server::key_file(named).ok()?);
    let (line, text) = match read_clients(&clients).err()? {
        ClientsError::Content { line, cause, .. } => (Some(line), cause),
        // The machine's service keeps it from users.
        ClientsError::File(KeyFileError::Io { cause, .. })
            if cause.kind() == io::ErrorKind::PermissionDenied =>
        {
            return None;
        }
        ClientsError::File(error) => (None, error.to_string()),
    };
    Some(ConfigFileError { location: SourceLocation { file: Arc::new(clients), line }, section: None, text })
}

/// Libraries of NVIDIA's driver that a server's file names, and that are not there: the server would run, and refuse
/// every client.
fn missing_libraries(settings: &Settings) -> Vec<ConfigFileError> {
    let missing = |variable: &Variable| {
        let (path, entry) = settings.value(&Section::Serve, variable)?;
        let path = Path::new(&path);
        // Without a slash it is looked for where libraries are.
        let is_missing = path.components().count() > 1
            && path.metadata().is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound);
        let text = format!(
            "{} cannot be used: there is no file {}: remove the line to use the installed driver",
            entry.key,
            path.display()
        );
        let location = entry.location.clone();
        is_missing.then_some(ConfigFileError { location, section: Some(Section::Serve), text })
    };
    [&DRIVER, &NVML].into_iter().filter_map(missing).collect()
}

/// Names in `on` that stand for no server: neither a table nor a host.
fn unknown_servers(settings: &Settings) -> Vec<ConfigFileError> {
    let Some((list, entry)) = settings.value(&Section::Client, &ON) else { return Vec::new() };
    let list = list.to_string_lossy().into_owned();
    let is_known = |part: &str| part == LOCAL || part == SOFTWARE || settings.server(part).is_some();
    let cause = |part: &str| match part.parse::<Target>() {
        Err(cause) => Some(cause.to_string()),
        Ok(Target { endpoint: Endpoint::Tcp { host, port }, .. }) => {
            let names = names_instead(&host)?;
            let is_host = (host.as_str(), port).to_socket_addrs().is_ok();
            (!is_host).then(|| format!("there is no [servers.{part}] and no host of this name; {names}"))
        }
        Ok(_) => None,
    };
    let error = |part: &str| {
        let text = format!("{} = {}: {}", entry.key, without_key(part), cause(part)?);
        Some(ConfigFileError { location: entry.location.clone(), section: Some(Section::Client), text })
    };
    parts(&list).filter(|part| !is_known(part)).filter_map(error).collect()
}

/// What is wrong with the plans for copies in a section.
fn wrong_plans(settings: &Settings, section: Section) -> Option<ConfigFileError> {
    let (text, entry) = settings.value(&section, &PIPELINE)?;
    let cause = Table::parse(&text.to_string_lossy()).err()?;
    let text = format!("{}: {cause}", entry.key);
    Some(ConfigFileError { location: entry.location.clone(), section: Some(section), text })
}

fn checked(settings: &Settings, errors: &[ConfigFileError]) -> Value {
    let errors: Vec<_> = errors
        .iter()
        .map(|ConfigFileError { location, text, .. }| json!({ "file": &*location.file, "line": location.line, "text": text }))
        .collect();
    json!({ "files": settings.files.iter().map(|file| &**file).collect::<Vec<_>>(), "errors": errors })
}

fn text_of(settings: &Settings, errors: &[ConfigFileError]) -> String {
    let mut out: String = errors.iter().map(|error| format!("{error}\n")).collect();
    if errors.is_empty() {
        out += &match settings.files.len() {
            0 => "There is no configuration file; `causeway config example` prints one.\n".to_owned(),
            _ => settings.files.iter().map(|file| format!("{}: no errors\n", file.display())).collect(),
        };
    }
    out
}

/// A variable that has a value, and what says so.
struct Set {
    variable: &'static Variable,
    value: String,
    origin: String,
}

/// What programs and commands of this user act on, as far as it is set.
fn set() -> Vec<Set> {
    let of_client = ALL.iter().copied().filter(|variable| variable.stands_in(&Section::Client));
    of_client
        .filter_map(|variable| {
            let value = PROCESS.raw(variable)?.to_string_lossy().into_owned();
            let value = if *variable == ON { without_keys(&value) } else { value };
            let origin = PROCESS.origin(variable);
            // The key is what is told in front.
            let origin = origin.split(": ").next().unwrap_or_default().to_owned();
            Some(Set { variable, value, origin })
        })
        .collect()
}

/// A list of servers without what is secret.
fn without_keys(list: &str) -> String {
    parts(list).map(without_key).collect::<Vec<_>>().join(",")
}

fn without_key(address: &str) -> String {
    match address.parse::<Target>() {
        Ok(target) if target.key.is_some() => target.address(),
        Ok(_) => address.to_owned(),
        // A key may be what is wrong.
        Err(_) => "(no address)".to_owned(),
    }
}

/// What is said of a named server: its address, and what else there is for it.
fn of_server(server: Named<'_>) -> (String, Vec<(String, String)>) {
    let section = Section::Server(server.name.to_owned());
    let mut more: Vec<_> = if server.is_clear() { vec![("clear".into(), "true".into())] } else { Vec::new() };
    for variable in ALL.iter().filter(|variable| variable.stands_in(&section)) {
        if let (Some((value, _)), Some(key)) = (files().value(&section, variable), variable.key()) {
            more.push((key, value.to_string_lossy().into_owned()));
        }
    }
    (server.address().map(without_key).unwrap_or_default(), more)
}

fn json_of_settings(settings: &Settings) -> Value {
    let client: serde_json::Map<_, _> = set()
        .into_iter()
        .filter_map(|Set { variable, value, origin }| {
            Some((variable.key()?, json!({ "value": value, "from": origin })))
        })
        .collect();
    let servers: serde_json::Map<_, _> = settings
        .servers()
        .map(|server| {
            let (address, more) = of_server(server);
            let from = server.location().map(ToString::to_string);
            let more: serde_json::Map<_, _> =
                more.into_iter().map(|(key, value)| (key, value.into())).collect();
            (server.name.to_owned(), json!({ "address": address, "from": from, "settings": more }))
        })
        .collect();
    let serve: serde_json::Map<_, _> = settings
        .of_section(&Section::Serve)
        .map(|entry| {
            let values: Vec<_> = entry.values.iter().map(ToString::to_string).collect();
            (entry.key.clone(), json!({ "value": values.join(","), "from": entry.location.to_string() }))
        })
        .collect();
    let files: Vec<_> = settings.files.iter().map(|file| &**file).collect();
    json!({ "files": files, "client": client, "servers": servers, "serve": serve })
}

fn text_of_settings(settings: &Settings) -> String {
    let line = |key: &str, value: &str, origin: &str| format!("  {key} = {value}  ({origin})\n");
    let mut out = String::new();
    out += match settings.files.len() {
        0 => "There is no configuration file; `causeway config example` prints one.\n",
        _ => "Files, in order of precedence:\n",
    };
    out.extend(settings.files.iter().map(|file| format!("  {}\n", file.display())));
    let client = set();
    if !client.is_empty() {
        out += "[client]\n";
    }
    for Set { variable, value, origin } in client {
        out += &line(&variable.key().unwrap_or_default(), &value, &origin);
    }
    for server in settings.servers() {
        let (address, more) = of_server(server);
        let origin = server.location().map(ToString::to_string).unwrap_or_default();
        out += &format!("[servers.{}]\n{}", server.name, line("address", &address, &origin));
        out.extend(more.into_iter().map(|(key, value)| format!("  {key} = {value}\n")));
    }
    let mut serve = settings.of_section(&Section::Serve).peekable();
    if serve.peek().is_some() {
        out += "[serve]\n";
    }
    for entry in serve {
        let values: Vec<_> = entry.values.iter().map(ToString::to_string).collect();
        out += &line(&entry.key, &values.join(", "), &entry.location.to_string());
    }
    out
}

/// A configuration file with every key.
fn example(all: &Command) -> String {
    let mut out = "# ~/.config/causeway/config.toml, or a file of /etc/causeway that ends in .toml. Lines that begin with # are \
                   comments;\n# remove the # to set a value.\n\n"
        .to_owned();
    out += &document::example(&Section::Client);
    out += "# Named servers: `causeway run --on gpu-box -- PROGRAM`. Remove the # of the next line, too.\n#";
    out += &document::example(&Section::Server("gpu-box".to_owned()));
    out += "# Settings of `causeway serve`: its options without their dashes, which `causeway serve --help` \
            explains, and\n# then settings that have no option.\n";
    let (head, variables) = {
        let text = document::example(&Section::Serve);
        let (head, rest) = text.split_once('\n').unwrap_or_default();
        (head.to_owned(), rest.to_owned())
    };
    out += &format!("{head}\n");
    let serve = all.find_subcommand(config_file::SERVE).cloned().unwrap_or_default();
    for option in serve.get_arguments() {
        let Some(name) = option.get_long().filter(|name| !matches!(*name, "help" | "version")) else {
            continue;
        };
        let what = option.get_help().map(ToString::to_string).unwrap_or_default();
        let value = match option.get_value_names() {
            _ if !option.get_action().takes_values() => "true".to_owned(),
            Some(names) => {
                format!("\"{}\"", names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            }
            None => "\"\"".to_owned(),
        };
        out += &format!("# {}\n#{name} = {value}\n", what.trim_end_matches('.'));
    }
    out + "\n" + &variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn no_key_of_a_server_is_shown() {
        let key = causeway_access::Key::generate();
        let list = format!("box, causeway://{0}@a:1?clear,{0}@b,x{0}@c", *key.to_text());
        assert_eq!(without_keys(&list), "box,causeway://a:1?clear,causeway://b:7690,(no address)");
    }

    #[test]
    fn the_example_says_nothing_as_it_is_and_has_every_option() {
        let all = crate::Arguments::command();
        let example = example(&all);
        let (entries, errors) = causeway_config::file::text::entries(&Arc::new("c.toml".into()), &example);
        assert_eq!((entries, errors), (vec![], vec![]), "{example}");
        for key in [
            "#listen = ",
            "#hung-worker = ",
            "#shm-staging = ",
            "#on = ",
            "#[servers.gpu-box]",
            "#pipeline = ",
        ] {
            assert!(example.contains(key), "{key}: {example}");
        }
    }
}
