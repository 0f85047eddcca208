//! `causeway top`: a live view of the sessions of servers.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use causeway_access::Target;
use causeway_sync::threads;
use causeway_wire::status::ServerStatus;
use clap::Args;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::{DefaultTerminal, Frame};

use super::json;
use super::query::{WatchArguments, WatchError};
use super::ranks;
use super::screen::{self, Kind, View};
use crate::duration::fraction;
use crate::status_query::ServerConnection;

/// How often the keys are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// More often, servers would be asked for no good.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// How wide a page is that no terminal limits.
const WIDE: usize = 160;

/// Watch servers: their sessions, devices and rates, updated every second, until q is pressed.
///
/// All clients of a server may watch it. The busiest sessions come first; a narrow terminal shows only the
/// most important columns. Below the servers are the ranks of MPI jobs on this host, as `causeway ranks`
/// lists them; they are shown also if no server responds.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    servers: WatchArguments,
    /// Refresh interval (seconds, or 500ms, 90s, 10m), at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = fraction::<3600>)]
    interval: Duration,
    /// Print one page to standard output, and exit. The rates are those of one interval.
    #[arg(long)]
    once: bool,
    /// Print JSON, a line for each server and interval.
    #[arg(long)]
    json: bool,
}

/// An answer of the server of this number, or why there is none.
type StatusResult = (usize, Result<ServerStatus, String>);

/// Shows the servers until the user has enough.
pub fn top(arguments: &Arguments) -> Result<ExitCode, WatchError> {
    let targets = arguments.servers.servers()?;
    let interval = arguments.interval.max(MIN_INTERVAL);
    let mut views: Vec<_> = targets.iter().map(|target| View::new(target.to_string())).collect();
    // Before anything is drawn: a wrong address or key is an error and no picture, unless others can be shown.
    let mut connections: Vec<_> = targets.iter().map(ServerConnection::connect).collect();
    if connections.iter().all(Result::is_err)
        && ranks::table().is_empty()
        && let Some(Err(error)) = connections.pop()
    {
        return Err(error.into());
    }
    let (sender, statuses) = unbounded();
    // Askers end when nothing is kept of this any more.
    let (_stop, stopped) = bounded::<()>(0);
    for (number, (target, server)) in targets.into_iter().zip(connections).enumerate() {
        let (sender, stopped) = (sender.clone(), stopped.clone());
        let asker = move || poll(number, &target, server.ok(), interval, &sender, &stopped);
        threads::spawn("asker", asker).map_err(WatchError::Terminal)?;
    }
    drop(sender);
    if arguments.once || arguments.json {
        print(&mut views, &statuses, arguments)?;
        if views.iter().any(|view| view.now().is_err()) {
            return Ok(ExitCode::FAILURE);
        }
    } else {
        let mut terminal = ratatui::try_init().map_err(WatchError::Terminal)?;
        let drawn = draw(&mut terminal, &mut views, &statuses);
        ratatui::restore();
        drawn.map_err(WatchError::Terminal)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn poll(
    number: usize,
    target: &Target,
    mut server: Option<ServerConnection>,
    interval: Duration,
    statuses: &Sender<StatusResult>,
    stopped: &Receiver<()>,
) {
    loop {
        let started = Instant::now();
        let mut connections = server.take().map_or_else(|| ServerConnection::connect(target), Ok);
        let status = connections
            .as_mut()
            .map_err(|error| error.to_string())
            .and_then(|server| server.status().map_err(|error| error.to_string()));
        // One that has failed is connected to anew.
        server = connections.ok().filter(|_| status.is_ok());
        if statuses.send((number, status)).is_err() {
            return;
        }
        let left = interval.saturating_sub(started.elapsed());
        if stopped.recv_timeout(left).is_err_and(|error| error.is_disconnected()) {
            return;
        }
    }
}

/// Prints pages or lines of JSON as answers come: with `once` until every server has rates, or cannot have
/// any.
fn print(
    views: &mut [View],
    statuses: &Receiver<StatusResult>,
    arguments: &Arguments,
) -> Result<(), WatchError> {
    let mut out = io::stdout().lock();
    let mut left = vec![true; views.len()];
    for (number, status) in statuses {
        let is_lost = status.is_err();
        views[number].update(status);
        let view = &views[number];
        if !view.has_rates() && !is_lost {
            continue;
        }
        if arguments.json && left[number] {
            let line = match view.now() {
                Ok((status, rates)) => json::server(&view.name, status, &rates),
                Err(why) => json::silent(&view.name, why),
            };
            writeln!(out, "{line}").and_then(|()| out.flush()).map_err(WatchError::Print)?;
        }
        if arguments.once {
            left[number] = false;
            if !left.contains(&true) {
                break;
            }
        }
    }
    if !arguments.json {
        let width = ratatui::crossterm::terminal::size().map_or(WIDE, |(columns, _)| usize::from(columns));
        for (_, line) in screen::lines(views, &ranks::table(), width.max(1), usize::MAX) {
            writeln!(out, "{line}").map_err(WatchError::Print)?;
        }
    }
    Ok(())
}

fn draw(
    terminal: &mut DefaultTerminal,
    views: &mut [View],
    statuses: &Receiver<StatusResult>,
) -> io::Result<()> {
    let mut ranks = ranks::table();
    terminal.draw(|frame| show(frame, views, &ranks))?;
    loop {
        let mut is_new = false;
        for (number, status) in statuses.try_iter() {
            views[number].update(status);
            is_new = true;
        }
        if is_new {
            ranks = ranks::table();
        }
        if event::poll(LOOK)? {
            match event::read()? {
                Event::Key(key) if is_end(key) => return Ok(()),
                Event::Resize(..) => is_new = true,
                _ => {}
            }
        }
        if is_new {
            terminal.draw(|frame| show(frame, views, &ranks))?;
        }
    }
}

fn is_end(key: KeyEvent) -> bool {
    key.kind != KeyEventKind::Release
        && match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
            KeyCode::Char('c' | 'd') => key.modifiers.contains(KeyModifiers::CONTROL),
            _ => false,
        }
}

fn show(frame: &mut Frame<'_>, views: &[View], ranks: &[String]) {
    let Rect { width, height, .. } = frame.area();
    let lines = screen::lines(views, ranks, width.into(), height.into());
    let lines = lines.into_iter().map(|(kind, text)| Line::styled(text, style(kind)));
    frame.render_widget(Text::from_iter(lines), frame.area());
}

fn style(kind: Kind) -> Style {
    match kind {
        Kind::Head => Style::new().add_modifier(Modifier::BOLD),
        Kind::Error => Style::new().fg(Color::Red),
        Kind::Columns => Style::new().add_modifier(Modifier::REVERSED),
        Kind::Device | Kind::Session => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn a_terminal_that_changes_its_size_is_drawn_anew() {
        let mut terminal = Terminal::new(TestBackend::new(80, 5)).unwrap();
        let views = [View::new("gpu-box:1".to_owned())];
        // What a name is shortened to where there is no room for it ends with a dot.
        for (width, height, wanted) in [(80, 5, "g"), (20, 2, "g"), (1, 1, "."), (200, 50, "g")] {
            terminal.backend_mut().resize(width, height);
            terminal.draw(|frame| show(frame, &views, &[])).unwrap();
            let first = terminal.backend().buffer().cell((0, 0)).unwrap().symbol().to_owned();
            assert_eq!(first, wanted, "{width} x {height}");
        }
    }

    #[test]
    fn q_escape_and_control_c_end_it() {
        let key = |code, modifiers| is_end(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL) && !key(KeyCode::Char('c'), KeyModifiers::NONE)
        );
    }
}
