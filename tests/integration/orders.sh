#!/bin/bash
# What a round's plan orders, from dunlin-fleet's flags to the devices and back: the steps are those that were asked for,
# at any thread count, and what does not fit is refused in one line. orders.sh BIN-FOLDER
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work"
# With sanitizers (DUNLIN_SHORT=1) 60 examples that no device has judge the models, not the 3,000 of the test set, on which
# most of such a run's time goes.
judge=()
[ -z "${DUNLIN_SHORT:-}" ] || judge=(--validation 60 --judge validation)

# 75 examples a device: 9 batches of 8 and a remainder of 3.
n_examples=$((300 + (${#judge[@]} > 0 ? 60 : 0)))
run() {
    "$bin/dunlin-fleet" --serve --clients 4 --cohort 4 --rounds 2 --dataset synthetic --max-examples "$n_examples" --batch 8 \
        "${judge[@]}" --json "$work/$1.json" "${@:2}" >"$work/out" || { cat "$work/out"; exit 1; }
}
expect() {
    local wanted=$1 text=$2 got=0
    shift 2
    "$@" >/dev/null 2>"$work/error" || got=$?
    if [ "$got" != "$wanted" ] || ! grep -q -- "$text" "$work/error" || [ "$(wc -l <"$work/error")" -gt 1 ]; then
        echo "orders.sh: $* gave $got and: $(cat "$work/error")"
        exit 1
    fi
}

orders=(--groups 'last=classifier.*:lr=x2;@bias:decay=x0' --decay-norms no --weight-decay 0.001 --clip-norm 1
    --schedule cosine --warmup 3 --min-lr 0.001 --random-crop 2 --flip --ignore-label 9 --remainder join)
run usual
run keep --remainder keep
run drop --remainder drop
run join --remainder join
run one "${orders[@]}" --threads 1
run two "${orders[@]}" --threads 2
run adam --optimizer adamw --lr 0.001 --weight-decay 0.01
for threads in 1 2; do run mixed$threads --augment crop=2,flip,cutout=6,mixup=0.4,noise=0.1 --evaluate --threads $threads; done
for threads in 1 2; do run niti$threads --precision niti --grad-bits 5,4 --threads $threads; done
for threads in 1 2; do run sixteen$threads --precision niti16 --grad-bits 5,4 --threads $threads; done
run packed --precision niti --compress up:int4
run head --trained head --state "$work/state"
python3 - "$work" <<'PYTHON'
import json, sys
read = lambda name: json.load(open("%s/%s.json" % (sys.argv[1], name)))
figures = lambda name: [(r["accuracy"], r["loss"], r["train_loss"]) for r in read(name)["rounds"]]
assert figures("usual") == figures("keep"), "without batch norm the remainder is kept"
assert len({str(figures(name)) for name in ("keep", "drop", "join", "one", "adam", "mixed1")}) == 6, "an order changes nothing"
assert figures("one") == figures("two"), "1 and 2 threads differ"
assert figures("mixed1") == figures("mixed2"), "1 and 2 threads differ on mixed examples"
assert all(r["participants"] == 4 for r in read("mixed1")["rounds"])
assert "orders" not in read("usual")["setup"], read("usual")["setup"]
asked = read("one")["setup"]["orders"]
assert asked["remainder"] == "join" and asked["groups"][1] == {"roles": ["bias"], "lr_factor": 1.0, "decay_factor": 0.0}, asked
assert all(r["participants"] == 4 and r["dropped"] == 0 for r in read("one")["rounds"])
assert figures("niti1") == figures("niti2"), "1 and 2 threads differ in integers"
assert figures("sixteen1") == figures("sixteen2") != figures("niti1"), "weights of 16 bits: 1 and 2 threads differ, or they are those of 8"
assert all(r["participants"] == 4 and r["dropped"] == 0 for r in read("niti1")["rounds"] + read("sixteen1")["rounds"] + read("packed")["rounds"])
asked = read("niti1")["setup"]
assert asked["precision"] == "niti" and asked["grad_bits"] == "5,4" and asked["lr"] is None and read("usual")["setup"]["precision"] == "fp32", asked
up = lambda name: sum(r["bytes_up"] for r in read(name)["rounds"])
assert 3.8 < up("usual") / up("niti1") < 4 < 6 < up("usual") / up("packed"), (up("usual"), up("niti1"), up("packed"))
# Only the last layer, 84 x 10 weights and 10 biases at the end of the file, has changed.
import glob
first, last = (open(path, "rb").read() for path in sorted(glob.glob(sys.argv[1] + "/state/server/models/*.weights"))[::2])
n = 4 * 850
assert len(first) == len(last) == 4 * 61706 and first[:-n] == last[:-n] and first[-n:] != last[-n:], "head"
PYTHON

expect 2 "expected join, drop or keep" "$bin/dunlin-fleet" --serve --remainder mix
expect 1 'precision "int4" is not in this build' "$bin/dunlin-fleet" --serve --dataset synthetic --precision int4
expect 1 "cannot be trained in precision niti" "$bin/dunlin-fleet" --serve --dataset synthetic --model cnn_bn --precision niti
expect 2 "lr has no meaning with --precision niti" "$bin/dunlin-fleet" --serve --dataset synthetic --precision niti --lr 0.1
expect 2 "goes with --precision niti" "$bin/dunlin-fleet" --serve --dataset synthetic --grad-bits 5
expect 2 "grad-bits 5,9: expected up to 16" "$bin/dunlin-fleet" --serve --dataset synthetic --precision niti --grad-bits 5,9
expect 2 "for the server that --serve starts" "$bin/dunlin-fleet" --server https://127.0.0.1:1 --ca x --precision niti
expect 2 "goes with --optimizer sgd" "$bin/dunlin-fleet" --serve --optimizer adam --momentum 0.5
expect 2 "expected yes or no" "$bin/dunlin-fleet" --serve --decay-norms maybe
expect 2 "go with --schedule step" "$bin/dunlin-fleet" --serve --gamma 0.5
expect 2 "plain steps" "$bin/dunlin-fleet" --serve --algorithm scaffold --clip-norm 1
expect 2 "@boss is no role" "$bin/dunlin-fleet" --serve --groups @boss
expect 2 "8 at most" "$bin/dunlin-fleet" --serve --groups "a;b;c;d;e;f;g;h;i"
expect 2 "augment turn: expected some of" "$bin/dunlin-fleet" --serve --dataset synthetic --augment turn
expect 2 "say the same thing twice" "$bin/dunlin-fleet" --serve --dataset synthetic --augment cutout=4 --flip
expect 1 "a shift of 3 is for signals" "$bin/dunlin-fleet" --serve --dataset synthetic --max-examples 200 --clients 4 --augment shift=3
expect 1 "a cut-out of 29 x 29 is larger" "$bin/dunlin-fleet" --serve --dataset synthetic --max-examples 200 --clients 4 --augment cutout=29
expect 2 "for images" "$bin/dunlin-fleet" --serve --dataset wisdm --data "$work" --flip
expect 2 "for the server that --serve starts" "$bin/dunlin-fleet" --server https://127.0.0.1:1 --ca x --remainder join
expect 1 "does not fit model lenet5" "$bin/dunlin-fleet" --serve --dataset synthetic --trained nothing
