//! Refusal of a key: how the server's sentence begins, by which the client recognizes it.

/// How the text of a refusal begins whose cause is the client's key.
pub const WRONG_KEY: &str = "the key is not this server's";
