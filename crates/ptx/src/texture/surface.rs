//! Surface loads and stores (`suld`, `sust`).

use super::fetch::Geometry;
use super::texel::{load, store};
use super::types::Surface;

/// What happens to an access outside of the surface. The numbers are what compiled code passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Boundary {
    /// It ends the kernel.
    Trap,
    /// It goes to the nearest place.
    Clamp,
    /// It reads zeros, and writes nothing.
    Zero,
}

/// An access that ends the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutOfBounds {
    Outside,
    /// The place in the row is no multiple of the access's size.
    Misaligned,
}

impl Surface {
    /// Where an access of so many bytes goes; `None` where it goes nowhere. The first coordinate counts bytes.
    pub(crate) fn locate(
        &self,
        geometry: Geometry,
        [x, y, z]: [i32; 3],
        layer: u32,
        bytes: u32,
        boundary: Boundary,
    ) -> Result<Option<u64>, OutOfBounds> {
        let [width, height, depth] = self.image.size.map(i64::from);
        let row = width * i64::from(self.format.bytes());
        let last = [row - i64::from(bytes), height - 1, depth - 1];
        let axes = geometry.axes();
        let slice = if geometry.has_layers() {
            i64::from(layer.cast_signed())
        } else if axes == 3 {
            i64::from(z)
        } else {
            0
        };
        let requested = [i64::from(x), if axes > 1 { i64::from(y) } else { 0 }, slice];
        let inside = requested.iter().zip(last).all(|(at, last)| (0..=last).contains(at));
        let [x, y, z] = match boundary {
            _ if inside => requested,
            Boundary::Trap => return Err(OutOfBounds::Outside),
            Boundary::Zero => return Ok(None),
            // A row may be shorter than the access.
            Boundary::Clamp if last[0] < 0 => return Ok(None),
            Boundary::Clamp => std::array::from_fn(|axis| requested[axis].clamp(0, last[axis])),
        };
        if x % i64::from(bytes) != 0 {
            return Err(OutOfBounds::Misaligned);
        }
        Ok(Some(self.image.address_of(1, [x as u32, y as u32, z as u32])))
    }

    /// Reads numbers of so many bytes, side by side.
    ///
    /// # Safety
    /// [`Self::locate`] gave the address for all of them, and the image lies in the address space, where
    /// touching what is not there ends the thread.
    pub(crate) unsafe fn read(address: u64, bytes: u32, numbers: &mut [u64]) {
        for (at, number) in (address..).step_by(bytes as usize).zip(numbers) {
            // SAFETY: `locate` gave the caller the address for all of the numbers, in an image in the address
            // space.
            *number = unsafe { load(at, bytes) };
        }
    }

    /// Writes numbers of so many bytes, side by side.
    ///
    /// # Safety
    /// As for [`Self::read`].
    pub(crate) unsafe fn write(address: u64, bytes: u32, numbers: &[u64]) {
        for (at, number) in (address..).step_by(bytes as usize).zip(numbers) {
            // SAFETY: `locate` gave the caller the address for all of the numbers, in an image in the address
            // space.
            unsafe { store(at, bytes, *number) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texture::types::{Channel, Image, Slices, TexelFormat};

    fn surface(size: [u32; 3]) -> Surface {
        let image = Image { address: 1000, size, row_pitch: 64, slice_pitch: 1024 };
        let format = TexelFormat { channel: Channel::Signed16, channels: 2 };
        Surface { image, slices: Slices::Depth, format }
    }

    #[test]
    fn accesses_outside_trap_or_go_to_the_edge_or_nowhere() {
        let surface = surface([8, 4, 2]);
        let plane = |at, boundary| surface.locate(Geometry::Plane, at, 9, 4, boundary);
        assert_eq!(plane([28, 3, 9], Boundary::Trap), Ok(Some(1000 + 28 + 3 * 64)));
        for at in [[32, 0, 0], [-4, 0, 0], [0, 4, 0], [0, -1, 0], [i32::MIN; 3], [i32::MAX; 3]] {
            assert_eq!(plane(at, Boundary::Trap), Err(OutOfBounds::Outside));
            assert_eq!(plane(at, Boundary::Zero), Ok(None));
        }
        assert_eq!(plane([99, 7, 0], Boundary::Clamp), Ok(Some(1000 + 28 + 3 * 64)));
        assert_eq!(plane([-9, -7, 0], Boundary::Clamp), Ok(Some(1000)));
        assert_eq!(plane([2, 0, 0], Boundary::Trap), Err(OutOfBounds::Misaligned));
        let wide = surface.locate(Geometry::Row, [20, 7, 7], 7, 16, Boundary::Trap);
        assert_eq!(wide, Err(OutOfBounds::Outside), "it ends behind the row");
    }

    #[test]
    fn layers_and_depth_are_bounds_too() {
        let surface = surface([8, 4, 2]);
        let layered = |layer, boundary| surface.locate(Geometry::LayeredRow, [0; 3], layer, 4, boundary);
        assert_eq!(layered(1, Boundary::Trap), Ok(Some(1000 + 1024)));
        assert_eq!(layered(2, Boundary::Trap), Err(OutOfBounds::Outside));
        assert_eq!(layered(u32::MAX, Boundary::Clamp), Ok(Some(1000)));
        let volume = |z| surface.locate(Geometry::Volume, [0, 0, z], 0, 4, Boundary::Trap);
        assert_eq!(volume(1), Ok(Some(1000 + 1024)));
        assert_eq!(volume(2), Err(OutOfBounds::Outside));
        let narrow = Surface { image: Image { size: [1, 1, 1], ..surface.image }, ..surface };
        assert_eq!(narrow.locate(Geometry::Row, [0; 3], 0, 8, Boundary::Clamp), Ok(None));
    }
}
