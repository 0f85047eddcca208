#!/usr/bin/env bash
# Makes the packages of client and server in build/packages, for `make packages`, from the tree that
# scripts/portable.sh has built: deb, rpm, an archive, images, a bill of materials, checksums. The wheel is
# there already.
set -euo pipefail
cd "$(dirname "$0")/.."

tree=build/portable/x86_64
out=build/packages
command -v rpmbuild >/dev/null || scripts/install-packages.sh rpm
# What an older version has left.
find "$out" -maxdepth 1 -type f ! -name '*.whl' -delete
for kind in deb rpm tar; do python3 tools/package $kind $tree $out; done
if [ "$(id -u)" = 0 ]; then
    scripts/images.sh $out
else
    echo "packages: NOT made: the images, which need root, since they are made from Debian's packages" >&2
fi
python3 tools/package sums $out
