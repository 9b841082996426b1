#!/bin/bash
# dunlin-train --augment and --data-budget as a user meets them: refusals by name, and weights that neither threads, reading
# ahead, a budget nor a pause change. augment.sh PROGRAM
. "$(dirname "$0")/train_lib.sh"

small="--model lenet5 --writers 12 --batch 16 --seed 3 --lr-decay none"
all="crop=2,flip,cutout=8,mixup=0.4,noise=0.1"

for augment in turn crop flip=1 cutout cutout=0 cutout=1.5 cutout=-3 mixup=0 mixup=nan mixup=inf mixup=-1 noise=x noise=-0.1 noise=1001 \
    shift=0 flip,flip crop=2,,flip=2 ","; do
    run 2 --model lenet5 --augment "$augment"
    error_has "--augment"
done
run 2 --model lenet5 --augment flip --random-crop 2
error_has "say the same thing twice"
run 2 --model lenet5 --augment mixup=0.2 --ignore-label 3
error_has "--ignore-label does not go with it"
run 1 --model lenet5 --augment cutout=29 --steps 1
error_has "a cut-out of 29 x 29 is larger than the image of 28 x 28"
run 1 --model lenet5 --augment shift=3 --steps 1
error_has "a shift of 3 is for signals"
run 1 --model bert_small --dataset random --length 16 --augment mixup=0.2 --steps 1 --batch 2 --max-examples 4
error_has "tokens are neither mixed nor changed"
run 1 --model har_mlp --dataset random --augment flip,cutout=2 --steps 1 --max-examples 8
error_has "larger than the image of 1 x 1"

# The same bits by threads, budget and reading ahead, and after a pause in the middle of an epoch; others by seed, and than without.
hash_of() {
    # shellcheck disable=SC2086
    run 0 $small --augment "$all" --json hash.json "$@"
    value hash.json weights_hash
}
whole=$(hash_of --steps 30 --eval)
grep -q '"augment": "crop=2,flip,cutout=8,mixup=0.4,noise=0.1"' hash.json || complain "the JSON does not tell what was changed"
[ -n "$(value hash.json test_accuracy)" ] || complain "no accuracy after training on mixed examples"
[ "$(hash_of --steps 30 --threads 2)" = "$whole" ] || complain "two threads give other weights"
[ "$(hash_of --steps 30 --prefetch 4MiB)" = "$whole" ] || complain "reading ahead gives other weights"
# shellcheck disable=SC2086
run 0 $small --augment "$all" --plan-only --json least.json
[ "$(hash_of --steps 30 --budget "$(value least.json least_budget_bytes)")" = "$whole" ] || complain "a budget gives other weights"
[ "$(hash_of --steps 30 --seed 4)" != "$whole" ] || complain "the seed changes nothing"
hash_of --steps 13 --checkpoint at13 >paused
[ "$(hash_of --steps 17 --resume at13)" = "$whole" ] || complain "a resumed run ends elsewhere"
# shellcheck disable=SC2086
run 0 $small --steps 30 --json plain.json
[ "$(value plain.json weights_hash)" != "$whole" ] || complain "--augment does nothing"
grep -q '"augment"' plain.json && complain "a run without --augment has the key"
for loss in mse bce; do
    # shellcheck disable=SC2086
    run 0 $small --augment mixup=1 --loss $loss --steps 3
done
run 0 --model har_mlp --dataset random --augment mixup=0.3,noise=0.2 --steps 2 --batch 4 --max-examples 16 --eval

# The index of a folder: told, planned, refused with the number of files.
for i in 1 2 3 4 5 6; do
    mkdir -p "pictures/c$((i % 2))"
    base64 -d >"pictures/c$((i % 2))/$i.png" <<<"iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAU0lEQVR42gFIALf/AAAFFC1QfbT1ABAVJD1gjcQFACAlNE1wndQVADA1RF2AreQlAEBFVG2QvfQ1AFBVZH2gzQRFAGBldI2w3RRVAHB1hJ3A7SRlPAUZ4dKywHYAAAAASUVORK5CYII="
done
run 2 --model lenet5 --data-budget 1KiB
error_has "--data-budget goes with --dataset folder:DIR"
if "$program" --model lenet5 --dataset folder:pictures --image 28 --plan-only --json index.json >out 2>err; then
    bytes=$((6 * (18 + 9) + 5 * 2)) # "c0/1.png" and its end; five of six are trained on
    grep -qF "index of the folder: $bytes bytes for 5 files" out || complain "the index is not told: $(cat out)"
    [ "$(value index.json data_index_bytes)" = "$bytes" ] || complain "the JSON says $(value index.json data_index_bytes), not $bytes"
    run 0 --model lenet5 --dataset folder:pictures --image 28 --steps 1 --batch 4 --data-budget 174
    grep -qF "index of the folder: $bytes bytes" out || complain "a run does not tell the index"
    run 1 --model lenet5 --dataset folder:pictures --image 28 --steps 1 --data-budget 173
    error_has "pictures: the index of 6 files takes 174 bytes: the limit is 173"
else
    grep -q "without" err || complain "$(cat err)" # built without the libraries of pictures
fi
exit $failed
