#!/bin/bash
# dunlin-fleet as a user meets it: a run over HTTPS learns, the same seed gives the same figures at any thread count, what
# is not there yet is refused, the report is whole. fleet.sh BIN-FOLDER; with DUNLIN_SHORT=1, for sanitizers, devices have few
# examples, and 60 that no device has judge the models, not the 3,000 of the test set.
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp" # a run must leave nothing there
mkdir "$TMPDIR"
judge=()
few=()
[ -z "${DUNLIN_SHORT:-}" ] || { judge=(--validation 60 --judge validation); few=("${judge[@]}" --max-examples 1000); }

# expect STATUS TEXT COMMAND...: the exit status, and one line on stderr that says TEXT.
expect() {
    local wanted=$1 text=$2 got=0
    shift 2
    "$@" >/dev/null 2>"$work/error" || got=$?
    if [ "$got" != "$wanted" ] || ! grep -q -- "$text" "$work/error" || [ "$(wc -l <"$work/error")" -gt 1 ]; then
        echo "fleet.sh: $* gave $got and: $(cat "$work/error")"
        exit 1
    fi
}

run() {
    "$bin/dunlin-fleet" --serve --clients 8 --cohort 4 --rounds 3 --dataset synthetic --partition writers --epochs 3 \
        "${few[@]}" \
        --batch 8 --budget 2MiB --lr 0.02 --seed "$1" --threads "$2" --json "$3" --report "$work/report.html" "${@:4}" >"$work/out"
}

# A bad network after each check-in: nothing of it may show in the figures.
cat >"$work/faults" <<'FAULTS'
seed 3
object-get p:0.1 drop-reply random
object-get every:9 wrong-digest random
object-get every:11 stall 50
chunk-put p:0.1 drop-request random
chunk-put every:7 lose
put every:5 duplicate
put every:4 slow 20000
commit p:0.2 lose
commit every:5 duplicate
accept every:3 duplicate
checkin every:4 duplicate
FAULTS

run 5 1 "$work/a.json"
run 5 2 "$work/b.json"
run 6 2 "$work/c.json"
run 5 2 "$work/d.json" --faults "$work/faults"
run 5 2 "$work/e.json" --evaluate --evaluate-every 3 --telemetry
python3 - "$work/a.json" "$work/e.json" <<'PYTHON'
import json, sys
plain, run = (json.load(open(path)) for path in sys.argv[1:])
kinds = [r["kind"] for r in run["rounds"]]
assert kinds == ["train", "train", "evaluate"], kinds
figures = lambda r: (r["accuracy"], r["loss"], r["train_loss"])
for with_numbers, without in zip(run["rounds"][:2], plain["rounds"][:2]):
    assert figures(with_numbers) == figures(without), "evaluating changes the training"
    devices = with_numbers["devices"]
    assert devices["loss_after"] < devices["loss_before"], devices
    assert "loss_before" not in without["devices"], without
