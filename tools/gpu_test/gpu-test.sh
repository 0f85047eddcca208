#!/usr/bin/env bash
# Runs from the bundle on a machine with a GPU: gpu-test.sh [PART...]; see gpu_test/cli.py beside it.
set -euo pipefail
bundle=$(cd "$(dirname "$0")" && pwd)
[ -d "$bundle/bin" ] || tar -C "$bundle" -xJf "$bundle/bin.tar.xz"
exec python3 -B "$bundle/gpu_test" "$@"
