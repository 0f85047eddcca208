#!/usr/bin/env bash
# Installs the CUDA compiler and the CUDA runtimes that the test programs need, from NVIDIA's wheels on PyPI.
#
#   scripts/cuda-toolchain.sh          installs what is missing; a second run costs nothing
#
# They go to ${CAUSEWAY_CACHE:-~/.cache/causeway}, outside the source tree:
#   cuda-13.0/nvidia/cu13          nvcc, headers, both 13.0 runtimes, NVRTC
#   cuda-12.9/nvidia/cuda_runtime  the static and the shared 12.9 runtime
#   cuda-12.4/nvidia/cuda_runtime  the shared 12.4 runtime
#   nvjitlink-13.0/nvidia/cu13     nvJitLink, which links at run time
#   nvml-13.0/nvidia/cu13          nvml.h, which a test compares the monitoring API with
# Nothing of this is needed to build or to run Causeway itself: only to compile the CUDA programs of tests/cuda.
set -euo pipefail
# shellcheck source=scripts/wheels.sh
source "$(dirname "$0")/wheels.sh"

# The wheels lack the permission bits of programs and the links that a CUDA installation has.
finish_cuda() {
    local root library folder
    for root in "$1"/nvidia/cu13 "$1"/nvidia/cuda_runtime; do
        [ -d "$root" ] || continue
        ln -sfn lib "$root/lib64"
        for library in "$root"/lib/libcudart.so.*; do
            ln -sfn "$(basename "$library")" "$root/lib/libcudart.so"
        done
        for folder in "$root/bin" "$root/nvvm/bin"; do
            [ ! -d "$folder" ] || find "$folder" -type f -exec chmod +x {} +
        done
    done
}

install_wheels "$cache/cuda-13.0" finish_cuda \
    nvidia-cuda-nvcc==13.0.88 \
    nvidia-cuda-crt==13.0.88 \
    nvidia-nvvm==13.0.88 \
    nvidia-cuda-runtime==13.0.96 \
    nvidia-cuda-cccl==13.0.85 \
    nvidia-cuda-nvrtc==13.0.88
install_wheels "$cache/cuda-12.9" finish_cuda nvidia-cuda-runtime-cu12==12.9.79
install_wheels "$cache/cuda-12.4" finish_cuda nvidia-cuda-runtime-cu12==12.4.127
install_wheels "$cache/nvjitlink-13.0" true nvidia-nvjitlink==13.0.88
install_wheels "$cache/nvml-13.0" true nvidia-nvml-dev==13.0.87