sums = run["telemetry"] # 4 devices in 3 rounds, and those that were sent away; the last batches may still wait
assert 4 <= sums["5"]["n"] <= 12 and sums["5"]["mean"] > 0 and sums["16"]["n"] >= sums["5"]["n"], sums
assert "telemetry" not in plain
last = run["rounds"][2]
assert set(last["devices"]) == {"loss", "accuracy"} and last["train_loss"] is None, last
assert last["accuracy"] == run["rounds"][1]["accuracy"], "an evaluation changed the model"
assert last["bytes_up"] < 20000 < last["bytes_down"], last
PYTHON
run 5 1 "$work/f.json" --algorithm scaffold --evaluate-every 3 --lr 0.05
run 5 2 "$work/g.json" --algorithm scaffold --evaluate-every 3 --lr 0.05
run 5 2 "$work/h.json" --local classifier --evaluate-every 3 --cohort 8
python3 - "$work/a.json" "$work/f.json" "$work/g.json" "$work/h.json" <<'PYTHON'
import json, sys
plain, one, two, local = (json.load(open(path)) for path in sys.argv[1:])
figures = lambda run: [(r["accuracy"], r["loss"], r["train_loss"], r["devices"]) for r in run["rounds"]]
assert figures(one) == figures(two), "scaffold: 1 and 2 threads differ"
losses = [r["loss"] for r in one["rounds"]]
assert losses[1] < losses[0] < 3, losses
# The variates go both ways beside the weights.
assert one["rounds"][1]["bytes_up"] > 1.9 * plain["rounds"][1]["bytes_up"], one["rounds"][1]
assert one["rounds"][1]["bytes_down"] > 1.9 * plain["rounds"][1]["bytes_down"], one["rounds"][1]
# Personal layers: they do not go up, and each device knows its own data better than the global model does.
assert local["rounds"][1]["bytes_up"] < 0.2 * plain["rounds"][1]["bytes_up"], local["rounds"][1]
last = local["rounds"][2]
assert last["devices"]["accuracy"] > last["accuracy"] + 0.2, last
PYTHON
# Strategies of the server: the same figures at any thread count, not FedAvg's, and named in the result.
run 5 1 "$work/i.json" --strategy fedyogi --server-lr 0.02
run 5 2 "$work/j.json" --strategy fedyogi --server-lr 0.02
run 5 2 "$work/k.json" --strategy trimmed_mean:0.25
python3 - "$work/a.json" "$work/i.json" "$work/j.json" "$work/k.json" <<'PYTHON'
import json, sys
plain, one, two, trimmed = (json.load(open(path)) for path in sys.argv[1:])
figures = lambda run: [(r["accuracy"], r["loss"], r["train_loss"]) for r in run["rounds"]]
assert figures(one) == figures(two), "fedyogi: 1 and 2 threads differ"
assert figures(one) != figures(plain) != figures(trimmed) != figures(one)
assert one["setup"]["strategy"] == "fedyogi" and one["setup"]["server_lr"] == 0.02, one["setup"]
assert trimmed["setup"]["strategy"] == "trimmed_mean" and trimmed["setup"]["trim"] == 0.25, trimmed["setup"]
losses = [r["loss"] for r in one["rounds"]]
assert losses[-1] < losses[0], losses
PYTHON
python3 - "$work/a.json" "$work/b.json" "$work/c.json" "$work/d.json" <<'PYTHON'
import json, sys
a, b, c, d = (json.load(open(path)) for path in sys.argv[1:])
figures = lambda run: [(r["round"], r["accuracy"], r["loss"], r["train_loss"], r["participants"]) for r in run["rounds"]]
assert len(a["rounds"]) == 3, a
assert figures(a) == figures(b), "1 and 2 threads differ: %s %s" % (figures(a), figures(b))
assert figures(a) == figures(d), "faults change the figures: %s %s" % (figures(a), figures(d))
assert figures(a) != figures(c), "another seed gives the same figures"
assert all(r["participants"] == 4 and r["dropped"] == 0 for r in a["rounds"]), a
assert all(0 < r["peak_bytes_max"] <= 2 << 20 for r in a["rounds"]), a
assert a["fleet"]["idle_client_bytes"] <= 8192, a["fleet"]
assert a["fleet"]["connections_peak"] <= 64, a["fleet"]
assert a["final_accuracy"] == a["rounds"][-1]["accuracy"] and a["params"] == 61706, a
PYTHON

