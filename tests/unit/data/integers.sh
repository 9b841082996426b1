#!/bin/bash
# integers.sh DUNLIN-TRAIN: training in integers as a user meets it: what is refused, growth, a run that is resumed, the JSON, QDQ.
set -u
. "$(dirname "$0")/train_lib.sh"

base=(--model lenet5 --dataset random --max-examples 60 --batch 12 --seed 3)

# What takes the place of a rate, and what has no meaning without one.
for flag in "--lr 0.1" "--momentum 0.9" "--optimizer adam" "--weight-decay 0.1" "--clip-norm 1" "--label-smoothing 0.1" "--schedule cosine" "--warmup 3"; do
    # shellcheck disable=SC2086
    run 2 "${base[@]}" --steps 1 --precision niti $flag
    error_has "${flag%% *} has no meaning with --precision niti: --grad-bits is the rate"
done
run 2 "${base[@]}" --steps 1 --grad-bits 5
error_has "--grad-bits goes with --precision niti"
run 2 "${base[@]}" --steps 1 --precision octo --weight-growth 64
error_has "--weight-growth goes with --precision niti"
for growth in 1 0 -1 65537 64x on; do
    run 2 "${base[@]}" --steps 1 --precision niti --weight-growth "$growth"
    error_has "--weight-growth $growth: expected off or a whole number from 2 to 65536"
done
run 1 "${base[@]}" --steps 1 --precision int4
error_has 'precision "int4" is not in this build'
run 1 "${base[@]}" --steps 1 --precision niti --grad-bits 5,8
error_has 'option grad_bits is "5,8"'
run 1 --model resnet18 --image 32 --classes 4 --dataset random --max-examples 8 --batch 4 --steps 1 --precision niti
error_has "the network cannot be trained in precision niti: batch_norm"

# Growth changes what is learned, is 64 where it is not given, and is told.
grow() {
    run 0 "${base[@]}" --precision niti --grad-bits 7,6 --epochs 3 --json "$1.json" "${@:2}"
    value "$1.json" weights_hash >"$1.hash"
    [ -s "$1.hash" ] || complain "no hash of $1"
}
grow usual
grow as_usual --weight-growth 64
grow never --weight-growth off
grow soon --weight-growth 65536
cmp -s usual.hash as_usual.hash || complain "--weight-growth 64 is not the default"
cmp -s usual.hash never.hash && complain "--weight-growth off changes nothing"
cmp -s usual.hash soon.hash && complain "--weight-growth 65536 changes nothing"
[ "$(value usual.json weight_growth)" = 64 ] || complain "weight_growth is not in the JSON"
[ "$(value never.json weight_growth)" = off ] || complain "weight_growth off is not in the JSON"
for key in n_clipped '"scales"' '"raised"'; do
    grep -q "$key" usual.json || complain "$key is not in the JSON"
done

# A run that is resumed has the bits of one at once: how often a tensor has grown is in the checkpoint.
run 0 "${base[@]}" --precision niti --grad-bits 7,6 --weight-growth 65536 --epochs 3 --steps 7 --checkpoint half.ckpt
grow resumed --weight-growth 65536 --resume half.ckpt
cmp -s soon.hash resumed.hash || complain "a run that is resumed has other weights"

# QDQ of weights that have grown.
run 0 "${base[@]}" --precision niti --grad-bits 7,6 --weight-growth 65536 --epochs 2 --save grown.onnx --qdq
[ -s grown.onnx ] || complain "no QDQ model"
exit $failed
