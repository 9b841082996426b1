#!/bin/bash
# dunlin-train as a user meets it: flags, exit statuses, one-line errors, JSON, budgets, resuming, files that are whole
# or not there. train.sh PROGRAM
. "$(dirname "$0")/train_lib.sh"

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
for flag in "--swap-dir ." "--swap-speed 100:200" "--policy vdnn --swap-speed 100" "--policy vdnn --swap-speed 0:1" \
    "--policy capuchin --swap-speed 1:2:3" "--policy capuchin --swap-speed fast"; do
    # shellcheck disable=SC2086
    run 2 --model lenet5 $flag
    error_has "--swap"
done
for flag in "--policy x" "--lr-decay x" "--optimizer x" "--batch 0" "--batch x" "--batch 1x" "--epochs -1" "--lr nan" "--lr" \
    "--budget 0" "--budget 12XB" "--nothing" "word" "--eval=1" "--dataset x" "--data synthetic --dataset mnist" \
    "--micro-batch 64" "--plan-dump p.png" "--save p.pt" "--momentum 1" "--nesterov --momentum 0" \
    "--policy pool --micro-batch 4" "--schedule x" "--schedule cosine --lr-decay none" "--loss x" "--label-smoothing 1" \
    "--loss mse --label-smoothing 0.1" "--optimizer adam --momentum 0.9" "--optimizer adamw --nesterov" "--beta1 0.8" \
    "--gamma 0.5" "--schedule step --min-lr 0.1" "--schedule cosine --lr-period 3" "--clip-norm 0" "--clip-value -1" \
    "--warmup -1" "--budget-at 1" "--budget-at 1.101:2MiB" "--budget-at x:2MiB" "--budget-trace nowhere" \
    "--budget-at 1:2MiB --budget-trace step.trace"; do
    # shellcheck disable=SC2086
    run 2 --model lenet5 $flag
done

# Any network can be stepped on random numbers in its own shape; the seed decides which.
for model in lenet5 har_mlp "squeezenet1_1 --image 32"; do
    # shellcheck disable=SC2086
    run 0 --model $model --dataset random --steps 2 --batch 4 --max-examples 12 --eval --seed 5 --json a.json
    # shellcheck disable=SC2086
    run 0 --model $model --dataset random --steps 2 --batch 4 --max-examples 12 --seed 5 --json b.json
    # shellcheck disable=SC2086
    run 0 --model $model --dataset random --steps 2 --batch 4 --max-examples 12 --seed 6 --json c.json
    [ "$(value a.json weights_hash)" = "$(value b.json weights_hash)" ] || complain "random numbers do not repeat"
    [ "$(value a.json data_sha256)" = "$(value b.json data_sha256)" ] || complain "the hash of random numbers does not repeat"
    [ "$(value a.json data_sha256)" != "$(value c.json data_sha256)" ] || complain "the seed does not change random numbers"
done

# A user's own tables: the same numbers with a header or without, and with other separators, are the same weights; the
# split does not depend on the seed of the run.
for i in $(seq 0 59); do echo "$((i % 7)),$((i * i % 11)),$((i % 3))"; done >plain.csv
{ echo "a;b;kind"; tr , ';' <plain.csv; } >named.csv
run 0 --model har_mlp --dataset csv:plain.csv --steps 5 --batch 8 --seed 2 --eval --json a.json
grep -qF "12 of 60 examples are held out for testing, drawn with seed 0" out || complain "the split is not told"
run 0 --model har_mlp --dataset csv:named.csv,label=kind --steps 5 --batch 8 --seed 2 --eval --json b.json
[ "$(value a.json weights_hash)" = "$(value b.json weights_hash)" ] || complain "a header changes the weights"
run 0 --model har_mlp --dataset csv:plain.csv --steps 5 --batch 8 --seed 9 --json c.json
[ "$(value a.json data_sha256)" = "$(value c.json data_sha256)" ] || complain "the seed of a run changes the split"
run 1 --model har_mlp --dataset csv:named.csv,label=sort --steps 1
error_has "no column is called \"sort\""
run 1 --model lenet5 --dataset folder:nowhere --steps 1
error_has nowhere
run 2 --model har_mlp --dataset cvs:plain.csv
error_has csv:FILE

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
    samples_per_s rss_peak_bytes rss_growth_bytes anon_growth_bytes file_growth_bytes cgroup_peak_bytes loss_first loss_last threads isa n_sliced ghost costs predicted_ms; do
    grep -q "\"$key\":" whole.json || complain "the JSON has no $key"
