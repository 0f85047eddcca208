//! Reads the declaration list (`crates/api/list/*.api`) into [`Entry`] values.
//!
//! One line declares one entry point: `kind name(argument: mode type, ...) = base @version ptsz@version;` For
//! what travels as a command, `: order, ...` follows ([`crate::order`]). CONTRIBUTING.md explains the
//! language.

use crate::entry::{Argument, Count, Entry, Executor, Kind, Mode};
use crate::order;

/// The files of the list. Numbers on the wire are given out by [`crate::numbers`].
const FILES: &[(&str, &str)] = &[
    ("startup", include_str!("../../list/startup.api")),
    ("device", include_str!("../../list/device.api")),
    ("context", include_str!("../../list/context.api")),
    ("module", include_str!("../../list/module.api")),
    ("library", include_str!("../../list/library.api")),
    ("memory", include_str!("../../list/memory.api")),
    ("copy", include_str!("../../list/copy.api")),
    ("memset", include_str!("../../list/memset.api")),
    ("array", include_str!("../../list/array.api")),
    ("address", include_str!("../../list/address.api")),
    ("pool", include_str!("../../list/pool.api")),
    ("unified", include_str!("../../list/unified.api")),
    ("stream", include_str!("../../list/stream.api")),
    ("event", include_str!("../../list/event.api")),
    ("execution", include_str!("../../list/execution.api")),
    ("graph", include_str!("../../list/graph.api")),
    ("occupancy", include_str!("../../list/occupancy.api")),
    ("texture", include_str!("../../list/texture.api")),
    ("peer", include_str!("../../list/peer.api")),
    ("interop", include_str!("../../list/interop.api")),
    ("graphics", include_str!("../../list/graphics.api")),
    ("debug", include_str!("../../list/debug.api")),
    ("green_context", include_str!("../../list/green_context.api")),
    ("legacy", include_str!("../../list/legacy.api")),
    ("operations", include_str!("../../list/operations.api")),
];

/// All entries; an error in the list ends the build with file, line and cause.
pub fn entries() -> Vec<Entry> {
    let mut all = Vec::new();
    for (file, text) in FILES {
        let (mut reason, mut subject, mut header) = (String::new(), String::new(), "cuda.h".to_owned());
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed =
                line.strip_suffix(';').ok_or_else(|| "a line must end in `;`".to_owned()).and_then(|line| {
                    if let Some(text) = line.strip_prefix("otherwise ") {
                        reason = text.trim_matches('"').to_owned();
                        return Ok(None);
                    }
                    if let Some(text) = line.strip_prefix("subject ") {
                        subject = text.to_owned();
                        return Ok(None);
                    }
                    if let Some(text) = line.strip_prefix("header ") {
                        header = text.to_owned();
                        return Ok(None);
                    }
                    let mut entry = entry(line, *file == "operations", &reason)?;
                    entry.header.clone_from(&header);
                    if entry.executed_by_back_end() {
                        if subject.is_empty() {
                            return Err(
                                "no `subject` line says which part of a back end it is for".to_owned()
                            );
                        }
                        entry.subject.clone_from(&subject);
                    }
                    Ok(Some(entry))
                });
            match parsed {
                Ok(found) => all.extend(found),
                Err(cause) => panic!("crates/api/list/{file}.api, line {}: {cause}: {line}", index + 1),
            }
        }
    }
    all
}

