//! Matrices in device memory: reading and writing parts of them, with checked addresses.
//!
//! An address outside of the space is refused here. One inside that is not mapped raises the signal that any
//! access of a kernel would.

use causeway_gemm::{Matrix, ScalarType, Source, Structure};

use super::elements::{Bfloat16, Element, Half};
use super::sums::Sum;
use crate::memory::AddressSpace;
use crate::run::context::Raised;

/// A request that the library does not make.
pub(in crate::run) const INVALID: Raised =
    Raised::IllegalInstruction("the request to the processor is not valid");

/// Rows or columns from `first` on.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Range {
    pub(in crate::run) first: u64,
    pub(in crate::run) len: u64,
}

impl Range {
    /// The number behind the last one.
    fn end(self) -> u64 {
        self.first + self.len
    }

    fn numbers(self) -> impl Iterator<Item = u64> {
        self.first..self.end()
    }
}

/// One matrix of a batch.
pub(in crate::run) struct Operand<'a> {
    source: Source,
    /// Its first element.
    address: i128,
    row_stride: i128,
    column_stride: i128,
    scalar_type: ScalarType,
    is_conjugate: bool,
    structure: Structure,
    space: &'a AddressSpace,
}

impl<'a> Operand<'a> {
    /// The matrix of this number in the batch. This runs on a coroutine, as all that reads device memory.
    pub(in crate::run) fn of(matrix: &Matrix, batch: u64, space: &'a AddressSpace) -> Result<Self, Raised> {
        let scalar_type = ScalarType::from_number(matrix.scalar_type).ok_or(INVALID)?;
        let size = i128::from(scalar_type.size());
        let source = Source::from_number(matrix.source).ok_or(INVALID)?;
        let address = match source {
            Source::Memory => i128::from(matrix.address) + product(batch, matrix.batch_stride, size)?,
            Source::Array => {
                let entry = i128::from(matrix.address) + product(batch, 1, 8)?;
                let entry = check(space, entry, entry + 8, 8)?;
                // SAFETY: the address is in the space and aligned, and this runs on a coroutine, where
                // touching a page without access ends the kernel.
                i128::from(unsafe { std::ptr::read_volatile(entry as *const u64) })
            }
            Source::Ones => 0,
        };
        Ok(Self {
            source,
            address,
            row_stride: i128::from(matrix.row_stride) * size,
            column_stride: i128::from(matrix.column_stride) * size,
            scalar_type,
            is_conjugate: matrix.is_conjugate != 0,
            structure: Structure::from_number(matrix.structure).ok_or(INVALID)?,
            space,
        })
    }

    /// Reads a part of it to where columns are `stride` elements apart.
    ///
    /// # Safety
    /// There is room for the part, which nothing else uses, and this runs on a coroutine.
    pub(in crate::run) unsafe fn read<T: Sum>(
        &self,
        rows: Range,
        columns: Range,
        to: *mut T,
        stride: usize,
    ) -> Result<(), Raised> {
        if self.structure == Structure::General {
            // SAFETY: the caller has room for the part, which nothing else uses, and this runs on a
            // coroutine.
            return unsafe { self.read_stored(rows, columns, to, stride) };
        }
        let mirrored = self.mirrored();
        for (offset, column) in columns.numbers().enumerate() {
            let to = to.wrapping_add(offset * stride);
            let (one, stored) = (Range { first: column, len: 1 }, self.stored_rows(rows, column));
            let before = Range { first: rows.first, len: stored.first - rows.first };
            let after = Range { first: stored.end(), len: rows.end() - stored.end() };
            for (part, is_stored) in [(before, false), (stored, true), (after, false)] {
                let to = to.wrapping_add((part.first - rows.first) as usize);
                // SAFETY: the caller has room for the part, of which these are rows of one column.
                unsafe {
                    match is_stored {
                        _ if part.len == 0 => {}
                        true => self.read_stored(part, one, to, stride)?,
                        false => mirrored.read_stored(part, one, to, stride)?,
                    }
                }
            }
            if let Some(diagonal) = self.real_diagonal(rows, column) {
                // SAFETY: the element has been read.
                unsafe {
                    let element = to.wrapping_add(diagonal);
                    *element = (*element).real();
                }
            }
        }
        Ok(())
    }

    /// The matrix whose elements are those that this one does not store.
    fn mirrored(&self) -> Self {
        let is_hermitian = matches!(self.structure, Structure::HermitianLower | Structure::HermitianUpper);
        Self {
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            is_conjugate: self.is_conjugate != is_hermitian,
            ..*self
        }
    }

    /// Which of these rows a column stores.
    fn stored_rows(&self, rows: Range, column: u64) -> Range {
        let (first, end) = match self.structure {
            Structure::General => (rows.first, rows.end()),
            Structure::SymmetricLower | Structure::HermitianLower => (column, rows.end()),
            Structure::SymmetricUpper | Structure::HermitianUpper => (rows.first, column + 1),
        };
        let first = first.clamp(rows.first, rows.end());
        Range { first, len: end.clamp(first, rows.end()) - first }
    }

