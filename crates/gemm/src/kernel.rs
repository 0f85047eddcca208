//! The kernel of a matrix product, as PTX.

use std::fmt::Write as _;

use crate::request::REQUEST_BYTES;

/// The kernel's name.
pub const ENTRY: &str = "causeway_gemm";

/// The function of the software GPU that computes one tile of the result: that of the calling block.
pub const FUNCTION: &str = "__causeway_multiply_tile";

/// PTX whose one kernel, [`ENTRY`], takes a request and passes it to [`FUNCTION`]. It is launched with blocks
/// of one thread, as many as [`Request::tiles`](crate::Request::tiles) says.
pub fn kernel() -> String {
    let count = REQUEST_BYTES / 8;
    let mut copies = String::new();
    for word in 0..count {
        let offset = 8 * word;
        // Writing to a string cannot fail.
        let _ = writeln!(copies, "    ld.param.b64 %value, [request+{offset}];");
        let _ = writeln!(copies, "    st.param.b64 [passed+{offset}], %value;");
    }
    format!(
        ".version 7.0\n.target sm_50\n.address_size 64\n\n\
         .extern .func {FUNCTION}(.param .align 8 .b8 request[{REQUEST_BYTES}]);\n\n\
         .visible .entry {ENTRY}(.param .align 8 .b8 request[{REQUEST_BYTES}])\n{{\n    \
         .reg .b64 %value;\n    .param .align 8 .b8 passed[{REQUEST_BYTES}];\n\
         {copies}    call.uni {FUNCTION}, (passed);\n    ret;\n}}\n"
    )
}
