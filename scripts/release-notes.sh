#!/usr/bin/env bash
# Prints the notes of a release, a section of CHANGELOG.md, for .github/workflows/release.yml. Fails unless the tag is that of
# the tree's version, which has all changes.
#
#   scripts/release-notes.sh v0.3.0
set -euo pipefail
cd "$(dirname "$0")/.."

tag=${1:?a tag, v and the version}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
if [ "$tag" != "v$version" ]; then
    echo "release-notes: the tag is $tag, and Cargo.toml says $version: the tag of this tree is v$version" >&2
    exit 1
fi
# section HEADING: what stands below it
section() {
    awk -v heading="## $1 " 'index($0, "## ") == 1 { inside = index($0 " ", heading) == 1; next } inside' CHANGELOG.md
}
if [[ $(section Unreleased) = *[![:space:]]* ]]; then
    echo "release-notes: CHANGELOG.md has changes under Unreleased: give them the heading of the new version first" >&2
    exit 1
fi
notes=$(section "$version")
if [ -z "$notes" ]; then
    echo "release-notes: CHANGELOG.md has no section \"## $version (DATE)\": give what stands under Unreleased that heading" >&2
    exit 1
fi
printf '%s\n' "$notes"
