//! Parts of buffers.

/// A rectangle (or box) of bytes in a buffer; a linear range has one row in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The buffer's number.
    pub buffer: usize,
    /// The first byte.
    pub offset: usize,
    /// Bytes in a row.
    pub width: usize,
    /// From the start of a row to the next.
    pub pitch: usize,
    /// Rows in a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
    /// Rows from the start of a slice to the next.
    pub slice_rows: usize,
}

impl Region {
    /// A range of bytes.
    pub fn linear(buffer: usize, offset: usize, width: usize) -> Self {
        Self { buffer, offset, width, pitch: width, height: 1, depth: 1, slice_rows: 1 }
    }

    /// The region is one range of bytes.
    pub fn is_linear(&self) -> bool {
        self.height == 1 && self.depth == 1
    }

    /// Bytes that belong to it.
    pub fn bytes(&self) -> usize {
        self.width * self.height * self.depth
    }

    /// The end of its last row.
    pub fn end(&self) -> usize {
        self.offset + ((self.depth - 1) * self.slice_rows + self.height - 1) * self.pitch + self.width
    }

    /// The first byte of each row, ascending.
    pub fn rows(self) -> impl Iterator<Item = usize> {
        (0..self.depth).flat_map(move |slice| {
            (0..self.height).map(move |row| self.offset + (slice * self.slice_rows + row) * self.pitch)
        })
    }

    /// Whether both have a byte in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        if self.buffer != other.buffer || self.offset >= other.end() || other.offset >= self.end() {
            return false;
        }
        let (mut mine, mut theirs) = (self.rows().peekable(), other.rows().peekable());
        while let (Some(&a), Some(&b)) = (mine.peek(), theirs.peek()) {
            if a + self.width <= b {
                mine.next();
            } else if b + other.width <= a {
                theirs.next();
            } else {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::Region;

    #[test]
    fn rows_overlap_only_where_they_have_bytes() {
        let even =
            Region { width: 4, pitch: 8, height: 3, depth: 1, slice_rows: 3, ..Region::linear(0, 0, 4) };
        let odd = Region { offset: 4, ..even };
        assert!(!even.overlaps(&odd) && even.overlaps(&even));
        assert!(even.overlaps(&Region { offset: 3, ..even }));
        assert!(even.overlaps(&Region::linear(0, 18, 1)) && !even.overlaps(&Region::linear(0, 20, 1)));
        assert!(!even.overlaps(&Region { buffer: 1, ..even }));
        let box_of_two = Region { depth: 2, slice_rows: 4, ..even };
        assert_eq!(box_of_two.end(), 52);
        assert!(
            !box_of_two.overlaps(&Region::linear(0, 20, 12))
                && box_of_two.overlaps(&Region::linear(0, 35, 1))
        );
    }
}
