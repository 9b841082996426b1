#!/bin/sh
# Makes a folder with Debian's arm64 libraries and headers, for the cross compiler and for qemu:
# `arm64-root.sh FOLDER`. It asks this system's own package sources under a private state, so the system itself stays
# as it is and no rights are needed. A folder that is already whole is left alone.
set -eu

packages="libc6-dev libcriterion-dev libpthreadpool-dev libcurl4-openssl-dev libmbedtls-dev libnanopb-dev
          libsqlite3-dev zlib1g-dev libmicrohttpd-dev libgnutls28-dev libjansson-dev"

if [ $# != 1 ]; then
    echo "usage: arm64-root.sh FOLDER" >&2
    exit 2
fi
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    echo "arm64-root: this needs apt-get and dpkg-deb (Debian, Ubuntu); elsewhere give the toolchain file a folder of" \
         "your own: DUNLIN_ARM64_ROOT" >&2
    exit 1
fi
mkdir -p "$1"
root=$(cd "$1" && pwd)
mark=$root/.packages
if [ -f "$mark" ] && [ "$(cat "$mark")" = "$packages" ]; then
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial"
: >"$work/status"
apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= \
        -o Acquire::Languages=none -o Acquire::Retries=3 -o Dir::State="$work" -o Dir::State::Lists="$work/lists" \
        -o Dir::State::status="$work/status" -o Dir::Cache="$work" -o Dir::Cache::Archives="$work/archives" "$@"
}
apt update
# shellcheck disable=SC2086
apt install -y --no-install-recommends --download-only $packages >/dev/null
for package in "$work"/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done
# Links to absolute paths would lead out of the folder.
find "$root" -type l -lname '/*' | while read -r link; do
    ln -sf "$root$(readlink "$link")" "$link"
done
printf '%s' "$packages" >"$mark"
echo "arm64-root: $root, $(ls "$work/archives"/*.deb | wc -l) packages"
