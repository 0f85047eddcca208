//! Log forwarding from workers to the server's log.
//!
//! By a pipe, line by line. A worker that had the server's standard error could shorten the file behind it, or
//! write escape sequences to the terminal.

use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write};
use std::time::Duration;

use causeway_sync::threads;
use crossbeam_channel::{Receiver, bounded};

/// The longest line in bytes. The rest of a longer one is a line of its own.
const MAX_LINE_BYTES: u64 = 16 << 10;

/// How long the last lines of a worker that has ended are waited for. Somebody may have got the pipe from it.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);

/// The lines of one worker, which a thread copies to standard error.
#[derive(Debug)]
pub struct WorkerLog(Receiver<()>);

impl WorkerLog {
    /// Starts the thread; the other end of the pipe is the worker's standard error.
    pub fn start() -> io::Result<(Self, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        let (ended, end) = bounded(0);
        threads::spawn("worker-log", move || {
            let _ended = ended;
            // Without standard error there is nobody to tell.
            let _ = copy_lines(reader, &mut io::stderr());
        })?;
        Ok((Self(end), writer))
    }

    /// Waits for the last lines of a worker that has ended.
    pub fn finish(self) {
        // The thread sends nothing: its end is what is waited for.
        let _ = self.0.recv_timeout(LOG_TIMEOUT);
    }
}

/// Copies lines without what could do something to a terminal.
fn copy_lines(reader: PipeReader, into: &mut impl Write) -> io::Result<()> {
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut lines).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let mut text: String =
            String::from_utf8_lossy(&line).chars().map(|one| if harmless(one) { one } else { '?' }).collect();
        text.push('\n');
        // At once, so that no other line gets into it.
        into.write_all(text.as_bytes())?;
    }
}

fn harmless(character: char) -> bool {
    character == '\t' || !character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_through_and_nothing_that_a_terminal_obeys() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"one\n\x1b[31mtwo\xff\x9b\tlines\nlast").unwrap();
        drop(writer);
        let mut written = Vec::new();
        copy_lines(reader, &mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "one\n?[31mtwo\u{fffd}\u{fffd}\tlines\nlast\n");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let (reader, mut writer) = io::pipe().unwrap();
        let long = MAX_LINE_BYTES as usize + 3;
        let thread = std::thread::spawn(move || writer.write_all(&vec![b'a'; long]).unwrap());
        let mut written = Vec::new();
        copy_lines(reader, &mut written).unwrap();
        thread.join().unwrap();
        assert_eq!(written.iter().filter(|byte| **byte == b'\n').count(), 2);
        assert_eq!(written.len(), long + 2);
    }

    #[test]
    fn the_last_lines_are_waited_for_and_no_longer_than_a_while() {
        let (log, writer) = WorkerLog::start().unwrap();
        let (kept, copy) = (writer.try_clone().unwrap(), writer);
        drop(copy);
        log.finish();
        let (log, writer) = WorkerLog::start().unwrap();
        drop((kept, writer));
        log.finish();
    }
}
