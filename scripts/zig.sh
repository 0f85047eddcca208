# shellcheck shell=bash Sourced by the scripts that build portable programs: install_zig puts a linker for
# any version of glibc into PATH.
#
# cargo-zigbuild gives Rust's linker and C compiler a target with a version of glibc in it. zig knows which
# symbols each version has, so a program that is built here on a new glibc runs on an old one. shellcheck
# source=scripts/wheels.sh
source "$(dirname "${BASH_SOURCE[0]}")/wheels.sh"

zig_version=0.17.1
cargo_zigbuild_version=0.24.1

# Wheels lack the permission bits of programs.
finish_zig() {
    chmod +x "$1/ziglang/zig"
    mkdir "$1/bin"
    mv "$1"/*.data/scripts/cargo-zigbuild "$1/bin/"
    chmod +x "$1/bin/cargo-zigbuild"
    ln -s ../ziglang/zig "$1/bin/zig"
}

install_zig() {
    install_wheels "$cache/zig" finish_zig "ziglang==$zig_version" "cargo-zigbuild==$cargo_zigbuild_version"
    export PATH=$cache/zig/bin:$PATH CARGO_ZIGBUILD_ZIG_PATH=$cache/zig/bin/zig
}
