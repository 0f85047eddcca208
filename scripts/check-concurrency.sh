#!/usr/bin/env bash
# What can be said about threads beyond that the tests passed, for `make check-concurrency`:
#   loom               every order of the steps of the protocols in crates/sync, with up to three preemptions
#   shuttle            orders taken by chance of what is too large for loom: several of the protocols' users at once, the table
#                      of a link's transfers, and the waits of the real driver's back end; one that fails says how it is run again
#   Miri               undefined behaviour and data races in the tests of crates without system calls
#   ThreadSanitizer    data races in the same tests as machine code
# The last two need a nightly toolchain with the components `miri` and `rust-src`. Where there is none they are not run, and it
# is said so.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failed=0
target=${CARGO_TARGET_DIR:-target}

# Each has flags of its own, so each has a folder of its own, too: else all is built anew every time.
echo "== loom" >&2
RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3} CARGO_TARGET_DIR=$target/loom \
    cargo test --release --locked --quiet --package causeway-sync --lib || failed=1

echo "== shuttle" >&2
shuttle() {
    RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=$target/shuttle cargo test --locked --quiet "$@" || failed=1
}
shuttle --package causeway-sync --lib shuttle_tests
shuttle --package causeway-transport --test orders
shuttle --package causeway-gpu-driver --test orders

nightly_has() {
    cargo +nightly --version >/dev/null 2>&1 && [ -e "$(rustc +nightly --print sysroot)/$1" ]
}

packages=(--package causeway-sync --package causeway-wire)
if nightly_has bin/cargo-miri && nightly_has lib/rustlib/src; then
    echo "== Miri" >&2
    MIRIFLAGS="-Zmiri-disable-isolation" CARGO_TARGET_DIR=$target/miri \
        cargo +nightly miri test --locked --quiet "${packages[@]}" || failed=1
else
    echo "== NOT checked: Miri, since there is no nightly toolchain with the components miri and rust-src" >&2
fi
if nightly_has lib/rustlib/src; then
    echo "== ThreadSanitizer" >&2
    RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=$target/tsan cargo +nightly test -Zbuild-std \
        --target "$(rustc +nightly -vV | sed -n 's/^host: //p')" --locked --quiet "${packages[@]}" --tests || failed=1
else
    echo "== NOT checked: ThreadSanitizer, since there is no nightly toolchain with the component rust-src" >&2
fi
exit $failed
