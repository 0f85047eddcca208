#!/usr/bin/env bash
# Builds what is handed out again, from the commit, in another folder with nothing of the first build, and compares: for
# `make reproducible`, after `make portable`. Fails where a byte differs.
set -euo pipefail
cd "$(dirname "$0")/.."

first=$PWD/build/portable/x86_64
[ -z "$(git status --porcelain --untracked-files=no)" ] || {
    echo "reproducible: there are changes that are not in the commit, which is what is built again" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/elsewhere"
git archive HEAD | tar -x -C "$work/elsewhere"
# The archive has no git to ask.
CAUSEWAY_COMMIT=$(git log -1 --format='%h %cs' --abbrev=8)
export CAUSEWAY_COMMIT
CARGO_TARGET_DIR=$work/target PORTABLE_OUT=$work/again "$work/elsewhere/scripts/portable.sh"
diff --recursive --no-dereference --exclude=device "$first" "$work/again"
echo "reproducible: programs and libraries are the same, byte for byte"
