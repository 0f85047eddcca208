//! PTX that a compiler made on its way to machine code, for devices that run PTX only.
//!
//! NVRTC makes PTX of a program first and then machine code of the same program, and asks for a kept result
//! before each step; nvJitLink names the PTX as the source of the second step. What such a device runs is
//! PTX, so that the result of the second step is that of the first, in the form of machine code.

use std::collections::VecDeque;

use crate::locks::{Mutex, rank};
use blake3::Hash;
use causeway_api::image::texts::container;

/// Texts that are remembered: more than threads of a program compile at a time.
const MAX_TEXTS: usize = 64;
/// Bytes of all of them.
const MAX_BYTES: usize = 64 << 20;

/// The latest texts by their programs, the oldest first.
#[derive(Debug)]
pub struct Texts(Mutex<rank::CompiledTexts, VecDeque<(Hash, String)>>);

impl Texts {
    /// None.
    pub const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Remembers what a compiler made of a program, if it is PTX.
    pub fn remember(&self, program: Hash, result: &[u8]) {
        let end = result.iter().position(|byte| *byte == 0).unwrap_or(result.len());
        let Ok(text) = core::str::from_utf8(&result[..end]) else { return };
        if !text.contains(".version") || text.len() > MAX_BYTES {
            return;
        }
        let mut texts = self.0.lock();
        texts.retain(|(known, _)| *known != program);
        texts.push_back((program, text.to_owned()));
        let bytes =
            |texts: &VecDeque<(Hash, String)>| texts.iter().map(|(_, text)| text.len()).sum::<usize>();
        while texts.len() > MAX_TEXTS || bytes(&texts) > MAX_BYTES {
            texts.pop_front();
        }
    }

    /// The program's text in the form of machine code.
    pub fn machine_code(&self, program: Hash) -> Option<Vec<u8>> {
        let texts = self.0.lock();
        let (_, text) = texts.iter().find(|(known, _)| *known == program)?;
        Some(container(core::slice::from_ref(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::image::texts::texts_of;

    #[test]
    fn the_text_of_a_program_is_its_machine_code() {
        let texts = Texts::new();
        let program = |number: usize| blake3::hash(&number.to_le_bytes());
        assert_eq!(texts.machine_code(program(0)), None);
        texts.remember(program(0), b"no PTX");
        texts.remember(program(0), b".version \xff");
        assert_eq!(texts.machine_code(program(0)), None);
        for number in 0..MAX_TEXTS + 2 {
            texts.remember(program(number), format!(".version 9.5 // {number}\0rest").as_bytes());
        }
        texts.remember(program(3), b".version 9.5 // again");
        let text = |number| texts.machine_code(program(number)).map(|file| texts_of(&file));
        assert_eq!((text(0), text(1)), (None, None), "the oldest are forgotten");
        assert_eq!(text(2), Some(Some(Ok(vec![".version 9.5 // 2".to_owned()]))));
        assert_eq!(text(3), Some(Some(Ok(vec![".version 9.5 // again".to_owned()]))));
    }
}
