#!/bin/bash
# What dunlin-train says of a file that cannot be trained: causes by operator, counted, at most a screen, with a way out.
# refused.sh PROGRAMS GOLDEN
set -uo pipefail
programs=$1
golden=$2
text=$("$programs/dunlin-train" --model "$golden/crowded.onnx" --dataset synthetic --steps 1 2>&1)
status=$?

fail() {
    printf '%s\nrefused.sh: %s\n' "$text" "$1"
    exit 1
}
[ "$status" = 1 ] || fail "the status is $status, not 1"
[ "$(wc -l <<<"$text")" -le 22 ] || fail "more than a screen"
grep -q "^  RoiAlign: the operator is not supported (12 nodes, first 'up1')$" <<<"$text" || fail "RoiAlign is not counted"
grep -q "opset 8 is too old.*; export again with opset 9 or later" <<<"$text" || fail "no way out of the opset"
grep -q "^  \.\.\. and 11 more$" <<<"$text" || fail "it does not say how many more there are"
tail -1 <<<"$text" | grep -q "cannot be trained: 31 issues" || fail "the last line does not count"
