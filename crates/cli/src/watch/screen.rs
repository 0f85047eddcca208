//! Terminal layout of `causeway top`.

use causeway_wire::status::{DeviceStatus, ServerStatus};

use super::rates::{self, Rates};
use super::table;

/// What is known of one server.
pub struct View {
    /// Its address.
    pub name: String,
    /// The answer before the last one.
    before: Option<ServerStatus>,
    /// The last answer, or why there is none.
    now: Result<ServerStatus, String>,
}

impl View {
    /// Nothing is known yet.
    pub fn new(name: String) -> Self {
        Self { name, before: None, now: Err("querying it".to_owned()) }
    }

    /// Takes in an answer, or why there is none.
    pub fn update(&mut self, status: Result<ServerStatus, String>) {
        let last = core::mem::replace(&mut self.now, status);
        // Rates are between two answers of one run of the server.
        self.before = last.ok().filter(|last| {
            self.now.as_ref().is_ok_and(|now| now.process == last.process && now.running >= last.running)
        });
    }

    /// The last answer, with the rates of its sessions.
    pub fn now(&self) -> Result<(&ServerStatus, Vec<Rates>), &str> {
        match &self.now {
            Ok(status) => Ok((status, rates::of_sessions(self.before.as_ref(), status))),
            Err(why) => Err(why.as_str()),
        }
    }

    /// Whether rates are between two answers.
    pub fn has_rates(&self) -> bool {
        self.before.is_some()
    }
}

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A server.
    Head,
    /// What is wrong.
    Error,
    /// A device.
    Device,
    /// The heads of columns.
    Columns,
    /// A session.
    Session,
}

/// The lines of servers and of ranks, the first of which is a heading, for a terminal of `width` places and
/// `height` lines; none is longer, and there are no more. What does not fit is counted in the last line.
pub fn lines(views: &[View], ranks: &[String], width: usize, height: usize) -> Vec<(Kind, String)> {
    let mut all: Vec<_> = views.iter().flat_map(of_server).flat_map(|part| part.lines(width)).collect();
    let kinds = core::iter::once(Kind::Head).chain(core::iter::repeat(Kind::Session));
    all.extend(kinds.zip(ranks.iter().cloned()));
    if all.len() > height {
        let hidden = all.len() - height + 1;
        all.truncate(height.saturating_sub(1));
        all.push((Kind::Columns, format!("... {hidden} more lines")));
        all.truncate(height);
    }
    all.into_iter().map(|(kind, text)| (kind, text.chars().take(width).collect())).collect()
}

/// Lines that depend on the width together.
enum Part<'a> {
    /// The first of these that fits, or the last.
    OneOf(Kind, Vec<String>),
    Sessions(&'a ServerStatus, Vec<Rates>),
}

impl Part<'_> {
    fn lines(self, width: usize) -> Vec<(Kind, String)> {
        match self {
            Self::OneOf(kind, texts) => {
                let fits = texts.iter().find(|text| text.chars().count() <= width).or(texts.last());
                fits.map(|text| (kind, text.clone())).into_iter().collect()
            }
            Self::Sessions(status, rates) => {
                let mut rows: Vec<_> = status.sessions.iter().zip(rates).collect();
                // The busiest first; those that do nothing stay in the order of their age.
                rows.sort_by(|(_, one), (_, other)| other.commands.total_cmp(&one.commands));
                let mut kinds = core::iter::once(Kind::Columns).chain(core::iter::repeat(Kind::Session));
                let lines = table::lines(table::DOING, &rows, width).into_iter();
                lines.map(|line| (kinds.next().unwrap_or(Kind::Session), line)).collect()
            }
        }
    }
}

fn of_server(view: &View) -> Vec<Part<'_>> {
    let name = &view.name;
    let (status, rates) = match view.now() {
        Ok(now) => now,
        Err(why) => {
            return vec![
                Part::OneOf(Kind::Head, vec![name.clone()]),
                Part::OneOf(Kind::Error, vec![why.to_owned()]),
            ];
        }
    };
    let draining = if status.is_draining { ", draining" } else { "" };
    let (count, max) = (status.sessions.len(), status.max_sessions);
    let up = table::age(status.running);
    let release = &status.release;
    let heads = vec![
        format!(
            "{name}  Causeway {release}, up {up}, {count} of {max} sessions{draining}, {} refused",
            status.refused
        ),
        format!("{name}  {count} of {max} sessions{draining}"),
        format!("{name} {count}/{max}{draining}"),
        format!("{count}/{max}{draining}"),
    ];
    let sum = Rates::sum(rates.iter().copied());
    let (launches, inward, outward) =
        (table::short(sum.launches), table::bytes(sum.to_device), table::bytes(sum.from_device));
    let sums = vec![
        format!(
            "{launches} launches/s, {inward}/s in, {outward}/s out, {} commands/s",
            table::short(sum.commands)
        ),
        format!("{launches}/s {inward}/s {outward}/s"),
        format!("{launches}/s {inward}/s"),
    ];
    let mut parts = vec![Part::OneOf(Kind::Head, heads), Part::OneOf(Kind::Device, sums)];
    parts.extend(status.devices.iter().map(|device| Part::OneOf(Kind::Device, of_device(device))));
    if count > 0 {
        parts.push(Part::Sessions(status, rates));
    }
    parts
}

