#!/bin/bash
# dunlin-train as a user meets it: flags, exit statuses, one-line errors, JSON, budgets, resuming, files that are whole
# or not there. train.sh PROGRAM
set -uo pipefail
program=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
unset DUNLIN_DATA
failed=0

complain() {
    echo "FAILED: $*"
    failed=1
}

# run STATUS ARG...: runs the program; with a status of 1 or 2 exactly one line on stderr.
run() {
    local expected=$1
    shift
    "$program" "$@" >out 2>err
    local status=$?
    [ $status = "$expected" ] || complain "status $status, not $expected: $* ($(head -n 2 err))"
    if [ "$expected" != 0 ] && [ "$(wc -l <err)" != 1 ]; then
        complain "not one line on stderr: $*: $(cat err)"
    fi
}

# error_has TEXT: the last error's line holds it.
error_has() {
    grep -qF -- "$1" err || complain "\"$1\" is not in: $(cat err)"
}

# value FILE KEY: a number or a text of a flat JSON object.
value() {
    sed -n "s/^ *\"$2\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$1" | head -n 1
}

small="--model lenet5 --writers 12 --batch 16 --seed 3"

run 0 --help
for word in --budget --plan-dump Examples --resume; do
    grep -qF -- "$word" out || complain "--help does not tell of $word"
done
run 0 --version

# Misuse: refused by name, never ignored.
run 2
error_has "--model is missing"
run 2 --model nothing
error_has lenet5
for flag in --ghost "--costs f" "--budget-at 1:2" "--policy sage" "--policy melon"; do
    # shellcheck disable=SC2086
    run 2 --model lenet5 $flag
    error_has "not there yet"
done
for flag in "--policy x" "--lr-decay x" "--optimizer x" "--batch 0" "--batch x" "--batch 1x" "--epochs -1" "--lr nan" "--lr" \
    "--budget 0" "--budget 12XB" "--nothing" "word" "--eval=1" "--dataset x" "--data synthetic --dataset mnist" \
    "--policy microbatch" "--micro-batch 64" "--plan-dump p.png" "--save p.pt" "--momentum 1" "--nesterov --momentum 0" \
    "--policy pool --micro-batch 4" "--schedule x" "--schedule cosine --lr-decay none" "--loss x" "--label-smoothing 1" \
    "--loss mse --label-smoothing 0.1" "--optimizer adam --momentum 0.9" "--optimizer adamw --nesterov" "--beta1 0.8" \
    "--gamma 0.5" "--schedule step --min-lr 0.1" "--schedule cosine --lr-period 3" "--clip-norm 0" "--clip-value -1" \
    "--warmup -1"; do
    # shellcheck disable=SC2086
    run 2 --model lenet5 $flag
done

# Failures: one line that names the thing.
run 1 --model lenet5 --dataset fashion_mnist
error_has DUNLIN_DATA
run 1 --model lenet5 --dataset mnist --data "$folder/nowhere"
error_has nowhere/mnist
run 1 --model lenet5 --drop-last --batch 1000000
error_has "--drop-last leaves nothing"
run 1 --model missing.onnx
error_has missing.onnx
head -c 300 /dev/urandom >rubbish.onnx
run 1 --model rubbish.onnx
error_has rubbish.onnx
run 1 --model lenet5 --resume rubbish.onnx --steps 1

# A run, its JSON, and the same bits for any number of threads and any budget.
# shellcheck disable=SC2086
run 0 $small --steps 12 --eval --json whole.json --save whole.onnx
for key in model batch image params budget_bytes policy micro_batch planned_bytes peak_bytes lower_bound_bytes \
    pool_bytes pool_lower_bound_bytes by_class n_ops n_recomputed recompute_share plan_ms step_ms_median \
    samples_per_s rss_peak_bytes rss_growth_bytes loss_first loss_last threads isa least_budget_bytes n_sliced ghost; do
    grep -q "\"$key\":" whole.json || complain "the JSON has no $key"
done
[ "$(value whole.json steps)" = 12 ] || complain "12 steps were asked for: $(value whole.json steps)"
[ "$(value whole.json planned_bytes)" = "$(value whole.json peak_bytes)" ] || complain "planned is not peak"
hash=$(value whole.json weights_hash)
# shellcheck disable=SC2086
run 0 $small --steps 12 --threads 2 --json threads.json
[ "$(value threads.json weights_hash)" = "$hash" ] || complain "two threads give other weights"
least=$(value whole.json least_budget_bytes)
planned=$(value whole.json planned_bytes)
constant=1048576 # code, stack and tables of the C library that a run touches for the first time
grep -qa __asan_init "$program" && constant=$((1 << 40)) # a sanitizer's own memory cannot be told apart
for budget in "$least" $(((3 * least + planned) / 4)) $(((least + planned) / 2)) "$planned"; do
    # shellcheck disable=SC2086
    run 0 $small --steps 12 --budget "$budget" --json budget.json
    [ "$(value budget.json weights_hash)" = "$hash" ] || complain "budget $budget gives other weights"
    [ "$(value budget.json peak_bytes)" -le "$budget" ] || complain "budget $budget is passed"
    [ "$(value budget.json rss_growth_bytes)" -le $((budget + constant)) ] ||
        complain "at budget $budget the process grew by $(value budget.json rss_growth_bytes)"
done
# shellcheck disable=SC2086
run 1 $small --steps 1 --budget $((least - 1)) --json none.json
error_has "$least"
[ ! -e none.json ] || complain "a failed run has left a JSON file"