done
[ "$(value whole.json steps)" = 12 ] || complain "12 steps were asked for: $(value whole.json steps)"
[ "$(value whole.json planned_bytes)" = "$(value whole.json peak_bytes)" ] || complain "planned is not peak"
hash=$(value whole.json weights_hash)
# shellcheck disable=SC2086
run 0 $small --steps 12 --threads 2 --json threads.json
[ "$(value threads.json weights_hash)" = "$hash" ] || complain "two threads give other weights"
# shellcheck disable=SC2086
run 0 $small --plan-only --json least.json
least=$(value least.json least_budget_bytes)
planned=$(value whole.json planned_bytes)
constant=4194304 # code, stack and tables of the C library that a run touches for the first time: as the system maps them
own=1048576      # stacks and the C library's tables: what is anonymous beside the plan
grep -qa __asan_init "$program" && constant=$((1 << 40)) && own=$constant # a sanitizer's own memory cannot be separated
for budget in "$least" $(((3 * least + planned) / 4)) $(((least + planned) / 2)) "$planned"; do
    # shellcheck disable=SC2086
    run 0 $small --steps 12 --budget "$budget" --json budget.json
    [ "$(value budget.json weights_hash)" = "$hash" ] || complain "budget $budget gives other weights"
    [ "$(value budget.json peak_bytes)" -le "$budget" ] || complain "budget $budget is passed"
    [ "$(value budget.json rss_growth_bytes)" -le $((budget + constant)) ] ||
        complain "at budget $budget the process grew by $(value budget.json rss_growth_bytes)"
    [ "$(value budget.json anon_growth_bytes)" -le $(($(value budget.json planned_bytes) + own)) ] ||
        complain "at budget $budget the process holds $(value budget.json anon_growth_bytes) bytes more of its own"
done
grep -q '"cgroup_peak_bytes": \(null\|[1-9]\)' budget.json || complain "cgroup_peak_bytes is neither a number nor null"
# shellcheck disable=SC2086
run 1 $small --steps 1 --budget $((least - 1)) --json none.json
error_has "$least"
grep -q "\"status\": \"BUDGET\"" none.json && grep -q "\"error\": .*$least" none.json || complain "a refused run does not say why: $(cat none.json)"

