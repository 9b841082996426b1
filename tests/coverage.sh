#!/bin/bash
# How many lines of each layer the unit tests run, in the build of the preset coverage: a table, and a failure where a layer
# lies below its floor. Needs gcov of the same GCC, and nothing else.
#   coverage.sh [--list]   --list: also the files, the fewest covered lines first
set -euo pipefail
cd "$(dirname "$0")/.."
case "$#:${1:-}" in
0: | 1:--list) ;;
*)
    echo "usage: tests/coverage.sh [--list]" >&2
    exit 2
    ;;
esac
build=build/coverage
if ! find "$build" -name '*.gcno' -print -quit 2>/dev/null | grep -q .; then
    echo "coverage: $build has no .gcno files; first: tests/run.sh --only build-coverage" >&2
    exit 2
fi
find "$build" -name '*.gcda' -delete
ctest --preset coverage -j2 --no-tests=error
tests/coverage.py "$build" "$@"
