#!/usr/bin/env bash
# Packs build/gpu-bundle: what a machine with a GPU needs to run `gpu-test.sh`, without Rust and without a network.
# The release build and the test programs must be there (make gpu-bundle sees to it). Fails when it is larger than 60 MiB.
set -euo pipefail
cd "$(dirname "$0")/.."

release=${CARGO_TARGET_DIR:-target}/release
programs=build/cuda
bundle=build/gpu-bundle
cuda=${CAUSEWAY_CACHE:-$HOME/.cache/causeway}/cuda-13.0/nvidia/cu13
limit_mib=60

rm -rf "$bundle"
mkdir -p "$bundle"/{bin,programs,lib,yardstick,apps/programs}

# Both names of each library that programs open.
install -s "$release/causeway" "$bundle/bin/causeway"
install -s "$release/fabric-perf" "$bundle/bin/fabric-perf"
install -s "$release/libcuda.so" "$bundle/bin/libcuda.so.1"
cp "$bundle/bin/libcuda.so.1" "$bundle/bin/libcuda.so"
mkdir -p "$bundle/nccl"
install -s "$release/libcauseway_nccl_net.so" "$bundle/nccl/libnccl-net-causeway.so"
install -s "$release/libcauseway_nvml.so" "$bundle/bin/libnvidia-ml.so.1"
cp "$bundle/bin/libnvidia-ml.so.1" "$bundle/bin/libnvidia-ml.so"
for stub in libnvcuvid libnvidia-encode libnvidia-opticalflow libnvoptix; do
    install -s "$release/libcauseway_stubs.so" "$bundle/bin/$stub.so.1"
    cp "$bundle/bin/$stub.so.1" "$bundle/bin/$stub.so"
done

for program in "$programs"/*; do
    case $program in
        *.ptx | *.ltoir | *.bc) install -m 644 "$program" "$bundle/programs/" ;;
        *) if [ -f "$program" ]; then install -s "$program" "$bundle/programs/"; fi ;;
    esac
done
install -s "$release/causeway-model" "$bundle/programs/"
# The tests of kernels that communicate, which run on a GPU as well.
device_tests=$(cargo test --quiet --release --locked -p causeway-comm --test device --no-run --message-format=json |
    python3 -c 'import json, sys; print([m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")][-1])')
install -s "$device_tests" "$bundle/programs/device_tests"
# The network card in software, to which some of them post, and what its requests look like.
tests/softcard/build.sh "$bundle/programs/softcard"
cp tests/softcard/golden/requests.txt "$bundle/programs/softcard/"
# NVRTC is large and comes with the CUDA toolkit of the other machine.
cp -L "$programs"/lib/libcudart.so.1[23] "$bundle/lib/"
cp -r tests/cuda "$bundle/sources"
cp tests/cuda/programs.txt "$bundle/"
cp -r tests/cuda/expected "$bundle/"

cp bench/yardstick/* "$bundle/yardstick/"
"$cuda/bin/nvcc" -O2 -std=c++17 -arch=sm_90 -cudart shared bench/yardstick/cuda_bench.cu -o "$bundle/yardstick/cuda_bench" \
    -L"$programs/objects" -lcuda
strip "$bundle/yardstick/cuda_bench"
gcc -O2 -s -static -pthread bench/yardstick/tcp_lanes.c -o "$bundle/yardstick/tcp_lanes"

for program in build/apps/*; do
    if [ -f "$program" ]; then install -s "$program" "$bundle/apps/programs/"; fi
done

# Teams of kernels from Python.
mkdir "$bundle/team"
cp mpi/python/*.py tests/mpi/{numba,triton}_team.py tests/mpi/verbs_queues.py tests/mpi/python_{gpu,job,graphs}.py "$bundle/team/"

# To be compiled where NVSHMEM is.
cp -r bench/nvshmem "$bundle/"

cp -r tools/gpu_test "$bundle/"
mv "$bundle/gpu_test/gpu-test.sh" "$bundle/"
rm -rf "$bundle"/gpu_test/{tests,__pycache__,*/__pycache__}
cp -r tests/python "$bundle/"

# What makes a wheel of the program and the libraries that are here already, laid out as in the source tree.
mkdir -p "$bundle"/wheel/{tools,packaging,mpi}
cp -r tools/package "$bundle/wheel/tools/"
cp -r packaging/python "$bundle/wheel/packaging/"
cp -r mpi/python "$bundle/wheel/mpi/"
cp Cargo.toml LICENSE THIRD-PARTY-NOTICES.md "$bundle/wheel/"
rm -rf "$bundle"/wheel/tools/package/{test_package.py,__pycache__}
# What watching costs is measured where nothing else runs: watch_cost.py --gpu driver bin
cp tools/watch_cost/run.py "$bundle/watch_cost.py"

# Two ranks need an MPI, which a machine with a GPU may not have: Open MPI 5, with a UCX that knows CUDA to compare with.
scripts/openmpi.sh
openmpi=${CAUSEWAY_CACHE:-$HOME/.cache/causeway}/openmpi-5
ucx=${CAUSEWAY_CACHE:-$HOME/.cache/causeway}/ucx-cuda
mkdir -p "$bundle/mpi/openmpi/lib"
for part in mpi tests/mpi; do
    make --silent --no-print-directory -C $part MPICC="$openmpi/bin/mpicc" FORTRAN=no BUILD="$PWD/build/mpi/openmpi-5" COMM="$release"
done
make --silent --no-print-directory -C bench/jacobi MPICC="$openmpi/bin/mpicc" BUILD="$PWD/build/mpi/openmpi-5"
install -s "$release/libcauseway_comm.so" build/mpi/openmpi-5/{libcauseway_mpi.so,causeway_mpi_bench,random_messages,scenes,collectives,datatypes,jacobi} \
    "$bundle/mpi/"
cp -r "$openmpi"/{bin,etc,share} "$bundle/mpi/openmpi/"
cp -r "$openmpi"/lib/* "$bundle/mpi/openmpi/lib/"
# The modules for network cards, of which there are none.
rm -r "$bundle"/mpi/openmpi/lib/openmpi/{libfabric,ucx}
mkdir "$bundle/mpi/ucx"
cp -r "$ucx"/lib* "$ucx/ucx" "$bundle/mpi/ucx/"

# Most of the programs hold a runtime of their own, the same in each of them: packed together, by a dictionary of 64 MiB that
# reaches from one to the next, they are a tenth. So are the two names of each library in bin.
for folder in bin programs mpi; do
    XZ_OPT=-9 tar -C "$bundle" -cJf "$bundle/$folder.tar.xz" $folder
    rm -r "${bundle:?}/$folder"
done

size=$(du -sm "$bundle" | cut -f 1)
echo "gpu-bundle: $bundle holds $size MiB"
if [ "$size" -gt $limit_mib ]; then
    du -sm "$bundle"/* >&2
    echo "gpu-bundle: that is more than the $limit_mib MiB that may be carried to a machine with a GPU" >&2
    exit 1
fi