# Ghost statistics: without batch norm nothing changes, and it says so; with it, other weights.
# shellcheck disable=SC2086
run 0 $small --steps 12 --ghost --json ghost.json
[ "$(value ghost.json weights_hash)" = "$hash" ] || complain "--ghost changes a model without batch norm"
[ "$(value ghost.json ghost)" = false ] || complain "--ghost is said to do something without batch norm"
grep -q "no batch norm takes statistics" out || complain "nobody says that --ghost changes nothing"
norm="--model mobilenet_v2 --image 32 --batch 6 --steps 1 --max-examples 12 --lr 0.001"
# shellcheck disable=SC2086
run 1 $norm --policy microbatch --micro-batch 2
error_has "ghost statistics"
# shellcheck disable=SC2086
run 0 $norm --ghost --micro-batch 2 --json ghost.json
[ "$(value ghost.json ghost)" = true ] || complain "--ghost is not marked"
[ "$(value ghost.json n_slices)" = 3 ] || complain "slices of 2 of 6: $(value ghost.json n_slices)"
grep -q "52  batch norms, statistics of each slice alone" out || complain "the plan does not tell of --ghost"
# shellcheck disable=SC2086
{
    run 0 $norm --ghost --micro-batch 2 --plan-only --json least.json
    run 0 $norm --ghost --micro-batch 2 --policy recompute --budget $(($(value least.json least_budget_bytes) + (1 << 20))) --json again.json
}
[ "$(value ghost.json weights_hash)" = "$(value again.json weights_hash)" ] || complain "a policy changes ghosts"
# shellcheck disable=SC2086
run 0 $norm --json exact.json
[ "$(value ghost.json weights_hash)" != "$(value exact.json weights_hash)" ] || complain "--ghost does nothing"
run 0 --model cnn_bn --batch 6 --ghost --micro-batch 2 --max-batch --max-ratio any --budget 100MiB
grep -q "largest batch: unbounded" out || complain "--max-batch with --ghost: $(head -1 out)"
run 0 --model cnn_bn --batch 6 --ghost --what-fits --budget 64MiB,128MiB
[ "$(grep -c "MiB  *any" out)" = 2 ] || complain "--what-fits with --ghost: $(cat out)"

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
# shellcheck disable=SC2086
run 0 $small $drawn --prefetch 256KiB --prefetch-threads 3 --json threads.json
[ "$(value drawn.json weights_hash)" = "$(value threads.json weights_hash)" ] || complain "--prefetch-threads changes the weights"
[ "$(value threads.json pipeline_threads)" = 3 ] || complain "pipeline_threads: $(value threads.json pipeline_threads)"
reads=$(($(value threads.json pipeline_ready) + $(value threads.json pipeline_waited) + $(value threads.json pipeline_direct)))
[ $reads -ge "$(value threads.json examples)" ] || complain "$reads reads of $(value threads.json examples) examples"
awk "BEGIN { exit !($(value threads.json pipeline_waited_share) < 1 && $(value threads.json pipeline_direct_ms) > 0) }" ||
    complain "pipeline_waited_share, pipeline_direct_ms: $(grep pipeline_ threads.json)"
[ "$(value drawn.json pipeline_threads)" = 0 ] || complain "threads of a pipeline that has none"
# shellcheck disable=SC2086
run 2 $small --prefetch 256KiB --prefetch-threads 17
[ "$(value drawn.json weights_hash)" != "$hash" ] || complain "the pipeline does nothing"
[ "$(value whole.json pipeline_bytes)" = 0 ] || complain "bytes of a pipeline that is none"
[ "$(value ahead.json pipeline_bytes)" -gt "$(value drawn.json pipeline_bytes)" ] || complain "reading ahead takes no bytes"
[ "$(value ahead.json planned_bytes)" = "$(value drawn.json planned_bytes)" ] || complain "reading ahead is in the plan"
[ "$(value ahead.json rss_growth_bytes)" -le $(($(value ahead.json peak_bytes) + constant + 262144)) ] ||
    complain "reading ahead has grown the process by $(value ahead.json rss_growth_bytes)"
# shellcheck disable=SC2086
run 0 $small $drawn --border zero --json zero.json
[ "$(value zero.json weights_hash)" = "$(value drawn.json weights_hash)" ] || complain "--border zero is not what it is without"
# shellcheck disable=SC2086
run 0 $small $drawn --border mean --json mean.json
[ "$(value mean.json weights_hash)" != "$(value drawn.json weights_hash)" ] || complain "--border mean does nothing"
# shellcheck disable=SC2086
run 2 $small --steps 1 --border mean
error_has "--border without --random-crop"
# shellcheck disable=SC2086
run 2 $small --steps 1 --random-crop 1 --border grey
error_has "--border grey: zero or mean"
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

