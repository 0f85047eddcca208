#!/usr/bin/env bash
# All tests and lints, for `make test`: the programs of tests/cuda must be built. Runs everything even when something fails, and
# closes with how many tests passed and failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The end-to-end tests start the program and the libraries from the build folder, so both are built before any test runs.
cargo build --locked -p causeway-cli -p causeway-client -p causeway-comm -p causeway-cublas -p causeway-nccl-net -p causeway-nvml -p causeway-stubs -p causeway-model -p causeway-fabric-perf || exit 1
cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log" || failed=1
# Where Prometheus is installed (`make metrics-test` installs it); it says so where not.
tools/metrics_test/run.py "${CARGO_TARGET_DIR:-target}/debug/causeway" build/cuda/vector_add 2>&1 | tee -a "$log" || failed=1
# Where Slurm is installed, as root; it says so where not.
tests/slurm/run "${CARGO_TARGET_DIR:-target}/debug/causeway" build/cuda/vector_add 2>&1 | tee -a "$log" || failed=1
# What needs RDMA devices runs where a guest with some has been built (`make verbs-guest`).
if tests/verbs/guest/guest.py ready; then
    tests/verbs/run quick 2>&1 | tee -a "$log" || failed=1
fi
scripts/check-concurrency.sh 2>&1 | tee -a "$log" || failed=1
scripts/lint.sh || failed=1

# cargo prints one `test result:` line for each test binary.
read -r tests_passed tests_failed < <(
    awk '/^test result:/ { passed += $4; failed += $6 } END { print passed + 0, failed + 0 }' "$log"
)
[ "$failed" = 0 ] || echo "make test: something above failed" >&2
echo "$tests_passed passed, $tests_failed failed"
exit $failed
