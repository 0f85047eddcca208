//! Pieces of a copy, by the plan for its size.

use crate::model::array;
use crate::model::region::HostRegion;
use causeway_api::types::{ArrayBox, DeviceLocation, Region};
use causeway_pipeline::{Direction, Piece, Shape, cut, cut_tapered};
use either::Either;

/// A piece of a copy: its place on the device, and in the program's memory.
pub type Part = (DeviceLocation, HostRegion);

/// Cuts a copy between two places of the same size into pieces of at most `max_bytes` bytes. With a direction to
/// `taper` for, as it is for a copy that goes over the wire, one without gaps has [small pieces](cut_tapered)
/// where the device works alone.
pub fn pieces(
    device: DeviceLocation,
    host: HostRegion,
    max_bytes: usize,
    taper: Option<Direction>,
) -> impl Iterator<Item = Part> {
    let is_linear =
        host.is_contiguous() && matches!(device, DeviceLocation::Memory(region) if region.is_contiguous());
    let shape = if is_linear {
        Shape::linear(host.bytes())
    } else {
        let (width, height, depth) = device.size();
        Shape { width: width as usize, height: height as usize, depth: depth as usize }
    };
    // What a row is, where the elements are not known, only the driver can say.
    let (max_bytes, grain) = match device {
        DeviceLocation::Memory(_) => (max_bytes, 1),
        DeviceLocation::Array(part) => match array::element_bytes(part.array) {
            Some(element) => (max_bytes, element as usize),
            None => (usize::MAX, 1),
        },
    };
    let pieces = match taper {
        Some(direction) if is_linear => Either::Left(cut_tapered(host.bytes(), max_bytes, direction)),
        _ => Either::Right(cut(shape, max_bytes, grain)),
    };
    pieces.map(move |piece| {
        if is_linear {
            let host = HostRegion::linear(host.address.wrapping_add(piece.offset), piece.bytes());
            return (in_a_row(device, &piece), host);
        }
        (device_part(device, &piece), host.part(&piece))
    })
}

/// A piece of memory without gaps.
fn in_a_row(device: DeviceLocation, piece: &Piece) -> DeviceLocation {
    match device {
        DeviceLocation::Memory(region) => {
            Region::linear(region.address + piece.offset as u64, piece.bytes() as u64).into()
        }
        DeviceLocation::Array(_) => device_part(device, piece),
    }
}

/// The part of a place that a piece has.
fn device_part(device: DeviceLocation, piece: &Piece) -> DeviceLocation {
    let [x, y, z] = piece.at.map(|at| at as u64);
    let Shape { width, height, depth } = piece.shape;
    let (width, height, depth) = (width as u64, height as u64, depth as u64);
    match device {
        DeviceLocation::Memory(region) => {
            let address = region.address + x + y * region.row_pitch + z * region.slice_pitch;
            DeviceLocation::Memory(Region { address, width, height, depth, ..region })
        }
        DeviceLocation::Array(part) => DeviceLocation::Array(ArrayBox {
            x: part.x + x,
            y: part.y + y,
            z: part.z + z,
            width,
            height,
            depth,
            ..part
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: usize = 1 << 20;

    fn host(width: usize, height: usize, depth: usize, row_pitch: usize) -> HostRegion {
        let slice_pitch = row_pitch * height;
        HostRegion { address: 4096 as *mut u8, row_pitch, slice_pitch, width, height, depth }
    }

    #[test]
    fn a_copy_without_gaps_is_cut_anywhere() {
        let length = 2 * M + 5;
        // Two rows on one side and one on the other are the same bytes.
        let device = Region { width: length as u64, ..Region::linear(1000, length as u64) };
        let parts: Vec<_> = pieces(device.into(), host(length, 1, 1, length), M, None).collect();
        let mut next = 0;
        for (device_part, host) in &parts {
            assert!(host.bytes() <= M);
            assert_eq!(host.address as usize, 4096 + next);
            assert_eq!(*device_part, Region::linear(1000 + next as u64, host.bytes() as u64).into());
            next += host.bytes();
        }
        assert_eq!((parts.len(), next), (3, length));
        assert_eq!(
            pieces(Region::linear(0, 0).into(), HostRegion::linear(4096 as *mut u8, 0), M, None).count(),
            0
        );
    }

    #[test]
    fn strided_regions_are_cut_between_rows_and_slices() {
        let device = Region {
            address: 0,
            row_pitch: 16 << 20,
            slice_pitch: 64 << 20,
            width: 3 << 20,
            height: 4,
            depth: 1,
        };
        let found: Vec<_> = pieces(device.into(), host(3 * M, 4, 1, 5 * M), 8 * M, None)
            .map(|(device_part, host)| match device_part {
                DeviceLocation::Memory(region) => {
                    assert_eq!((region.width, region.height), (host.width as u64, host.height as u64));
                    (region.address >> 20, region.height, (host.address as usize - 4096) >> 20)
                }
                DeviceLocation::Array(_) => panic!("memory became an array"),
            })
            .collect();
        assert_eq!(found, [(0, 2, 0), (32, 2, 10)]);
    }
}
