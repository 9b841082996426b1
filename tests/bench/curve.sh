#!/bin/bash
# curve.sh BENCH_STEP [CORE]: memory against time. Exact steps from the fastest down to the least budget, and their honest
# rival: accumulation over slices whose batch norm statistics are their own (--ghost), so other weights. Batch 32. A line a
# plan: slice (where it is largest), all that is planned, activations + gradients + workspace and how many times less than
# policy `none` takes, accumulators (MiB), recomputed steps, predicted time over the fastest's, examples a second of
# processor time (the best of ROUNDS, which alternate between all plans of a network) and that time over the fastest's.
# ROUNDS=3, STEPS=3, NETWORKS=..., SHARES="12 15 20 30": the parts of `none` that budgets are made for.
set -euo pipefail
program=$1
pin=()
[ $# -gt 1 ] && pin=(taskset -c "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
value() { grep -o "\"$2\": *[^,}]*" "$1" | sed 's/.*: *//'; }

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }
mib() { awk -v b="$1" 'BEGIN { printf "%.1f", b / 1048576 }'; }

printf '%-14s %-16s %5s %8s %8s %7s %7s %6s %9s %7s %9s\n' network plan slice planned working less accum. redone predicted \
    ex/s measured
for network in ${NETWORKS:-mobilenet_v2 resnet50}; do
    run=(--model "$network" --image "${IMAGE:-224}" --batch 32 --warmup 1 --steps "${STEPS:-3}" --json)
    "$(dirname "$program")/dunlin-train" --model "$network" --image "${IMAGE:-224}" --classes 1000 --batch 32 --policy none \
        --plan-only --json "$folder/none.json" >"$folder/none.txt"
    "${pin[@]}" "$program" "${run[@]}" --steps 1 >"$folder/first.json"
    none=$(($(value "$folder/none.json" pool_bytes) - 4 * $(value "$folder/none.json" params))) # without accumulators
    least=$(value "$folder/first.json" least_budget_bytes)
    rest=$(($(value "$folder/first.json" planned_bytes) - $(value "$folder/first.json" working_bytes)))
    printf '%-14s %-16s %5s %8s %8s\n' "$network" none 32 "$(mib "$(value "$folder/none.json" planned_bytes)")" "$(mib "$none")"
    plans=("exact, fastest|")
    for share in ${SHARES:-12 15 20 30}; do
        budget=$((none / share + rest))
        [ $budget -le "$least" ] || plans+=("exact, 1/$share|--budget $budget")
    done
    plans+=("exact, least|--budget $least"
        "ghost 8|--ghost --micro-batch 8"
        "ghost 4|--ghost --micro-batch 4"
        "ghost 1|--ghost --micro-batch 1")
    for ((round = 0; round < ${ROUNDS:-3}; round++)); do
        for i in "${!plans[@]}"; do
            read -r -a flags <<<"${plans[$i]#*|}"
            "${pin[@]}" "$program" "${run[@]}" "${flags[@]}" >"$folder/out.json"
            best=$(cat "$folder/best.$i" 2>/dev/null || echo 0)
            value "$folder/out.json" cpu_sps | awk -v best="$best" '{ print ($1 > best ? $1 : best) }' >"$folder/next"
            mv "$folder/next" "$folder/best.$i"
            mv "$folder/out.json" "$folder/out.$i"
        done
    done
    for i in "${!plans[@]}"; do
        out=$folder/out.$i
        printf '%-14s %-16s %5s %8s %8s %7s %7s %6s %9s %7.2f %9s\n' "$network" "${plans[$i]%|*}" \
            "$(value "$out" micro_batch)" "$(mib "$(value "$out" planned_bytes)")" "$(mib "$(value "$out" working_bytes)")" \
            "$(ratio "$none" "$(value "$out" working_bytes)")x" "$(mib "$(value "$out" accumulator_bytes)")" \
            "$(value "$out" n_recomputed)" \
            "$(ratio "$(value "$out" predicted_ms)" "$(value "$folder/out.0" predicted_ms)")" "$(cat "$folder/best.$i")" \
            "$(ratio "$(cat "$folder/best.0")" "$(cat "$folder/best.$i")")"
    done
    rm -f "$folder"/best.*
done