    /// Which of these rows has the column's diagonal, if that is real.
    fn real_diagonal(&self, rows: Range, column: u64) -> Option<usize> {
        let is_hermitian = matches!(self.structure, Structure::HermitianLower | Structure::HermitianUpper);
        (is_hermitian && (rows.first..rows.end()).contains(&column)).then(|| (column - rows.first) as usize)
    }

    /// Reads a part whose elements are all in memory.
    unsafe fn read_stored<T: Sum>(
        &self,
        rows: Range,
        columns: Range,
        to: *mut T,
        stride: usize,
    ) -> Result<(), Raised> {
        if self.source == Source::Ones {
            for element in (0..columns.len as usize)
                .flat_map(|column| (0..rows.len as usize).map(move |row| (row, column)))
            {
                // SAFETY: the caller has room for `rows` by `columns` elements.
                unsafe { *to.add(element.1 * stride + element.0) = T::of_single(1.0) };
            }
            return Ok(());
        }
        let part = self.part(rows, columns)?;
        // SAFETY: the caller has room for the part; its addresses are in the space.
        unsafe {
            match self.scalar_type {
                ScalarType::F16 => part.read::<Half, T>(to, stride),
                ScalarType::Bf16 => part.read::<Bfloat16, T>(to, stride),
                ScalarType::F32 => part.read::<f32, T>(to, stride),
                ScalarType::F64 => part.read::<f64, T>(to, stride),
                ScalarType::C32 => part.read::<[f32; 2], T>(to, stride),
                ScalarType::C64 => part.read::<[f64; 2], T>(to, stride),
                ScalarType::I8 => part.read::<i8, T>(to, stride),
                ScalarType::I32 => part.read::<i32, T>(to, stride),
                ScalarType::I64 => part.read::<i64, T>(to, stride),
            }
        }
        if self.is_conjugate {
            for column in 0..part.columns {
                for row in 0..part.rows {
                    // SAFETY: the elements have been written above.
                    unsafe {
                        let element = to.add(column * stride + row);
                        *element = (*element).conjugate();
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a part of it from where columns are `stride` elements apart.
    ///
    /// # Safety
    /// The part's elements are there, which nothing else uses, and this runs on a coroutine.
    pub(in crate::run) unsafe fn write<T: Sum>(
        &self,
        rows: Range,
        columns: Range,
        from: *mut T,
        stride: usize,
    ) -> Result<(), Raised> {
        if self.structure == Structure::General {
            // SAFETY: the caller has the part's elements, which nothing else uses, and this runs on a
            // coroutine.
            return unsafe { self.write_stored(rows, columns, from, stride) };
        }
        for (offset, column) in columns.numbers().enumerate() {
            let from = from.wrapping_add(offset * stride);
            let (one, stored) = (Range { first: column, len: 1 }, self.stored_rows(rows, column));
            // SAFETY: the caller has the part's elements, and the rows are those of the column.
            unsafe {
                if let Some(diagonal) = self.real_diagonal(rows, column) {
                    let element = from.wrapping_add(diagonal);
                    *element = (*element).real();
                }
                if stored.len > 0 {
                    let from = from.wrapping_add((stored.first - rows.first) as usize);
                    self.write_stored(stored, one, from, stride)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a part whose elements are all in memory.
    unsafe fn write_stored<T: Sum>(
        &self,
        rows: Range,
        columns: Range,
        from: *const T,
        stride: usize,
    ) -> Result<(), Raised> {
        let part = self.part(rows, columns)?;
        // SAFETY: the caller has the part's elements; its addresses are in the space.
        unsafe {
            match self.scalar_type {
                ScalarType::F16 => part.write::<Half, T>(from, stride),
                ScalarType::Bf16 => part.write::<Bfloat16, T>(from, stride),
                ScalarType::F32 => part.write::<f32, T>(from, stride),
                ScalarType::F64 => part.write::<f64, T>(from, stride),
                ScalarType::C32 => part.write::<[f32; 2], T>(from, stride),
                ScalarType::C64 => part.write::<[f64; 2], T>(from, stride),
                ScalarType::I8 => part.write::<i8, T>(from, stride),
                ScalarType::I32 => part.write::<i32, T>(from, stride),
                ScalarType::I64 => part.write::<i64, T>(from, stride),
            }
        }
        Ok(())
    }

    /// A part whose addresses have been checked.
    fn part(&self, rows: Range, columns: Range) -> Result<Part, Raised> {
        let (row, column) = (self.row_stride, self.column_stride);
        let offset = |first: u64, stride: i128| i128::from(first).checked_mul(stride);
        let origin = offset(rows.first, row)
            .zip(offset(columns.first, column))
            .and_then(|(down, across)| self.address.checked_add(down)?.checked_add(across))
            .filter(|origin| u64::try_from(*origin).is_ok())
            .ok_or(INVALID)?;
        let (down, across) = (
            row * i128::from(rows.len.saturating_sub(1)),
            column * i128::from(columns.len.saturating_sub(1)),
        );
        let size = i128::from(self.scalar_type.size());
        let (low, high) = (origin + down.min(0) + across.min(0), origin + down.max(0) + across.max(0) + size);
        let alignment = if self.scalar_type.is_complex() { size / 2 } else { size };
        check(self.space, low, high, alignment as u64)?;
        Ok(Part {
            origin: origin as usize,
            row_stride: row as isize,
            column_stride: column as isize,
            rows: rows.len as usize,
            columns: columns.len as usize,
        })
    }
}

fn product(count: u64, stride: i64, size: i128) -> Result<i128, Raised> {
    i128::from(count)
        .checked_mul(i128::from(stride))
        .and_then(|elements| elements.checked_mul(size))
        .ok_or(INVALID)
}

/// The lowest address of a range, if the space has all of it and it is aligned.
fn check(space: &AddressSpace, low: i128, high: i128, alignment: u64) -> Result<u64, Raised> {
    let is_inside = |address: i128| u64::try_from(address).is_ok_and(|address| space.contains(address));
    let address = low as u64;
    if !is_inside(low) || !is_inside(high - 1) {
        return Err(Raised::IllegalAddress(if is_inside(low) { high as u64 } else { address }));
    }
    if !address.is_multiple_of(alignment) {
        return Err(Raised::Misaligned { address, size: alignment as u32 });
    }
    Ok(address)
}

/// Reads so many values, one behind another.
///
/// # Safety
/// There is room for them, which nothing else uses, every pattern of bits is a value, and this runs on a coroutine.
pub(in crate::run) unsafe fn read_array<T: Copy>(
    space: &AddressSpace,
    address: u64,
    len: u64,
    to: *mut T,
) -> Result<(), Raised> {
    if let Some(address) = array::<T>(space, address, len)? {
        // SAFETY: the caller has room for `len` values, of which every pattern of bits is one; the addresses
        // are in the space. Other threads may write them meanwhile, as on a GPU.
        unsafe { std::ptr::copy_nonoverlapping(address as *const T, to, len as usize) };
    }
    Ok(())
}

/// Writes so many values, one behind another.
///
/// # Safety
/// They are there, and this runs on a coroutine.
pub(in crate::run) unsafe fn write_array<T: Copy>(
    space: &AddressSpace,
    address: u64,
    len: u64,
    from: *const T,
) -> Result<(), Raised> {
    if let Some(address) = array::<T>(space, address, len)? {
        // SAFETY: the caller has `len` values; the addresses are in the space. Other threads may access them
        // meanwhile, as on a GPU.
        unsafe { std::ptr::copy_nonoverlapping(from, address as *mut T, len as usize) };
    }
    Ok(())
}

/// The address of an array, if it has elements and the space has all of it.
fn array<T>(space: &AddressSpace, address: u64, len: u64) -> Result<Option<u64>, Raised> {
    if len == 0 {
        return Ok(None);
    }
    let low = i128::from(address);
    let high = low + i128::from(len) * size_of::<T>() as i128;
    check(space, low, high, align_of::<T>() as u64).map(Some)
}

/// See [`Operand::part`]. Strides are in bytes.
struct Part {
    origin: usize,
    row_stride: isize,
    column_stride: isize,
    rows: usize,
    columns: usize,
}

impl Part {
    /// Reads elements in the order in which they lie in memory, as far as one of the strides is that of
    /// neighbours.
    unsafe fn read<E: Element, T: Sum>(&self, to: *mut T, stride: usize) {
        let size = size_of::<E>() as isize;
        // SAFETY: the caller has checked the addresses, and promises the room. Other threads may write the
        // elements meanwhile, as on a GPU.
        unsafe {
            if self.row_stride == size {
                for column in 0..self.columns {
                    let from = self.address(0, column) as *const E;
                    let to = to.add(column * stride);
                    for row in 0..self.rows {
                        *to.add(row) = from.add(row).read_unaligned().widen();
                    }
                }
            } else {
                for row in 0..self.rows {
                    for column in 0..self.columns {
                        let from = self.address(row, column) as *const E;
                        *to.add(column * stride + row) = from.read_unaligned().widen();
                    }
                }
            }
        }
    }

    unsafe fn write<E: Element, T: Sum>(&self, from: *const T, stride: usize) {
        for column in 0..self.columns {
            for row in 0..self.rows {
                // SAFETY: the caller has checked the addresses, and has the elements. Other threads may
                // access what is written meanwhile, as on a GPU.
                unsafe {
                    let element = E::narrow(*from.add(column * stride + row));
                    (self.address(row, column) as *mut E).write_unaligned(element);
                }
            }
        }
    }

    fn address(&self, row: usize, column: usize) -> usize {
        let offset = self
            .row_stride
            .wrapping_mul(row as isize)
            .wrapping_add(self.column_stride.wrapping_mul(column as isize));
        self.origin.wrapping_add_signed(offset)
    }
}
