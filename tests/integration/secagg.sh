#!/bin/bash
# dunlin-fleet with secure aggregation as a user meets it: it learns beside a bad network and devices that leave, noise of the devices
# costs what it is said to, the figures say who came to each step and nothing of single devices, and what does not fit is refused in one
# line. secagg.sh BIN-FOLDER
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp" # a run must leave nothing there
mkdir "$TMPDIR"
# With sanitizers (DUNLIN_SHORT=1) 60 examples that no device has judge the models, not the 3,000 of the test set, on which
# most of such a run's time goes.
judge=()
[ -z "${DUNLIN_SHORT:-}" ] || judge=(--validation 60 --judge validation)

expect() {
    local wanted=$1 text=$2 got=0
    shift 2
    "$@" >/dev/null 2>"$work/error" || got=$?
    if [ "$got" != "$wanted" ] || ! grep -q -- "$text" "$work/error" || [ "$(wc -l <"$work/error")" -gt 1 ]; then
        echo "secagg.sh: $* gave $got and: $(cat "$work/error")"
        exit 1
    fi
}

plain=(--serve --clients 12 --cohort 12 --rounds 2 --dataset synthetic --max-examples 600 --batch 8 --lr 0.02 --seed 1 --threads 2 "${judge[@]}")
run() {
    "$bin/dunlin-fleet" "${plain[@]}" --secagg --neighbours 11 --json "$work/$1.json" --report "$work/report.html" \
        --secagg-keys threshold=6,corrupt=0,dropout=0,step_s=60,clip="${clip:-4}",least_devices=8 "${@:2}" >"$work/out" || { cat "$work/out"; exit 1; }
}

# What is lost on its way, or comes twice, changes nothing: the calls of the steps are among them.
cat >"$work/faults" <<'FAULTS'
seed 3
secagg every:7 lose
secagg every:5 duplicate
secagg every:11 drop-reply random
secagg p:0.05 drop-request random
chunk-put every:7 lose
put every:5 duplicate
commit every:3 lose
commit every:4 duplicate
FAULTS
"$bin/dunlin-fleet" "${plain[@]}" --json "$work/without.json" >/dev/null
# So short a bound that a network of so few devices outlives the noise.
dp=clip=0.05,noise=0.8,delta=1e-3,separation=1,noise_by=distributed
clip=0.05 run gaussian --dp "$dp"
clip=0.05 run skellam --dp "$dp,noise_kind=skellam" --secagg-leave 0.15
run plain
run faults --faults "$work/faults"
run leave --secagg-leave 0.15 --telemetry
grep -q "advertise 12 (-0)" "$work/out"
grep -q "honest but curious" "$work/report.html"
python3 - "$work" "$bin" <<'PYTHON'
import json, subprocess, sys
read = lambda name: json.load(open("%s/%s.json" % (sys.argv[1], name)))
for name in "plain", "faults", "leave":
    run = read(name)
    assert run["secagg"]["claim"] == "honest_but_curious" and run["secagg"]["neighbours"] == 11, run["secagg"]
    assert run["setup"]["secagg"]["neighbours"] == 11, run["setup"]
    for r in run["rounds"]:
        assert not r["failed"], (name, r)
        s = r["secagg"]
        assert s["sum"] and s["assigned"] == 12, (name, s)
        assert s["steps"]["advertise"]["dropped"] == s["steps"]["share"]["dropped"] == 0, (name, s)
        came = s["steps"]["mask"]["devices"]
        assert came == r["participants"] and came >= 8, (name, r)
        assert s["bytes_down"] > s["bytes_up"] > 0 and s["unmask_s"] >= 0, (name, s)
        assert r["train_loss"] is None and r["devices"] == {}, "numbers of single devices"
assert all(r["secagg"]["steps"]["mask"]["dropped"] == 0 for r in read("plain")["rounds"])
# The same devices and data: what masks and whole numbers change is less than the last digits of a loss.
for name in "plain", "faults":
    for one, other in zip(read("without")["rounds"], read(name)["rounds"]):
        assert abs(one["loss"] - other["loss"]) < 1e-3, (name, one["loss"], other["loss"])
# 0.15 of 12 devices are 2, in each round.
leave = [r["secagg"]["steps"]["mask"]["dropped"] for r in read("leave")["rounds"]]
assert leave == [2, 2], leave
# Noise of both kinds: what is told is what the terms cost, of which the server makes no secret; and models are others.
for name in "gaussian", "skellam":
    run = read(name)
    told = run["privacy"]
    assert told["noise_by"] == "distributed" and told["noise_kind"] == name and told["private"], told
    assert told["least_honest"] == 8 and told["noise"] >= 0.8 and told["noise_scale"] >= 2, told
    assert name == "gaussian" or told["noise_scale"] <= 1024, told
    epsilons = [r["epsilon"] for r in run["rounds"]]
    assert 0 < epsilons[0] < epsilons[1] == told["epsilon"] == told["epsilon_of_run"], (epsilons, told)
    question = "noise=%.17g,delta=%.17g,clip=%.17g,rounds=2,separation=1,kind=%s,parts=8,part_scale=%d,values=%d" % (
        told["noise"], told["delta"], told["clip"], {"gaussian": "discrete"}.get(name, name), told["noise_scale"], 2 ** 36)
    asked = json.loads(subprocess.run([sys.argv[2] + "/dunlin-server", "--privacy", question], check=True, capture_output=True).stdout)
    assert abs(asked["epsilon"] / told["epsilon"] - 1) < 1e-6, (asked, told)
    for one, other in zip(read("plain")["rounds"], run["rounds"]):
        assert not other["failed"] and other["secagg"]["sum"], (name, other)
        assert other["loss"] > 0 and abs(one["loss"] - other["loss"]) > 1e-6, (name, one["loss"], other["loss"])
# 5 is the phase of training, 20 its memory: such rounds say nothing of how long devices trained.
told = read("leave")["telemetry"]
assert told and not {"5", "20"} & set(told), told
PYTHON

serve=("$bin/dunlin-fleet" --serve --clients 12 --cohort 12 --rounds 1 --dataset synthetic --max-examples 600)
expect 2 "go with --secagg" "${serve[@]}" --neighbours 4
expect 2 "--secagg-keys colour=3" "${serve[@]}" --secagg --secagg-keys colour=3
expect 2 "is for the server that --serve starts" "$bin/dunlin-fleet" --server https://127.0.0.1:1 --ca /dev/null --secagg
expect 1 "secagg does not go with strategy median" "${serve[@]}" --secagg --strategy median --secagg-keys corrupt=0,dropout=0
expect 1 "4 neighbours and threshold 3" "${serve[@]}" --secagg --neighbours 4
expect 1 "dp.noise_by distributed goes with secagg" "${serve[@]}" --dp "$dp"
expect 1 "secagg does not go with dp with noise_by server" "${serve[@]}" --secagg --secagg-keys corrupt=0,dropout=0 --dp 4:0.8,delta=1e-3
expect 1 "dp.noise_kind must be gaussian or skellam" "${serve[@]}" --secagg --secagg-keys corrupt=0,dropout=0 --dp "$dp,noise_kind=laplace"
[ -z "$(ls -A "$TMPDIR")" ] || {
    echo "secagg.sh: a run left files: $(ls -A "$TMPDIR")"
    exit 1
}
echo "secagg.sh: ok"
