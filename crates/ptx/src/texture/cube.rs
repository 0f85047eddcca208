//! Cube maps: the face that a direction meets, and where.

/// A place on a face: the face's number, and coordinates from 0 to 1 on it.
pub(super) fn face([x, y, z]: [f32; 3]) -> (u32, [f32; 2]) {
    // The guide's table, "Cubemap Textures".
    let (face, major, s, t) = if x.abs() >= y.abs() && x.abs() >= z.abs() {
        if x >= 0.0 { (0, x, -z, -y) } else { (1, -x, z, -y) }
    } else if y.abs() >= z.abs() {
        if y >= 0.0 { (2, y, x, z) } else { (3, -y, x, -z) }
    } else if z >= 0.0 {
        (4, z, x, -y)
    } else {
        (5, -z, -x, -y)
    };
    (face, [s, t].map(|along| (along / major + 1.0) / 2.0))
}

#[cfg(test)]
mod tests {
    use super::face;

    #[test]
    fn each_axis_meets_the_middle_of_its_face() {
        let axes = [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]];
        for (number, axis) in (0..).zip(axes) {
            let (x, y) = (0.5, 0.5);
            assert_eq!(face(axis.map(|along| along as f32 * 3.0)), (number, [x, y]));
        }
        assert_eq!(face([2.0, 1.0, -1.0]), (0, [0.75, 0.25]));
        assert_eq!(face([1.0, -4.0, 2.0]), (3, [0.625, 0.25]));
        assert!(face([f32::NAN; 3]).0 < 6);
    }
}
