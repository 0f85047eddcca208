//! Descriptors of matrices and products, and their attributes.

use core::ffi::c_void;

use crate::exports::functions;
use crate::log;
use crate::status::{Done, Status};

/// `cublasLtMatrixLayout_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Layout {
    pub rows: u64,
    pub columns: u64,
    pub leading: i64,
    pub batch_stride: i64,
    /// `cudaDataType`
    pub scalar_type: u32,
    /// `cublasLtOrder_t`: 0 by columns, 1 by rows.
    pub order: u32,
    pub batch: i32,
    /// `cublasLtBatchMode_t`: 0 at fixed distances, 1 array of addresses.
    pub batch_mode: u32,
}

/// `cublasLtMatmulDesc_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Description {
    pub bias: u64,
    pub bias_batch_stride: i64,
    /// `cublasComputeType_t`
    pub compute: u32,
    /// `cudaDataType` of alpha and beta.
    pub scale_type: u32,
    /// `cublasLtPointerMode_t`
    pub pointer_mode: u32,
    /// `cublasOperation_t` of A, B and C.
    pub operations: [u32; 3],
    /// `cublasLtEpilogue_t`
    pub epilogue: u32,
    /// `cudaDataType` of the bias, or all ones for that of the result.
    pub bias_type: u32,
    /// The number of an attribute that is set and not implemented, or 0.
    pub refused: u32,
    pub reserved: u32,
}

/// Bytes of the structures that programs may provide for descriptors, in the oldest version of the interface.
const LAYOUT_BYTES: usize = 64;
const DESCRIPTION_BYTES: usize = 88;
/// Of a preference, which has nothing that is used.
const PREFERENCE_LENGTH: usize = 12;

const _: () = assert!(size_of::<Layout>() <= LAYOUT_BYTES && size_of::<Description>() <= DESCRIPTION_BYTES);

impl Layout {
    fn new(scalar_type: u32, rows: u64, columns: u64, leading: i64) -> Self {
        Self { rows, columns, leading, batch_stride: 0, scalar_type, order: 0, batch: 1, batch_mode: 0 }
    }
}

impl Description {
    fn new(compute: u32, scale_type: u32) -> Self {
        Self {
            bias: 0,
            bias_batch_stride: 0,
            compute,
            scale_type,
            pointer_mode: 0,
            operations: [0; 3],
            epilogue: 1,
            bias_type: u32::MAX,
            refused: 0,
            reserved: 0,
        }
    }
}

/// What attributes can be, as bytes in memory.
trait Attributes {
    /// The bytes of the attribute of this number.
    fn attribute(&mut self, number: u32) -> Option<&mut [u8]>;
}

/// The bytes of a number.
fn bytes<T: Number>(number: &mut T) -> &mut [u8] {
    // SAFETY: every pattern of bits is such a number, which has no padding.
    unsafe { core::slice::from_raw_parts_mut(core::ptr::from_mut(number).cast(), size_of::<T>()) }
}

/// Integers, of which every pattern of bits is one.
trait Number {}
impl Number for u32 {}
impl Number for i32 {}
impl Number for u64 {}
impl Number for i64 {}

impl Attributes for Layout {
    fn attribute(&mut self, number: u32) -> Option<&mut [u8]> {
        Some(match number {
            0 => bytes(&mut self.scalar_type),
            1 => bytes(&mut self.order),
            2 => bytes(&mut self.rows),
            3 => bytes(&mut self.columns),
            4 => bytes(&mut self.leading),
            5 => bytes(&mut self.batch),
            6 => bytes(&mut self.batch_stride),
            8 => bytes(&mut self.batch_mode),
            _ => return None,
        })
    }
}

impl Attributes for Description {
    fn attribute(&mut self, number: u32) -> Option<&mut [u8]> {
        Some(match number {
            0 => bytes(&mut self.compute),
            1 => bytes(&mut self.scale_type),
            2 => bytes(&mut self.pointer_mode),
            3..=5 => bytes(&mut self.operations[number as usize - 3]),
            7 => bytes(&mut self.epilogue),
            8 => bytes(&mut self.bias),
            10 => bytes(&mut self.bias_batch_stride),
            26 => bytes(&mut self.bias_type),
            _ => return None,
        })
    }
}

/// Attributes of a product that only concern how it is made: the fill mode of a full matrix, multiprocessors,
/// fast sums.
const WITHOUT_EFFECT: [u32; 3] = [6, 15, 25];

/// Changes an attribute; gives whether there is one of this number.
///
/// # Safety
/// The buffer has so many bytes.
unsafe fn set(
    descriptor: &mut impl Attributes,
    number: u32,
    buffer: *const u8,
    size: usize,
) -> Result<bool, Status> {
    let Some(attribute) = descriptor.attribute(number) else { return Ok(false) };
    if buffer.is_null() || size != attribute.len() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: the caller's buffer has `size` bytes, as many as the attribute.
    attribute.copy_from_slice(unsafe { core::slice::from_raw_parts(buffer, size) });
    Ok(true)
}

/// Writes an attribute, or how large it is.
///
/// # Safety
/// The buffer has so many bytes, and `written` is null or leads to a number.
unsafe fn get(
    descriptor: &mut impl Attributes,
    number: u32,
    buffer: *mut u8,
    size: usize,
    written: *mut usize,
) -> Done {
    let attribute = descriptor.attribute(number).ok_or(Status::InvalidValue)?;
    // SAFETY: the caller's buffer has `size` bytes, which are enough for the attribute, and `written` is null
    // or has room for a number.
    unsafe {
        if !written.is_null() {
            written.write(attribute.len());
        }
        match size {
            0 if !written.is_null() => {}
            size if size >= attribute.len() && !buffer.is_null() => {
                buffer.copy_from_nonoverlapping(attribute.as_ptr(), attribute.len());
            }
            _ => return Err(Status::InvalidValue),
        }
    }
    Ok(())
}

