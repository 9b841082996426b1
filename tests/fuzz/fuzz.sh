#!/bin/bash
# fuzz.sh BUILD SECONDS: runs each libFuzzer target of a build (DUNLIN_FUZZ=ON) for so long, from the seeds of the tree.
# What it finds new stays in BUILD/fuzz/NAME; what crashes is named and kept as BUILD/fuzz/NAME/crash-...
set -uo pipefail
if [ $# -ne 2 ]; then
    echo "usage: tests/fuzz/fuzz.sh BUILD SECONDS" >&2
    exit 2
fi
build=$(cd "$1" && pwd) || exit 2
seconds=$2
cd "$(dirname "$0")" || exit 2
failed=0
for source in fuzz_*.c; do
    target=${source%.c}
    name=${target#fuzz_}
    program=$build/tests/$target
    if [ ! -x "$program" ]; then
        echo "$target: not built in $build" >&2
        failed=1
        continue
    fi
    found=$build/fuzz/$name
    mkdir -p "$found/corpus"
    words=()
    [ -f "$target.dict" ] && words=(-dict="$target.dict")
    # Its server keeps what it was told from input to input, which is no leak; one is still seen at the end.
    [ "$name" = request ] && words+=(-detect_leaks=0)
    echo "== $target, $seconds s"
    "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=1048576 -print_final_stats=1 \
        "${words[@]}" -artifact_prefix="$found/" "$found/corpus" "corpus/$name" >"$found/log" 2>&1 || {
        failed=1
        echo "$target FAILED:"
        grep -E 'ERROR|SUMMARY|Test unit written' "$found/log"
    }
    grep -E 'stat::number_of_executed_units|stat::new_units_added' "$found/log"
done
exit $failed
