//! Log lines: an event as one line that nothing in it can break.
//!
//! Texts of peers are printable where they are decoded (`causeway_wire::text`); but errors carry others, such as names in a
//! program's code or what the driver says of it. So whatever is in an event is made printable once more here.

use std::io;

use causeway_wire::text::{MAX_LINE_BYTES, printable};
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::fmt::{FormatFields, MakeWriter};

/// The fields of an event in a line for people: the message, then names and values.
pub fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    let field = debug_fn(|writer, field, value| {
        let value = printable(&format!("{value:?}"), MAX_LINE_BYTES);
        match field.name() {
            "message" => writer.write_str(&value),
            name => write!(writer, "{name}={value}"),
        }
    });
    field.delimited(" ")
}

/// Makes writers of lines of JSON. Control characters are escaped in these already; the others are by the writers, in the
/// same way.
pub struct JsonLines<M>(pub M);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for JsonLines<M> {
    type Writer = JsonLine<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        JsonLine(self.0.make_writer())
    }
}

/// A writer of a line of JSON, which the formatter gives in one piece.
pub struct JsonLine<W>(W);

impl<W: io::Write> io::Write for JsonLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = printable(text.strip_suffix('\n').unwrap_or(&text), usize::MAX);
        self.0.write_all(format!("{text}\n").as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _};
    use std::sync::Arc;
    use tracing_subscriber::prelude::*;

    /// What is written of an event with hostile texts in it.
    fn written(as_json: bool) -> String {
        let mut file = tempfile::tempfile().unwrap();
        let shared = Arc::new(file.try_clone().unwrap());
        let lines = tracing_subscriber::fmt::layer().with_target(false).with_ansi(false);
        let lines = match as_json {
            false => lines.fmt_fields(fields()).with_writer(shared).boxed(),
            true => lines.json().with_writer(JsonLines(shared)).boxed(),
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let (program, name) = ("a\nERROR b\u{1b}[2J", "c\u{202e}d\n");
            tracing::warn!(name, number = 7, shown = %program, "session of {program}");
        });
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn an_event_is_one_line_of_printable_text() {
        for as_json in [false, true] {
            let text = written(as_json);
            let line = text.strip_suffix('\n').unwrap();
            assert_eq!(printable(line, usize::MAX), line);
        }
        let text = written(false);
        assert!(text.contains(r"session of a\nERROR b\u001b[2J name="), "{text}");
        assert!(text.contains(r"number=7 shown=a\nERROR b\u001b[2J"), "{text}");
    }

    #[test]
    fn json_means_the_same_as_before() {
        let line: serde_json::Value = serde_json::from_str(&written(true)).unwrap();
        assert_eq!(line["fields"]["name"], "c\u{202e}d\n");
        assert_eq!(line["fields"]["number"], 7);
    }
}
