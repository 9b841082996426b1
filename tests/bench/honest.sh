#!/bin/bash
# Is the budget the truth? For ready-made networks at budgets from the least that works to what the plain step takes,
# the process's own high-water mark, from just before the trainer is made, is at most the budget + 4 MiB.
# honest.sh BENCH_STEP [quick]: prints a line a run; `quick` has two networks at small images, for ctest.
set -uo pipefail
program=$(realpath "$1")
if grep -qa -e __asan_init -e __tsan_init "$program"; then
    echo "skipped: a sanitizer's own memory cannot be separated"
    exit 77
fi
limit=$((4 * 1024 * 1024))
failed=0

# value KEY: a number of the flat JSON object in $line.
value() {
    sed -n "s/.*\"$1\": \([0-9.]*\)[,}].*/\1/p" <<<"$line"
}

# row BUDGET: one run within it, judged.
row() {
    local budget=$1 over verdict=ok
    line=$("$program" "${run[@]}" --budget "$budget" --json) || { failed=1; echo "FAILED: ${run[*]} --budget $budget"; return; }
    over=$(($(value growth_bytes) - budget))
    if [ "$over" -gt $limit ] || [ "$(value peak_bytes)" -gt "$budget" ]; then
        failed=1
        verdict=FAILED
    fi
    awk -v model="$model" -v image="$image" -v batch="$batch" -v threads="$threads" -v budget="$budget" \
        -v used="$(value peak_bytes)" -v grew="$(value growth_bytes)" -v over="$over" -v slice="$(value micro_batch)" \
        -v redone="$(value n_recomputed)" -v verdict=$verdict 'BEGIN { m = 1048576
            printf "%-14s %5d %5d %7d %9.2f %9.2f %9.2f %+9.2f %5d %6d  %s\n", model, image, batch, threads,
                budget / m, used / m, grew / m, over / m, slice, redone, verdict }'
}

rows() {
    if [ "$1" = quick ]; then
        printf '%s\n' 'mobilenet_v2 64 8 1' 'squeezenet1_1 64 8 2'
        return
    fi
    cat <<'ROWS'
lenet5 28 64 1
mobilenet_v1 224 8 1
mobilenet_v2 224 8 1
mobilenet_v2 224 8 2
squeezenet1_1 224 8 1
resnet18 224 8 1
resnet50 224 8 1
resnet50 224 8 2
densenet121 224 4 1
vgg16 224 4 1
bert_small 0 4 1
ROWS
}

printf '%-14s %5s %5s %7s %9s %9s %9s %9s %5s %6s\n' network image batch threads budget used grew over slice redone
while read -r model image batch threads; do
    size=()
    [ "$image" -gt 0 ] && size=(--image "$image" --classes 10)
    run=(--model "$model" "${size[@]}" --batch "$batch" --threads "$threads" --steps 1 --warmup 1)
    line=$("$program" "${run[@]}" --json) || { failed=1; echo "FAILED: ${run[*]}"; continue; }
    least=$(value least_budget_bytes)
    plain=$(value planned_bytes)
    [ "$plain" -lt "$least" ] && plain=$least
    for part in 0 5 50 100; do
        row $((least + (plain - least) * part / 100))
    done
done < <(rows "${2:-all}")
exit $failed
