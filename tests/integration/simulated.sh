#!/bin/bash
# dunlin-fleet --devices: unequal devices in simulated time. The same seed gives the same events and bits at any number of
# threads; who had work and did not count is counted once, with its cause; memory changes times, not bits; what does not go
# together is refused. simulated.sh BIN-FOLDER [HAS-MEMORY]
set -euo pipefail
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
has_memory=${2:-ON}                                               # whether the build has runs in memory
[ -n "${DUNLIN_LONG:-}" ] && n_kills=4 || n_kills=2
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
        echo "simulated.sh: $* gave $got and: $(cat error)"
        exit 1
    fi
}

data=(--dataset synthetic --max-examples 600)
"$bin/dunlin-fleet" --measure-costs costs.json "${data[@]}" >out
"$bin/dunlin-fleet" --measure-costs large.json "${data[@]}" --batch 256 >out
python3 - <<'PYTHON'
import json
costs = json.load(open("costs.json"))
assert costs["model"] == "lenet5" and costs["batch"] == 32 and costs["none_bytes"] > costs["least_bytes"], costs
budgets = [row["budget_bytes"] for row in costs["rows"]]
assert budgets == sorted(budgets) and budgets[0] == 4 << 20 and budgets[-1] == 2 << 30, budgets
assert all(row["planned_bytes"] <= row["budget_bytes"] and row["step_us"] > 0 for row in costs["rows"])
# From here on the costs are this machine's no more, so that every machine sees the same run.
for row in costs["rows"]:
    row["step_us"] = 3000 if row["budget_bytes"] < 16 << 20 else 2000
costs["evaluate_us"], costs["none_bytes"] = 700, 16 << 20
json.dump(costs, open("costs.json", "w"))
large = json.load(open("large.json"))
assert large["batch"] == 256 and large["none_bytes"] > 8 << 20, large
assert large["rows"][0]["planned_bytes"] < large["rows"][-1]["planned_bytes"], "4 MiB have the plan of 2 GiB"

# A short day of 1,000 s: fast devices, slow ones, some that are ended, some that lose the charger, and three that cannot.
header = {"dunlin_devices": 1, "profile": "hand-made", "period_s": 1000, "requires": ["charging", "unmetered"],
          "classes": [{"name": "fast", "time_factor": 1}, {"name": "slow", "time_factor": 2e4}, {"name": "gone", "time_factor": 1e5}]}
def device(name, **more):
    return {"class": name, "memory": 64 << 20, "down": 1e6, "up": 2e5, "latency_us": 20000, "trace": [[0, "ouc"]], **more}
devices = [device("fast") for _ in range(6)] + [device("slow") for _ in range(6)]
devices += [device("slow", failures=1.0) for _ in range(4)]
devices += [device("slow", trace=[[t, "ouc" if t % 40 == 0 else "ou"] for t in range(0, 1000, 20)]) for _ in range(8)]
devices += [device("gone", memory=4 << 20, trace=[[0, "ouc", 90], [400, "o", 80, 64 << 20]]) for _ in range(4)]
devices += [device("fast", memory=1000), device("fast", storage=1000), device("fast", trace=[[0, "oui"]])]
def write(path, list):
    with open(path, "w") as file:
        for line in [header] + list:
            file.write(json.dumps(line) + "\n")
write("devices", devices)
# The same six devices with little memory and with much.
write("little", [device("fast", memory=4 << 20) for _ in range(6)])
write("much", [device("fast", memory=64 << 20) for _ in range(6)])
PYTHON

