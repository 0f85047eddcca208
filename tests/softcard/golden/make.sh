#!/usr/bin/env bash
# Makes requests.txt again: tests/softcard/golden/make.sh FOLDER, a source tree of rdma-core (Debian: `apt-get source
# rdma-core`), which is built here as far as its headers. Needs cmake, libnl-3-dev and libnl-route-3-dev.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$1" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cmake -S "$source" -B "$build" -DNO_MAN_PAGES=1 -DNO_PYVERBS=1 >/dev/null
cmake --build "$build" --target kern-abi >/dev/null
version=$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")/\1/p' "$source/CMakeLists.txt")
flags=(-O1 -w -D_GNU_SOURCE "-DVERBS_DEBUG" "-DRDMA_CORE_VERSION=\"$version\"" -include "$build/include/config.h"
    -I"$build/include" -I"$source/providers/mlx5" -I"$source")
cc "${flags[@]}" -c "$source/providers/mlx5/qp.c" -o "$build/qp.o"
cc "${flags[@]}" -c "$here/harness.c" -o "$build/harness.o"
# What posting never calls is left out.
cc "$build/harness.o" "$build/qp.o" -static -Wl,--unresolved-symbols=ignore-all -o "$build/harness"
"$build/harness" >"$here/requests.txt"
