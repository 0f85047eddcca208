//! Little-endian encoding of values into messages, and its checked inverse.
//!
//! The decoder treats every byte as hostile: a length is compared with what is left before anything is
//! taken or allocated, so a decoded collection can never be larger than the message it came in.

use thiserror::Error;

/// Why a message could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The message ended before the value did.
    #[error("the message ends early: {requested} more bytes were announced, {left} remain")]
    Truncated {
        /// Bytes that the value needs.
        requested: u64,
        /// Bytes that are left in the message.
        left: usize,
    },
    /// A tag, opcode or boolean had a value that the protocol does not define.
    #[error("{value} is not a {what} of this protocol version")]
    UnknownTag {
        /// What kind of tag was read.
        what: &'static str,
        /// The value found.
        value: u64,
    },
    /// A text was not UTF-8, or a C string had a NUL inside.
    #[error("a text in the message is not valid UTF-8")]
    MalformedText,
    /// Bytes were left over after the last value.
    #[error("{0} bytes remain after the last value of the message")]
    TrailingBytes(usize),
}

/// A value that can be appended to a message.
pub trait Encode {
    /// Appends the value to `out`.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A value that can be taken from a message; `'a` is the life of the message's bytes.
pub trait Decode<'a>: Sized {
    /// Takes the value from the front of `input`.
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError>;
}

/// A cursor over the bytes of one message.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that have not been taken yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes exactly `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let Some((head, tail)) = self.rest.split_at_checked(count) else {
            return Err(DecodeError::Truncated { requested: count as u64, left: self.rest.len() });
        };
        self.rest = tail;
        Ok(head)
    }

    /// Takes a `u32` count of elements of at least `element` bytes each, refusing a count that the rest
    /// of the message cannot hold.
    pub fn count(&mut self, element: usize) -> Result<usize, DecodeError> {
        let count = u32::decode(self)? as usize;
        let requested = (count as u64).saturating_mul(element.max(1) as u64);
        if requested > self.rest.len() as u64 {
            return Err(DecodeError::Truncated { requested, left: self.rest.len() });
        }
        Ok(count)
    }

    /// Decodes one value.
    pub fn value<T: Decode<'a>>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// Says that the message must be used up here.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes(self.rest.len())) }
    }
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Encode for $type {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
        impl<'a> Decode<'a> for $type {
            #[inline]
            fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
                let bytes = input.take(size_of::<$type>())?;
                Ok(<$type>::from_le_bytes(bytes.try_into().expect("take gave the size asked for")))
            }
        }
    )*};
}

number!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

/// Sizes and counts of the API travel as 64 bits whatever the machine's word is.
impl Encode for usize {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u64).encode(out);
    }
}

impl<'a> Decode<'a> for usize {
    #[inline]
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let value = u64::decode(input)?;
        usize::try_from(value).map_err(|_| DecodeError::UnknownTag { what: "size", value })
    }
}

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl<'a> Decode<'a> for bool {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::UnknownTag { what: "boolean", value: u64::from(other) }),
        }
    }
}

/// Bytes travel behind a `u64` length.
impl Encode for [u8] {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u64).encode(out);
        out.extend_from_slice(self);
    }
}

impl<'a> Decode<'a> for &'a [u8] {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let length = u64::decode(input)?;
        let left = input.remaining();
        let length =
            usize::try_from(length).map_err(|_| DecodeError::Truncated { requested: length, left })?;
        input.take(length)
    }
}

impl Encode for str {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode(out);
    }
}

impl<'a> Decode<'a> for &'a str {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        core::str::from_utf8(input.value()?).map_err(|_| DecodeError::MalformedText)
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_str().encode(out);
    }
}

impl<'a> Decode<'a> for String {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(input.value::<&str>()?.to_owned())
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        if input.value()? { Ok(Some(input.value()?)) } else { Ok(None) }
    }
}

/// Lists travel behind a `u32` count.
impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for value in self {
            value.encode(out);
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        // Every element takes at least one byte, so a hostile count cannot reserve more elements than
        // the message has bytes; growth beyond the first few thousand is paid for by decoded data.
        let count = input.count(1)?;
        let mut list = Vec::with_capacity(count.min(4096));
        for _ in 0..count {
            list.push(input.value()?);
        }
        Ok(list)
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}

impl<T: Encode, const N: usize> Encode for [T; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.encode(out));
    }
}

impl<'a, T: Decode<'a> + Copy + Default, const N: usize> Decode<'a> for [T; N] {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let mut list = [T::default(); N];
        for slot in &mut list {
            *slot = input.value()?;
        }
        Ok(list)
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
}

impl<'a, A: Decode<'a>, B: Decode<'a>> Decode<'a> for (A, B) {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok((input.value()?, input.value()?))
    }
}

macro_rules! tuple {
    ($($name:ident . $index:tt),*) => {
        impl<$($name: Encode),*> Encode for ($($name,)*) {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$index.encode(out);)*
            }
        }
        impl<'a, $($name: Decode<'a>),*> Decode<'a> for ($($name,)*) {
            fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
                Ok(($(input.value::<$name>()?,)*))
            }
        }
    };
}

tuple!(A.0, B.1, C.2);
tuple!(A.0, B.1, C.2, D.3);

impl Encode for () {
    fn encode(&self, _out: &mut Vec<u8>) {}
}

impl<'a> Decode<'a> for () {
    fn decode(_input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

/// Implements [`Encode`] and [`Decode`] for a struct, field by field in the order given.
#[macro_export]
macro_rules! record {
    ($type:path { $($field:tt),* $(,)? }) => {
        impl $crate::codec::Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::codec::Encode::encode(&self.$field, out);)*
            }
        }
        impl<'a> $crate::codec::Decode<'a> for $type {
            fn decode(input: &mut $crate::codec::Decoder<'a>) -> Result<Self, $crate::codec::DecodeError> {
                Ok(Self { $($field: input.value()?),* })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T>(value: T)
    where
        T: Encode + for<'a> Decode<'a> + PartialEq + core::fmt::Debug,
    {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        let mut input = Decoder::new(&bytes);
        assert_eq!(input.value::<T>().unwrap(), value);
        input.finish().unwrap();
    }

    #[test]
    fn values_survive_a_round_trip() {
        round_trip(0x1234_5678_9abc_def0_u64);
        round_trip(-5_i32);
        round_trip(2.5_f32);
        round_trip(String::from("stream"));
        round_trip(vec![1_u16, 2, 3]);
        round_trip(Some([7_u32; 3]));
        round_trip(Option::<u8>::None);
        round_trip(true);
    }

    #[test]
    fn a_length_beyond_the_message_is_refused() {
        let mut bytes = Vec::new();
        u64::MAX.encode(&mut bytes);
        assert!(matches!(Decoder::new(&bytes).value::<&[u8]>(), Err(DecodeError::Truncated { .. })));
        let mut bytes = Vec::new();
        u32::MAX.encode(&mut bytes);
        assert!(matches!(Decoder::new(&bytes).value::<Vec<u64>>(), Err(DecodeError::Truncated { .. })));
    }

    #[test]
    fn an_undefined_boolean_and_left_over_bytes_are_refused() {
        assert!(matches!(Decoder::new(&[2]).value::<bool>(), Err(DecodeError::UnknownTag { .. })));
        assert_eq!(Decoder::new(&[0]).finish(), Err(DecodeError::TrailingBytes(1)));
    }
}