# run DEVICES THREADS SEED NAME FLAG...
run() {
    "$bin/dunlin-fleet" --serve --devices "$1" --costs "${costs:-costs.json}" "${data[@]}" --threads "$2" --seed "$3" --json "$4.json" \
        --events "$4.csv" --lr 0.05 --windows 1000:5000 "${judge[@]}" "${@:5}" >"$4.out"
}
odd=(--rounds 8 --cohort 5 --over-select 1.6 --deadline 60)
run devices 1 3 a "${odd[@]}"
run devices 2 3 b "${odd[@]}" --report report.html
run devices 2 4 c "${odd[@]}"
cmp a.csv b.csv
costs=large.json
run little 2 3 d --batch 256 --rounds 3 --cohort 6 --deadline 1000
run much 1 3 e --batch 256 --rounds 3 --cohort 6 --deadline 1000 --evaluate
python3 - <<'PYTHON'
import csv, json
a, b, c, d, e = (json.load(open(name + ".json")) for name in "abcde")
sim = a["simulated"]
figures = lambda run: [(r["accuracy"], r["loss"], r["wall_s"], r["sim_hours"], r["dropped_by"]) for r in run["rounds"]]
assert figures(a) == figures(b) and a["models_sha256"] == b["models_sha256"] is not None, "1 and 2 threads differ"
assert sim["events_sha256"] == b["simulated"]["events_sha256"] != c["simulated"]["events_sha256"]
assert {k: v for k, v in sim.items()} == {k: v for k, v in b["simulated"].items()}
assert a["fleet"]["idle_client_bytes"] > 0 and a["fleet"]["descriptors_peak"] > 3, a["fleet"]
assert len(a["rounds"]) == 8 and len(sim["costs_sha256"]) == len(sim["devices_sha256"]) == 64

events = list(csv.DictReader(open("a.csv")))
order = [(int(x["time_us"]), int(x["client"]), int(x["sequence"])) for x in events]
assert order == sorted(order) and len(set(order)) == len(order) == sim["events"], "events are out of order"

# Who had work counts, or is dropped for one cause.
causes = {}
for one in sim["classes"]:
    assert one["assigned"] == one["accepted"] + sum(one["dropped_by"].values()), one
    for cause, n in one["dropped_by"].items():
        causes[cause] = causes.get(cause, 0) + n
fast, slow, gone = sim["classes"]
assert fast["accepted"] > 0 and slow["accepted"] > 0 and gone["accepted"] == 0, sim["classes"]
assert fast["devices"] == 9 and set(fast["dropped_by"]) <= {"late"}, fast
assert sum(sum(r["dropped_by"].values()) for r in a["rounds"]) == sum(causes.values()), causes
assert causes.get("failure", 0) > 0 and causes.get("conditions", 0) > 0, causes
assert causes.get("late", 0) + causes.get("surplus", 0) > 0, causes
assert sim["left_out"] == {"memory": 1, "storage": 1, "never_ready": 1}, sim["left_out"]
assert sim["needs_planner"] == 1, sim["needs_planner"] # the device of 1,000 bytes; the others have 64 MiB at times
assert {x["budget_bytes"] for x in sim["budgets"]} == {4 << 20, 64 << 20}, sim["budgets"]
assert all(sum(x["accepted_by_hour"]) == x["accepted"] for x in sim["classes"]), sim["classes"]
assert sum(x["accepted"] for x in sim["by_hour"]) == sum(x["accepted"] for x in sim["classes"])
# At 0, 375, 417 and 500 s of a period of 1,000: four devices until 400 s alone, eight that lose the charger every 20 s.
assert [sim["by_hour"][h]["ready"] for h in (0, 9, 10, 12)] == [30, 30, 26, 18], sim["by_hour"]
hours = [r["sim_hours"] for r in a["rounds"]]
assert hours == sorted(hours) and abs(hours[-1] - sim["hours"]) < 0.2, (hours, sim["hours"])
assert any(r["wall_s"] >= 60 for r in a["rounds"]), "no round ended by its deadline"
assert all(r["wall_s"] < 62 for r in a["rounds"]), [r["wall_s"] for r in a["rounds"]]

