#!/usr/bin/env bash
# Installs the CUDA compiler and the CUDA runtimes that the test programs need, from NVIDIA's wheels on PyPI.
#
#   scripts/cuda-toolchain.sh          installs what is missing; a second run costs nothing
#
# They go to ${CAUSEWAY_CACHE:-~/.cache/causeway}, outside the source tree:
#   cuda-13.0/nvidia/cu13          nvcc, headers, both 13.0 runtimes, NVRTC
#   cuda-12.9/nvidia/cuda_runtime  the static and the shared 12.9 runtime
#   cuda-12.4/nvidia/cuda_runtime  the shared 12.4 runtime
# Nothing of this is needed to build or to run Causeway itself: only to compile the CUDA programs of tests/cuda.
set -euo pipefail

cache=${CAUSEWAY_CACHE:-$HOME/.cache/causeway}

cuda_13_0=(
    nvidia-cuda-nvcc==13.0.88
    nvidia-cuda-crt==13.0.88
    nvidia-nvvm==13.0.88
    nvidia-cuda-runtime==13.0.96
    nvidia-cuda-cccl==13.0.85
    nvidia-cuda-nvrtc==13.0.88
)
cuda_12_9=(nvidia-cuda-runtime-cu12==12.9.79)
cuda_12_4=(nvidia-cuda-runtime-cu12==12.4.127)

say() { echo "cuda-toolchain: $*" >&2; }

die() {
    say "$*"
    exit 1
}

# True when folder $1 holds exactly the wheels in the remaining arguments.
installed() {
    local folder=$1
    shift
    [ -f "$folder/.installed" ] && [ "$(cat "$folder/.installed")" = "$*" ]
}

# The wheels are plain zip files, and zip files unpacked by Python lose their permission bits and have no links.
finish_layout() {
    local root
    for root in "$1"/nvidia/cu13 "$1"/nvidia/cuda_runtime; do
        [ -d "$root" ] || continue
        [ -e "$root/lib64" ] || ln -s lib "$root/lib64"
        local library
        for library in "$root"/lib/libcudart.so.*; do
            ln -sfn "$(basename "$library")" "$root/lib/libcudart.so"
        done
        local folder
        for folder in "$root/bin" "$root/nvvm/bin"; do
            [ ! -d "$folder" ] || find "$folder" -type f -exec chmod +x {} +
        done
    done
}

# Downloads and unpacks the wheels $2... beside folder $1, then puts the whole in its place with one rename, so that
# an interrupted run never leaves half a toolchain.
install() {
    local folder=$1
    shift
    if installed "$folder" "$@"; then return; fi
    say "installing $* into $folder"
    # The pattern is also what an interrupted run leaves behind.
    rm -rf "$folder".unpacking.*
    local unpacking
    unpacking=$(mktemp -d "$folder.unpacking.XXXXXX")
    chmod 755 "$unpacking"
    "$pip_python" -m pip download --quiet --no-deps --only-binary :all: --disable-pip-version-check \
        --dest "$unpacking/wheels" "$@" || die "could not download $*: is PyPI (or the mirror pip is set up for) reachable?"
    local wheel
    for wheel in "$unpacking"/wheels/*.whl; do
        "$pip_python" -m zipfile -e "$wheel" "$unpacking"
    done
    rm -r "$unpacking/wheels"
    finish_layout "$unpacking"
    echo "$*" >"$unpacking/.installed"
    rm -rf "$folder"
    mv "$unpacking" "$folder"
}

mkdir -p "$cache"
# Two builds at once must not unpack into the same folder.
exec 9>"$cache/.cuda-toolchain.lock"
flock 9

if installed "$cache/cuda-13.0" "${cuda_13_0[@]}" && installed "$cache/cuda-12.9" "${cuda_12_9[@]}" &&
    installed "$cache/cuda-12.4" "${cuda_12_4[@]}"; then
    exit 0
fi

pip_python=""
for candidate in python3 /usr/bin/python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
        pip_python=$candidate
        break
    fi
done
if [ -z "$pip_python" ]; then
    "$(dirname "$0")/install-packages.sh" python3 python3-pip
    pip_python=/usr/bin/python3
fi

install "$cache/cuda-13.0" "${cuda_13_0[@]}"
install "$cache/cuda-12.9" "${cuda_12_9[@]}"
install "$cache/cuda-12.4" "${cuda_12_4[@]}"
"$cache/cuda-13.0/nvidia/cu13/bin/nvcc" --version >/dev/null ||
    die "nvcc was installed in $cache/cuda-13.0 but does not run"
