#!/bin/bash
# dunlin-fleet --transport memory: the same models to the bit as over the wire, for every algorithm that it takes, at any
# number of threads; a run that was ended goes on from its last closed round; what is left out is not there; what does not
# go together is refused by name. memory.sh BIN-FOLDER
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp" # a run must leave nothing there
mkdir "$TMPDIR"
cd "$work"
# 60 examples that no device has judge the models; with the long tests (DUNLIN_LONG=1) the 3,000 of the test set, on which most
# of such a run's time goes.
judge=(--validation 60 --judge validation)
[ -z "${DUNLIN_LONG:-}" ] || judge=()

# expect STATUS TEXT COMMAND...: the exit status, and one line on stderr that says TEXT.
expect() {
    local wanted=$1 text=$2 got=0
    shift 2
    "$@" >/dev/null 2>error || got=$?
    if [ "$got" != "$wanted" ] || ! grep -q -- "$text" error || [ "$(wc -l <error)" -gt 1 ]; then
        echo "memory.sh: $* gave $got and: $(cat error)"
        exit 1
    fi
}

# run TRANSPORT THREADS NAME FLAG...
run() {
    "$bin/dunlin-fleet" --serve --transport "$1" --threads "$2" --json "$3.json" --dataset synthetic --max-examples 400 \
        --clients 12 --cohort 6 --rounds 3 --batch 16 --seed 7 "${judge[@]}" "${@:4}" >"$3.out"
}

# What a run is judged by; only who waited for whom and what was sent may differ.
cat >compare.py <<'PYTHON'
import json, sys
name, wanted = sys.argv[1], json.load(open(sys.argv[2]))
gone_on = name.startswith("resumed") # of rounds before, a process knows what the file says
KEYS = ["round", "kind", "accuracy", "loss", "train_loss", "participants", "dropped", "failed", "scaled", "norm_bound", "taken_back",
        "reason", "devices", "peak_bytes_max"]
for path in sys.argv[3:]:
    found = json.load(open(path))
    assert found["models_sha256"] == wanted["models_sha256"] and len(wanted["models_sha256"]) == 64, (name, path, "other weights")
    for a, b in zip(wanted["rounds"], found["rounds"], strict=True):
        # What an evaluation takes depends on whether its trainer has trained before: on who came first.
        for key in KEYS[:-1] if gone_on or a["kind"] == "evaluate" else KEYS:
            assert a[key] == b[key], (name, path, a["round"], key, a[key], b[key])
    for key in ["final_accuracy", "best_round", "best_accuracy", "best_loss", "stopped_by", "clients", "params", "setup"]:
        assert found[key] == wanted[key], (name, path, key, wanted[key], found[key])
PYTHON

# With DUNLIN_SHORT=1, for sanitizers, those runs that go through most of the code.
[ -n "${DUNLIN_SHORT:-}" ] && is_short=yes || is_short=no
# same NAME FLAG...: over the wire, and in memory with one and two threads.
same() {
    run wire 2 "$1.wire" "${@:2}"
    run memory 2 "$1.two" "${@:2}"
    if [ $is_short = yes ] && [ "$1" != statistics ]; then
        python3 compare.py "$1" "$1.wire.json" "$1.two.json"
        return
    fi
    run memory 1 "$1.one" "${@:2}"
    python3 compare.py "$1" "$1.wire.json" "$1.one.json" "$1.two.json"
}
if [ $is_short = no ]; then
    same fedavg --lr 0.05
    same fedprox --algorithm fedprox:0.5 --epochs 2 --lr-decay 0.9
    same fedadam --strategy fedadam --server-lr 0.01 --partition dirichlet:0.3
    same median --strategy trimmed_mean:0.2 --momentum 0
fi
same statistics --model tiny_bn --evaluate --evaluate-every 2 --batch 8
same packed --compress up:int4+rotate+entropy --update-clip 0.05 --update-clip-quantile 0.5
[ $is_short = yes ] || same chosen --compress up:topk:0.1 --optimizer adam --lr 0.002
[ $is_short = yes ] || same integers --precision niti
# Updates of all lengths: in the first round nobody knows the bound before all have come.
same bound --partition dirichlet:0.02 --batch 4 --lr 0.002 --cohort 12 --rounds 2
# Judged now and then; and ended by what the judge says.
same seldom --judge-every 2 --rounds 5 --target-accuracy 0.99 --report report.html
python3 - <<'PYTHON'
import json
bound, seldom, one = (json.load(open(name + ".json")) for name in ("bound.two", "seldom.two", "statistics.one"))
assert bound["rounds"][0]["scaled"] > 0, "no update was above the bound: the test says nothing"
assert [r["accuracy"] is not None for r in seldom["rounds"]] == [False, True, False, True, True], seldom["rounds"]
assert one["transport"] == "memory" and one["ranks"] == 1
time = one["time"]
assert set(time) == {"training_s", "update_s", "fold_s", "evaluation_s", "rest_s"} and all(x >= 0 for x in time.values()), time
assert time["training_s"] > 0 and time["evaluation_s"] > 0 and 0 < one["utilisation"] <= 1.001, (time, one["utilisation"])
# What is left out: nothing was asked for, or sent.
fleet = one["fleet"]
assert fleet["requests"] == fleet["handshakes"] == fleet["connections_peak"] == one["bytes_down"] == one["bytes_up"] == 0, fleet
PYTHON
grep -q "time in training, evaluation" report.html