# Memory changes times, not bits; evaluating around takes time alone.
assert [r["accuracy"] for r in d["rounds"]] == [r["accuracy"] for r in e["rounds"]], "the bits depend on memory"
assert d["models_sha256"] == e["models_sha256"] is not None
assert d["simulated"]["needs_planner"] == 6 and e["simulated"]["needs_planner"] == 0
assert [x["budget_bytes"] for x in d["simulated"]["budgets"]] == [4 << 20], d["simulated"]["budgets"]
assert d["simulated"]["budgets"][0]["planned_bytes"] < e["simulated"]["budgets"][0]["planned_bytes"]
assert e["rounds"][0]["devices"]["loss_after"] < e["rounds"][0]["devices"]["loss_before"]
assert 0 < d["rounds"][0]["peak_bytes_max"] < e["rounds"][0]["peak_bytes_max"], (d["rounds"][0], e["rounds"][0])
PYTHON
# In memory: the same events, models and figures, with no request signed and nothing sent.
costs=costs.json
cat >same.py <<'PYTHON'
import json, sys
wire, memory = (json.load(open(name + ".json")) for name in sys.argv[1:3])
assert memory.pop("transport", "wire") == sys.argv[3] and "transport" not in wire
assert wire.pop("fleet")["handshakes"] > 0
fleet = memory.pop("fleet")
assert (fleet["handshakes"] > 0) == (fleet["connections_peak"] > 0) == (sys.argv[3] == "wire"), fleet
for key in wire:
    assert wire[key] == memory[key], (key, wire[key], memory[key])
assert set(wire) == set(memory) and len(wire["models_sha256"]) == 64
PYTHON
# in_memory WIRE-NAME THREADS FLAG...
in_memory() {
    [ "$has_memory" = ON ] || return 0
    run devices "$2" 3 memory "${@:3}" --transport memory
    cmp "$1.csv" memory.csv
    python3 same.py "$1" memory memory
}
for threads in 1 2; do
    in_memory a $threads "${odd[@]}"
done
# A run that is killed at random places goes on from its last moment, to the same events and models, over and over, over the wire
# and in memory. One that was killed before its first moment begins anew.
simulation=("$bin/dunlin-fleet" --serve --devices devices --costs costs.json "${data[@]}" --seed 3 --json killed.json --events killed.csv
    --lr 0.05 --windows 1000:5000 --state state "${judge[@]}")
