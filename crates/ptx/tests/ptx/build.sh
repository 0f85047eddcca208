#!/bin/sh
# Makes the .ptx files from the .cu files beside them. Needs nvcc 13; the .ptx files are checked in, so tests do not.
set -eu
cd "$(dirname "$0")"
for source in *.cu; do
    name=${source%.cu}
    flags=$(sed -n 's|^// nvcc: ||p' "$source")
    for arch in 75 100; do
        # shellcheck disable=SC2086
        nvcc -O3 -std=c++17 -arch=compute_$arch -ptx $flags "$source" -o "$name.$arch.ptx"
    done
done
