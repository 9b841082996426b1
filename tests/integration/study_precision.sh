#!/bin/bash
# The study of precisions as a user meets it: steps, runs on one machine and in fleets, and a paper's figures that follow from the
# rows; tables that repeat to the byte without the clock's columns, in one process and in two, and after an interruption; what a
# network has not in a precision, by name; energy where it is counted. study_precision.sh BIN-FOLDER
set -euo pipefail
. "$(dirname "$0")/study_tools.sh"

study() {
    "$bin/dunlin-study" precision --quick --data synthetic --seeds 1 --steps 1 --max-processor-minutes 0 "$@" >>"$work/out"
}

small=(--models lenet5 --precisions fp32,niti,niti16,octo --epochs 1 --rounds 2 --clients 3 --cohort 2 --max-examples 240 --batches 16)
tables="precision precision_steps precision_runs precision_summary precision_claims"
study "${small[@]}" --no-times --out "$work/a"
study "${small[@]}" --no-times --jobs 2 --out "$work/b"
for table in $tables; do
    cmp "$work/a/$table.csv" "$work/b/$table.csv" || fail "$table depends on the number of processes"
    [ "$(wc -l <"$work/a/$table.csv")" -gt 3 ] || fail "$table has no rows"
done
head -1 "$work/a/precision.csv" | grep 'time_\|wire_\|energy_' >/dev/null && fail "columns of the clock with --no-times"
# Half of the parts are lost: it goes on, and ends with the same bytes.
lines=$(wc -l <"$work/b/precision.rows")
head -n $((lines / 2)) "$work/a/precision.rows" >"$work/b/precision.rows"
rm "$work"/b/*.csv
study "${small[@]}" --no-times --out "$work/b" --resume
grep -q " $((lines / 2)) of $lines parts kept" "$work/out" || fail "parts were not kept: $(tail -2 "$work/out")"
for table in $tables; do cmp "$work/a/$table.csv" "$work/b/$table.csv" || fail "$table is another after --resume"; done
python3 - "$work/a" <<'PY' || fail "the tables"
import csv, sys
read = lambda name: list(csv.DictReader(open(f"{sys.argv[1]}/precision{name}.csv")))
rows, steps, runs, summary, claims = (read(name) for name in ("", "_steps", "_runs", "_summary", "_claims"))
names = ["fp32", "niti", "niti16", "octo"]
assert [s["precision"] for s in steps] == names and {s["model"] for s in steps} == {"lenet5"} and {s["batch"] for s in steps} == {"16"}, steps
number = lambda row, key: float(row[key])
by = {s["precision"]: s for s in steps}
assert len({s["weights_hash"] for s in steps}) == 4 and not any(s["refused"] for s in steps)
# int8 in place of float32, and in place of int8 16 bits; tensors begin at multiples of 64 bytes.
assert all(abs(n * number(by[p], "weights_bytes") / number(by["fp32"], "weights_bytes") - 1) < 0.02 for p, n in (("niti", 4), ("niti16", 2))), steps
assert number(by["niti"], "least_bytes") < number(by["niti16"], "least_bytes") < number(by["fp32"], "least_bytes")
assert {(r["setting"], r["precision"]) for r in runs} == {(s, p) for s in ("centralised", "federated") for p in names}
assert len(runs) == len(summary) == 8 and {r["end"] for r in runs} == {"finished"}
bits = {"centralised": "5,4,3,2,1,0", "federated": "5,4,3"}
assert all(r["grad_bits"] == bits[r["setting"]] for r in runs if r["precision"].startswith("niti"))
assert not any(r["lr"] for r in runs if r["precision"].startswith("niti"))
assert all(r["lr"] and not r["grad_bits"] for r in runs if r["precision"] in ("fp32", "octo"))
fleet = [r for r in rows if r["setting"] == "federated"]
assert len(fleet) == 8 and {r["round"] for r in fleet} == {"1", "2"} and {r["participants"] for r in fleet} == {"2"}
assert len([r for r in rows if r["setting"] == "centralised"]) == 4
# The figures follow from the rows.
end = {(r["setting"], r["precision"]): number(r, "accuracy") for r in runs}
for precision in names[1:]:
    claim = next(c for c in claims if c["figure"] == "accuracy lost to float32, LeNet, federated: " + precision)
    lost = 100 * (end["federated", "fp32"] - end["federated", precision])
    assert abs(number(claim, "ours") - lost) < 1e-3 and claim["paper"] == "2.14" and claim["cases"] == "1", (claim, lost)
    assert claim["holds"] == ("holds" if number(claim, "ours_high") <= 2.14 else "does not hold"), claim
assert {c["holds"] for c in claims if "VGG-11" in c["figure"] or "MobileNetV2" in c["figure"]} == {"not run here"}
assert {c["holds"] for c in claims if c["figure"].startswith("accuracy lost") and c["figure"].endswith("LeNet, federated: wageubn")} == {"not run here"}
PY
# What a precision has not: one row says why, and nothing is trained in it. With the clock there are times, and bytes of messages.
study --models cnn_bn --precisions fp32,niti,mls --epochs 1 --rounds 1 --clients 2 --max-examples 80 --batches 8 --out "$work/c"
python3 - "$work/c" <<'PY' || fail "a network with batch norm"
import csv, json, sys
read = lambda name: list(csv.DictReader(open(f"{sys.argv[1]}/precision{name}.csv")))
steps, runs, claims = read("_steps"), read("_runs"), read("_claims")
refused = [s for s in steps if s["refused"]]
assert [s["precision"] for s in refused] == ["niti"] and "batch_norm" in refused[0]["refused"] and not refused[0]["time_cpu_ms"], steps
assert {r["precision"] for r in runs} == {"fp32", "mls"} and len(runs) == 4, runs
for s in (s for s in steps if not s["refused"]):
    assert 0 < float(s["time_cpu_low_ms"]) <= float(s["time_cpu_ms"]) <= float(s["time_cpu_high_ms"]) and s["time_steps"] == "1", s
assert all(float(r["time_cpu_s"]) > 0 for r in runs) and all(float(r["wire_up_bytes"]) > 0 for r in runs if r["setting"] == "federated"), runs
ratio = next(c for c in claims if c["figure"].startswith("a batch takes up to 8.3 times less time: float32 over the other"))
by = {s["precision"]: s for s in steps}
assert abs(float(ratio["time_ours"]) / (float(by["fp32"]["time_cpu_ms"]) / float(by["mls"]["time_cpu_ms"])) - 1) < 1e-4, ratio
table = next(t for t in json.load(open(sys.argv[1] + "/report.json"))["tables"] if t["name"] == "precision")
assert len(table["steps"]) == 3 and len(table["claims"]) == len(claims) and len(table["runs"]) == 4
PY
# Counters of energy that stand still: no joule; without any: nothing is claimed.
mkdir -p "$work/sys/powercap/intel-rapl:0" "$work/none"
echo 1000 >"$work/sys/powercap/intel-rapl:0/energy_uj"
for folder in sys none; do
    study --models lenet5 --precisions fp32 --epochs 1 --rounds 1 --clients 2 --max-examples 60 --partition iid --batches 8 --energy "$work/$folder" --out "$work/e$folder"
done
energy() { python3 -c 'import csv, sys
print(*[row[sys.argv[2]] for row in csv.DictReader(open(sys.argv[1]))])' "$1" "$2"; }
[ "$(energy "$work/esys/precision_steps.csv" energy_step_j)" = 0 ] || fail "a counter that stands still"
[ "$(energy "$work/esys/precision_runs.csv" energy_j)" = "0 0" ] || fail "a counter that stands still, of runs"
[ -z "$(energy "$work/enone/precision_steps.csv" energy_step_j)" ] || fail "joules without a counter"
# A limit that is over at once: nothing begins, and what is left out is listed.
study --models lenet5 --max-minutes 1e-9 --no-times --out "$work/l"
[ "$(wc -l <"$work/l/precision.csv")" = 1 ] && grep -q "^left out: precision lenet5 in a fleet, mls, seed 1" <(tr ';' '\n' <"$work/out") ||
    grep -q "precision lenet5 in a fleet, mls, seed 1" "$work/l/report.html" || fail "the limit"
expect 2 "precisions best: expected some of fp32, niti, niti16" "$bin/dunlin-study" precision --precisions fp32,best --out "$work/x"
expect 2 "precisions goes with precision" "$bin/dunlin-study" curve --precisions niti --out "$work/x"
expect 2 "lr 0.1,0.2: precision takes one rate" "$bin/dunlin-study" precision --lr 0.1,0.2 --out "$work/x"
expect 2 "parts goes with" "$bin/dunlin-study" precision --parts steps --out "$work/x"
echo "study_precision.sh: ok"