# Two epochs at once, or one, a checkpoint, and another.
# shellcheck disable=SC2086
run 0 $small --epochs 2 --json two.json
# shellcheck disable=SC2086
run 0 $small --epochs 2 --lr-decay none --json constant.json
# shellcheck disable=SC2086
run 0 $small --epochs 1 --lr-decay none --checkpoint one.ckpt
# shellcheck disable=SC2086
run 0 $small --epochs 2 --lr-decay none --resume one.ckpt --json resumed.json
[ "$(value constant.json weights_hash)" = "$(value resumed.json weights_hash)" ] || complain "a resumed run ends elsewhere"
[ "$(value two.json weights_hash)" != "$(value resumed.json weights_hash)" ] || complain "--lr-decay does nothing"
# shellcheck disable=SC2086
run 0 $small --steps 5 --epochs 2 --checkpoint five.ckpt
# shellcheck disable=SC2086
run 0 $small --epochs 2 --resume five.ckpt --json resumed.json
[ "$(value two.json weights_hash)" = "$(value resumed.json weights_hash)" ] || complain "a run resumed in mid-epoch ends elsewhere"

# Preprocessing: the same bits with and without reading ahead; sizes are checked.
drawn="--resize 32 --random-crop 2 --flip --steps 8 --eval"
# shellcheck disable=SC2086
run 0 $small $drawn --json drawn.json
# shellcheck disable=SC2086
run 0 $small $drawn --prefetch 256KiB --json ahead.json
[ "$(value drawn.json weights_hash)" = "$(value ahead.json weights_hash)" ] || complain "--prefetch changes the weights"
[ "$(value drawn.json weights_hash)" != "$hash" ] || complain "the pipeline does nothing"
[ "$(value whole.json pipeline_bytes)" = 0 ] || complain "bytes of a pipeline that is none"
[ "$(value ahead.json pipeline_bytes)" -gt "$(value drawn.json pipeline_bytes)" ] || complain "reading ahead takes no bytes"
[ "$(value ahead.json planned_bytes)" = "$(value drawn.json planned_bytes)" ] || complain "reading ahead is in the plan"
[ "$(value ahead.json rss_growth_bytes)" -le $(($(value ahead.json peak_bytes) + constant + 262144)) ] ||
    complain "reading ahead has grown the process by $(value ahead.json rss_growth_bytes)"
# shellcheck disable=SC2086
run 1 $small --crop 27
error_has "--crop 27"
# shellcheck disable=SC2086
run 1 $small --resize 20 --random-crop 1
error_has "28 x 28 is larger than the image of 20 x 20"
# shellcheck disable=SC2086
run 1 $small --prefetch 100
error_has "hold no example"
# shellcheck disable=SC2086
run 2 $small --resize 0

# Optimisers, losses, clipping and schedules: the same bits for threads and slices, and from a checkpoint.
# shellcheck disable=SC2086
for flags in "--optimizer adam --lr 0.002 --clip-norm 1" "--optimizer adamw --loss bce --schedule cosine --warmup 4" \
    "--loss mse --clip-value 0.01 --schedule step --gamma 0.5 --lr-period 3" "--label-smoothing 0.1 --schedule exponential"; do
    run 0 $small $flags --steps 12 --epochs 2 --eval --json whole2.json
    run 0 $small $flags --steps 12 --epochs 2 --threads 2 --policy microbatch --micro-batch 3 --json slices.json
    run 0 $small $flags --steps 7 --epochs 2 --checkpoint seven.ckpt
    run 0 $small $flags --steps 5 --epochs 2 --resume seven.ckpt --json resumed.json
    for file in slices.json resumed.json; do
        [ "$(value $file weights_hash)" = "$(value whole2.json weights_hash)" ] || complain "$file of $flags: other weights"
    done
done
# shellcheck disable=SC2086
run 1 $small --steps 5 --schedule cosine --warmup 5
error_has "schedule.total_steps is 5"
# shellcheck disable=SC2086
run 1 $small --optimizer adam --steps 1 --resume one.ckpt
error_has optimiser

# The saved network can be trained on, and plans can be drawn.
run 0 --model whole.onnx --writers 12 --batch 16 --steps 3 --json again.json
[ "$(value again.json params)" = "$(value whole.json params)" ] || complain "the saved network is another one"
run 0 --model lenet5 --plan-only --plan-dump plan.svg --json plan.json
grep -q '<svg' plan.svg || complain "plan.svg is no drawing"
grep -q '"step_ms_median": null' plan.json || complain "a plan has no step time"
run 0 --model lenet5 --plan-only --plan-dump plan.txt
[ -s plan.txt ] || complain "plan.txt is empty"
run 0 --model lenet5 --max-batch --budget 2MiB --json max.json
grep -q '"max_batch"' max.json || complain "no max_batch"

# Places that cannot be written: one line, nothing left behind.
# shellcheck disable=SC2086
run 1 $small --steps 1 --json /dev/full
error_has /dev/full
# shellcheck disable=SC2086
run 1 $small --steps 1 --json "$folder/no/out.json"
# shellcheck disable=SC2086
run 1 $small --steps 1 --save "$folder/no/out.onnx"
# shellcheck disable=SC2086
run 1 $small --steps 1 --checkpoint "$folder/no/out.ckpt"
mkdir folder.onnx
run 2 --model lenet5 --save folder.onnx --steps 1
[ -c /dev/full ] || complain "/dev/full was replaced"
# shellcheck disable=SC2010
if ls -a | grep -E '\.part|\.tmp|temp'; then
    complain "half-written files are left"
fi

[ $failed = 0 ] && echo "dunlin-train: all as expected"
exit $failed