# Packed both ways: the same figures at any thread count, on a bad network, and with models that come as deltas.
packed=(--compress up:int4+rotate,down:int8)
run 5 1 "$work/p.json" "${packed[@]}"
run 5 2 "$work/q.json" "${packed[@]}" --keep-model --faults "$work/faults"
python3 - "$work/a.json" "$work/p.json" "$work/q.json" <<'PYTHON'
import json, sys
plain, one, two = (json.load(open(path)) for path in sys.argv[1:])
figures = lambda run: [(r["round"], r["accuracy"], r["loss"], r["train_loss"], r["participants"]) for r in run["rounds"]]
assert figures(one) == figures(two), "packed: threads, faults or deltas change the figures: %s %s" % (figures(one), figures(two))
assert one["models_sha256"] == two["models_sha256"] is not None, "packed: other weights"
assert figures(one) != figures(plain)
assert one["setup"]["compress"] == {"up": "int4+rotate", "down": "int8"}, one["setup"]
assert one["bytes_down"] == sum(r["bytes_down"] for r in one["rounds"]) < plain["bytes_down"] / 3, one["bytes_down"]
assert one["bytes_up"] == sum(r["bytes_up"] for r in one["rounds"]) < plain["bytes_up"] / 6, one["bytes_up"]
PYTHON
# So is what is kept for the next update: nothing of it is lost, added twice or drawn anew on a bad network.
left=(--compress up:topk:0.1+int4+entropy,down:int8 --feedback 3 --update-clip 0.5 --clients 4)
run 5 1 "$work/r.json" "${left[@]}"
run 5 2 "$work/s.json" "${left[@]}" --keep-model --faults "$work/faults"
python3 - "$work/r.json" "$work/s.json" <<'PYTHON'
import json, sys
one, two = (json.load(open(path)) for path in sys.argv[1:])
figures = lambda run: [(r["round"], r["accuracy"], r["loss"], r["train_loss"], r["participants"]) for r in run["rounds"]]
assert figures(one) == figures(two), "fed back: threads, faults or deltas change the figures: %s %s" % (figures(one), figures(two))
assert one["models_sha256"] == two["models_sha256"] is not None, "fed back: other weights"
assert all(r["participants"] == 4 for r in one["rounds"]) and one["setup"]["compress"]["feedback"] == 3, one["setup"]
PYTHON
expect 2 "--compress sideways:int8: not up:WORDS,down:WORDS" "$bin/dunlin-fleet" --serve --compress sideways:int8
expect 2 "not up:WORDS,down:WORDS" "$bin/dunlin-fleet" --serve --compress down:int8,down:int4
grep -q 'synthetic' "$work/report.html"
tail -c 20 "$work/report.html" | grep -q '</html>'

# A text by role: the loss is a token's, and its exponential stands beside it.
roles=(--clients 24 --cohort 4)
[ -z "${DUNLIN_SHORT:-}" ] || roles=(--clients 5 --cohort 2 --max-examples 240 --validation 20 --judge validation)
"$bin/dunlin-fleet" --serve --model gpt_tiny --dataset made_text --partition roles "${roles[@]}" --rounds 2 --batch 8 --lr 0.03 \
    --seed 1 --json "$work/text.json" >"$work/out"
grep -q "perplexity " "$work/out"
python3 - "$work/text.json" <<'PYTHON'
import json, math, sys
run = json.load(open(sys.argv[1]))
assert run["setup"]["partition"] == "roles" and run["setup"]["dataset"] == "made text", run["setup"]
for r in run["rounds"]:
    assert abs(r["perplexity"] - math.exp(r["loss"])) < 1e-6 * r["perplexity"], r
assert run["rounds"][1]["loss"] < run["rounds"][0]["loss"] < 4, run["rounds"]
PYTHON

# Who says it, by role: a device has one class; server and devices make the network in the sizes of the data.
[ -n "${DUNLIN_SHORT:-}" ] && n_speeches=160 || n_speeches=400
"$bin/dunlin-fleet" --serve --model bert_tiny --dataset made_roles --max-examples "$n_speeches" --partition roles --clients 10 --cohort 5 --rounds 1 \
    --batch 8 --lr 0.03 --seed 1 "${judge[@]}" --json "$work/roles.json" >"$work/out"
python3 - "$work/roles.json" <<'PYTHON'
import json, sys
run = json.load(open(sys.argv[1]))
assert run["setup"]["dataset"] == "made speeches", run["setup"]
assert 0 < run["rounds"][0]["loss"] < 4 and "perplexity" not in run["rounds"][0], run["rounds"]
PYTHON

# Devices that diverge: rounds are taken back or fail, the run ends with its rounds and a model.
"$bin/dunlin-fleet" --serve --clients 6 --cohort 3 --rounds 4 --dataset synthetic --max-examples 300 --lr 1000 --rollback 0.3 \
    --json "$work/wild.json" >"$work/out"
grep -q "taken back: the evaluation is not finite" "$work/out"
python3 - "$work/wild.json" "$work/a.json" <<'PYTHON'
import json, sys
wild, plain = (json.load(open(path)) for path in sys.argv[1:])
assert [r["round"] for r in wild["rounds"]] == [1, 2, 3, 4], wild["rounds"]
back = [r for r in wild["rounds"] if r["taken_back"]]
assert back and all(r["accuracy"] is None and r["reason"] and r["taken_back"] == r["participants"] for r in back), back
assert all(r["taken_back"] == 0 and r["scaled"] == 0 and r["reason"] is None for r in plain["rounds"]), plain["rounds"]
PYTHON

