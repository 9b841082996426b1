#!/bin/sh
# Makes a folder with Debian's libraries and headers of another architecture, for its compiler and for running its
# programs: `foreign-root.sh arm64|i386 FOLDER`. It asks this system's own package sources under a private state, so the
# system itself stays as it is and no rights are needed. A folder that is already whole is left alone.
set -eu

packages="libc6-dev libcriterion-dev libpthreadpool-dev libcurl4-openssl-dev libmbedtls-dev libnanopb-dev
          libsqlite3-dev zlib1g-dev libmicrohttpd-dev libgnutls28-dev libjansson-dev"

case "$#:${1:-}" in
2:arm64) setting=DUNLIN_ARM64_ROOT ;;
2:i386) setting=DUNLIN_I386_ROOT ;;
*)
    echo "usage: foreign-root.sh arm64|i386 FOLDER" >&2
    exit 2
    ;;
esac
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    echo "foreign-root: this needs apt-get and dpkg-deb (Debian, Ubuntu); elsewhere give the toolchain file a folder of" \
         "your own: $setting" >&2
    exit 1
fi
architecture=$1
mkdir -p "$2"
root=$(cd "$2" && pwd)
mark=$root/.packages
if [ -f "$mark" ] && [ "$(cat "$mark")" = "$packages" ]; then
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial"
: >"$work/status"
apt() {
    apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User= \
        -o Acquire::Languages=none -o Acquire::Retries=3 -o Dir::State="$work" -o Dir::State::Lists="$work/lists" \
        -o Dir::State::status="$work/status" -o Dir::Cache="$work" -o Dir::Cache::Archives="$work/archives" "$@"
}
# What a source gives wrongly apt leaves out; the others may have all that is wanted.
apt update || echo "foreign-root: some lists of packages could not be had; going on with the others" >&2
# shellcheck disable=SC2086
apt install -y --no-install-recommends --download-only $packages >/dev/null
for package in "$work"/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done
# From Debian 13 on all lies in /usr, and the link is the base system's.
[ -e "$root/lib" ] || ln -s usr/lib "$root/lib"
# Links to absolute paths would lead out of the folder.
find "$root" -type l -lname '/*' | while read -r link; do
    ln -sf "$root$(readlink "$link")" "$link"
done
printf '%s' "$packages" >"$mark"
echo "foreign-root: $root, $(ls "$work/archives"/*.deb | wc -l) packages of $architecture"