# A run that ends by a signal leaves the rounds that have closed, and goes on from there to the same model; so does one that
# is killed. What it keeps is one file: of updates, objects, keys, certificates, journals and databases there is nothing.
run memory 2 whole --rounds 6
many=(--rounds 6 --epochs 40) # long enough to be ended
[ $is_short = no ] || many=(--rounds 6 --epochs 8)
run memory 2 long "${many[@]}"
end_after() { # SIGNAL FOLDER
    "$bin/dunlin-fleet" --serve --transport memory --threads 2 --json ended.json --dataset synthetic --max-examples 400 --clients 12 \
        --cohort 6 --batch 16 --seed 7 --state "$2" "${judge[@]}" "${many[@]}" >ended.out 2>error &
    local running=$! code=0
    for _ in $(seq 1200); do
        grep -q "^round   2/" ended.out && break # then what the first left is kept
        sleep 0.05
    done
    kill "-$1" $running
    wait $running || code=$?
    [ $code -gt 128 ] || { echo "memory.sh: ended by $1 it gave $code: $(cat error)"; exit 1; }
}
end_after INT stopped
grep -q "interrupted by signal 2 after [1-5] of 6 rounds" error
end_after KILL killed
for folder in stopped killed; do
    run memory 1 "$folder" "${many[@]}" --state "$folder"
    grep -q "going on after round" "$folder.out"
    python3 compare.py "resumed $folder" long.json "$folder.json"
    [ "$(ls "$folder" | sort | tr '\n' ' ')" = "memory.run model.onnx task.json " ] || { echo "memory.sh: $(ls "$folder")"; exit 1; }
done
# More rounds go on where fewer ended; another task, or a damaged file, is refused.
run memory 2 short --rounds 4 --state more
run memory 2 more --rounds 6 --state more
python3 compare.py "resumed more" whole.json more.json
other=(--serve --transport memory --dataset synthetic --max-examples 400 --clients 12 --cohort 6 --rounds 6 --batch 16 --state more "${judge[@]}")
expect 1 "another task or seed" "$bin/dunlin-fleet" "${other[@]}" --seed 8
truncate -s -9 more/memory.run
expect 1 "is damaged" "$bin/dunlin-fleet" "${other[@]}" --seed 7
head -c 100 /dev/zero >more/memory.run
expect 1 "ends in its head" "$bin/dunlin-fleet" "${other[@]}" --seed 7

# A device whose training comes to nothing drops out; a round whose updates have no finite sum or average makes no model.
run memory 2 wild --lr 1000 --epochs 5 --rounds 2
python3 - <<'PYTHON'
import json
rounds = json.load(open("wild.json"))["rounds"]
assert all(r["participants"] + r["dropped"] == 6 for r in rounds) and sum(r["dropped"] for r in rounds) > 0, rounds
assert all(r["failed"] or r["taken_back"] for r in rounds) and all(r["reason"] for r in rounds), rounds
PYTHON
grep -q "devices failed, the last: device" wild.out

# What is not there is refused by name.
fleet() { "$bin/dunlin-fleet" --transport memory --dataset synthetic "$@"; }
expect 2 "not wire or memory" "$bin/dunlin-fleet" --serve --transport pigeon
expect 2 "needs --serve" fleet --server https://127.0.0.1:1 --ca x
expect 2 "does not go with --over-select" fleet --serve --over-select 1.3
expect 2 "does not go with --algorithm scaffold" fleet --serve --algorithm scaffold
expect 2 "does not go with --local" fleet --serve --local classifier
expect 2 "does not go with --feedback" fleet --serve --compress up:topk:0.1 --feedback 2
expect 2 "does not go with --keep-model" fleet --serve --keep-model
expect 2 "does not go with --dp" fleet --serve --dp 0.5:1,delta=1e-5
expect 2 "does not go with --faults" fleet --serve --faults x
expect 2 "does not go with --tokens" fleet --serve --tokens x
expect 2 "does not go with --windows" fleet --serve --windows 1:1
expect 2 "does not go with --retry-ms" fleet --serve --retry-ms 1:1
expect 2 "does not go with --telemetry" fleet --serve --telemetry
expect 2 "does not go with --keep-every" fleet --serve --keep-every 2
expect 1 "does not have compress.down" fleet --serve --compress down:int8
expect 1 "judge_every 2 does not go with rollback" fleet --serve --judge-every 2 --rollback 0.1
[ -z "$(ls "$TMPDIR")" ] || { echo "memory.sh: $(ls "$TMPDIR") is left"; exit 1; }
echo "memory: the models of the wire, $(python3 -c 'import json; print("%.0f %%" % (100 * json.load(open("long.json"))["utilisation"]))') busy"
