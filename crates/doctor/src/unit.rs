//! With which unit is a number of bytes told?

/// A number of bytes with a unit that is a power of two.
pub fn binary(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if value.fract() == 0.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit_that_fits() {
        assert_eq!([64 << 20, 1 << 30, 1536, 8].map(binary), ["64 MiB", "1 GiB", "1.5 KiB", "8 bytes"]);
    }
}
