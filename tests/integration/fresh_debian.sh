#!/bin/sh
# The README's two commands on a fresh system of another Debian release: `fresh_debian.sh RELEASE FOLDER [COMMAND]...`.
# Makes FOLDER/RELEASE with debootstrap from this system's own package source, copies the tracked files of the last
# commit into it and runs the commands there (by default both of the README's). Says "skipped" and the reason where this
# system cannot: that takes an administrator, debootstrap, unshare and the package source.
set -eu
if [ $# -lt 2 ]; then
    echo "usage: fresh_debian.sh RELEASE FOLDER [COMMAND]..." >&2
    exit 2
fi
release=$1
mkdir -p "$2"
root=$(cd "$2" && pwd)/$release
shift 2
[ $# -gt 0 ] || set -- samples/quickstart.sh tests/run.sh
cd "$(dirname "$0")/../.."

skip() {
    echo "fresh_debian: skipped, $1"
    exit 0
}
[ "$(id -u)" = 0 ] || skip "a system of its own takes an administrator's rights"
for tool in debootstrap unshare git; do
    command -v "$tool" >/dev/null 2>&1 || skip "$tool is not installed"
done
unshare --mount true 2>/dev/null || skip "this system lets nobody mount"
source=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -v security | head -n 1)
[ -n "$source" ] || skip "this system names no package source"

mark=$root/.whole
if [ ! -e "$mark" ]; then
    rm -rf "$root"
    debootstrap --variant=minbase "$release" "$root" "$source" >"$root.log" 2>&1 || {
        tail -n 3 "$root.log"
        skip "debootstrap could not make $release from $source"
    }
    : >"$mark"
fi
rm -rf "$root/dunlin"
mkdir "$root/dunlin"
git archive HEAD | tar -x -C "$root/dunlin"
cp /etc/resolv.conf "$root/etc/resolv.conf"

# The mounts end with the process. The linter asks git for the files, so there is a repository.
unshare --mount --pid --fork /bin/sh -eu -s "$root" "$@" <<'INSIDE'
root=$1
shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for command in "$@"; do
    echo "fresh_debian: $command"
    chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 /bin/sh -euc '
        cd /dunlin
        . /etc/os-release
        echo "$PRETTY_NAME"
        command -v git >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends git >/dev/null; }
        if [ ! -e .git ]; then
            git init -q . && git add -A
            git -c user.name=test -c user.email=test@localhost commit -qm files
        fi
        '"$command"
done
INSIDE
