#!/usr/bin/env bash
# Makes sure that there is the Rust that rust-toolchain.toml names, or a newer one where that cannot be had, with rustfmt and
# clippy: uses the one that is there, else installs rustup and with it exactly that version.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# True when cargo (or, for +TOOLCHAIN, that one's) is there and at least as new as wanted.
new_enough() {
    local found
    found=$(cargo "$@" --version 2>/dev/null | cut -d ' ' -f 2) || return 1
    [ -n "$found" ] && [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" = "$wanted" ]
}

# Another toolchain of this machine that is new enough, for this folder alone.
use_another() {
    local name
    while read -r name _; do
        if [[ $name != nightly* ]] && new_enough "+$name"; then
            echo "rust-toolchain: Rust $wanted is not installed by that name; $name is used in this folder" \
                "(rustup override unset undoes that)" >&2
            rustup override set "$name" >&2
            return
        fi
    done < <(rustup toolchain list)
    return 1
}

if ! new_enough; then
    if ! command -v rustup >/dev/null; then
        echo "rust-toolchain: installing rustup and Rust $wanted for this user" >&2
        scripts/install-packages.sh curl ca-certificates
        # The official installer; the second address is the server that the first one forwards to.
        installer=$(mktemp)
        curl --proto '=https' --tlsv1.2 -sSfL https://sh.rustup.rs -o "$installer" 2>/dev/null ||
            curl --proto '=https' --tlsv1.2 -sSfL https://static.rust-lang.org/rustup/rustup-init.sh -o "$installer"
        sh "$installer" -y -q --no-modify-path --profile minimal --default-toolchain "$wanted" -c rustfmt -c clippy
        rm "$installer"
    elif ! use_another; then
        echo "rust-toolchain: installing Rust $wanted with rustup" >&2
        rustup toolchain install "$wanted" --profile minimal -c rustfmt -c clippy
        if ! new_enough; then
            echo "rust-toolchain: Rust $wanted is installed, but cargo here is $(cargo --version 2>&1 || true);" \
                "please make it this folder's toolchain: rustup override set $wanted" >&2
            exit 1
        fi
    fi
fi

for component in fmt clippy; do
    if ! cargo "$component" --version >/dev/null 2>&1; then
        if ! command -v rustup >/dev/null; then
            echo "rust-toolchain: cargo $component is missing and there is no rustup to install it with" >&2
            exit 1
        fi
        rustup component add "${component/#fmt/rustfmt}"
    fi
done
