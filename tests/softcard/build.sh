#!/usr/bin/env bash
# Builds the soft card: tests/softcard/build.sh FOLDER writes libibverbs.so.1 and libmlx5.so.1 there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
flags=(-O2 -Wall -Wextra -Wno-parentheses -shared -fPIC -pthread -I"$here/../../device/include/causeway" -I"$here/src")
"${CC:-cc}" "${flags[@]}" -Wl,-soname,libibverbs.so.1 "$here"/src/library.c "$here"/src/card.c "$here"/src/host.c "$here"/src/wire.c -o "$1/libibverbs.so.1"
"${CC:-cc}" "${flags[@]}" -Wl,-soname,libmlx5.so.1 "$here"/src/mlx5.c "$1/libibverbs.so.1" -o "$1/libmlx5.so.1"
