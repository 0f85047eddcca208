//! Output of kernels (`printf`): written to the program's standard output and error.
//!
//! Through its own `stdout` and `stderr`, so that it appears in order with what the program itself prints, as with a
//! GPU of its own. A terminal gets it without what a terminal acts on: the server says what a kernel has printed, and
//! it does not reach the user's terminal.

use core::ffi::c_int;
use std::borrow::Cow;

/// Which of the program's streams something is printed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// `stdout`.
    Standard,
    /// `stderr`.
    Error,
}

/// Prints what a kernel has printed.
pub fn print(stream: OutputStream, bytes: &[u8]) {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
        static stderr: *mut libc::FILE;
        fn fileno(stream: *mut libc::FILE) -> c_int;
    }
    // SAFETY: the C library's streams live as long as the process, and lock themselves.
    unsafe {
        let stream = match stream {
            OutputStream::Standard => stdout,
            OutputStream::Error => stderr,
        };
        let sanitized =
            if libc::isatty(fileno(stream)) == 1 { for_terminal(bytes) } else { Cow::Borrowed(bytes) };
        libc::fwrite(sanitized.as_ptr().cast(), 1, sanitized.len(), stream);
    }
}

/// The same with `?` in the place of each character that a terminal acts on, but for tabs and the ends of lines. What is
/// no UTF-8 is such a character, too, as some terminals act on single bytes from 0x80 on.
fn for_terminal(bytes: &[u8]) -> Cow<'_, [u8]> {
    let acts = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    if core::str::from_utf8(bytes).is_ok_and(|text| !text.contains(acts)) {
        return Cow::Borrowed(bytes);
    }
    let mut sanitized = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let character = if acts(character) { '?' } else { character };
            sanitized.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        if !chunk.invalid().is_empty() {
            sanitized.push(b'?');
        }
    }
    Cow::Owned(sanitized)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_gets_nothing_that_it_acts_on() {
        let plain = "x = 1\t\u{e9}\u{65e5}\r\n".as_bytes();
        assert!(matches!(for_terminal(plain), Cow::Borrowed(same) if same == plain));
        assert_eq!(&*for_terminal(b"a\x1b]0;title\x07b\x08\x00\n"), b"a?]0;title?b??\n");
        // The control sequence introducer, as a character and as a byte, and cut in two by the end of a message.
        assert_eq!(&*for_terminal("\u{9b}31m".as_bytes()), b"?31m");
        assert_eq!(&*for_terminal(b"\x9b31m"), b"?31m");
        assert_eq!(&*for_terminal(b"\xc2"), b"?");
    }
}
