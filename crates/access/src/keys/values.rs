//! Values of the list of clients: from TOML, with what is wrong and where.

use core::fmt::Display;

use causeway_wire::handshake::KeyId;
use jiff::Timestamp;
use toml::Spanned;
use toml::de::DeValue;
use zeroize::Zeroizing;

use crate::keys::limits::{self, ClientLimits};
use crate::target::{ClientName, Key};

/// What is wrong, and where in the text.
pub(super) type LineError = (usize, String);

/// Names the key of a value that cannot be used.
pub(super) fn named(table: &str, field: &Spanned<impl Display>) -> impl Fn(LineError) -> LineError {
    let key = format!("[{table}] {}", field.get_ref());
    move |(at, cause)| (at, format!("{key}: {cause}"))
}

/// Sets the limit that a key names; false where it names none.
pub(super) fn set_limit(
    limits: &mut ClientLimits,
    key: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<bool, LineError> {
    limits.set(key, value.get_ref()).map_err(|cause| (value.span().start, cause))
}

/// The number of a key.
pub(super) fn id(value: &Spanned<DeValue<'_>>) -> Result<KeyId, LineError> {
    let text = string(value)?;
    let number = (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
    let number =
        number.ok_or_else(|| (value.span().start, "this must be 16 hexadecimal digits".to_owned()))?;
    Ok(KeyId(number.to_be_bytes()))
}

/// A secret in the name of a client.
pub(super) fn secret(name: ClientName, value: &Spanned<DeValue<'_>>) -> Result<Key, LineError> {
    let at = value.span().start;
    let text = string(value)?;
    // A name in it would stand before the client's own.
    let text = Zeroizing::new(format!("{name}:{text}"));
    text.parse().map_err(|cause| (at, format!("{cause}")))
}

/// A time.
pub(super) fn time(value: &Spanned<DeValue<'_>>) -> Result<Timestamp, LineError> {
    let text = string(value)?;
    text.parse().map_err(|_| {
        (
            value.span().start,
            format!("`{text}` is no time: write it as 2027-01-31T12:00:00Z, in quotation marks"),
        )
    })
}

/// A text.
pub(super) fn string<'a>(value: &'a Spanned<DeValue<'_>>) -> Result<&'a str, LineError> {
    limits::text(value.get_ref()).map_err(|cause| (value.span().start, cause))
}