fn of_device(device: &DeviceStatus) -> Vec<String> {
    let (index, name) = (device.index, &device.name);
    let (used, total) = (table::bytes(device.memory_used as f64), table::bytes(device.memory_total as f64));
    let busy = device.utilisation.map_or("?".to_owned(), |percent| format!("{percent} %"));
    let bar = bar(device.memory_used, device.memory_total, 20);
    vec![
        format!("{index} {name}  memory [{bar}] {used} of {total}, busy {busy}"),
        format!("{index} {name}  {used} of {total}, busy {busy}"),
        format!("{index} {used}/{total} {busy}"),
        format!("{index} {used} {busy}"),
    ]
}

fn bar(part: u64, whole: u64, width: usize) -> String {
    let filled = if whole == 0 { 0.0 } else { part.min(whole) as f64 / whole as f64 * width as f64 };
    let filled = filled.round() as usize;
    format!("{}{}", "#".repeat(filled), "-".repeat(width - filled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::rates::tests::status;

    fn view(sessions: &[(u8, u64)]) -> View {
        let mut view = View::new("gpu-box:7690".to_owned());
        view.update(Ok(status(1000, &[(1, 0)])));
        view.update(Ok(status(3000, sessions)));
        view
    }

    fn texts(views: &[View], width: usize, height: usize) -> Vec<String> {
        lines(views, &[], width, height).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn everything_fits_into_any_terminal() {
        let many: Vec<_> = (1..60).map(|number| (number, u64::from(number) * 100)).collect();
        let views = [view(&many), View::new("silent:1".to_owned())];
        for width in [0, 1, 5, 20, 40, 80, 300] {
            for height in [0, 1, 2, 10, 24, 100] {
                let visible = lines(&views, &["Ranks".to_owned()], width, height);
                assert!(visible.len() <= height, "{width} x {height}");
                assert!(visible.iter().all(|(_, line)| line.chars().count() <= width), "{width} x {height}");
            }
        }
    }

    #[test]
    fn a_terminal_of_20_columns_shows_what_counts() {
        let lines = texts(&[view(&[(1, 40), (2, 8)])], 20, 10);
        assert_eq!(lines[0], "gpu-box:7690 2/256");
        assert_eq!(lines[2], "0 70.0 GiB 40 %");
        assert!(lines[3].starts_with("program") && lines[4].starts_with("program1"), "{lines:?}");
        assert_eq!(lines[4].split_whitespace().nth(1), Some("20"), "launches of a second");
    }

    #[test]
    fn the_busiest_session_comes_first_and_what_is_hidden_is_counted() {
        let wide = texts(&[view(&[(1, 4), (2, 800)])], 120, 20);
        assert!(wide[0].contains("Causeway 0.2.0, up 3 s, 2 of 256 sessions"), "{wide:?}");
        assert!(wide[2].contains("[##########----------] 70.0 GiB of 141 GiB, busy 40 %"), "{wide:?}");
        assert!(wide[4].starts_with("program2") && wide[5].starts_with("program1"), "{wide:?}");
        assert_eq!(texts(&[view(&[(1, 4), (2, 800)])], 120, 4)[3], "... 3 more lines");
    }

    #[test]
    fn a_server_that_does_not_answer_is_shown_with_the_reason() {
        let mut view = view(&[(1, 4)]);
        view.update(Err("it has gone".to_owned()));
        assert_eq!(texts(&[view], 80, 9), ["gpu-box:7690", "it has gone"]);
    }

    #[test]
    fn ranks_come_below_the_servers() {
        let ranks = ["Ranks of MPI jobs on this host:", "job 1"].map(str::to_owned);
        let all = lines(&[view(&[(1, 4)])], &ranks, 80, 20);
        assert_eq!(all[all.len() - 2], (Kind::Head, ranks[0].clone()));
        assert_eq!(all[all.len() - 1], (Kind::Session, ranks[1].clone()));
    }

    #[test]
    fn rates_do_not_reach_over_a_restart() {
        let mut view = view(&[(1, 4)]);
        assert!(view.has_rates());
        view.update(Ok(status(10, &[(1, 4)])));
        assert!(!view.has_rates());
    }
}
