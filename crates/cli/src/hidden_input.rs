//! Hidden input: a line from the terminal that does not appear there.

use std::io::{self, Write as _};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use zeroize::Zeroizing;

/// The longest line.
const MAX_CHARACTERS: usize = 4096;

/// Gives the terminal its mode back.
struct RawMode;

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that has gone needs none.
        let _ = disable_raw_mode();
        let _ = writeln!(io::stderr());
    }
}

/// What a key does to the line.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Continue,
    End,
    Abort,
}

/// Reads a line without showing it; nothing where the user gives up.
pub fn line() -> io::Result<Option<Zeroizing<String>>> {
    enable_raw_mode()?;
    let _restored = RawMode;
    // With room for all of it, so that no copy of a part stays behind.
    let mut line = Zeroizing::new(String::with_capacity(4 * MAX_CHARACTERS));
    loop {
        let Event::Key(key) = event::read()? else { continue };
        match apply(&mut line, key) {
            Step::Continue => {}
            Step::End => return Ok(Some(line)),
            Step::Abort => return Ok(None),
        }
    }
}

fn apply(line: &mut String, key: KeyEvent) -> Step {
    if key.kind == KeyEventKind::Release {
        return Step::Continue;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if is_control => return Step::Abort,
        KeyCode::Char('u') if is_control => line.clear(),
        // As Enter comes where a terminal sends a line feed.
        KeyCode::Char('j' | 'm') if is_control => return Step::End,
        KeyCode::Enter => return Step::End,
        KeyCode::Backspace => _ = line.pop(),
        KeyCode::Char(letter) if !is_control && line.len() < MAX_CHARACTERS => line.push(letter),
        _ => {}
    }
    Step::Continue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_make_a_line_or_give_up() {
        let mut line = String::new();
        let plain = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        for key in
            [plain(KeyCode::Char('x')), control('u'), plain(KeyCode::Char('a')), plain(KeyCode::Char('b'))]
        {
            assert_eq!(apply(&mut line, key), Step::Continue);
        }
        apply(&mut line, plain(KeyCode::Backspace));
        assert_eq!((apply(&mut line, plain(KeyCode::Enter)), line.as_str()), (Step::End, "a"));
        assert_eq!(
            (apply(&mut line, control('c')), apply(&mut line, control('j'))),
            (Step::Abort, Step::End)
        );
        (0..2 * MAX_CHARACTERS).for_each(|_| _ = apply(&mut line, plain(KeyCode::Char('a'))));
        assert_eq!(line.len(), MAX_CHARACTERS);
    }
}
