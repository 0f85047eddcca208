#!/usr/bin/env bash
# Makes the container images `causeway-server` and `causeway-client` from the Debian packages in a folder,
# without a daemon: mmdebstrap installs them into a small Debian 12, umoci makes an image of that, skopeo an
# archive that `podman load` and `docker load` take. Needs root.
#
#   scripts/images.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(realpath "$1")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
version=$(sed -n '/^\[workspace.package\]/,/^version/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

scripts/install-packages.sh mmdebstrap umoci skopeo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# image NAME PACKAGES CONFIGURATION...: CONFIGURATION is for `umoci config`.
image() {
    local name=$1 packages=$2 files=() package
    shift 2
    for package in $packages; do files+=("$out/${package}_${version}_amd64.deb"); done
    # The packages need nothing but glibc, which is there.
    mmdebstrap --quiet --variant=minbase --include=ca-certificates \
        --customize-hook="mkdir \"\$1/packages\" && cp ${files[*]} \"\$1/packages\"" \
        --customize-hook='chroot "$1" sh -c "dpkg --install --force-depends /packages/*.deb" >/dev/null && rm -r "$1/packages"' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        bookworm "$work/$name.tar" "$mirror"
    umoci init --layout "$work/$name"
    umoci new --image "$work/$name:$version"
    umoci raw add-layer --image "$work/$name:$version" --history.created "$created" "$work/$name.tar"
    umoci config --image "$work/$name:$version" --created "$created" --history.created "$created" \
        --config.label org.opencontainers.image.title="$name" \
        --config.label org.opencontainers.image.version="$version" \
        --config.label org.opencontainers.image.licenses=Apache-2.0 "$@"
    rm -f "$out/$name-$version-image.tar"
    skopeo --insecure-policy copy --quiet "oci:$work/$name:$version" \
        "oci-archive:$out/$name-$version-image.tar:$name:$version"
    echo "$out/$name-$version-image.tar"
}

image causeway-server "causeway causeway-server" --config.entrypoint causeway --config.entrypoint serve \
    --config.cmd --listen --config.cmd 0.0.0.0 --config.cmd --key-file --config.cmd /etc/causeway/key \
    --config.exposedports 7690/tcp --config.volume /etc/causeway
image causeway-client "causeway causeway-client causeway-client-system causeway-mpi" --config.cmd causeway --config.cmd devices
