//! Sums of open sessions by owner: for `causeway sessions --by`.

use std::collections::BTreeMap;

use causeway_wire::status::{Activity, ServerStatus, SessionStatus};
use clap::ValueEnum;

use super::table;

/// What sessions have in common that are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The client that has a key of its own.
    Client,
    /// The group that the client or local user is in.
    Group,
    /// The user on the client's host.
    User,
    /// The job.
    Job,
    /// The client's host.
    Host,
    /// The program.
    Program,
}

impl By {
    /// Its name in JSON and at the head of a column.
    pub fn field(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Group => "group",
            Self::User => "user",
            Self::Job => "job",
            Self::Host => "host",
            Self::Program => "program",
        }
    }

    fn of(self, session: &SessionStatus) -> String {
        let text = match self {
            Self::Client => &session.owner.client,
            Self::Group => &session.group,
            Self::User => &session.owner.user,
            Self::Job => &session.owner.job,
            Self::Host => &session.host,
            Self::Program => &session.program,
        };
        text.to_string()
    }
}

/// What several sessions have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// How many they are.
    pub sessions: u64,
    /// What they have done.
    pub activity: Activity,
    /// Bytes of their device memory that are on the server's host.
    pub released: u64,
}

impl Sum {
    fn add(&mut self, session: &SessionStatus) {
        let (sum, done) = (&mut self.activity, &session.activity);
        self.sessions += 1;
        self.released = self.released.saturating_add(session.release.released.map_or(0, |(bytes, _)| bytes));
        for (sum, count) in [
            (&mut sum.launches, done.launches),
            (&mut sum.wait_time, done.wait_time),
            (&mut sum.bytes_to_device, done.bytes_to_device),
            (&mut sum.bytes_from_device, done.bytes_from_device),
        ] {
            *sum = sum.saturating_add(count);
        }
    }
}

/// By the values of what sessions are added up by.
pub type Sums = BTreeMap<Vec<String>, Sum>;

/// Adds up the sessions of a server.
pub fn sums(status: &ServerStatus, by: &[By]) -> Sums {
    let mut sums = Sums::new();
    for session in &status.sessions {
        sums.entry(by.iter().map(|by| by.of(session)).collect()).or_default().add(session);
    }
    sums
}

/// The sums as a table.
pub fn lines(by: &[By], sums: &Sums) -> Vec<String> {
    if sums.is_empty() {
        return Vec::new();
    }
    let heads = by.iter().map(|by| by.field());
    let heads = heads.chain(["sessions", "launches", "to device", "from device", "waited", "released"]);
    let rows = sums.iter().map(|(names, sum)| {
        let done = &sum.activity;
        let names =
            names.iter().map(|name| if name.is_empty() { "-".to_owned() } else { table::short_name(name) });
        let numbers = [
            sum.sessions.to_string(),
            table::short(done.launches as f64),
            table::bytes(done.bytes_to_device as f64),
            table::bytes(done.bytes_from_device as f64),
            format!("{:.1} s", done.wait_time as f64 / 1e9),
            table::bytes(sum.released as f64),
        ];
        names.chain(numbers).collect::<Vec<_>>()
    });
    let cells: Vec<Vec<String>> = core::iter::once(heads.map(str::to_owned).collect()).chain(rows).collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..cells[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::rates::tests::status;
    use causeway_wire::status::SessionOwner;

    #[test]
    fn sessions_of_a_user_are_added_up_by_job() {
        let mut status = status(1000, &[(1, 10), (2, 5), (3, 7)]);
        status.sessions[0].owner = SessionOwner::new("", "ada", "slurm 1");
        status.sessions[1].owner = SessionOwner::new("", "ada", "slurm 1");
        status.sessions[2].owner = SessionOwner::new("", "ada", "");
        let by = [By::User, By::Job];
        let lines = lines(&by, &sums(&status, &by));
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[1].starts_with("ada   -        1         7 "), "{lines:?}");
        assert!(lines[2].starts_with("ada   slurm 1  2         15 "), "{lines:?}");
        assert_eq!(sums(&status, &[By::Program]).len(), 3);
        status.sessions[2].group = "staff".into();
        let by_group = sums(&status, &[By::Group]);
        assert_eq!(
            (by_group[&vec!["staff".to_owned()]].sessions, by_group[&vec![String::new()]].sessions),
            (1, 2)
        );
    }
}
