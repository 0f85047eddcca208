//! Texel formats: decoding of channels.
//!
//! Memory is read by atomic loads, since other threads of the kernel may write to it; it may be gone, which
//! raises a signal that ends the thread (`run/signals.rs`), so that nothing here owns anything.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::types::{Channel, Image, Texture};

/// Reads a number of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// The bytes lie in the address space, where touching what is not there ends the thread.
pub(super) unsafe fn load(address: u64, bytes: u32) -> u64 {
    // SAFETY: the caller's bytes are in the address space, where touching what is not there ends the thread;
    // an address is a multiple of the size where the atomic type has more than one byte.
    unsafe {
        match bytes {
            1 => u64::from(AtomicU8::from_ptr(address as *mut u8).load(Relaxed)),
            _ if !address.is_multiple_of(u64::from(bytes)) => {
                (0..u64::from(bytes)).fold(0, |value, byte| value | load(address + byte, 1) << (8 * byte))
            }
            2 => u64::from(AtomicU16::from_ptr(address as *mut u16).load(Relaxed)),
            4 => u64::from(AtomicU32::from_ptr(address as *mut u32).load(Relaxed)),
            _ => AtomicU64::from_ptr(address as *mut u64).load(Relaxed),
        }
    }
}

/// Writes a number of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// As for [`load`].
pub(super) unsafe fn store(address: u64, bytes: u32, value: u64) {
    // SAFETY: the caller's bytes are in the address space, where touching what is not there ends the thread;
    // an address is a multiple of the size where the atomic type has more than one byte.
    unsafe {
        match bytes {
            1 => AtomicU8::from_ptr(address as *mut u8).store(value as u8, Relaxed),
            _ if !address.is_multiple_of(u64::from(bytes)) => {
                (0..u64::from(bytes)).for_each(|byte| store(address + byte, 1, value >> (8 * byte)));
            }
            2 => AtomicU16::from_ptr(address as *mut u16).store(value as u16, Relaxed),
            4 => AtomicU32::from_ptr(address as *mut u32).store(value as u32, Relaxed),
            _ => AtomicU64::from_ptr(address as *mut u64).store(value, Relaxed),
        }
    }
}

impl Image {
    /// Where a texel lies.
    pub(super) fn address_of(&self, bytes: u32, [x, y, z]: [u32; 3]) -> u64 {
        let x = u64::from(x) * u64::from(bytes);
        self.address + x + u64::from(y) * self.row_pitch + u64::from(z) * self.slice_pitch
    }
}

impl Texture {
    /// The value of a texel, or of the border where there is none: the bits of four floating-point numbers or
    /// integers, of which those that the texel does not have are zero.
    ///
    /// # Safety
    /// The texel is in the image, which is one of this texture.
    pub(super) unsafe fn texel(&self, image: &Image, at: Option<[u32; 3]>) -> [u32; 4] {
        let Some(at) = at else { return self.sampling.border.map(f32::to_bits) };
        let channel = self.format.channel;
        let start = image.address_of(self.format.bytes(), at);
        let mut value = [0; 4];
        for (index, value) in value.iter_mut().enumerate().take(self.format.channels as usize) {
            let address = start + index as u64 * u64::from(channel.bytes());
            // SAFETY: whoever made the texture vouches that its images lie in the address space.
            let bits = unsafe { load(address, channel.bytes()) } as u32;
            let integer = match channel {
                Channel::Signed8 => i32::from(bits as i8).cast_unsigned(),
                Channel::Signed16 => i32::from(bits as i16).cast_unsigned(),
                _ => bits,
            };
            *value = if self.returns_floats() { self.float(integer, index).to_bits() } else { integer };
        }
        value
    }

    /// The floating-point number that the `index`th channel of a texel means.
    fn float(&self, bits: u32, index: usize) -> f32 {
        let signed = bits.cast_signed() as f32;
        match self.format.channel {
            Channel::Unsigned8 if self.sampling.srgb && index < 3 => linear_of_srgb(bits as f32 / 255.0),
            Channel::Unsigned8 => bits as f32 / 255.0,
            Channel::Unsigned16 => bits as f32 / 65535.0,
            Channel::Signed8 => (signed / 127.0).max(-1.0),
            Channel::Signed16 => (signed / 32767.0).max(-1.0),
            Channel::Half => half_to_single(bits as u16),
            Channel::Unsigned32 | Channel::Signed32 | Channel::Single => f32::from_bits(bits),
        }
    }
}

