//! The function by which a program finds out whether the library is the one that it was built for.

/// The version of the functions that `mpi/causeway_comm.h` declares: another one for each change of them.
const VERSION: u32 = 5;

/// The version of the library's functions.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_version() -> u32 {
    VERSION
}

#[cfg(test)]
mod tests {
    use super::VERSION;

    /// What the header declares: its lines without comments, and without the version.
    fn declarations(header: &str) -> (Option<u32>, String) {
        let (mut version, mut rest) = (None, Vec::new());
        for line in header.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
            match line.strip_prefix("#define CAUSEWAY_COMM_VERSION ") {
                Some(number) => version = number.parse().ok(),
                None if line.is_empty() => {}
                None => rest.push(line),
            }
        }
        (version, rest.join(" "))
    }

    #[test]
    fn the_header_declares_what_the_version_says() {
        /// Of the declarations of [`VERSION`].
        const HASH: u64 = 0xf571_979e_e2a1_c200;
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../mpi/causeway_comm.h");
        let header = std::fs::read_to_string(header).expect("the header is in the tree");
        let (version, declarations) = declarations(&header);
        assert_eq!(version, Some(VERSION), "header and library have one version");
        // FNV-1a.
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = declarations.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        assert_eq!(
            hash, HASH,
            "the declarations have changed: raise the version in both files, and note this hash"
        );
    }
}
