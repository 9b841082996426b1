#!/bin/bash
# abi.sh BUILD [--renew]: what apps are built against has not changed: calls, and types that public headers give, beside the
# baseline dunlin.abi.xz (libabigail's abidw, of the shared library built with debug information for x86-64).
#
# New calls, new values of enumerations and new members at the end of a struct are as it should be. What is meant to change is
# renewed, in a commit of its own that says why:
#   tests/run.sh --only build-abi && tests/abi/abi.sh build/abi --renew
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
baseline=$here/dunlin.abi.xz
if ! command -v abidw >/dev/null || ! command -v abidiff >/dev/null; then
    echo "skipped: abidw and abidiff are not installed (package abigail-tools)"
    exit 77
fi
if [ "$(uname -m)" != x86_64 ]; then
    echo "skipped: the baseline is of x86-64, this is $(uname -m)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
headers=()
for layer in memory trainer sdk; do
    headers+=(--headers-dir "$root/$layer/include")
done
abidw --drop-private-types "${headers[@]}" --no-corpus-path --no-comp-dir-path --no-show-locs --out-file "$work/now.abi" \
    "$build/libdunlin.so"
if [ "${2:-}" = --renew ]; then
    xz -9 <"$work/now.abi" >"$baseline"
    echo "dunlin.abi.xz: $(wc -c <"$baseline") bytes, $(grep -c 'elf-symbol name=.dunlin_.*func-type' "$work/now.abi") calls"
    exit 0
fi
xz -d <"$baseline" >"$work/then.abi"
code=0
abidiff --suppressions "$here/abi.suppr" --no-added-syms "$work/then.abi" "$work/now.abi" >"$work/report" || code=$?
if [ "$code" != 0 ]; then
    cat "$work/report"
    echo "what apps are built against has changed (abidiff: $code); tests/abi/abi.sh says how the baseline is renewed"
    exit 1
fi
echo "abi: as in the baseline, or more"
