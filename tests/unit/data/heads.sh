#!/bin/bash
# heads.sh DUNLIN-TRAIN: ready-made networks with auxiliary heads: the weights that their authors train with, and others.
set -u
. "$(dirname "$0")/train_lib.sh"

# The loss of output N in the JSON object, in the order of the outputs.
loss_of() {
    sed -n 's/^ *"test_loss": *\([^,]*\),\{0,1\}$/\1/p' "$1" >losses
    grep -n '"outputs"' "$1" | cut -d: -f1 >begin
    sed -n "$(cat begin),\$p" "$1" | sed -n 's/^ *"test_loss": *\([^,]*\),\{0,1\}$/\1/p' | sed -n "$2p"
}

# The whole loss: that of the outputs by these weights.
expect_sum() {
    local whole
    whole=$(sed "/\"outputs\"/,/\]/d" "$1" | sed -n 's/^ *"test_loss": *\([^,]*\),\{0,1\}$/\1/p')
    awk -v w="$whole" -v a="$(loss_of "$1" 1)" -v b="$(loss_of "$1" 2)" -v c="$(loss_of "$1" 3)" -v f="$2" -v g="$3" -v h="$4" \
        'BEGIN { d = w - (f * a + g * b + h * c); exit !(w > 0 && d < 1e-5 * w && -d < 1e-5 * w) }' ||
        complain "$1: $whole is not $2, $3, $4 times $(loss_of "$1" 1), $(loss_of "$1" 2), $(loss_of "$1" 3)"
}

run=(--model googlenet_aux --image 32 --classes 4 --dataset random --max-examples 8 --batch 4 --steps 1 --eval)
run 0 "${run[@]}" --json own.json
grep -q '^  output aux1: accuracy ' out || complain "no line on aux1: $(cat out)"
expect_sum own.json 1 0.3 0.3
run 0 "${run[@]}" --outputs logits,aux1=0.5 --json other.json
expect_sum other.json 1 0 0.5
run 1 "${run[@]}" --outputs logits,aux3
error_has 'aux3'
exit $failed
