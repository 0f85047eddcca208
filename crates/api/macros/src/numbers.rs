//! Command numbers on the wire, and the table that keeps them and their arguments unchanged between releases.
//!
//! `crates/api/list/commands.txt` has a line for each command, in the order of their numbers: whether it is
//! posted or called, its name, and the types of what travels. Lines are appended and never change, so that
//! ends of different releases understand each other. The build compares the list with them.

use crate::entry::{Argument, Entry, Mode};

const TABLE: &str = include_str!("../../list/commands.txt");

/// Types that were renamed after a release: what they are called in the code, and in the table.
const RENAMED: &[(&str, &str)] =
    &[("DeviceLocation", "DevicePlace"), ("MemoryRange", "MemoryStretch"), ("PeerTransport", "PeerWay")];

/// The name of a type in the table.
fn wire_name(base: &str) -> String {
    RENAMED.iter().fold(base.to_owned(), |name, (new, old)| name.replace(new, old))
}

/// The lines of the table.
fn lines(table: &str) -> Vec<&str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// The entries that travel, in the order of their numbers.
///
/// # Panics
/// When the table and the list contradict each other, which ends the build with what is to be done.
pub fn in_order(entries: &[Entry]) -> Vec<&Entry> {
    match sorted(&lines(TABLE), entries) {
        Ok(wire) => wire,
        Err(cause) => panic!("crates/api/list/commands.txt: {cause}"),
    }
}

/// The fingerprints of the first 0, 1, 2, ... commands.
pub fn fingerprints() -> Vec<u64> {
    chain(&lines(TABLE))
}

/// FNV-1a over the lines: stable across compilers, and a collision gains nothing, since a server trusts no
/// argument of a command either way.
fn chain(lines: &[&str]) -> Vec<u64> {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut all = vec![hash];
    for line in lines {
        hash = line.bytes().chain([b'\n']).fold(hash, add);
        all.push(hash);
    }
    all
}

fn sorted<'a>(lines: &[&str], entries: &'a [Entry]) -> Result<Vec<&'a Entry>, String> {
    let mut wire = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let found = entries.iter().find(|entry| entry.on_the_wire() && line_of(entry) == **line);
        wire.push(found.ok_or_else(|| {
            format!(
                "the list has no command {number} any more as `{line}` says it, and releases may know it: what \
                 travels of a command never changes. Give the changed command a new name and keep the old one"
            )
        })?);
    }
    let new: Vec<_> = entries.iter().filter(|entry| entry.on_the_wire()).map(line_of).collect();
    let new: Vec<_> = new.iter().filter(|line| !lines.contains(&line.as_str())).cloned().collect();
    if new.is_empty() { Ok(wire) } else { Err(format!("append these new commands:\n{}", new.join("\n"))) }
}

/// What the table says of a command.
fn line_of(entry: &Entry) -> String {
    let types = |part: fn(&Argument) -> Option<String>| -> String {
        entry.arguments.iter().filter_map(part).collect::<Vec<_>>().join(", ")
    };
    let kind = if entry.is_posted() { "posted" } else { "called" };
    format!("{kind} {}({}) -> ({})", entry.name, types(request_type), types(reply_type))
}

/// What travels of an argument in a request.
fn request_type(argument: &Argument) -> Option<String> {
    let base = wire_name(&argument.base);
    match &argument.mode {
        Mode::Value | Mode::New | Mode::Drop | Mode::In { nullable: false } | Mode::InOut => Some(base),
        Mode::In { nullable: true } => Some(format!("{base}?")),
        Mode::InList { .. } => Some(format!("[{base}]")),
        Mode::Text => Some("str".to_owned()),
        Mode::Payload => Some("payload".to_owned()),
        Mode::Out { .. } | Mode::OutList { .. } | Mode::Pointer { .. } => None,
    }
}

/// What travels of an argument in a reply.
fn reply_type(argument: &Argument) -> Option<String> {
    match &argument.mode {
        Mode::Out { .. } | Mode::InOut => Some(wire_name(&argument.base)),
        Mode::OutList { .. } => Some(format!("[{}]", wire_name(&argument.base))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::entry;

    fn entries(lines: &[&str]) -> Vec<Entry> {
        lines.iter().map(|line| entry(line, true, "").expect("the line is well formed")).collect()
    }

    const ONE: &str = "posted one(event: CUevent, flags: in? u32): uses event";
    const TWO: &str = "called two(name: str, size: out usize, data: in u8[size]): free";

    #[test]
    fn the_table_and_not_the_place_in_the_list_says_the_number() {
        let list = entries(&[TWO, ONE]);
        let table = ["posted one(CUevent, u32?) -> ()", "called two(str, [u8]) -> (usize)"];
        let names: Vec<_> = sorted(&table, &list).unwrap().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
    }

    #[test]
    fn what_travels_of_a_command_does_not_change() {
        let table = ["posted one(CUevent, u32?) -> ()"];
        for changed in [
            "called one(event: CUevent, flags: in? u32): uses event",
            "posted one(event: CUevent, flags: in u32): uses event",
            "posted other(event: CUevent, flags: in? u32): uses event",
        ] {
            let cause = sorted(&table, &entries(&[changed])).unwrap_err();
            assert!(cause.contains("never changes"), "{cause}");
        }
        // Names of arguments and the order do not travel.
        let renamed = entries(&["posted one(e: CUevent, f: in? u32): free"]);
        assert!(sorted(&table, &renamed).is_ok());
    }

    #[test]
    fn a_new_command_is_appended() {
        let list = entries(&[ONE, TWO]);
        let cause = sorted(&["posted one(CUevent, u32?) -> ()"], &list).unwrap_err();
        assert_eq!(cause, "append these new commands:\ncalled two(str, [u8]) -> (usize)");
    }

    #[test]
    fn a_fingerprint_tells_of_every_command_before() {
        let (one, other) = (chain(&["a", "b", "c"]), chain(&["a", "x", "c"]));
        assert_eq!((one[..2] == other[..2], one[2] == other[2], one[3] == other[3]), (true, false, false));
        assert_ne!(chain(&["ab", "c"])[2], chain(&["a", "bc"])[2]);
    }
}
