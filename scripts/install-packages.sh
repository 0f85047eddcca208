#!/usr/bin/env bash
# Installs the named Debian (or Ubuntu) packages that are not there yet: scripts/install-packages.sh g++ make ...
# Says what to do where it cannot: another distribution, or a user who may not install packages.
set -euo pipefail

missing=()
for package in "$@"; do
    if ! dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed; then
        missing+=("$package")
    fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "install-packages: installing ${missing[*]}" >&2
as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install-packages: please install these packages as root, then run this again: ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
if ! command -v apt-get >/dev/null; then
    echo "install-packages: no apt-get here; please install what your distribution calls: ${missing[*]}" >&2
    exit 1
fi
# Standard output is left to the callers, some of which print a result there.
"${as_root[@]}" apt-get update -qq >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
