#!/bin/sh
# plan_table.sh - what planning MobileNetV2 (224 x 224, exact batch norm) comes to at a row of
# budgets and batches: time against the ideal, and milliseconds of all planning for a trainer.
# Before and after a change of the search: plan_table.sh OLD/dunlin-train; plan_table.sh NEW/dunlin-train
set -eu
train=${1:?"usage: plan_table.sh PATH/dunlin-train"}

row() {
    "$train" --model mobilenet_v2 --image 224 --classes 1000 --batch "$1" --budget "$2" \
        --plan-only | awk -v batch="$1" -v budget="$2" '
        / ms to plan/ { sub(/ ms to plan.*/, ""); ms = $NF }
        / here / { ratio = $(NF - 1) }
        END { printf "%s,%s,%s,%s\n", batch, budget, ratio, ms }'
}

echo "batch,budget,time_over_ideal,plan_ms"
for budget in 450MiB 300MiB 244MiB 200MiB 176MiB 150MiB; do
    row 32 "$budget"
done
for batch in 650 1000 1368 1500; do
    row "$batch" 5500MB
done
