#!/bin/sh
# Writes src/sys.rs: the types and constants of cuda.h, without functions and without NVIDIA's comments.
# usage: tools/generate-sys.sh /path/to/cuda/include     (bindgen 0.73 and libclang; cuda.h of 13.0)
set -eu
include=${1:?"usage: $0 /path/to/cuda/include"}
cd "$(dirname "$0")/.."
bindgen "$include/cuda.h" --default-enum-style newtype --no-doc-comments --no-layout-tests \
    --allowlist-type 'CU.*|cu.*' --allowlist-var 'CU_.*' --blocklist-function '.*' \
    --with-derive-default --use-core --rust-target 1.85 -o src/sys.rs -- -D__CUDA_API_VERSION_INTERNAL