# A second start in the same folder, with more rounds, goes on where the first one ended.
for rounds in 2 3; do
    "$bin/dunlin-fleet" --serve --clients 4 --cohort 2 --rounds "$rounds" --dataset synthetic --max-examples 200 --state "$work/again" \
        --json "$work/again.json" >"$work/out"
done
python3 - "$work/again.json" <<'PYTHON'
import json, sys
again = json.load(open(sys.argv[1]))
assert [r["participants"] for r in again["rounds"]] == [2, 2, 2], again["rounds"]
PYTHON

# A run that ends early says why, keeps the best model and every n-th.
"$bin/dunlin-fleet" --serve --clients 4 --cohort 2 --rounds 9 --dataset synthetic --max-examples 300 --target-accuracy 0.000001 \
    --keep-every 1 --state "$work/early" --json "$work/early.json" >"$work/out"
grep -q "the run ends early: target_accuracy" "$work/out"
python3 - "$work/early.json" "$work/a.json" "$work/early/server" <<'PYTHON'
import hashlib, json, sys
early, plain = (json.load(open(path)) for path in sys.argv[1:3])
assert len(early["rounds"]) == 1 and early["stopped_by"] == "target_accuracy", early
assert early["best_round"] == 1 and early["best_accuracy"] == early["final_accuracy"], early
assert early["rounds"][0]["metrics"] == {} and early["rounds"][0]["metrics_left_out"] == 0, early["rounds"]
assert plain["stopped_by"] == "rounds" and 1 <= plain["best_round"] <= 3, plain
assert plain["best_accuracy"] == max(r["accuracy"] for r in plain["rounds"]), plain
read = lambda name: open(sys.argv[3] + "/" + name, "rb").read()
best = json.loads(read("models/best.json"))
assert best["round"] == 1 and best["accuracy"] == early["best_accuracy"], best
assert hashlib.sha256(read("models/best.weights")).hexdigest() == best["weights_sha256"], best
assert hashlib.sha256(read("models/best.onnx")).hexdigest() == best["onnx_sha256"], best
assert read("model_best.onnx") == read("models/best.onnx") == read("model.onnx")
assert read("models/000002.weights") == read("models/best.weights")
PYTHON

expect 2 "go with --secagg" "$bin/dunlin-fleet" --serve --neighbours 8
expect 2 "server that --serve starts" "$bin/dunlin-fleet" --server https://127.0.0.1:1 --ca x --faults x
expect 1 "No such file" "$bin/dunlin-fleet" --serve --dataset synthetic --faults /nowhere/script
expect 2 "server that --serve starts" "$bin/dunlin-fleet" --server https://127.0.0.1:1 --ca x --patience 3
expect 2 "--target-accuracy" "$bin/dunlin-fleet" --serve --target-accuracy 1.5
expect 2 "--patience" "$bin/dunlin-fleet" --serve --patience 0
expect 2 "--keep-every" "$bin/dunlin-fleet" --serve --keep-every -1
expect 2 "either --serve or --server" "$bin/dunlin-fleet" --clients 4
for waits in 5 0:5 9:8 5:6x -1:5 :5 5: 1:604800001 99999999999999999999:1; do
    expect 2 "--retry-ms $waits" "$bin/dunlin-fleet" --serve --retry-ms "$waits"
    expect 2 "--retry-refused-ms $waits" "$bin/dunlin-fleet" --serve --retry-refused-ms "$waits"
