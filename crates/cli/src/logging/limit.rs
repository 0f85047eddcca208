//! Log limit: a flood of lines becomes a bounded log that counts what is missing.
//!
//! A layer counts the events of every place in the program that logs. Whoever connects can cause some of them as often as it
//! likes; those beyond the rate are left out, and a thread that lives as long as there is something to tell says how many.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_sync::threads;
use causeway_wire::text::{MAX_TEXT_BYTES, printable};
use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::rate::{Decision, Kinds, PERIOD, Rate, Suppressed, grouped};

/// The rate of most lines. Twenty are enough to see what happens, and one a second that it goes on: 86,400 a day, some
/// 15 MB, for each place in the program that a peer can reach.
const DEFAULT_RATE: Rate = Rate { burst: 20, interval: Duration::from_secs(1) };

/// The rate of errors and of what concerns a session, none of which should be missing: more than twenty sessions a second for
/// longer than some seconds are an attack. Also that of what only developers ask for.
const GENEROUS: Rate = Rate { burst: 200, interval: Duration::from_millis(50) };

/// The target of the lines that tell what was left out, which are not limited themselves.
const TARGET: &str = "causeway::left_out";

/// A kind of lines: the place in the program that they come from, and their level.
type Kind = (Identifier, Level);

/// Keeps from the layers below what comes too often.
#[derive(Clone, Default)]
pub struct Limit(Arc<Mutex<LimitState>>);

#[derive(Default)]
struct LimitState {
    kinds: Kinds<Kind>,
    /// Whether there is a thread that will tell.
    is_reporting: bool,
}

/// Tells at the end what was left out and not told yet, when it is dropped.
#[must_use = "what was left out is reported when this is dropped"]
pub struct AtEnd(Limit);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.report(Duration::ZERO);
    }
}

impl Limit {
    /// Reports the omitted lines at the end.
    pub fn at_end(&self) -> AtEnd {
        AtEnd(self.clone())
    }

    /// Whether an event is written.
    fn admits(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        if metadata.target() == TARGET {
            return true;
        }
        let kind = (metadata.callsite(), *metadata.level());
        let decision = self.0.lock().kinds.decide(kind.clone(), rate(metadata), Instant::now());
        if decision == (Decision::LeaveOut { is_first: true }) {
            let example = text(event);
            self.0.lock().kinds.keep_example(&kind, example);
            self.report_later();
        }
        decision == Decision::Write
    }

    /// Starts a report of what is left out, whether more comes or not.
    fn report_later(&self) {
        if core::mem::replace(&mut self.0.lock().is_reporting, true) {
            return;
        }
        let own = self.clone();
        let started = threads::spawn("log", move || {
            while let Some(next) = own.next() {
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                own.report(PERIOD);
            }
        });
        if started.is_err() {
            // The next one that is left out tries again, and what is told at the end is told either way.
            self.0.lock().is_reporting = false;
        }
    }

    /// When there is something to tell; nothing when the thread that asks has no more to do.
    fn next(&self) -> Option<Instant> {
        let mut state = self.0.lock();
        let next = state.kinds.next();
        state.is_reporting = next.is_some();
        next
    }

    /// Writes how many lines were left out, of each kind that has waited so long.
    fn report(&self, age: Duration) {
        let now = Instant::now();
        // Not under the lock: each of these lines comes by here again.
        let reported = self.0.lock().kinds.take(now, age);
        reported.iter().for_each(|suppressed| write(suppressed, now));
    }
}

/// How often lines like this are written.
fn rate(metadata: &Metadata<'_>) -> Rate {
    let is_about_session = metadata.fields().field("session").is_some();
    match *metadata.level() {
        Level::WARN | Level::INFO if !is_about_session => DEFAULT_RATE,
        _ => GENEROUS,
    }
}

fn write(suppressed: &Suppressed<Kind>, now: Instant) {
    let Suppressed { kind: (_, level), lines, since, example } = suppressed;
    let seconds = (now - *since).as_secs().max(1);
    let lines = match lines {
        1 => "1 line like this was".to_owned(),
        _ => format!("{} lines like this were", grouped(*lines)),
    };
    // The level of an event is a constant of its place in the program.
    macro_rules! write_at {
        ($level:expr) => {
            tracing::event!(target: TARGET, $level, "{lines} left out in the last {seconds} s: {example}")
        };
    }
    match *level {
        Level::ERROR => write_at!(Level::ERROR),
        Level::WARN => write_at!(Level::WARN),
        Level::INFO => write_at!(Level::INFO),
        Level::DEBUG => write_at!(Level::DEBUG),
        _ => write_at!(Level::TRACE),
    }
}

/// The text of an event: its message, then names and values.
fn text(event: &Event<'_>) -> String {
    struct Text(String);
    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn core::fmt::Debug) {
            self.0.push_str(&match field.name() {
                "message" => format!("{value:?}"),
                name => format!(" {name}={value:?}"),
            });
        }
    }
    let mut text = Text(String::new());
    event.record(&mut text);
    printable(&text.0, MAX_TEXT_BYTES)
}

/// A layer of its own and no filter of the layer that writes: what such a filter (of tracing-subscriber 0.3.23) decides at this
/// point stays set when it is the only one, and an assertion there fails at the next event.
impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.admits(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Seek as _};
    use tracing_subscriber::prelude::*;

    /// The lines that are written while `body` runs, those of the end among them.
    fn written(body: impl FnOnce()) -> Vec<String> {
        let mut file = tempfile::tempfile().unwrap();
        let shared: Arc<File> = Arc::new(file.try_clone().unwrap());
        let limit = Limit::default();
        let lines = tracing_subscriber::fmt::layer().with_target(false).with_ansi(false).with_writer(shared);
        let subscriber = tracing_subscriber::registry().with(lines).with(limit.clone());
        tracing::subscriber::with_default(subscriber, || {
            let at_end = limit.at_end();
            body();
            drop(at_end);
        });
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_flood_is_a_few_lines_and_a_count() {
        let lines = written(|| (1..=1000).for_each(|number| tracing::warn!(number, "turned away")));
        assert_eq!(lines.len(), 21, "{lines:#?}");
        let last = lines.last().unwrap();
        assert!(
            last.contains("WARN 980 lines like this were left out in the last 1 s: turned away number=21"),
            "{last}"
        );
    }

    #[test]
    fn each_place_has_its_own_limit() {
        let lines = written(|| {
            (0..21).for_each(|_| tracing::warn!("one"));
            tracing::info!("another");
        });
        assert_eq!(lines.len(), 22, "{lines:#?}");
        assert!(lines[20].ends_with("another") && lines[21].contains("1 line like this was left out"));
    }

    #[test]
    fn errors_and_sessions_are_not_missing_below_a_sensible_rate() {
        let bodies: [fn(); 3] = [
            || tracing::error!("no worker"),
            || tracing::info!(session = 1, "session begins"),
            || tracing::warn!(session = 1, "session ends"),
        ];
        for body in bodies {
            assert_eq!(written(|| (0..200).for_each(|_| body())).len(), 200);
            assert!(written(|| (0..5000).for_each(|_| body())).len() < 1000);
        }
    }
}
