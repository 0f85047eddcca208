#!/usr/bin/env bash
# Whether each back end builds without the other: a server of real GPUs holds no compiler for kernels, one of the software GPU
# no bindings of NVIDIA's driver. Fails if one does not.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failed=0
# check FEATURE CRATES: `causeway` with this back end alone builds, and none of these crates is in it.
check() {
    local build=(-p causeway-cli --no-default-features --features "$1" --locked) crates found
    cargo clippy --quiet "${build[@]}" -- -D warnings || failed=1
    # Read whole: a pipe that is closed early would end cargo with an error of its own.
    crates=$(cargo tree --quiet --prefix none --edges normal "${build[@]}") || failed=1
    if found=$(grep -E "^($2) " <<<"$crates"); then
        echo "causeway with the back end '$1' alone holds $(sort -u <<<"$found" | tr '\n' ' ')" >&2
        failed=1
    fi
}

check driver 'cranelift-[a-z]+|causeway-ptx|causeway-gpu-software'
check software 'causeway-gpu-driver'
exit $failed
