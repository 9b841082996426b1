#!/bin/bash
# The loop of a change, about a minute and a half once the build is warm: format and lint, build, quick tests, and what the programs
# print on fixed seeds beside the record. tests/run.sh is the whole.
#   check.sh [--no-reference]
set -euo pipefail
cd "$(dirname "$0")/.."
with_reference=yes
case "${1:-}" in
"") ;;
--no-reference) with_reference=no ;;
*)
    echo "usage: tests/check.sh [--no-reference]" >&2
    exit 2
    ;;
esac

# step TEXT COMMAND...: its output is shown if it fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
step() {
    local text=$1 start=$SECONDS
    shift
    if ! "$@" >"$log" 2>&1; then
        tail -n 60 "$log"
        printf '%-12s FAILED, %d s\n' "$text" $((SECONDS - start))
        exit 1
    fi
    printf '%-12s ok, %d s\n' "$text" $((SECONDS - start))
}

step lint tests/lint/lint.sh
[ -f build/release/CMakeCache.txt ] || step configure cmake --preset release -DDUNLIN_WERROR=ON
step build cmake --build --preset release
export DUNLIN_CASES=${DUNLIN_CASES:-0.1}
step tests ctest --preset release -L quick -j2 --no-tests=error
[ $with_reference = no ] || step reference ctest --preset release -R '^reference$' --no-tests=error
