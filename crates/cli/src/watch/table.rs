//! Table of sessions: the columns that fit a width.

use causeway_wire::status::SessionStatus;

use super::rates::Rates;

/// A column: its head, and how a session's cell is written. The first ones are shown first.
type Column = (&'static str, fn(&SessionStatus, &Rates) -> String);

/// The columns about what a session is and has done. The session is the second, since `causeway move` and other
/// commands want it.
pub const DONE: &[Column] = &[
    ("program", |session, _| short_program(&session.program)),
    ("session", |session, _| session.session.to_string()),
    ("launches", |session, _| short(session.activity.launches as f64)),
    ("to device", |session, _| bytes(session.activity.bytes_to_device as f64)),
    ("from device", |session, _| bytes(session.activity.bytes_from_device as f64)),
    ("open", |session, _| age(session.open)),
    ("via", |session, _| or_none(&session.via)),
    ("user", |session, _| or_none(&short_name(&session.owner.user))),
    ("job", |session, _| or_none(&short_name(&session.owner.job))),
    ("gpudirect in/out", |session, _| gpudirect(session)),
    ("released", |session, _| released(session)),
    ("client", |session, _| format!("{}:{}", session.host, session.process)),
    ("commands", |session, _| {
        short((session.activity.posted.saturating_add(session.activity.called)) as f64)
    }),
    ("waited", |session, _| format!("{:.1} s", session.activity.wait_time as f64 / 1e9)),
    ("failed", |session, _| session.activity.failed.to_string()),
    ("forked from", |session, _| {
        or_none(&session.parent.map(|parent| parent.to_string()).unwrap_or_default())
    }),
    ("worker", |session, _| session.worker.to_string()),
    ("from", |session, _| session.peer.to_string()),
];

/// The columns about what a session does now.
pub const DOING: &[Column] = &[
    ("program", |session, _| short_program(&session.program)),
    ("launch/s", |_, rates| short(rates.launches)),
    ("session", |session, _| session.session.to_string()),
    ("in/s", |_, rates| bytes(rates.to_device)),
    ("out/s", |_, rates| bytes(rates.from_device)),
    ("wait", |_, rates| format!("{:.0} %", rates.waiting * 100.0)),
    ("cmd/s", |_, rates| short(rates.commands)),
    ("via", |session, _| or_none(&session.via)),
    ("open", |session, _| age(session.open)),
    ("user", |session, _| or_none(&short_name(&session.owner.user))),
    ("job", |session, _| or_none(&short_name(&session.owner.job))),
    ("gpudirect in/out", |session, _| gpudirect(session)),
    ("released", |session, _| released(session)),
    ("client", |session, _| format!("{}:{}", session.host, session.process)),
    ("worker", |session, _| session.worker.to_string()),
    ("from", |session, _| session.peer.to_string()),
];

/// The lines of a table in `width` columns of a terminal: as many columns as fit, the first one at least, cut
/// off where even that does not.
pub fn lines(columns: &[Column], rows: &[(&SessionStatus, Rates)], width: usize) -> Vec<String> {
    const GAP: usize = 2;
    let cells: Vec<Vec<String>> =
        core::iter::once(columns.iter().map(|(head, _)| (*head).to_owned()).collect())
            .chain(rows.iter().map(|(session, rates)| {
                columns.iter().map(|(_, cell)| cell(session, rates)).collect::<Vec<_>>()
            }))
            .collect();
    let width_of = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut taken = width_of(0);
    let mut visible = 1;
    while visible < columns.len() && taken + GAP + width_of(visible) <= width {
        taken += GAP + width_of(visible);
        visible += 1;
    }
    let line = |row: &Vec<String>| {
        let parts: Vec<_> = (0..visible)
            .map(|column| {
                let (cell, width) = (&row[column], width_of(column));
                // Names stand at the left, numbers at the right.
                if column == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
            })
            .collect();
        let text = parts.join("  ");
        text.trim_end().chars().take(width).collect()
    };
    cells.iter().map(line).collect()
}

/// The last part of a program's path.
fn short_program(program: &str) -> String {
    short_name(program.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(program))
}

/// A name in the width of a column.
pub(super) fn short_name(name: &str) -> String {
    const MAX_COLUMN_WIDTH: usize = 24;
    match name.char_indices().nth(MAX_COLUMN_WIDTH) {
        Some((end, _)) => format!("{}~", &name[..end]),
        None => name.to_owned(),
    }
}

/// How much device memory is on the server's host, and since when.
fn released(session: &SessionStatus) -> String {
    match session.release.released {
        Some((memory, since)) => format!("{} {} ago", bytes(memory as f64), age(since)),
        None => "-".to_owned(),
    }
}

/// How much network cards have copied to devices and from them, and whether the owner has switched that off.
fn gpudirect(session: &SessionStatus) -> String {
    let direct = session.gpudirect;
    if !direct.is_available {
        return "-".to_owned();
    }
    let off = if direct.is_on { "" } else { ", off" };
    format!("{}/{}{off}", bytes(direct.bytes_to_device as f64), bytes(direct.bytes_from_device as f64))
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// A number in at most five places.
pub fn short(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// Bytes in at most eight places.
pub fn bytes(number: f64) -> String {
    scaled(number, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"])
}

fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let mut number = number;
    let mut units = units.iter().peekable();
    let mut unit = units.next().copied().unwrap_or_default();
    while number >= step * 0.9995 && units.peek().is_some() {
        number /= step;
        unit = units.next().copied().unwrap_or_default();
    }
    let is_whole = unit.trim().is_empty() || unit == " B" || number >= 99.95;
    if is_whole { format!("{number:.0}{unit}") } else { format!("{number:.1}{unit}") }
}

/// How long something has been so, in at most six places.
pub fn age(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {:02}", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::rates::tests::status;
    use causeway_wire::status::{GpuDirectStatus, SessionOwner};

    #[test]
    fn as_many_columns_as_fit_are_shown() {
        let status = status(1000, &[(1, 1_234_567), (2, 5)]);
        let rows: Vec<_> = status.sessions.iter().map(|session| (session, Rates::default())).collect();
        let widths = |width| lines(DONE, &rows, width).iter().map(|line| line.chars().count()).max().unwrap();
        for width in [1, 5, 8, 20, 40, 80, 200] {
            assert!(widths(width) <= width, "{width}");
        }
        let session = status.sessions[0].session.to_string();
        assert!(lines(DONE, &rows, 80)[1].starts_with(&format!("program1  {session}  ")), "{session}");
        assert!(lines(DOING, &rows, 40)[1].contains(&session), "{session}");
        assert_eq!(lines(DONE, &rows, 5)[1], "progr");
        let wide = lines(DONE, &rows, 280);
        assert!(wide[0].ends_with("from") && wide[1].contains("1.2 TiB") && wide[1].contains("node:101"));
    }

    #[test]
    fn released_memory_is_a_column() {
        let mut status = status(1000, &[(1, 1), (2, 5)]);
        status.sessions[1].release.released = Some((10 << 30, 61_000));
        let rows: Vec<_> = status.sessions.iter().map(|session| (session, Rates::default())).collect();
        for columns in [DONE, DOING] {
            let lines = lines(columns, &rows, 280);
            assert!(lines[0].contains("released") && !lines[1].contains("ago"), "{lines:?}");
            assert!(lines[2].contains("10.0 GiB 1:01 ago"), "{lines:?}");
        }
    }

    #[test]
    fn gpudirect_is_a_column() {
        let mut status = status(1000, &[(1, 1), (2, 5)]);
        status.sessions[1].gpudirect = GpuDirectStatus {
            is_available: true,
            is_on: false,
            bytes_to_device: 3 << 20,
            bytes_from_device: 7,
        };
        let rows: Vec<_> = status.sessions.iter().map(|session| (session, Rates::default())).collect();
        for columns in [DONE, DOING] {
            let lines = lines(columns, &rows, 280);
            assert!(lines[0].contains("gpudirect in/out") && !lines[1].contains("off"), "{lines:?}");
            assert!(lines[2].contains("3.0 MiB/7 B, off"), "{lines:?}");
        }
    }

    #[test]
    fn users_and_jobs_are_columns_of_a_bounded_width() {
        let mut status = status(1000, &[(1, 1), (2, 5)]);
        status.sessions[0].owner = SessionOwner::new("", "lovelace", "slurm 7");
        status.sessions[1].owner = SessionOwner::new("", &"x\u{1b}".repeat(200), "");
        let rows: Vec<_> = status.sessions.iter().map(|session| (session, Rates::default())).collect();
        for columns in [DONE, DOING] {
            let lines = lines(columns, &rows, 280);
            let heads: Vec<_> = lines[0].split_whitespace().collect();
            assert!(heads.windows(2).any(|heads| heads == ["user", "job"]), "{lines:?}");
            assert!(lines[1].contains("lovelace  slurm 7"), "{lines:?}");
            assert!(lines[2].contains("x\\u001bx\\u001bx\\u001bx\\u~        -"), "{lines:?}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in
            [(0.0, "0"), (999.0, "999"), (1000.0, "1.0k"), (99_999.0, "100k"), (2.5e6, "2.5M")]
        {
            assert_eq!(short(number), text);
        }
        for (number, text) in [(0.0, "0 B"), (1023.0, "1023 B"), (1024.0, "1.0 KiB"), (1e6, "977 KiB")] {
            assert_eq!(bytes(number), text);
        }
        for (time, text) in [(59_999, "59 s"), (61_000, "1:01"), (3_700_000, "1 h 01"), (90_000_000, "1 d")] {
            assert_eq!(age(time), text);
        }
    }

    #[test]
    fn a_program_is_known_by_its_name() {
        assert_eq!(short_program("/usr/bin/python3"), "python3");
        assert_eq!(short_program(&"x".repeat(40)).chars().count(), 25);
        assert_eq!(short_program("a/"), "a/");
    }
}
