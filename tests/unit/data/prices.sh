#!/bin/bash
# What fits, and at which price, as dunlin-train tells it: prices.sh PROGRAM [long]. In the release build only: nearly all of it
# is planning, which takes minutes with sanitizers. "long" asks for another ratio and for narrow tensors as well.
. "$(dirname "$0")/train_lib.sh"

# What fits at any price: more for more, the rate of each, and no budget list elsewhere.
bounded="--model mobilenet_v2 --image 32 --policy recompute --max-ratio any"
# shellcheck disable=SC2086
run 0 $bounded --what-fits --budget 60MiB,45MiB,20KiB --json fits.json
grep -q "20.0 KiB *none" out || complain "something fits into 20 KiB"
[ "$(grep -c '"max_batch"' fits.json)" = 3 ] || complain "not three rows"
batches=$(sed -n 's/.*"max_batch": \([0-9]*\).*/\1/p' fits.json | tr '\n' ' ')
read -r none some more <<<"$batches"
if [ "$none" != 0 ] || [ "$some" -lt 1 ] || [ "$more" -le "$some" ]; then complain "largest batches: $batches"; fi
# shellcheck disable=SC2086
{
    run 0 ${bounded% --max-ratio any} --plan-only --budget 45MiB --batch "$some"
    run 1 ${bounded% --max-ratio any} --plan-only --budget 45MiB --batch $((some + 1))
    run 0 $bounded --max-batch --budget 45MiB --json max.json
}
[ "$(value max.json max_batch)" = "$some" ] || complain "--max-batch is not --what-fits"
value max.json time_ratio | grep -q '^[0-9]' || complain "there is no time_ratio"
# What narrow tensors take as floats follows the batch: what is said to fit has a plan.
narrow="--model mobilenet_v2 --image 32 --storage int8 --budget 60MiB"
# shellcheck disable=SC2086
[ "${2:-}" != long ] || {
    run 0 $narrow --max-ratio any --max-batch --json narrow.json
    run 0 $narrow --plan-only --batch "$(value narrow.json max_batch)"
}
run 0 --model lenet5 --what-fits
[ "$(grep -c '  any .*  any ' out)" = 8 ] || complain "slices do not make any batch of lenet5 fit"
run 2 --model lenet5 --budget 1MiB,2MiB
error_has "--what-fits"

run 0 --model lenet5 --max-batch --budget 2MiB --json max.json
grep -q '"max_batch"' max.json || complain "no max_batch"

# The price of a batch: the ratio is kept by both questions, they agree, and say what it is of.
for ratio in 1.3 ${2:+5}; do
    limit=(--max-ratio "$ratio")
    [ "$ratio" = 1.3 ] && limit=()
    run 0 --model mobilenet_v2 --image 32 --budget 40MiB --max-batch "${limit[@]}" --json max.json
    grep -q "within $ratio x the fastest" out || complain "nobody says that the ratio is $ratio"
    grep -q "^at any price: $(value max.json max_batch_any)," out || complain "nothing at any price: $(cat out)"
    [ "$(value max.json max_ratio | sed 's,\.0$,,')" = "$ratio" ] || complain "max_ratio is $(value max.json max_ratio)"
    awk -v of="$(value max.json predicted_ms)" -v n="$(value max.json max_batch)" -v base="$(value max.json ratio_base_ms)" \
        -v ratio="$ratio" 'BEGIN { exit !(of > 0 && of / n <= ratio * base * 1.000001) }' || complain "more expensive than $ratio x: $(cat max.json)"
    [ "$(value max.json batch)" = "$(value max.json max_batch)" ] || complain "the plan is not that of max_batch"
    # With the costs of slow kernels (sse2) nothing that fits takes 5 times as long.
    if [ "$ratio" = 1.3 ] || ! awk -v any="$(value max.json time_ratio_any)" -v ratio="$ratio" 'BEGIN { exit !(any <= ratio) }'; then
        [ "$(value max.json max_batch)" -lt "$(value max.json max_batch_any)" ] || complain "no price was too high"
        awk -v a="$(value max.json time_ratio)" -v b="$(value max.json time_ratio_any)" 'BEGIN { exit !(a > 0 && b > 2 * a) }' ||
            complain "time_ratio $(value max.json time_ratio), at any price $(value max.json time_ratio_any)"
    else
        [ "$(value max.json max_batch)" = "$(value max.json max_batch_any)" ] || complain "a batch within the ratio was refused"
    fi
    grep -q '"ratio_base": "the fastest time per example' max.json || complain "the base of the ratio has no name"
    run 0 --model mobilenet_v2 --image 32 --budget 40MiB --what-fits "${limit[@]}" --json fits.json
    for key in max_batch max_batch_any time_ratio time_ratio_any ratio_base_ms; do
        [ "$(value fits.json $key)" = "$(value max.json $key)" ] || complain "--what-fits has another $key"
    done
done
# Nothing fits: told, status 1, and a JSON object all the same.
for question in --max-batch --what-fits; do
    run 1 --model lenet5 $question --budget 3KiB --json refused.json
    error_has "3072 bytes is too small"
    grep -q '"error": "a budget of 3072 bytes' refused.json || complain "$question: no error in $(cat refused.json)"
    [ "$(value refused.json max_batch)" = 0 ] || complain "$question: something fits 3 KiB"
    [ "$(value refused.json max_batch_any)" = 0 ] || complain "$question: something fits 3 KiB at some price"
    [ "$(value refused.json least_budget_bytes)" -gt 3072 ] || complain "$question: no least"
done
run 2 --model lenet5 --max-ratio 2 --steps 1
error_has "--max-batch or --what-fits"
for wrong in 0.9 nan 2x 0; do
    run 2 --model lenet5 --max-batch --max-ratio $wrong
    error_has "--max-ratio $wrong"
done

[ $failed = 0 ] && echo "prices: all as expected"
exit $failed
