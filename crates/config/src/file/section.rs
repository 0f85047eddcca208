//! Sections (tables) of a configuration file.

use core::fmt;

/// A table of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// `[client]`: what programs that use servers act on.
    Client,
    /// `[serve]`: what `causeway serve` acts on.
    Serve,
    /// `[servers.NAME]`: a server that has a name here.
    Server(String),
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("[client]"),
            Self::Serve => f.write_str("[serve]"),
            Self::Server(name) => write!(f, "[servers.{name}]"),
        }
    }
}
