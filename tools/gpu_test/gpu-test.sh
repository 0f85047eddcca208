#!/usr/bin/env bash
# Runs from the bundle on a machine with a GPU: gpu-test.sh [PART...]; see gpu_test/cli.py beside it.
exec python3 -B "$(dirname "$0")/gpu_test" "$@"
