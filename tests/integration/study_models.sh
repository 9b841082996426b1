#!/bin/bash
# dunlin-study over networks and data that are not its own: outputs as many as the data have classes, images as large as a
# network takes, each kind of network with examples that it takes, fleets whose settings do not fit, a phone's battery.
# study_models.sh BIN-FOLDER
set -euo pipefail
. "$(dirname "$0")/study_tools.sh"

study() {
    "$bin/dunlin-study" "$@" --quick --seeds 1 --no-times --swap-dir /var/tmp >>"$work/out"
}

# values FILE COLUMN: the values of a column, one a line.
values() {
    python3 -c 'import csv, sys
for row in csv.DictReader(open(sys.argv[1])):
    print(row[sys.argv[2]])' "$1" "$2"
}

# A folder of data with a CIFAR-10 of 60 and 20 examples.
mkdir -p "$work/data/cifar10"
python3 - "$work/data/cifar10" <<'END'
import gzip, random, sys
random.seed(1)
for name, n in (("cifar10-jpeg5k-train", 60), ("cifar10-jpeg1k-test", 20)):
    with gzip.open(f"{sys.argv[1]}/{name}.bin.gz", "wb") as file:
        for i in range(n):
            file.write(bytes([i % 10]) + random.randbytes(3072))
END
small="--dataset cifar10 --data $work/data --batches 8 --epochs 1"

# Ten classes: ten outputs, whether the data set is named or is the network's own; as many as are asked for.
study convergence --models squeezenet1_1 $small --out "$work/ten"
study convergence --models squeezenet1_1 --data "$work/data" --batches 8 --epochs 1 --out "$work/own"
study convergence --models squeezenet1_1 $small --classes 1000 --out "$work/thousand"
[ "$(values "$work/ten/convergence.csv" test_loss)" = "$(values "$work/own/convergence.csv" test_loss)" ] ||
    fail "another network where the data set is named"
python3 - "$(values "$work/ten/convergence.csv" test_loss)" "$(values "$work/thousand/convergence.csv" test_loss)" <<'END' || fail "outputs"
import math, sys
ten, thousand = map(float, sys.argv[1:])
assert abs(ten - math.log(10)) < 0.7 and thousand > math.log(10) + 0.7, (ten, thousand)
END
# Rows of another number of outputs are not taken for these.
study convergence --models squeezenet1_1 $small --classes 1000 --out "$work/ten" --resume
grep -q " 0 of 1 parts kept" "$work/out" && cmp -s "$work/ten/convergence.csv" "$work/thousand/convergence.csv" || fail "rows of other outputs"
study max-batch --models squeezenet1_1 --dataset cifar10 --data "$work/data" --policies none --budgets none:4 --out "$work/ten"
study max-batch --models squeezenet1_1 --dataset cifar10 --data "$work/data" --classes 1000 --policies none --budgets none:4 --out "$work/thousand"
[ "$(values "$work/ten/max-batch.csv" budget_bytes)" -lt "$(values "$work/thousand/max-batch.csv" budget_bytes)" ] || fail "plans do not know the outputs"
expect 1 "has 10 classes, squeezenet1_1 5 outputs" "$bin/dunlin-study" convergence --models squeezenet1_1 $small --classes 5 --out "$work/x"
expect 2 "classes: a fleet's network has as many outputs as its data" "$bin/dunlin-study" federated --models lenet5 --classes 5 --out "$work/x"
expect 2 "classes" "$bin/dunlin-study" curve --classes 1 --out "$work/x"

# AlexNet has no window for 32 pixels: it takes 64, unless a size is asked for.
study max-batch --models alexnet,squeezenet1_1 --dataset cifar10 --data "$work/data" --policies none --budgets 100% --out "$work/large"
[ "$(values "$work/large/max-batch.csv" image | tr '\n' ' ')" = "64 32 " ] || fail "sizes: $(values "$work/large/max-batch.csv" image)"
expect 1 "alexnet: node .* the window spans" "$bin/dunlin-study" max-batch --models alexnet --dataset cifar10 --data "$work/data" --image 32 --policies none \
    --budgets 100% --out "$work/x"