# A budget that changes, in the middle of steps and by the clock: the same weights; too low a one is refused.
# shellcheck disable=SC2086
run 0 $small --steps 12 --budget-at 1.30:1250KiB,2.60:1150KiB,4:2MiB,6.90:1150KiB --json moments.json
[ "$(value moments.json weights_hash)" = "$hash" ] || complain "a budget that changes changes the weights"
[ "$(grep -c '"reach_ms"' moments.json)" -ge 3 ] || complain "changes of the budget are not reported"
printf '# seconds bytes\n0 1150KiB\n0.01 2MiB\n0.02 1250KiB\n' >step.trace
# shellcheck disable=SC2086
run 0 $small --steps 12 --budget-trace step.trace --json trace.json
[ "$(value trace.json weights_hash)" = "$hash" ] || complain "a trace of budgets changes the weights"
# shellcheck disable=SC2086
run 1 $small --steps 2 --budget-at 1:100KiB
error_has "the least that works"
printf '1 1MiB\n0 2MiB\n' >wrong.trace
# shellcheck disable=SC2086
run 2 $small --budget-trace wrong.trace
error_has "line 2"

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
[ "$(wc -l <plan.txt)" -gt 10 ] || complain "plan.txt is not in lines"

# Costs: measured and written, then used; refused for another step, or when they are damaged.
grep -q '"costs": "roofline"' plan.json || complain "a plan without --costs is not by the roofline"
# shellcheck disable=SC2086
run 0 $small --steps 12 --costs step.costs --json costs.json
grep -q '"costs": "measured"' costs.json || complain "costs were not measured"
[ "$(value costs.json weights_hash)" = "$hash" ] || complain "costs change weights"
# shellcheck disable=SC2086
run 0 $small --steps 12 --costs step.costs --json costs.json --policy pool
grep -q '"costs": "step.costs"' costs.json || complain "costs were not read"
[ "$(value costs.json weights_hash)" = "$hash" ] || complain "costs change weights"
# shellcheck disable=SC2086
run 1 $small --plan-only --costs step.costs --threads 2
error_has "measured with 1 threads"
# shellcheck disable=SC2086
run 1 $small --plan-only --costs step.costs --optimizer adam
error_has "another optimiser"
# A digit more: a slice of the first layer may have been measured as any number, 1 too.
sed "s/^conv /conv 9/" step.costs >edited.costs
# shellcheck disable=SC2086
run 1 $small --plan-only --costs edited.costs
error_has "edited.costs: the last line is not the checksum"
# The plan in words: within 100 columns, and what the JSON says.
run 0 --model lenet5 --plan-only --budget 1MiB --json plan.json
[ "$(awk '{ if (length > n) n = length } END { print n }' out)" -le 100 ] || complain "the plan is wider than 100 columns"
for word in weights activations limit least floor kept recomputed slices ideal; do
    grep -q "^ *$word " out || complain "the plan does not tell of $word"
done
[ "$(value plan.json floor_bytes)" -lt "$(value plan.json least_budget_bytes)" ] || complain "the floor is above the least"
awk -v p="$(value plan.json predicted_ms)" -v i="$(value plan.json ideal_ms)" 'BEGIN { exit !(p > i && i > 0) }' ||
    complain "a small budget costs no time"

# Plans that are kept: the same result; a damaged file is reported and replaced.
# shellcheck disable=SC2086
run 0 $small --steps 12 --budget "$planned" --json kept.json
for kept in false true; do
    # shellcheck disable=SC2086
    run 0 $small --steps 12 --budget "$planned" --cache plans --json cache.json
    grep -q "\"plan_kept\": $kept" cache.json || complain "--cache: plan_kept is not $kept"
    for key in weights_hash planned_bytes peak_bytes micro_batch predicted_ms; do
        [ "$(value cache.json $key)" = "$(value kept.json $key)" ] || complain "--cache changes $key"
    done