/// Puts a new descriptor where a program wants its address.
///
/// # Safety
/// The pointer is null, or leads to a pointer.
unsafe fn give<T>(to: *mut *mut T, descriptor: T) -> Done {
    if to.is_null() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: `to` is not null, so the caller has room for a pointer there.
    unsafe { to.write(Box::into_raw(Box::new(descriptor))) };
    Ok(())
}

/// Puts a descriptor into a program's memory.
///
/// # Safety
/// The pointer is null, or there are so many bytes.
unsafe fn put<T>(to: *mut T, size: usize, descriptor: T) -> Done {
    if to.is_null() || size < size_of::<T>() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: `to` is not null, and the caller has `size` bytes there, which are enough.
    unsafe { to.write(descriptor) };
    Ok(())
}

/// Ends a descriptor of [`give`].
///
/// # Safety
/// It is null, or one of them and not used any more.
unsafe fn destroy<T>(descriptor: *mut T) -> Done {
    if !descriptor.is_null() {
        // SAFETY: the caller passes one that was made with `Box::into_raw` for this type, and uses it no
        // more.
        drop(unsafe { Box::from_raw(descriptor) });
    }
    Ok(())
}

functions! {
    /// Makes a matrix's layout.
    fn cublasLtMatrixLayoutCreate(
        layout: *mut *mut Layout, scalar_type: u32, rows: u64, columns: u64, leading: i64
    ) {
        give(layout, Layout::new(scalar_type, rows, columns, leading))
    }

    /// Makes a matrix's layout in the program's memory.
    fn cublasLtMatrixLayoutInit_internal(
        layout: *mut Layout, size: usize, scalar_type: u32, rows: u64, columns: u64, leading: i64
    ) {
        put(layout, size, Layout::new(scalar_type, rows, columns, leading))
    }

    /// Ends a layout.
    fn cublasLtMatrixLayoutDestroy(layout: *mut Layout) { destroy(layout) }

    /// Changes an attribute of a layout.
    fn cublasLtMatrixLayoutSetAttribute(layout: *mut Layout, number: u32, buffer: *const u8, size: usize) {
        let layout = layout.as_mut().ok_or(Status::InvalidValue)?;
        match set(layout, number, buffer, size)? {
            true => Ok(()),
            false => {
                Err(log::refused("cublasLtMatrixLayoutSetAttribute", "the attribute is not implemented"))
            }
        }
    }

    /// An attribute of a layout.
    fn cublasLtMatrixLayoutGetAttribute(
        layout: *mut Layout, number: u32, buffer: *mut u8, size: usize, written: *mut usize
    ) {
        get(layout.as_mut().ok_or(Status::InvalidValue)?, number, buffer, size, written)
    }

    /// Makes a description of a product.
    fn cublasLtMatmulDescCreate(description: *mut *mut Description, compute: u32, scale_type: u32) {
        give(description, Description::new(compute, scale_type))
    }

    /// Makes a description of a product in the program's memory.
    fn cublasLtMatmulDescInit_internal(
        description: *mut Description, size: usize, compute: u32, scale_type: u32
    ) {
        put(description, size, Description::new(compute, scale_type))
    }

    /// Ends a description.
    fn cublasLtMatmulDescDestroy(description: *mut Description) { destroy(description) }

    /// Changes an attribute of a description. Others are refused when the product is
    /// launched, unless it has its default value, 0.
    fn cublasLtMatmulDescSetAttribute(
        description: *mut Description, number: u32, buffer: *const u8, size: usize
    ) {
        let description = description.as_mut().ok_or(Status::InvalidValue)?;
        if set(description, number, buffer, size)? || WITHOUT_EFFECT.contains(&number) {
            return Ok(());
        }
        if buffer.is_null() || size > 64 {
            return Err(Status::InvalidValue);
        }
        // SAFETY: the program's buffer has `size` bytes.
        let is_set = core::slice::from_raw_parts(buffer, size).iter().any(|byte| *byte != 0);
        if is_set {
            description.refused = number;
        } else if description.refused == number {
            description.refused = 0;
        }
        Ok(())
    }

    /// An attribute of a description.
    fn cublasLtMatmulDescGetAttribute(
        description: *mut Description, number: u32, buffer: *mut u8, size: usize, written: *mut usize
    ) {
        get(description.as_mut().ok_or(Status::InvalidValue)?, number, buffer, size, written)
    }

    /// Makes a preference between algorithms, of which there is one.
    fn cublasLtMatmulPreferenceCreate(preference: *mut *mut [u64; PREFERENCE_LENGTH]) {
        give(preference, [0; PREFERENCE_LENGTH])
    }

    /// Makes a preference in the program's memory.
    fn cublasLtMatmulPreferenceInit_internal(preference: *mut u64, size: usize) { put(preference, size, 0) }

    /// Ends a preference.
    fn cublasLtMatmulPreferenceDestroy(preference: *mut [u64; PREFERENCE_LENGTH]) { destroy(preference) }

    /// Changes a preference.
    fn cublasLtMatmulPreferenceSetAttribute(
        preference: *mut u64, _number: u32, _buffer: *const c_void, _size: usize
    ) {
        if preference.is_null() { Err(Status::InvalidValue) } else { Ok(()) }
    }
}