done
expect 2 "partition" "$bin/dunlin-fleet" --serve --partition dirichlet:0
expect 2 "validation 0%: expected a share" "$bin/dunlin-fleet" --serve --validation 0%
expect 2 "judge validation goes with" "$bin/dunlin-fleet" --serve --judge validation
expect 2 "judge devices: expected test or validation" "$bin/dunlin-fleet" --serve --judge devices
expect 1 "no whole clients can be held out" "$bin/dunlin-fleet" --serve --dataset random --validation 10%:writers
expect 2 "validation 10%: it is held out" "$bin/dunlin-server" --listen 127.0.0.1:0 --port-file "$work/none" --state "$work/none" --task "$work/none" --validation 10%
expect 2 "momentum 0" "$bin/dunlin-fleet" --serve --algorithm scaffold --momentum 0.9
expect 2 "--rollback" "$bin/dunlin-fleet" --serve --rollback 0
expect 2 "--rollback" "$bin/dunlin-fleet" --serve --algorithm scaffold --rollback 0.1
expect 2 "--strategy magic: expected average" "$bin/dunlin-fleet" --serve --strategy magic
expect 2 "trimmed_mean alone, from 0 to 0.49" "$bin/dunlin-fleet" --serve --strategy trimmed_mean:0.5
expect 2 "trimmed_mean alone, from 0 to 0.49" "$bin/dunlin-fleet" --serve --strategy median:0.1
expect 2 "--tau does not go with --strategy fedavgm" "$bin/dunlin-fleet" --serve --strategy fedavgm --tau 0.1
expect 2 "--server-lr does not go with --strategy average" "$bin/dunlin-fleet" --serve --server-lr 1
expect 2 "--beta1 1" "$bin/dunlin-fleet" --serve --strategy fedadam --beta1 1
expect 2 "server that --serve starts" "$bin/dunlin-fleet" --server https://127.0.0.1:1 --ca x --strategy median
expect 2 "algorithm scaffold" "$bin/dunlin-fleet" --serve --algorithm scaffold --strategy fedadam
expect 1 "no tensor of the model" "$bin/dunlin-fleet" --serve --dataset synthetic --local nothing
expect 1 "least that works" "$bin/dunlin-fleet" --serve --dataset synthetic --budget 100KiB
expect 1 "cannot be written" "$bin/dunlin-fleet" --serve --clients 2 --cohort 1 --rounds 1 --dataset synthetic \
    --json /nowhere/result.json
# --batch max: not too slow, ten steps an epoch, or a line that says why not.
fleet_max() {
    "$bin/dunlin-fleet" --serve --clients 4 --cohort 2 --rounds 1 --dataset synthetic --batch max --budget 2MiB \
        --json "$work/max.json" "$@" >"$work/out"
}
check_max() {
    python3 - "$work/max.json" "$@" <<'PYTHON'
import json, sys
setup = json.load(open(sys.argv[1]))["setup"]
batch, ratio, few = int(sys.argv[2]), sys.argv[3], sys.argv[4] == "few"
chosen = setup["batch_max"]
assert setup["batch"] == batch, setup
assert chosen["max_ratio"] == (None if ratio == "any" else float(ratio)), chosen
assert chosen["ratio_base"].startswith("the fastest time per example"), chosen
assert chosen["max_batch"] is None or chosen["max_batch"] >= batch, chosen
assert chosen["steps_batch"] >= batch and chosen["least_steps"] == 10, chosen
assert chosen["max_batch_any"] is None or chosen["max_batch_any"] >= chosen["max_batch"], chosen
assert 0 < chosen["time_ratio"] <= chosen["time_ratio_any"], chosen
assert (chosen["fewer_steps"] is not None) == few, chosen
PYTHON
}
fleet_max --max-examples 480
check_max 12 1.3 enough
grep -q "within 1.3 x the fastest time per example" "$work/out"
if grep -q "fewer than" "$work/out"; then
    echo "fleet.sh: ten steps an epoch are said to be fewer: $(cat "$work/out")"
    exit 1
fi
fleet_max --max-examples 80 --max-ratio any
check_max 2 any enough
fleet_max --max-examples 20 --max-ratio 5
check_max 1 5 few
[ "$(grep -c "4 of 4 devices take fewer than 10 steps an epoch, the fewest 5" "$work/out")" = 1 ]
expect 1 "least that works" "$bin/dunlin-fleet" --serve --dataset synthetic --batch max --budget 3KiB --json "$work/refused.json"
grep -q '"error": "a budget of 3072 bytes is too small' "$work/refused.json"
expect 2 "goes with --batch max" "$bin/dunlin-fleet" --serve --max-ratio 2
expect 2 "--max-ratio 0.5" "$bin/dunlin-fleet" --serve --batch max --budget 1MiB --max-ratio 0.5
[ -z "$(ls -A "$TMPDIR")" ] || {
    echo "fleet.sh: a run left files: $(ls -A "$TMPDIR")"
    exit 1
}
echo "fleet.sh: ok"