/// IEC 61966-2-1.
fn linear_of_srgb(value: f32) -> f32 {
    if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
}

fn half_to_single(half: u16) -> f32 {
    let (sign, magnitude) = (u32::from(half & 0x8000) << 16, u32::from(half & 0x7fff));
    let exact = match magnitude {
        0..0x400 => (magnitude as f32 * 2_f32.powi(-24)).to_bits(),
        0x400..0x7c00 => (magnitude << 13) + (112 << 23),
        _ => (magnitude << 13) | 0x7f80_0000,
    };
    f32::from_bits(sign | exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texture::examples::{image, sampling};
    use crate::texture::types::{Slices, TexelFormat};

    fn texture(image: Image, channel: Channel, channels: u32) -> Texture {
        let format = TexelFormat { channel, channels };
        Texture { levels: Box::new([image]), slices: Slices::Depth, format, sampling: sampling() }
    }

    fn texels(texture: &Texture) -> Vec<[u32; 4]> {
        let image = &texture.levels[0];
        // SAFETY: the texels are in the image, which the test keeps.
        (0..image.size[0]).map(|x| unsafe { texture.texel(image, Some([x, 0, 0])) }).collect()
    }

    #[test]
    fn every_half_is_the_number_that_it_means() {
        for bits in 0..=u16::MAX {
            let (got, requested) = (half_to_single(bits), half::f16::from_bits(bits).to_f32());
            assert!(got == requested || got.is_nan() && requested.is_nan(), "{bits:x}: {got} {requested}");
        }
    }

    #[test]
    fn integers_keep_their_sign_and_channels_that_are_not_there_are_zero() {
        let bytes: [u8; 4] = [1, 0xff, 0x80, 7];
        let signed = texture(image(&bytes, [2, 1, 1], 2), Channel::Signed8, 2);
        assert_eq!(texels(&signed), [[1, u32::MAX, 0, 0], [-128_i32 as u32, 7, 0, 0]]);
        let unsigned = texture(image(&bytes, [1, 1, 1], 4), Channel::Unsigned8, 4);
        assert_eq!(texels(&unsigned), [[1, 0xff, 0x80, 7]]);
    }

    #[test]
    fn integers_are_normalized_to_one() {
        let normalized = |channel, image| {
            let mut texture = texture(image, channel, 1);
            texture.sampling.normalized_values = true;
            texels(&texture).into_iter().map(|value| f32::from_bits(value[0])).collect::<Vec<_>>()
        };
        let bytes: [u8; 4] = [0, 51, 0x80, 0xff];
        let row = image(&bytes, [4, 1, 1], 1);
        assert_eq!(normalized(Channel::Unsigned8, row), [0.0, 0.2, 128.0 / 255.0, 1.0]);
        assert_eq!(normalized(Channel::Signed8, row), [0.0, 51.0 / 127.0, -1.0, -1.0 / 127.0]);
        let words: [u16; 2] = [0x8000, 0x7fff];
        let row = image(&words, [2, 1, 1], 1);
        assert_eq!(normalized(Channel::Signed16, row), [-1.0, 1.0]);
        assert_eq!(normalized(Channel::Unsigned16, row), [32768.0 / 65535.0, 32767.0 / 65535.0]);
    }

    #[test]
    fn srgb_is_made_linear_but_for_the_fourth_channel() {
        let bytes: [u8; 4] = [0, 10, 128, 128];
        let mut texture = texture(image(&bytes, [1, 1, 1], 4), Channel::Unsigned8, 4);
        (texture.sampling.normalized_values, texture.sampling.srgb) = (true, true);
        let [r, g, b, a] = texels(&texture)[0].map(f32::from_bits);
        assert_eq!((r, a), (0.0, 128.0 / 255.0));
        assert!((g - 10.0 / 255.0 / 12.92).abs() < 1e-7 && (b - 0.215_861).abs() < 1e-5, "{g} {b}");
    }

    #[test]
    fn numbers_that_are_not_aligned_are_read_and_written_byte_by_byte() {
        let mut bytes = [0_u8; 24];
        let start = bytes.as_mut_ptr() as u64;
        for (offset, size) in [(0, 1), (3, 2), (5, 4), (9, 8), (16, 4)] {
            let value = 0x8877_6655_4433_2211 & (u64::MAX >> (64 - 8 * size));
            // SAFETY: the bytes are the test's.
            unsafe {
                store(start + offset, size, value);
                assert_eq!(load(start + offset, size), value);
            }
        }
    }
}
