#!/bin/sh
# Installs the distribution's packages that are missing: `install-dependencies.sh build` for what the programs need,
# `install-dependencies.sh test` for the tests as well. Says what to do when it may not install.
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config libcurl4-openssl-dev libmbedtls-dev nanopb libnanopb-dev
       libmicrohttpd-dev libgnutls28-dev libsqlite3-dev libjansson-dev libpthreadpool-dev zlib1g-dev
       libjs-chart.js"
test="g++ libcriterion-dev clang clang-format clang-tidy git python3 gcc-aarch64-linux-gnu qemu-user"
# Wanted, but a test that needs one says 'skipped' without it.
wish="python3-onnx libclang-rt-dev openssl iproute2"
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

missing=
for package in $wanted $wish; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        echo "install-dependencies: these packages are missing and this user may not install them:$missing" >&2
        echo "install-dependencies: as an administrator run: apt-get install$missing" >&2
        exit 1
    fi
fi

echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
for package in $missing; do
    case " $wish " in
    *" $package "*) $as_root apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
        echo "install-dependencies: $package cannot be had here; the tests that want it will be skipped" ;;
    *) needed="${needed:-} $package" ;;
    esac
done
if [ -n "${needed:-}" ]; then
    # shellcheck disable=SC2086
    if ! $as_root apt-get install -y -qq --no-install-recommends $needed >/dev/null; then
        echo "install-dependencies: apt-get could not install:$needed" >&2
        exit 1
    fi
fi
