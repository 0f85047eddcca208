//! Tiles of 8 rows of 16 bytes, as `ldmatrix`, `stmatrix` and `movmatrix` move them.
//!
//! A tile lies in memory row by row, each row at an address that one lane gives; in registers each lane has two
//! neighbouring elements of 16 bits of it.

/// Rows of a tile, and elements of a row.
pub(crate) const TILE: usize = 8;
/// Tiles that one instruction moves at most.
pub(crate) const MAX_TILES: usize = 4;

/// The elements of a tile.
type Elements = [[u16; TILE]; TILE];

/// What a lane has of the tiles: four registers with its row, or one register of each tile.
pub(crate) type LaneTiles = [u32; MAX_TILES];

/// How tiles are spread over the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum TileLayout {
    /// Lane `8 * tile + row` has a row.
    Rows,
    /// Each lane has two elements of a row.
    Fragments,
    /// Each lane has two elements of a column.
    Transposed,
}

/// The tiles of a warp in another layout.
pub(crate) fn rearrange(lanes: &[LaneTiles; 32], from: TileLayout, to: TileLayout) -> [LaneTiles; 32] {
    let mut tiles = [Elements::default(); MAX_TILES];
    let mut result = [LaneTiles::default(); 32];
    for_each(from, |lane, register, tile, elements| {
        for (element, shift) in elements.into_iter().zip([0, 16]) {
            tiles[tile][element.0][element.1] = (lanes[lane][register] >> shift) as u16;
        }
    });
    for_each(to, |lane, register, tile, elements| {
        let [low, high] = elements.map(|element| u32::from(tiles[tile][element.0][element.1]));
        result[lane][register] = low | high << 16;
    });
    result
}

/// Visits each register of each lane: the lane, the number of the register, the tile, and row and column of the two
/// elements in it.
fn for_each(layout: TileLayout, mut visit: impl FnMut(usize, usize, usize, [(usize, usize); 2])) {
    for lane in 0..32 {
        for register in 0..MAX_TILES {
            let (group, member) = (lane / 4, lane % 4);
            match layout {
                TileLayout::Rows => {
                    let row = lane % TILE;
                    visit(lane, register, lane / TILE, [(row, 2 * register), (row, 2 * register + 1)]);
                }
                TileLayout::Fragments => {
                    visit(lane, register, register, [(group, 2 * member), (group, 2 * member + 1)]);
                }
                TileLayout::Transposed => {
                    visit(lane, register, register, [(2 * member, group), (2 * member + 1, group)]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_leads_back_and_a_lane_has_two_elements_of_a_row_or_column() {
        let rows: [LaneTiles; 32] = std::array::from_fn(|lane| {
            std::array::from_fn(|register| {
                let element = |column: usize| (lane * TILE + column) as u32;
                element(2 * register) | element(2 * register + 1) << 16
            })
        });
        let fragments = rearrange(&rows, TileLayout::Rows, TileLayout::Fragments);
        // Lane 6 has elements 4 and 5 of row 1; tile 2 starts at row 16 of all.
        assert_eq!(fragments[6][2], (17 * 8 + 4) | (17 * 8 + 5) << 16);
        let transposed = rearrange(&rows, TileLayout::Rows, TileLayout::Transposed);
        assert_eq!(transposed[6][2], (20 * 8 + 1) | (21 * 8 + 1) << 16);
        for layout in [TileLayout::Fragments, TileLayout::Transposed] {
            let there = rearrange(&rows, TileLayout::Rows, layout);
            assert_eq!(rearrange(&there, layout, TileLayout::Rows), rows);
        }
    }
}
