#!/bin/bash
# Hidden memory: the process's own high-water mark over create, steps and evaluations agrees with the trainer's report
# within 4 MiB, for several networks and numbers of threads. resident.sh BENCH_STEP
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
    sed -n "s/.*\"$1\": \([0-9]*\)[,}].*/\1/p" <<<"$line"
}

while read -r model image batch threads budget; do
    line=$("$program" --model "$model" --image "$image" --classes 10 --batch "$batch" --threads "$threads" \
        --steps 2 --warmup 1 --json ${budget:+--budget "$budget"}) || { failed=1; echo "FAILED: $model"; continue; }
    off=$(($(value growth_bytes) - $(value peak_bytes)))
    echo "$model $image b$batch, $threads thread(s): report $(value peak_bytes), process $off more"
    if [ "$off" -gt $limit ] || [ "$off" -lt $((-limit)) ] || [ "$(value peak_bytes)" != "$(value planned_bytes)" ]; then
        echo "FAILED: $model: $line"
        failed=1
    fi
done <<'ROWS'
lenet5 28 32 1
lenet5 28 256 4
lenet5 28 256 1 2MiB
mobilenet_v2 64 4 1
mobilenet_v2 64 4 2
squeezenet1_1 64 4 1
resnet18 32 4 2
densenet121 32 2 1
ROWS
exit $failed