done
printf x >>plans/*.plan
# shellcheck disable=SC2086
run 0 $small --steps 1 --budget "$planned" --cache plans --json cache.json
grep -q "is not used" err || complain "a damaged plan was not reported"
grep -q '"plan_kept": false' cache.json || complain "a damaged plan was used"

# Features: a table made here, of two activities that X0 tells apart; damage names file and line, images are asked elsewhere.
mkdir wisdm
awk 'BEGIN {
    srand(1)
    names = "XAVG YAVG ZAVG XPEAK YPEAK ZPEAK XABSOLDEV YABSOLDEV ZABSOLDEV XSTANDDEV YSTANDDEV ZSTANDDEV RESULTANT"
    printf "user"
    for (i = 0; i < 30; i++) printf ",%s%d", substr("XYZ", int(i / 10) + 1, 1), i % 10
    n = split(names, tail, " ")
    for (i = 1; i <= n; i++) printf ",%s", tail[i]
    print ",class"
    for (row = 0; row < 400; row++) {
        is_jogging = rand() < 0.5
        printf "%d,%f", row % 8 + 1, is_jogging + rand() / 2
        for (i = 1; i < 43; i++) printf rand() < 0.05 ? ",?" : ",%f", rand()
        print is_jogging ? ",Jogging" : ",Walking"
    }
}' >wisdm/WISDM_ar_v1.1_transformed.csv
features="--dataset wisdm --data $folder --batch 16 --seed 3"
# shellcheck disable=SC2086
{
    run 0 --model har_mlp $features --epochs 8 --eval
    awk '$1 == "test" && $2 == "accuracy" { found = 1; good = $3 > 90 } END { exit !(found && good) }' out ||
        complain "features are not learnt: $(grep accuracy out)"
    run 1 --model lenet5 $features --epochs 1
    run 1 --model mlp --image 28 $features --epochs 1
    error_has "--model har_mlp"
    run 2 --model har_mlp $features --flip
    error_has "--dataset wisdm has none"
    sed -i '9s/Walking\|Jogging/Flying/' wisdm/*.csv
    run 1 --model har_mlp $features --epochs 1
    error_has 'transformed.csv:9: activity "Flying"'
}
run 1 --model har_mlp --dataset spsw_har --data "$folder" --epochs 1
error_has "tar xJf"

# Paths that cannot be written: one line, no file is left.
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

# A policy that swaps, at the least budget: the weights of the plain step, bytes counted, nothing left in the folder.
run 0 $small --steps 2 --policy pool --json pool.json
run 1 $small --steps 2 --policy vdnn --budget 1
least=$(sed -n 's/.* the least that works is \([0-9]*\) bytes.*/\1/p' err)
swaps=$(mktemp -d -p /var/tmp) # not in memory
run 0 $small --steps 2 --policy vdnn --budget "$least" --swap-dir "$swaps" --swap-speed 100:200 --json swaps.json
[ "$(value swaps.json weights_hash)" = "$(value pool.json weights_hash)" ] || complain "swaps change the weights"
[ "$(value swaps.json swapped_out_bytes)" = $((2 * $(value swaps.json swap_out_bytes))) ] || complain "bytes are not those of two steps"
[ "$(value swaps.json swap_out_bytes)" -gt 0 ] || complain "nothing was swapped"
rmdir "$swaps" || complain "swaps left files"
run 1 $small --steps 2 --policy vdnn --budget "$least" --swap-dir nowhere
error_has "nowhere"

# Two images an example; outputs by name.
run 0 --model siamese --dataset pairs --max-examples 96 --batch 16 --steps 4 --eval --json pairs.json
[ -n "$(value pairs.json test_accuracy)" ] || complain "pairs were not evaluated"
run 1 --model siamese --dataset shapes --steps 1
run 1 --model lenet5 --dataset pairs --steps 1
error_has "pairs are two square images"
# shellcheck disable=SC2086
run 0 $small --steps 2 --outputs classifier.5/out=0.5 --json half.json
# shellcheck disable=SC2086
run 0 $small --steps 2 --json whole.json
[ "$(value half.json weights_hash)" != "$(value whole.json weights_hash)" ] || complain "a weight of 0.5 changes nothing"
# shellcheck disable=SC2086
run 1 $small --steps 1 --outputs other
error_has '"other" is none of the model'
# shellcheck disable=SC2086
run 2 $small --steps 1 --outputs other=x
error_has "expected a weight"
# shellcheck disable=SC2086
run 2 $small --steps 1 --outputs a,,b
error_has "a name is empty"

[ $failed = 0 ] && echo "dunlin-train: all as expected"
exit $failed
