//! Environment variable: its values, its default, and the component that reads it.

use crate::duration::{self, whole_seconds};
use crate::size::Size;

/// Who acts on a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The client library, in the program.
    Client,
    /// The worker: the client's value travels with the connection and is set before the driver starts.
    Worker,
    /// `causeway serve` and its workers, where it is set for the server.
    Server,
    /// `causeway run`, and the other commands that start programs.
    Run,
    /// `causeway mpirun` and `causeway bench mpi`, which start programs of an MPI.
    Mpirun,
    /// `libcauseway_mpi.so`, in the ranks of an MPI program.
    Rank,
    /// `libcauseway_comm.so`, in programs whose kernels communicate.
    Team,
    /// `libnccl-net-causeway.so`, in programs that use NCCL.
    Nccl,
    /// Tests of Causeway alone.
    Test,
}

/// What a variable may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// A text that whoever acts on it reads in a way of its own; this says how it looks, or nothing.
    Text(&'static str),
    /// The path of a file or folder.
    Path,
    /// `1` or `on`, `0` or `off`.
    Switch,
    /// A number from one to another.
    Number(u64, u64),
    /// A time in whole seconds from one to another, as [`whole_seconds`] reads it.
    Seconds(u64, u64),
    /// One of these numbers.
    NumberOf(&'static [u64]),
    /// A [`Size`] from one to another.
    Size(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// What counts where a variable is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// This, in words; where they are empty, the text says it.
    Text(&'static str),
    /// This number.
    Number(u64),
    /// This [`Size`].
    Size(u64),
}

/// One variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Who acts on it.
    pub components: &'static [Component],
    /// What it may hold.
    pub values: Values,
    /// What counts where it is not set.
    pub default: Fallback,
    /// What it does, in a sentence without its full stop.
    pub text: &'static str,
    /// What else the book says of it, in Markdown; sentences, or nothing.
    pub more: &'static str,
}

impl Values {
    /// What is expected, as words behind "give"; nothing where anything may be given.
    pub fn expected(&self) -> Option<String> {
        let one_of = |choices: Vec<String>| match choices.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        };
        match *self {
            Self::Text("") | Self::Path => None,
            Self::Text(form) => Some(form.to_owned()),
            Self::Switch => Some("on (or 1) or off (or 0)".to_owned()),
            Self::Number(min, max) => Some(format!("a number from {min} to {max}")),
            Self::Seconds(min, max) => Some(duration::expected(min, max)),
            Self::NumberOf(numbers) => Some(one_of(numbers.iter().map(u64::to_string).collect())),
            Self::Size(min, u64::MAX) => Some(format!("a size of {} or more", Size(min))),
            Self::Size(min, max) => Some(format!("a size from {} to {}", Size(min), Size(max))),
            Self::Word(choices) => Some(one_of(choices.iter().map(|word| (*word).to_owned()).collect())),
        }
    }

    /// A text that is not empty may be given, as far as this says it.
    pub(crate) fn admits(&self, text: &str) -> bool {
        match *self {
            Self::Text(_) | Self::Path => true,
            Self::Switch => switch(text).is_some(),
            Self::Number(min, max) => text.parse().is_ok_and(|number| (min..=max).contains(&number)),
            Self::Seconds(min, max) => whole_seconds(text, min, max).is_some(),
            Self::NumberOf(numbers) => text.parse().is_ok_and(|number| numbers.contains(&number)),
            Self::Size(min, max) => text.parse().is_ok_and(|Size(bytes)| (min..=max).contains(&bytes)),
            Self::Word(choices) => choices.contains(&text),
        }
    }
}

/// What a switch says.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "on" => Some(true),
        "0" | "off" => Some(false),
        _ => None,
    }
}
