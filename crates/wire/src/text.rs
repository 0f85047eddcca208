//! Printable text: characters that are safe for terminals and logs.
//!
//! Whoever connects chooses the texts that it sends. A terminal acts on escape sequences, a newline begins
//! another line of a log, and characters that turn the direction of writing make a text look like another
//! one. So texts that people will read are [`Printable`] wherever they are decoded, and there is no other way
//! to make one than [`printable`].

use core::fmt::{self, Write as _};
use core::ops::Deref;

use crate::codec::{Decode, DecodeError, Decoder, Encode};

/// The most characters of a [`Printable`]: as many as a refusal in the clear may have bytes.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The most characters of a line that is written to a log, or printed, with texts from anywhere in it.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// Stands at the end of a text that was cut.
const CUT: &str = " [cut]";

/// The text with nothing in it that a terminal acts on, that ends a line or that cannot be seen, in at most
/// `max` characters.
///
/// Such a character is written as in JSON, `\n` or `\u001b`, which stays what it is when the text comes here
/// again or stands in JSON already. Text that is too long ends with a mark that says so.
pub fn printable(text: &str, max: usize) -> String {
    let capacity = max.saturating_sub(CUT.len());
    // Where the text ends if it turns out to be too long.
    let (mut end, mut count) = (0, 0);
    let mut out = String::new();
    for character in text.chars() {
        let before = out.len();
        count += push(&mut out, character);
        if count <= capacity {
            end = out.len();
        } else if count > max {
            out.truncate(end.min(before));
            out.push_str(CUT);
            break;
        }
    }
    out
}

/// Appends a character, or what stands for it; how many characters that are.
fn push(out: &mut String, character: char) -> usize {
    if is_visible(character) {
        out.push(character);
        return 1;
    }
    let before = out.len();
    match character {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        other => {
            for unit in other.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out.len() - before
}

/// Whether a character is a letter, a mark on one, a digit, a sign or the plain space.
fn is_visible(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // The standard library escapes what Unicode counts as control, format, separator, private or unassigned.
    // Marks that belong to the letter before them it escapes at the beginning only.
    let behind_a_letter = ['a', character].iter().collect::<String>();
    !is_ignorable(character) && behind_a_letter.escape_debug().count() == 2
}

/// Whether a letter or mark has no shape of its own: what of Unicode 16's `Default_Ignorable_Code_Point`
/// (DerivedCoreProperties.txt) is no format character, and the empty pattern of Braille.
fn is_ignorable(character: char) -> bool {
    matches!(character,
        '\u{034f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text that may be shown as it is: [`printable`], and at most [`MAX_TEXT_BYTES`] characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Printable(String);

impl Printable {
    /// The text of bytes that should be UTF-8; what is not becomes U+FFFD.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        String::from_utf8_lossy(bytes).as_ref().into()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Printable {
    fn from(text: &str) -> Self {
        Self(printable(text, MAX_TEXT_BYTES))
    }
}

impl From<String> for Printable {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<Printable> for String {
    fn from(text: Printable) -> Self {
        text.0
    }
}

impl Deref for Printable {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// On the wire it is any other text.
impl Encode for Printable {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

impl<'a> Decode<'a> for Printable {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(input.value::<&str>()?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_stays_as_it_is() {
        for text in
            ["", "plain text", "\"quoted\" 'and' \\back\\", "né̂e", "हिन्दी", "日本語", "עברית", "naïve → ½ 😀"]
        {
            assert_eq!(printable(text, MAX_TEXT_BYTES), text);
        }
    }

    #[test]
    fn what_a_terminal_acts_on_or_nobody_sees_is_written_out() {
        for (text, shown) in [
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[2J\u{7}\0\u{7f}", "\\u001b[2J\\u0007\\u0000\\u007f"),
            // Control sequence introducer, next line.
            ("\u{9b}2J\u{85}", "\\u009b2J\\u0085"),
            // Line and paragraph separators; spaces that look like none, or like the plain one.
            ("\u{2028}\u{2029}\u{a0}\u{3000}", "\\u2028\\u2029\\u00a0\\u3000"),
            // Directions of writing.
            ("\u{202e}gpj\u{2066}\u{200f}\u{61c}", "\\u202egpj\\u2066\\u200f\\u061c"),
            // Without a shape: joiners, the byte order mark, tags, variation selectors, fillers.
            ("\u{200b}\u{200d}\u{feff}\u{ad}", "\\u200b\\u200d\\ufeff\\u00ad"),
            ("\u{e0041}\u{fe0f}\u{3164}\u{2800}", "\\udb40\\udc41\\ufe0f\\u3164\\u2800"),
            // Private use and unassigned.
            ("\u{e000}\u{378}", "\\ue000\\u0378"),
        ] {
            assert_eq!(printable(text, MAX_TEXT_BYTES), shown, "{text:?}");
        }
    }

    #[test]
    fn overlong_text_is_cut_between_characters_and_says_so() {
        assert_eq!(printable("12345678", 8), "12345678");
        assert_eq!(printable("123456789", 8), "12 [cut]");
        assert_eq!(printable("é23456789", 8), "é2 [cut]");
        // Half of what stands for a character would be another text.
        assert_eq!(printable("1\n3456789", 8), "1 [cut]");
        assert_eq!(printable(&"\u{e0041}".repeat(100), 20), "\\udb40\\udc41 [cut]");
        let long = printable(&"\u{1b}x".repeat(MAX_TEXT_BYTES), MAX_TEXT_BYTES);
        assert!(long.chars().count() <= MAX_TEXT_BYTES && long.ends_with(CUT), "{long}");
    }

    #[test]
    fn cleaned_text_stays_as_it_is() {
        for text in ["a\u{1b}\n\u{202e}", &"long\n".repeat(MAX_TEXT_BYTES)] {
            let once = printable(text, MAX_TEXT_BYTES);
            assert_eq!(printable(&once, MAX_TEXT_BYTES), once);
        }
    }

    #[test]
    fn decoding_is_a_way_in_like_any_other() {
        let mut bytes = Vec::new();
        "a\nb".encode(&mut bytes);
        assert_eq!(Decoder::new(&bytes).value(), Ok(Printable::from("a\\nb")));
        assert_eq!(Printable::from_bytes(b"\xff\x1b").as_str(), "\u{fffd}\\u001b");
        assert!(matches!(
            Decoder::new(&[1, 0, 0, 0, 0, 0, 0, 0, 0xff]).value::<Printable>(),
            Err(DecodeError::MalformedText)
        ));
    }
}
