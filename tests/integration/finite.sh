#!/bin/bash
# dunlin-train at rates that no network stands: whatever a run ends with, the checkpoint and the ONNX file that lie there afterwards
# can be loaded; a run that fails says which value is not finite and leaves the files of the run before as they were.
# finite.sh BIN-FOLDER; with DUNLIN_SHORT=1, for sanitizers, the network that fails alone.
set -euo pipefail
train=$1/dunlin-train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work"
unset DUNLIN_DATA
n_failed=0

fail() {
    echo "finite.sh: $*"
    exit 1
}

# check NAME STEPS FLAGS...: a good run first, then one with FLAGS that goes on over its files, then both files are read again.
check() {
    local name=$1 steps=$2 got=0 net
    shift 2
    net=(--model "$name" --image 32 --data synthetic)
    "$train" "${net[@]}" --batch 8 --steps 1 --lr 0.001 --momentum 0.9 --checkpoint "$work/q.ck" --save "$work/q.onnx" \
        >"$work/out" 2>&1 || fail "$name: the good run: $(cat "$work/out")"
    cp "$work/q.ck" "$work/old.ck"
    cp "$work/q.onnx" "$work/old.onnx"
    "$train" "${net[@]}" --steps "$steps" --momentum 0.9 --schedule constant --checkpoint "$work/q.ck" --save "$work/q.onnx" "$@" \
        >"$work/out" 2>"$work/error" || got=$?
    if [ "$got" != 0 ]; then
        n_failed=$((n_failed + 1))
        grep -q "is not finite" "$work/error" || fail "$name $*: failed with: $(cat "$work/error")"
        cmp "$work/q.ck" "$work/old.ck" && cmp "$work/q.onnx" "$work/old.onnx" || fail "$name $*: a failed run has replaced a file"
    fi
    # A step from there may fail, but not for what the file holds.
    "$train" "${net[@]}" --batch 8 --steps 1 --lr 0.001 --momentum 0.9 --resume "$work/q.ck" >"$work/out" 2>"$work/error" ||
        grep -q ": step [0-9]*: .* is not finite" "$work/error" || fail "$name $*: $(cat "$work/error")"
    "$train" --model "$work/q.onnx" --data synthetic --plan-only --batch 8 >"$work/out" 2>&1 || fail "$name $*: $(cat "$work/out")"
    "$train" --model "$work/q.onnx" --data synthetic --batch 8 --steps 1 --lr 0.001 >"$work/out" 2>"$work/error" ||
        grep -q ": step [0-9]*: .* is not finite" "$work/error" || fail "$name $*: $(cat "$work/error")"
}

check mobilenet_v2 3 --batch 8 --lr 300
if [ -z "${DUNLIN_SHORT:-}" ]; then
    check resnet18 8 --batch 16 --lr 100
    check resnet18 4 --batch 8 --lr 1000
fi
[ "$n_failed" -gt 0 ] || fail "no run failed: the rates are too low to test anything"
echo "finite.sh: all files can be loaded, $n_failed of the runs failed"