/// Reads one line of the list, without its `;`.
pub fn entry(line: &str, operation: bool, reason: &str) -> Result<Entry, String> {
    let open = line.find('(').ok_or("no `(`")?;
    let close = line.rfind(')').ok_or("no `)`")?;
    let mut tokens: Vec<&str> = line[..open].split_whitespace().collect();
    let name = tokens.pop().ok_or("no name")?.to_owned();
    let executor = executor(&mut tokens)?;
    let mut kind = None;
    let (mut wrapped, mut anywhere, mut pure) = (false, false, false);
    for word in tokens {
        match word {
            "wrapped" => wrapped = true,
            "anywhere" => anywhere = true,
            "pure" => pure = true,
            "local" => kind = Some(Kind::Local),
            "posted" => kind = Some(Kind::Posted),
            "called" => kind = Some(Kind::Called),
            "hand" => kind = Some(Kind::Hand),
            "same" => kind = Some(Kind::Same),
            "unsupported" => kind = Some(Kind::Unsupported),
            other => return Err(format!("`{other}` is not a kind of call")),
        }
    }
    let arguments = line[open + 1..close]
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(argument)
        .collect::<Result<_, _>>()?;
    let mut entry = Entry {
        base: name.clone(),
        name,
        kind: kind.ok_or("no kind of call")?,
        executor,
        wrapped,
        anywhere,
        pure,
        arguments,
        since: 0,
        per_thread: None,
        target: None,
        reason: reason.to_owned(),
        subject: String::new(),
        header: String::new(),
        operation,
        facts: None,
    };
    let (versions, facts) = match line[close + 1..].split_once(':') {
        Some((versions, facts)) => (versions, Some(facts)),
        None => (&line[close + 1..], None),
    };
    let mut tail = versions.split_whitespace();
    while let Some(word) = tail.next() {
        if word == "=" {
            entry.base = tail.next().ok_or("no base name after `=`")?.to_owned();
        } else if word == "as" {
            entry.target = Some(tail.next().ok_or("no entry point after `as`")?.to_owned());
        } else if let Some((suffix, version)) = word.split_once('@') {
            let version = version.parse().map_err(|_| format!("`{version}` is not a version"))?;
            match suffix {
                "" => entry.since = version,
                suffix => entry.per_thread = Some((suffix.to_owned(), version)),
            }
        } else {
            return Err(format!("`{word}` is not understood"));
        }
    }
    entry.facts = order::facts(&entry, facts)?;
    match (entry.kind == Kind::Same, &entry.target) {
        (true, None) => Err("an entry of kind `same` says `as` which one".to_owned()),
        (false, Some(_)) => Err("only an entry of kind `same` has an `as`".to_owned()),
        _ => Ok(entry),
    }
}

/// Takes those of the words before a name that say who carries out the command.
fn executor(tokens: &mut Vec<&str>) -> Result<Executor, String> {
    let declared: Vec<&str> = tokens
        .extract_if(.., |word| matches!(*word, "engine" | "back_end" | "background" | "serial"))
        .collect();
    match declared.as_slice() {
        [] => Ok(Executor::BackEnd),
        ["background"] => Ok(Executor::Background { is_serial: false }),
        ["background", "serial"] => Ok(Executor::Background { is_serial: true }),
        ["engine"] => Ok(Executor::Engine { with_back_end: false }),
        ["engine", "back_end"] => Ok(Executor::Engine { with_back_end: true }),
        other => Err(format!("`{}` does not say who carries out a command", other.join(" "))),
    }
}

fn argument(text: &str) -> Result<Argument, String> {
    let (name, rest) = text.split_once(": ").ok_or_else(|| format!("`{text}` has no type"))?;
    let tokens: Vec<&str> = rest.split_whitespace().collect();
    let (direction, base) = match tokens.as_slice() {
        [base] => ("", *base),
        [direction, base] => (*direction, *base),
        _ => return Err(format!("`{rest}` is not understood")),
    };
    let (base, list) = match base.strip_suffix(']').and_then(|base| base.split_once('[')) {
        Some((base, count)) => (base, Some(count)),
        None => (base, None),
    };
    let mode = match (direction, base, list) {
        ("", "payload", None) => Mode::Payload,
        ("", "str", None) => Mode::Text,
        ("", "ptr", None) => Mode::Pointer { depth: 1 },
        ("in" | "out" | "inout", "ptr", _) => Mode::Pointer { depth: 2 },
        ("", _, None) => Mode::Value,
        ("new", _, None) => Mode::New,
        ("drop", _, None) => Mode::Drop,
        ("in", "bytes", None) => Mode::InList { count: None },
        ("in", _, None) => Mode::In { nullable: false },
        ("in?", _, None) => Mode::In { nullable: true },
        ("in", _, Some("")) => Mode::InList { count: None },
        ("in", _, Some(text)) => Mode::InList { count: Some(count(text)?) },
        ("out", _, None) => Mode::Out { nullable: false },
        ("out?", _, None) => Mode::Out { nullable: true },
        ("out", _, Some(text)) => Mode::OutList { count: count(text)? },
        ("inout", _, None) => Mode::InOut,
        _ => return Err(format!("`{rest}` is not a direction and a type")),
    };
    // Words of the language that Rust reserves get a trailing underscore in the generated code.
    let name = match name {
        "fn" | "from" | "in" | "type" | "ref" | "mod" | "self" => format!("{name}_"),
        other => other.to_owned(),
    };
    Ok(Argument { name, mode, base: base.to_owned() })
}

fn count(text: &str) -> Result<Count, String> {
    if let Ok(number) = text.parse() {
        return Ok(Count::Fixed(number));
    }
    let (argument, less) = text.split_once('-').unwrap_or((text, "0"));
    let less = less.parse().map_err(|_| format!("`{text}` is not a number of values"))?;
    Ok(Count::Argument { argument: argument.to_owned(), less })
}
