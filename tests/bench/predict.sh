#!/bin/bash
# predict.sh BENCH_STEP [CORE]: predicted against measured step time, for ready-made networks at several budgets.
# Costs are measured once a network and kept for its budgets. Times are processor time (one thread).
# Prints a line a step, and the median of the relative errors, by measured costs and by the roofline.
set -euo pipefail
program=$1
pin=()
[ $# -gt 1 ] && pin=(taskset -c "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
value() { grep -o "\"$2\": *[^,}]*" "$1" | sed 's/.*: *//'; }
bench() { "${pin[@]}" "$program" "$@" --json >"$folder/out.json"; }

printf '%-16s %5s %6s %9s %6s %10s %10s %7s %10s %7s\n' network image batch MiB slice 'measured ms' 'by costs' error 'roofline' error
while read -r model image batch steps; do
    size=()
    [ "$image" -gt 0 ] && size=(--image "$image")
    run=(--model "$model" "${size[@]}" --batch "$batch" --warmup 1 --steps "$steps")
    bench "${run[@]}" --costs "$folder/$model.$image.costs" --steps 2
    least=$(value "$folder/out.json" least_budget_bytes)
    planned=$(value "$folder/out.json" planned_bytes)
    last=0
    for part in 100 50 25 10 0; do
        budget=$((least + (planned - least) / 100 * part))
        [ $part = 100 ] && budget=$planned
        bench "${run[@]}" --costs "$folder/$model.$image.costs" --budget "$budget"
        by_costs=$(value "$folder/out.json" predicted_ms)
        measured=$(value "$folder/out.json" cpu_ms)
        slice=$(value "$folder/out.json" micro_batch)
        made=$(value "$folder/out.json" planned_bytes)
        # The same plan need not be timed twice.
        [ "$made" = "$last" ] && continue
        last=$made
        # By other costs the least budget may be another.
        roofline=-
        bench "${run[@]}" --budget "$budget" --steps 2 2>/dev/null && roofline=$(value "$folder/out.json" predicted_ms)
        awk -v m="$model" -v i="$image" -v b="$batch" -v bytes="$made" -v s="$slice" -v t="$measured" -v p="$by_costs" \
            -v r="$roofline" 'BEGIN {
                printf "%-16s %5d %6d %9.1f %6d %11.2f %10.2f %+6.1f%%", m, i, b, bytes / 1048576, s, t, p, 100 * (p / t - 1)
                if (r == "-") { print "          -       -" } else { printf " %10.2f %+6.1f%%\n", r, 100 * (r / t - 1) } }' |
            tee -a "$folder/lines"
    done
done <<'END'
lenet5 0 64 40
cnn_bn 0 64 20
mobilenet_v2 96 32 4
mobilenet_v2 224 16 3
mobilenet_v1 128 16 4
resnet18 96 16 3
resnet50 64 16 3
densenet121 64 16 3
squeezenet1_1 128 16 3
vgg16 32 8 3
bert_small 0 8 3
END
for column in 8 10; do
    awk -v c=$column '$c != "-" { e = $c; sub(/%/, "", e); e += 0; print e < 0 ? -e : e }' "$folder/lines" | sort -g |
        awk -v name="$([ $column = 8 ] && echo 'measured costs' || echo roofline)" '{ e[NR] = $1 }
            END { printf "median error, %s: %.1f %% over %d steps; within 10 %%: ", name, e[int((NR + 1) / 2)], NR
                  for (i = 1; i <= NR; i++) n += e[i] <= 10; print n + 0 }'
done
