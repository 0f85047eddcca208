//! Gives the library the name by which NCCL looks for it, and keeps it loaded: NCCL unloads its plugins, and threads of
//! this one run until the process ends.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnccl-net-causeway.so");
    println!("cargo:rerun-if-changed=build.rs");
}
