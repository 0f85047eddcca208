//! Gives the library the name that programs look for, and keeps it loaded until the process ends.

fn main() {
    // Destructors of the program call the driver after `main`, and our threads run until the very end.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
