#!/usr/bin/env bash
# Makes sure that there is mdbook, which makes the book (`make book`), and prints its path. It is built once, which takes
# some minutes, into ${CAUSEWAY_CACHE:-~/.cache/causeway}; a second run costs nothing.
#
#   scripts/mdbook.sh            builds it where it is missing
#   scripts/mdbook.sh --if-there fails where it is missing
set -euo pipefail

version=0.5.4
folder=${CAUSEWAY_CACHE:-$HOME/.cache/causeway}/mdbook-$version
if [ ! -x "$folder/bin/mdbook" ]; then
    [ "${1:-}" != --if-there ] || exit 1
    echo "building mdbook $version into $folder, which takes some minutes" >&2
    # Without default features: no server, no file watcher, no search index, only what `mdbook build` needs.
    # An interrupted run never leaves half of it in its place, and the next one goes on from what was built.
    building=$folder.building
    mkdir -p "$building"
    exec 9>"$building/.lock"
    flock 9
    if [ ! -x "$folder/bin/mdbook" ]; then
        cargo install --quiet --locked --no-default-features --version "=$version" \
            --target-dir "$building/target" --root "$building/root" mdbook >&2
        mv -T "$building/root" "$folder"
        rm -rf "$building/target"
    fi
fi
echo "$folder/bin/mdbook"