killed() { # NAME TRANSPORT SEED FLAG...: killed some times; then left to its end, which is that of NAME
    python3 "$here/killed.py" $n_kills "$3" state "${simulation[@]}" --threads 2 --transport "$2" "${@:4}" >places
    "${simulation[@]}" --threads 1 --transport "$2" "${@:4}" >killed.out
    grep -q "going on after" killed.out || { echo "simulated.sh: it began anew after: $(cat places)"; exit 1; }
    cmp "$1.csv" killed.csv
    python3 same.py "$1" killed "$2" || { echo "simulated.sh: $(cat places)"; exit 1; }
    (cd state && ls -d * server/* | grep -v "^kept-\|moment-") >"left-$2" # of which files the numbers differ
    rm -r state
}
if [ "$has_memory" = ON ]; then
    killed a wire 1 "${odd[@]}"
    killed a memory 2 "${odd[@]}"
    # What is left out in memory is the network: a port, a second process with its log, and a page that is told.
    [ "$(comm -3 left-wire left-memory | xargs)" = "port server.log simulated.json" ] || { echo "simulated.sh: $(comm -3 left-wire left-memory) is of one transport alone"; exit 1; }
    mkdir state state/server && touch state/simulation.begun state/server/nothing
    "${simulation[@]}" --threads 2 "${odd[@]}" >killed.out
    cmp a.csv killed.csv
    expect 1 "the simulation there is of other devices, costs or flags" "${simulation[@]}" "${odd[@]}" --windows 1000:6000
    expect 1 "the simulation there is of other devices, costs or flags" "${simulation[@]}" "${odd[@]}" --transport memory
    expect 1 "a run lies there that cannot be gone on with" "${simulation[@]}" "${odd[@]}" --telemetry
    expect 1 "another run is in it" flock state/simulation.lock "${simulation[@]}" "${odd[@]}"
    rm -r state
fi
# Energy: joules of each class are its watts and its bytes; batteries fall by them.
python3 - <<'PYTHON'
import json
sim = json.load(open("a.json"))
classes = sim["simulated"]["classes"]
assert all(c["compute_w"] == 5 and c["battery_wh"] == 12 for c in classes)
assert abs(sum(c["compute_j"] + c["radio_j"] for c in classes) - sim["simulated"]["energy_j"]) < 1e-6 * sim["simulated"]["energy_j"]
for c in classes[:2]: # all of the time on Wi-Fi, at 1e6 and 2e5 bytes a second
    moved = c["bytes_down"] / 1e6, c["bytes_up"] / 2e5
    wanted = (283.17 * 8e-6 * c["bytes_up"] + 137.01 * 8e-6 * c["bytes_down"] + 132.86 * sum(moved)) / 1e3
    lte = (438.39 * 8e-6 * c["bytes_up"] + 51.97 * 8e-6 * c["bytes_down"] + 1288.04 * sum(moved)) / 1e3
    assert c["compute_j"] > 0 and wanted * 0.999 <= c["radio_j"] <= lte, (c, wanted, lte)
    assert c["compute_j"] + c["radio_j"] >= c["device_j_most"] >= (c["compute_j"] + c["radio_j"]) / c["devices"]
fast = classes[0]
assert abs(fast["radio_j"] - (283.17 * 8e-6 * fast["bytes_up"] + 137.01 * 8e-6 * fast["bytes_down"] + 132.86 *
           (fast["bytes_down"] / 1e6 + fast["bytes_up"] / 2e5)) / 1e3) < 1e-3 * fast["radio_j"], fast
for r in sim["rounds"]:
    assert r["energy_j"] > 0 and r["metrics"]["device/energy_j"]["n"] == r["participants"], r
PYTHON
grep -q "energy a device" report.html
sed 's/"time_factor": 1}/"time_factor": 1, "compute_w": -1}/' devices >watts
expect 1 'watts: line 1: "compute_w" is -1' "$bin/dunlin-fleet" --serve --devices watts --costs costs.json "${data[@]}"
# The same devices with a battery of 1 mWh, off the charger: one step empties it, and no round is worth it.
python3 - <<'PYTHON'
import json
lines = open("devices").read().splitlines()
header = json.loads(lines[0])
header["requires"], header["least_battery"] = ["unmetered"], 50
def write(path, **battery):
    with open(path, "w") as file:
        file.write(json.dumps({**header, "classes": [{**c, **battery} for c in header["classes"]]}) + "\n")
        for line in lines[7:13]:
            file.write(json.dumps({**json.loads(line), "trace": [[0, "ou", 90]]}) + "\n")
write("small", battery_wh=0.2, compute_w=5)
write("mains", battery_wh=0, compute_w=5)
PYTHON
run mains 1 3 mains --rounds 3 --cohort 2 --deadline 400
expect 1 "no device can take part any more\|not over after" "$bin/dunlin-fleet" --serve --devices small --costs costs.json "${data[@]}" \
    --seed 3 --lr 0.05 --windows 1000:5000 --rounds 30 --cohort 2 --deadline 400 --sim-hours 20
# Part of the work: slow devices do what they can by half of the deadline, and count.
costs=costs.json
run devices 2 3 whole "${odd[@]}" --epochs 4
run devices 1 3 part "${odd[@]}" --epochs 4 --partial 0.5
run devices 2 3 same "${odd[@]}" --epochs 4 --partial 0.5
cmp part.csv same.csv
in_memory part 2 "${odd[@]}" --epochs 4 --partial 0.5
python3 - <<'PYTHON'
import json
a, part, same = (json.load(open(name + ".json")) for name in ("whole", "part", "same"))
assert part["models_sha256"] == same["models_sha256"] != a["models_sha256"]
slow = [run["simulated"]["classes"][1] for run in (a, part)]
assert slow[0]["partial"] == 0 < slow[1]["partial"] <= slow[1]["accepted"], slow
assert part["simulated"]["classes"][0]["partial"] == 0, "fast devices do all of it"
assert slow[0]["accepted"] == 0 < slow[1]["accepted"] and part["setup"]["partial"] == 0.5, slow
PYTHON
# Rounds that overlap: stale updates count, the same run twice.
late=(--rounds 8 --cohort 3 --over-select 4 --deadline 400 --buffered 4)
run devices 1 3 over "${late[@]}"
run devices 2 3 same "${late[@]}"
cmp over.csv same.csv
in_memory over 2 "${late[@]}"
python3 - <<'PYTHON'
import json
over, same = (json.load(open(name + ".json")) for name in ("over", "same"))
assert over["models_sha256"] == same["models_sha256"] is not None
stale = [r["metrics"]["server/staleness"] for r in over["rounds"]]
assert [x["n"] for x in stale] == [3] * 8 and max(x["max"] for x in stale) > 0, stale
assert all(0 <= x["min"] <= x["mean"] <= x["max"] <= 4 for x in stale), stale
assert over["setup"]["buffered"] == {"max_staleness": 4, "exponent": 0.5} and over["setup"]["is_repeatable"] is True
for one in over["simulated"]["classes"]:
    assert one["assigned"] == one["accepted"] + sum(one["dropped_by"].values()), one
PYTHON
# Whom a round asks: with utility slow devices are asked less often than as they come; all kinds are repeated, the pacer and
# credits as well, over the wire and in memory.
for kind in utility:20 utility:1:20:1 tiers:2 tiers:2:2:9:3; do
    run devices 1 3 chosen "${odd[@]}" --select $kind
    run devices 2 3 same "${odd[@]}" --select $kind
    cmp chosen.csv same.csv
    in_memory chosen 2 "${odd[@]}" --select $kind
    cmp chosen.csv a.csv >/dev/null && { echo "simulated.sh: --select $kind changes nothing"; exit 1; }
    python3 - $kind <<'PYTHON'
import json, sys
run = json.load(open("chosen.json"))
kind, *numbers = sys.argv[1].split(":")
numbers = [int(x) for x in numbers]
wanted = {"kind": kind, **dict(zip(("prefer_s", "pacer_s", "pacer_rounds") if kind == "utility" else ("tiers", "interval"), numbers))}
if kind == "tiers" and len(numbers) > 2:
    wanted["credits"] = numbers[2:]
assert run["setup"]["selection"] == wanted, run["setup"]
assert run["setup"]["is_repeatable"] is True
assert len(run["rounds"]) == 8
tiers = [r["metrics"]["server/tier"] for r in run["rounds"] if "server/tier" in r["metrics"]]
assert (len(tiers) > 0) == (kind == "tiers") and all(x["min"] == x["max"] in (1, 2) for x in tiers), tiers
assert kind != "tiers" or len(numbers) < 3 or sum(x["mean"] == 2 for x in tiers) <= 3, tiers
PYTHON
done
# Whoever sends so slowly that several rounds close meanwhile is late, and no error.
python3 - <<'PYTHON'
import json
lines = open("devices").read().splitlines()
with open("slowly", "w") as file:
    file.write(lines[0] + "\n")
    for i in range(30):
        one = json.loads(lines[1])
        file.write(json.dumps({**one, "up": 1e6 if i % 3 else 8e3, "down": 1e6 if i % 3 else 5e4}) + "\n")
PYTHON
run slowly 2 3 slowly --rounds 20 --cohort 5 --over-select 3 --deadline 900 --select utility
python3 - <<'PYTHON'
import json
run = json.load(open("slowly.json"))
causes = run["simulated"]["classes"][0]["dropped_by"]
assert causes["late"] > 20 and set(causes) == {"late"} and run["fleet"]["calls_failed"] == 0, (causes, run["fleet"])
PYTHON
grep -q 'id="classes"' report.html
grep -q '"sim_hours"' report.html
grep -q '"accuracy_worst_tenth"' report.html && grep -q 'on the worst tenth of them' report.html
[ -z "$(ls "$TMPDIR")" ] || { echo "simulated.sh: $(ls "$TMPDIR") is left"; exit 1; }

# What is wrong is said in one line.
fleet() { "$bin/dunlin-fleet" "$@"; }
some=(--devices devices --costs costs.json "${data[@]}")
expect 2 "needs --serve" fleet --server https://127.0.0.1:1 --ca x "${some[@]}"
mkdir -p old/server
expect 2 "needs --costs" fleet --serve --devices devices
expect 2 "--budget" fleet --serve "${some[@]}" --budget 4MiB
expect 2 "--batch max" fleet --serve "${some[@]}" --batch max --budget 1MiB
expect 2 "--algorithm scaffold" fleet --serve "${some[@]}" --algorithm scaffold
expect 2 "--partial 1.5" fleet --serve "${some[@]}" --partial 1.5
expect 2 "--partial is for the server" fleet --server https://127.0.0.1:1 --ca x --partial 0.5
expect 2 "--buffered 33: not MAX" fleet --serve "${some[@]}" --buffered 33
expect 2 "--buffered 3:x: not MAX" fleet --serve "${some[@]}" --buffered 3:x
expect 2 "--strategy median does not go with --buffered" fleet --serve "${some[@]}" --buffered 3 --strategy median
expect 2 "--select tiers:1: expected utility" fleet --serve "${some[@]}" --select tiers:1
for kind in speed utility: utility:3:x utility:3:4:0 utility:3:4:5:6 tiers:2:3:4 tiers:2:3:4:5:6 tiers:2:x; do
    expect 2 "--select $kind: expected utility" fleet --serve "${some[@]}" --select $kind
done
expect 2 "--clients 40 is more than the 31 devices" fleet --serve "${some[@]}" --clients 40
expect 2 "go with --devices" fleet --serve --events x
expect 1 "batch 32; this run has lenet5 with 61706 and batch 16" fleet --serve "${some[@]}" --batch 16
sed 1d devices >headless
expect 1 "line 1: it is no header" fleet --serve "${some[@]}" --devices headless
sed 's/"down": 1000000.0/"down": -1/' devices >negative
expect 1 'negative: line 2: "down" is -1' fleet --serve "${some[@]}" --devices negative
sed 's/"step_us": [0-9]*/"step_us": 0/' costs.json >zero
expect 1 '"step_us" is missing or outside' fleet --serve "${some[@]}" --costs zero
# A file of too many devices: in the memory of a line, and nothing is written. (Sanitizers take address space of their own.)
if [ -z "${DUNLIN_SHORT:-}" ]; then
    { head -1 devices; yes '{"class": "fast", "memory": 1, "down": 1, "up": 1, "trace": [[0, "o"]]}' | head -1000001 || true; } >many
    expect 1 "many: line 1000002: there are more than 1000000 devices" bash -c 'ulimit -v 400000; exec "$@"' _ \
        "$bin/dunlin-fleet" --serve "${some[@]}" --devices many --json none.json
    [ ! -e none.json ] || { echo "simulated.sh: a refused run has left a result"; exit 1; }
    rm many
fi
sed -n '1p;32p' devices >never
expect 1 "no device can take part any more: 0 lack memory, 0 storage, 1 are never" fleet --serve "${some[@]}" --devices never
expect 1 "--json nowhere/x: the folder nowhere/: No such file" fleet --serve "${some[@]}" --json nowhere/x
expect 1 "--report old: it is a folder" fleet --serve "${some[@]}" --report old
expect 1 "no regular file" fleet --serve "${some[@]}" --devices <(cat devices)
expect 1 "not over after --sim-hours 0.02" fleet --serve "${some[@]}" --rounds 8 --cohort 5 --deadline 60 --sim-hours 0.02
[ "$has_memory" != ON ] || expect 1 "--windows 5: expected ACCEPT:REJECT" fleet --serve "${some[@]}" --transport memory --windows 5
expect 1 "old: a run lies there that cannot be gone on with" fleet --serve "${some[@]}" --state old

# A server that dies ends the run, with one line: the last of its log, or that it keeps no time.
"$bin/dunlin-fleet" --serve "${some[@]}" --rounds 1000 --cohort 5 --deadline 60 --state killed >out 2>error &
running=$!
for _ in $(seq 600); do
    [ -s killed/port ] && [ -s out ] && break
    sleep 0.1
done
child=$(cat /proc/$running/task/$running/children 2>/dev/null || ps -o pid= --ppid $running)
kill -9 $child
code=0
wait $running || code=$?
[ $code = 1 ] && grep -q "the server ended\|the server at .* does not keep the time" error && [ "$(wc -l <error)" = 1 ] || { echo "simulated.sh: a dead server gave $code: $(cat error)"; exit 1; }
expect 2 "not N:PROFILE" fleet --make-devices 3:phones --devices x
expect 1 "nowhere/x cannot be written" fleet --make-devices 3:mixed --devices nowhere/x
fleet --make-devices 30:mixed --devices made --seed 5 >out
grep -q "30 devices of mixed, seed 5" out
[ "$(wc -l <made)" = 31 ]
echo "simulated: $(python3 -c 'import json; s = json.load(open("a.json"))["simulated"]; print(s["events"], "events,", s["hours"], "hours")')"
