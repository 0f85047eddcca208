#!/usr/bin/env bash
# Installs Python packages for tests from PyPI into a folder of their own for this Python, and prints the folder: those of
# tests/wheel/requirements.txt, with which the wheel `causeway-gpu` is tested, or of tests/NAME/requirements.txt. A second
# run costs nothing.
#
#   scripts/python-packages.sh [NAME]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/wheels.sh
source scripts/wheels.sh

python=$(python_with_pip)
wanted=tests/${1:-wheel}/requirements.txt
folder=$cache/python-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')${1:+-$1}
if ! cmp --silent "$wanted" "$folder/.installed"; then
    mkdir -p "$cache"
    exec 9>"$cache/.python-packages.lock"
    flock 9
fi
if ! cmp --silent "$wanted" "$folder/.installed"; then
    echo "installing what $wanted names into $folder" >&2
    rm -rf "$folder" "$folder.unpacking"
    "$python" -m pip install --quiet --disable-pip-version-check --root-user-action ignore --only-binary :all: \
        --target "$folder.unpacking" --requirement "$wanted" >&2
    cp "$wanted" "$folder.unpacking/.installed"
    mv "$folder.unpacking" "$folder"
fi
echo "$folder"
