#!/bin/sh
# Installs the distribution's packages that are missing: `install-dependencies.sh build` for what the programs need,
# `install-dependencies.sh test` for the tests as well. Says what to do when it may not install.
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config libcurl4-openssl-dev libmbedtls-dev nanopb libnanopb-dev
       libmicrohttpd-dev libgnutls28-dev nettle-dev libsqlite3-dev libjansson-dev libpthreadpool-dev zlib1g-dev
       libjpeg-dev libpng-dev
       libjs-chart.js"
test="g++ libcriterion-dev clang clang-format clang-tidy git python3 gcc-aarch64-linux-gnu qemu-user"
# Wanted, but a test that needs one says 'skipped' without it.
wish="python3-onnx libclang-rt-dev openssl iproute2 doxygen"
# The compiler of the 32-bit build, whose programs x86-64 machines alone run.
[ "$(uname -m)" != x86_64 ] || wish="$wish gcc-i686-linux-gnu"
# Installing nginx starts a web server: not on a developer's machine without being asked.
[ -z "${CI:-}" ] || wish="$wish nginx-light"

case "${1:-build}" in
build) wanted=$build; wish= ;;
test) wanted="$build $test" ;;
*)
    echo "usage: install-dependencies.sh build|test" >&2
    exit 2
    ;;
esac

if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-dependencies: this system has no apt-get; install these packages' counterparts yourself: $wanted" >&2
    exit 1
fi

is_missing() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" != installed ]; }
needed=
for package in $wanted; do
    if is_missing "$package"; then needed="$needed $package"; fi
done
wished=
for package in $wish; do
    if is_missing "$package"; then wished="$wished $package"; fi
done
[ -n "$needed$wished" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    elif [ -z "$needed" ]; then
        echo "install-dependencies: the tests that want one of these packages will be skipped:$wished"
        exit 0
    else
        echo "install-dependencies: these packages are missing and this user may not install them:$needed" >&2
        echo "install-dependencies: as an administrator run: apt-get install$needed" >&2
        exit 1
    fi
fi

echo "installing:$needed$wished"
export DEBIAN_FRONTEND=noninteractive
# A machine without a way out says so soon.
$as_root apt-get update -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 || echo "install-dependencies: the lists of packages could not be brought up to date" >&2
if [ -n "$needed" ]; then
    # shellcheck disable=SC2086
    if ! $as_root apt-get install -y -qq --no-install-recommends $needed >/dev/null; then
        echo "install-dependencies: apt-get could not install:$needed" >&2
        exit 1
    fi
fi
for package in $wished; do
    $as_root apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
        echo "install-dependencies: $package is not available here; the tests that want it will be skipped"
done
