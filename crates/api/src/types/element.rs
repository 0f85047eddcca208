//! Element size of an array.

use crate::sys::CUarray_format as Format;

/// Bytes of one channel of an element, for the formats whose elements lie side by side; none for those of
/// textures and of video, and for numbers that are no format.
pub fn channel_bytes(format: Format) -> Option<u64> {
    match format {
        Format::CU_AD_FORMAT_UNSIGNED_INT8 | Format::CU_AD_FORMAT_SIGNED_INT8 => Some(1),
        Format::CU_AD_FORMAT_UNSIGNED_INT16
        | Format::CU_AD_FORMAT_SIGNED_INT16
        | Format::CU_AD_FORMAT_HALF => Some(2),
        Format::CU_AD_FORMAT_UNSIGNED_INT32
        | Format::CU_AD_FORMAT_SIGNED_INT32
        | Format::CU_AD_FORMAT_FLOAT => Some(4),
        _ => None,
    }
}