# A list of rates that grows: what was run before stays, and says of the new list whether its rate is at an end.
grid="--models lenet5 --dataset synthetic --batches 8 --policies auto --budgets 100% --epochs 1 --max-examples 240 --validation 40 --out $work/rates"
study convergence $grid --lr 0.02,0.04
study convergence $grid --lr 0.001,0.02,0.04,10 --resume
rate=$(values "$work/rates/convergence_summary.csv" lr)
[ "$rate" = 0.02 ] || [ "$rate" = 0.04 ] || fail "the best rate is $rate"
[ "$(values "$work/rates/convergence_summary.csv" rate_is_edge)" = 0 ] || fail "a rate in the middle of the list is said to be at its end"

# Each kind of network on examples that it takes, where none are named.
study convergence --models gpt_tiny,unet_small,siamese --batches 8 --epochs 1 --max-examples 24 --out "$work/kinds"
[ "$(values "$work/kinds/convergence.csv" dataset | tr '\n' ';')" = "made text;made images of shapes;made pairs of images;" ] ||
    fail "data of kinds: $(values "$work/kinds/convergence.csv" dataset)"
study federated --models siamese,unet_small --lr 0.02 --batches 8 --rounds 1 --clients 2 --max-examples 32 --partition iid --out "$work/kinds"
[ "$(values "$work/kinds/federated.csv" dataset | tr '
' ';')" = "made pairs of images;made images of shapes;" ] ||
    fail "data of kinds of fleets: $(values "$work/kinds/federated.csv" dataset)"
expect 1 "gpt_tiny learns from 64 labels an example, and random numbers has 1" "$bin/dunlin-fleet" --serve --model gpt_tiny --dataset random \
    --clients 2 --rounds 1 --max-examples 32
expect 2 "nothing is left to do: --data synthetic: nothing that har_fcn takes" "$bin/dunlin-study" convergence --models har_fcn --quick --out "$work/x"

# A fleet at another size, where one setting does not fit: all of it is on one data set, and without --target no run is at any.
study federated --models lenet5 --image 32 --budgets none:8 --policies none,auto --batches 8,32 --lr 0.05 --rounds 2 --clients 2 --max-examples 120 \
    --partition iid --out "$work/fleet"
[ "$(values "$work/fleet/federated.csv" dataset | sort -u | wc -l)" = 1 ] || fail "a setting that does not fit is of another data set"
[ "$(values "$work/fleet/federated.csv" end | sort -u | tr '\n' ';')" = ";does not fit;" ] ||
    fail "ends: $(values "$work/fleet/federated.csv" end | sort -u | tr '\n' ';')"
values "$work/fleet/federated_runs.csv" operand_bytes | grep '^[1-9]' >/dev/null || fail "a fleet tells no bytes that it moved"
[ -z "$(values "$work/fleet/federated.csv" target | tr -d '\n')" ] || fail "a target that nobody gave"
values "$work/fleet/federated.csv" is_reached | grep -q 1 && fail "a target that nobody gave is reached"
study federated --models lenet5 --lr 0.05 --batches 8 --rounds 1 --clients 2 --max-examples 120 --partition iid --budgets none:8 --out "$work/fleet28"
[ "$(values "$work/fleet/federated.csv" budget_bytes | sort -u | tail -1)" -gt "$(values "$work/fleet28/federated.csv" budget_bytes | sort -u | tail -1)" ] ||
    fail "--image is nothing to a fleet"
expect 2 "image 32: --dataset made_text has no images" "$bin/dunlin-fleet" --serve --model gpt_tiny --dataset made_text --image 32
expect 2 "image" "$bin/dunlin-fleet" --serve --image 4

# A battery that counts charge alone tells joules while it is discharged; one that is charged tells nothing.
battery="$work/sys/power_supply/battery"
mkdir -p "$battery"
echo Discharging >"$battery/status"
echo 3000000 >"$battery/charge_counter"
echo 3800000 >"$battery/voltage_now"
energy() {
    "$bin/dunlin-study" convergence --models lenet5 --data synthetic --quick --batches 8 --lr 0.05 --epochs 1 --max-examples 40 --seeds 1 \
        --energy "$work/sys" --swap-dir /var/tmp --out "$1" >>"$work/out"
    values "$1/convergence_runs.csv" energy_j
}
[ "$(energy "$work/e1")" = 0 ] || fail "a battery whose charge stands still: $(values "$work/e1/convergence_runs.csv" energy_j)"
echo Charging >"$battery/status"
[ -z "$(energy "$work/e2")" ] || fail "joules of a battery that is charged"
echo "study_models.sh: ok"
