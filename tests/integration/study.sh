#!/bin/bash
# dunlin-study as a user meets it: tables that repeat to the byte without the columns of the clock, a study that is killed
# goes on and ends with the same tables, a damaged journal costs only what is damaged, wrong flags are refused by name, the
# report is whole. study.sh BIN-FOLDER [long]: long also runs the fleets.
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp" # a run must leave nothing there
unset DUNLIN_DATA
mkdir "$TMPDIR"

# expect STATUS TEXT COMMAND...: the exit status, and one line on stderr that says TEXT.
expect() {
    local wanted=$1 text=$2 got=0
    shift 2
    "$@" >/dev/null 2>"$work/error" || got=$?
    if [ "$got" != "$wanted" ] || ! grep -q -- "$text" "$work/error" || [ "$(wc -l <"$work/error")" -gt 1 ]; then
        echo "study.sh: $* gave $got and: $(cat "$work/error")"
        exit 1
    fi
}

fail() {
    echo "study.sh: $*"
    exit 1
}

study() {
    "$bin/dunlin-study" "$@" --quick --models lenet5 --data synthetic --no-times --swap-dir /var/tmp >>"$work/out"
}

# values FILE COLUMN: the values of a column, one a line.
values() {
    python3 -c 'import csv, sys
for row in csv.DictReader(open(sys.argv[1])):
    print(row[sys.argv[2]])' "$1" "$2"
}

# A table of eight people's three activities, and a folder of pictures: three classes of one picture of 8 x 8.
{ echo a,b,c,kind,user; for i in $(seq 0 239); do echo "$((i % 3 + i % 7)),$((i * i % 11)),$((i % 5)),k$((i % 3)),u$((i % 8))"; done; } >"$work/table"
people="csv:$work/table,label=kind,client=user"
for class in a b c; do
    mkdir -p "$work/pictures/$class"
    for i in 1 2 3 4 5 6 7 8; do
        base64 -d >"$work/pictures/$class/$i.png" <<<"iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAU0lEQVR42gFIALf/AAAFFC1QfbT1ABAVJD1gjcQFACAlNE1wndQVADA1RF2AreQlAEBFVG2QvfQ1AFBVZH2gzQRFAGBldI2w3RRVAHB1hJ3A7SRlPAUZ4dKywHYAAAAASUVORK5CYII="
    done
done

if [ "${2:-}" = long ]; then
    # A grid over fleets: rates chosen on what no device has, run on another seed; the same in one process and in three.
    for jobs in 1 3; do
        "$bin/dunlin-study" federated --dataset "$people" --quick --seeds 1 --clients 3 --rounds 2 --epochs 1 --partition iid,writers --lr 0.01,0.1 \
            --batches 4,price:1.5 --policies none,auto --no-times --out "$work/g$jobs" --swap-dir /var/tmp --jobs $jobs >>"$work/out"
    done
    for table in federated federated_tuning federated_runs federated_summary; do
        cmp "$work/g1/$table.csv" "$work/g3/$table.csv" || fail "$table depends on the number of processes"
        [ "$(wc -l <"$work/g1/$table.csv")" -gt 4 ] || fail "$table has no rows"
    done
    [ "$(values "$work/g1/federated_tuning.csv" seed | sort -u)" = 1 ] || fail "rates were tuned on several seeds"
    [ "$(values "$work/g1/federated_runs.csv" seed | sort -u)" = 2 ] || fail "runs are not of a fresh seed"
    [ "$(values "$work/g1/federated_runs.csv" tuned_on_seed | grep . | sort -u)" = 1 ] || fail "runs do not say which seed tuned"
    [ "$(values "$work/g1/federated.csv" partition | sort -u | tr '\n' ' ')" = "iid writers " ] || fail "partitions"
    # A tenth of eight people is one of them, who has thirty examples in both parts.
    held=$(values "$work/g1/federated_tuning.csv" validation_examples | sort -u)
    [ "$held" -ge 15 ] && [ "$held" -le 30 ] || fail "not one whole person is held out: $held"
    # Every partition that a data set has.
    "$bin/dunlin-study" federated --dataset "$people" --quick --seeds 1 --batches 8 --no-times --out "$work/own" --swap-dir /var/tmp >>"$work/out"
    for split in iid dirichlet:0.3 writers; do
        grep -q "^har_mlp,table,$split,fedavg,8,8," "$work/own/federated.csv" || fail "no fleet over the table split by $split"
    done
    "$bin/dunlin-study" federated --dataset "folder:$work/pictures" --quick --seeds 1 --batches 4 --models lenet5 --no-times --out "$work/own" \
        --swap-dir /var/tmp >>"$work/out" 2>"$work/error" || grep -q "too small" "$work/error" || fail "a folder in a fleet: $(cat "$work/error")"
    # A named study's fleets: the small batch without a planner beside a larger one, on both splits.
    "$bin/dunlin-study" melon --parts federated --models cnn_bn --data synthetic --quick --seeds 1 --clients 3 --rounds 2 --lr 0.01 --max-examples 240 \
        --no-times --out "$work/mf" --swap-dir /var/tmp >>"$work/out"
    [ "$(values "$work/mf/melon_federated_summary.csv" partition | sort -u | tr '\n' ' ')" = "dirichlet:0.3 iid " ] || fail "melon's splits"
    [ "$(grep -c "^melon,accuracy gained by it, federated" "$work/mf/melon_claims.csv")" = 2 ] || fail "melon's figures of fleets"
    if grep "^melon,accuracy gained by it, federated" "$work/mf/melon_claims.csv" | grep -q "not run here"; then fail "melon's fleets have no case"; fi
    for out in a b; do
        study federated --seeds 1 --out "$work/$out"
    done
    cmp "$work/a/federated.csv" "$work/b/federated.csv" || fail "two fleets differ"
    [ "$(wc -l <"$work/a/federated.csv")" -gt 100 ] || fail "rounds are missing"
    # Unequal devices: the same in one process and in two; every run ends, and its tables follow from its rows.
    study heterogeneity --seeds 1 --out "$work/a"
    study heterogeneity --seeds 1 --jobs 2 --out "$work/b"
    for table in heterogeneity heterogeneity_runs heterogeneity_summary heterogeneity_directions; do
        cmp "$work/a/$table.csv" "$work/b/$table.csv" || fail "$table depends on the number of processes"
    done
    python3 - "$work/a" <<'END' || fail "the tables of unequal devices"
import csv, sys
read = lambda name: list(csv.DictReader(open(f"{sys.argv[1]}/heterogeneity{name}.csv")))
rows, runs, summary, directions = read(""), read("_runs"), read("_summary"), read("_directions")
ends = [row for row in rows if row["end"] == "finished"]
assert len(ends) == len(runs) == len(summary) == 14, (len(ends), len(runs), len(summary))
assert {row["condition"] for row in rows if row["algorithm"] == "fedavg"} == {"none", "hardware", "state", "data", "hardware, state", "hardware, data", "state, data", "all"}
number = lambda row, key: float(row[key])
for row in ends:
    dropped = sum(int(row[cause]) for cause in ("late", "surplus", "conditions", "failure", "memory", "refused", "error"))
    assert int(row["assigned"]) >= dropped and 0 <= number(row, "worst_tenth") <= number(row, "device_accuracy") <= 1, row
    assert number(row, "class_least") <= number(row, "class_most"), row
by = {(row["condition"], row["algorithm"]): row for row in ends}
assert int(by["none", "fedavg"]["conditions"]) == int(by["none", "fedavg"]["failure"]) == 0, by["none", "fedavg"]
assert number(by["hardware", "fedavg"], "sim_hours") > number(by["none", "fedavg"], "sim_hours")
assert int(by["all", "fedprox, part of the work"]["partial"]) > 0 == int(by["all", "fedprox"]["partial"])
assert len(directions) == 5 and {row["cases"] for row in directions} == {"1"}
late = {row["condition"]: number(row, "late_accuracy") for row in runs if row["algorithm"] == "fedavg"}
lost = 100 * (late["data"] - late["all"])
assert abs(number(directions[0], "ours") - lost) < 0.01 and directions[0]["paper"] == "9.2", directions[0]
END
    # Its fleets take the flags of a size, and other sizes are other runs; what cannot be is refused.
    study heterogeneity --seeds 1 --clients 12 --cohort 4 --rounds 2 --max-examples 240 --epochs 1 --out "$work/a" --resume
    python3 - "$work/a" <<'END' || fail "the size of unequal fleets"
import csv, sys
runs = list(csv.DictReader(open(f"{sys.argv[1]}/heterogeneity.csv")))
assert len({(row["condition"], row["algorithm"]) for row in runs}) == 14
assert {(row["clients"], row["cohort"]) for row in runs} == {("12", "4")} and {row["round"] for row in runs} == {"1", "2"}
END
    expect 2 "--cohort 50 is more than" "$bin/dunlin-study" heterogeneity --cohort 50 --clients 12 --data synthetic --out "$work/none"
    expect 2 "--cohort 50 is more than 40 devices" "$bin/dunlin-study" heterogeneity --quick --cohort 50 --data synthetic --out "$work/none"
    expect 2 "--max-examples 39 is less than one for each of 40 devices" "$bin/dunlin-study" heterogeneity --quick --max-examples 39 --data synthetic --out "$work/none"
    expect 2 "--lr goes with convergence and federated" "$bin/dunlin-study" heterogeneity --lr 0.1 --data synthetic --out "$work/none"
    grep -q "What unequal devices cost" "$work/a/report.html" || fail "the report has no unequal devices"
    [ -z "$(ls -A "$TMPDIR")" ] || fail "a run left files: $(ls -A "$TMPDIR")"
    echo "study.sh: ok"
    exit 0
fi

# The same twice. A build with sanitizers, which runs a part of the random cases, looks at one run.
outs=(a b)
[ "${DUNLIN_CASES:-1}" = 1 ] || outs=(a)
for out in "${outs[@]}"; do
    study max-batch --out "$work/$out"
    study throughput --batches 8,32 --steps 1 --out "$work/$out"
    study curve --policies pool,sublinear,sage,auto --steps 1 --out "$work/$out"
    study ablation --steps 1 --out "$work/$out"
    study adaptation --out "$work/$out"
    study convergence --policies pool --seeds 1 --out "$work/$out"
done
for table in max-batch throughput curve ablation adaptation convergence; do
    cmp "$work/a/$table.csv" "$work/${outs[-1]}/$table.csv" || fail "$table differs from run to run"
    [ "$(wc -l <"$work/a/$table.csv")" -gt 5 ] || fail "$table has no rows"
    grep -q "id = \|$table" "$work/a/report.html" || fail "$table is not in the report"
done
if head -1 "$work/a/throughput.csv" | grep -q 'time_\|wire_'; then fail "--no-times left a column of the clock"; fi
tail -c 20 "$work/a/report.html" | grep -q '</html>' || fail "the report is cut off"

# Killed in the middle, then gone on with; the second time with a journal whose last line is cut off.
"$bin/dunlin-study" throughput --batches 8,32 --steps 1 --quick --models lenet5 --data synthetic --no-times --out "$work/k" --swap-dir /var/tmp \
    >/dev/null 2>&1 &
pid=$!
while [ "$(wc -l 2>/dev/null <"$work/k/throughput.rows" || echo 0)" -lt 3 ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
kill -KILL $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
study throughput --batches 8,32 --steps 1 --out "$work/k" --resume
cmp "$work/a/throughput.csv" "$work/k/throughput.csv" || fail "a resumed study has other tables"
tail -1 "$work/out" | grep -q report.html
grep -q " [1-9][0-9]* of 24 parts kept" "$work/out" || fail "nothing was kept"
truncate -s -9 "$work/k/throughput.rows"
study throughput --batches 8,32 --steps 1 --out "$work/k" --resume
cmp "$work/a/throughput.csv" "$work/k/throughput.csv" || fail "a damaged journal gives other tables"
grep -q " 23 of 24 parts kept" "$work/out" || fail "a cut line was taken, or whole ones were not"
# Other inputs are other rows.
study throughput --batches 8,32 --steps 1 --seed 2 --out "$work/k" --resume
cmp -s "$work/a/throughput.csv" "$work/k/throughput.csv" && fail "rows of another seed were taken"

# What a step takes has its spread; the report's tables are in one file, too.
"$bin/dunlin-study" throughput --quick --models lenet5 --policies ideal,auto --batches 8 --data synthetic --out "$work/t" --swap-dir /var/tmp >>"$work/out"
python3 - "$work/t" <<'EOF' || fail "the times of steps have no spread, or report.json is not whole"
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1] + "/throughput.csv")))
assert len(rows) == 2, rows
for row in rows:
    low, mid, high = (float(row["time_cpu_%sms" % which]) for which in ("low_", "", "high_"))
    assert row["time_steps"] == "3" and 0 < low <= mid <= high, row
tables = json.load(open(sys.argv[1] + "/report.json"))["tables"]
assert [t["name"] for t in tables] == ["throughput"] and len(tables[0]["rows"]) == 2 and tables[0]["left_out"] == [], tables
EOF
# The largest batch has a price, and auto one within a limit of it.
grep -q '^lenet5,.*,auto within 1.3 x,.*,1.3,' "$work/a/max-batch.csv" || fail "max-batch has no batch within a price"
python3 - "$work/a/max-batch.csv" <<'EOF' || fail "max-batch: prices are wrong"
import csv, sys
for row in csv.DictReader(open(sys.argv[1])):
    fits = row["is_any"] == "1" or int(row["max_batch"]) > 0
    assert fits == (row["price"] != ""), row
    assert row["ratio_predicted"] in ("", row["price"]) and (row["is_any"] == "0" or row["priced_batch"] == "1073741824"), row
EOF

# A limit that is over at once: nothing begins, every study has its table, and what is left out is listed. Gone on with, it is all there.
study all --max-minutes 1e-9 --out "$work/l"
for table in max-batch throughput curve ablation adaptation convergence federated heterogeneity precision; do
    [ "$(wc -l <"$work/l/$table.csv")" = 1 ] || fail "$table began after the limit"
    grep -q "^left out: $table lenet5\|^left out: federated synthetic\|^left out: $table steps of lenet5" "$work/out" || fail "the terminal does not say what was left out of $table"
done
grep -q '"left_out":\["max-batch lenet5 none"' "$work/l/report.html" || fail "the report does not say what was left out"
grep -q '"max_minutes": 1e-9\|"max_minutes": 1.0e-9\|"max_minutes": 1.0000000000000001e-9' "$work/l/report.json" || fail "the JSON does not say the limit"
study convergence --policies pool,auto --out "$work/l2"
study convergence --policies pool,auto --max-processor-minutes 1e-9 --out "$work/l"
study convergence --policies pool,auto --max-minutes 100000 --out "$work/l" --resume
grep -q " 0 of 4 parts kept" <(tail -2 "$work/out") || fail "a part began after the limit"
# Seed by seed with a limit, policy by policy without: the rows stand in the same order.
cmp "$work/l/convergence.csv" "$work/l2/convergence.csv" || fail "a limit that was not reached changed the table"
grep -q '"left_out": \[\]' "$work/l/convergence.json" || fail "parts that were done are listed as left out"

# A user's own data: what they hold decides the networks and their sizes, and every table names them.
own() {
    "$bin/dunlin-study" "$@" --quick --seeds 1 --policies none,auto --batches 8,16 --no-times --swap-dir /var/tmp >>"$work/out"
}
for out in c d; do
    for kind in max-batch throughput curve ablation convergence; do own "$kind" --dataset "$people" --out "$work/$out"; done
done
for kind in max-batch throughput curve ablation convergence; do
    cmp "$work/c/$kind.csv" "$work/d/$kind.csv" || fail "$kind of a table differs from run to run"
    grep -q "^har_mlp,.*table" "$work/c/$kind.csv" || fail "$kind does not name its data set"
done
head -1 "$work/c/throughput.csv" | grep -q ',dataset,is_synthetic$' || fail "throughput has no column of the data set"
head -1 "$work/a/throughput.csv" | grep -q ',dataset' && fail "a study without --dataset has other columns"
own throughput --dataset "folder:$work/pictures" --image 28 --models lenet5 --out "$work/e" --json "$work/e.json"
grep -q '^lenet5,28,.*,pictures,0$' "$work/e/throughput.csv" || fail "no row over the pictures: $(cat "$work/e/throughput.csv")"
grep -q '"data": "pictures"' "$work/e.json" || fail "the JSON does not name the data set"
grep -q '"data":"pictures"\|"data": "pictures"' "$work/e/report.html" || fail "the report does not name the data set"
own throughput --dataset random --models lenet5 --out "$work/e" --resume
grep -q " 0 of 4 parts kept" <(tail -2 "$work/out") || fail "rows of another data set were taken"
grep -q '^lenet5,.*,random numbers,1$' "$work/e/throughput.csv" || fail "random numbers are not named"
expect 2 "dataset folder_of_mine: expected one of" "$bin/dunlin-study" curve --dataset folder_of_mine --out "$work/x"
expect 1 "nowhere: No such file" "$bin/dunlin-study" curve --dataset folder:nowhere --out "$work/x"
expect 1 "sort" "$bin/dunlin-study" curve --dataset "csv:$work/table,label=sort" --out "$work/x"
expect 1 "mnist is read from files" "$bin/dunlin-study" curve --dataset mnist --out "$work/x"
expect 2 "synthetic goes with" "$bin/dunlin-study" curve --data synthetic --dataset mnist --out "$work/x"
expect 2 "image 4:\|image" "$bin/dunlin-study" curve --image 4 --out "$work/x"

# A grid: rates for each batch chosen on a validation split, one seed for tuning and others for the runs, ghosts as policies; the same in one
# process and in three, and where it goes on after a kill.
grid() {
    "$bin/dunlin-study" convergence --dataset "$people" --quick --lr 0.01,0.1,rule --batches 4,16,price:1.5 --policies none,auto --budgets 100% \
        --epochs 2 --seeds 2 --no-times --swap-dir /var/tmp "$@" >>"$work/out"
}
grid --out "$work/g" --jobs 1
grid --out "$work/h" --jobs 3
for table in convergence convergence_tuning convergence_runs convergence_summary; do
    cmp "$work/g/$table.csv" "$work/h/$table.csv" || fail "$table depends on the number of processes"
    [ "$(wc -l <"$work/g/$table.csv")" -gt 6 ] || fail "$table has no rows"
done
lines=$(wc -l <"$work/h/convergence.rows")
head -n 5 "$work/h/convergence.rows" >"$work/some"
mv "$work/some" "$work/h/convergence.rows"
grid --out "$work/h" --jobs 2 --resume
grep -q " 5 of $lines parts kept" "$work/out" || fail "rows of a grid were not kept: $(tail -2 "$work/out")"
cmp "$work/g/convergence.csv" "$work/h/convergence.csv" || fail "a resumed grid has other tables"
python3 - "$work/g" <<'END' || fail "the tables of a grid"
import csv, math, sys
rows, tuning, runs, summary = (list(csv.DictReader(open(f"{sys.argv[1]}/convergence{name}.csv"))) for name in ("", "_tuning", "_runs", "_summary"))
assert {row["seed"] for row in tuning} == {"1"} and {row["seed"] for row in runs} == {"2", "3"}
# One person of eight is held out; tuning rows have no accuracy on the test part, and of each setting one rate is chosen, the best at its end.
held = {int(row["validation_examples"]) for row in tuning}
assert len(held) == 1 and 15 <= min(held) <= 30, held
assert "test_accuracy" not in tuning[0]
for setting in {row["setting"] for row in tuning}:
    last = [row for row in tuning if row["setting"] == setting and row["is_last"] == "1"]
    assert len(last) == 2
    best = max(last, key=lambda row: (float(row["validation_accuracy"] or -1), -float(row["validation_loss"] or 1e9), -float(row["lr"])))
    assert [row["lr"] for row in last if row["is_chosen"] == "1"] == [best["lr"]]
    batch = best["batch"]
    assert {row["lr"] for row in runs if row["batch"] == batch and row["rate_rule"] == "tuned"} == {best["lr"]}
# Every exact policy has the same bits.
for row in rows:
    same = [other for other in rows if all(other[key] == row[key] for key in ("batch", "lr", "seed", "epoch"))]
    assert {other["test_accuracy"] for other in same} == {row["test_accuracy"]}
# The ideal step's bytes are too few without a planner, which the tables say.
assert {run["policy"] for run in runs if run["end"] != "finished"} <= {"none"} and {run["end"] for run in runs} <= {"finished", "does not fit"}
for row in summary:
    mine = [float(run["accuracy"]) for run in runs if run["variant"] == row["variant"] and run["accuracy"]]
    if row["policy"] == "none":
        assert int(row["runs"]) == len(mine) and int(row["runs"]) + int(row["failed"]) == 2
        continue
    mean = sum(mine) / 2
    assert row["runs"] == "2" and abs(float(row["mean_accuracy"]) - mean) < 1e-5
    assert abs(float(row["sd_accuracy"]) - math.sqrt(sum((a - mean) ** 2 for a in mine))) < 1e-5
    assert abs(float(row["test_error"]) - math.sqrt(mean * (1 - mean) / float(row["test_examples"]))) < 1e-5
assert max(int(run["batch"]) for run in runs) <= 17, "a price leaves ten steps of 170 examples"
for run in (run for run in runs if run["accuracy"]):
    curve = [row for row in rows if row["variant"] == run["variant"] and row["seed"] == run["seed"]]
    assert len(curve) == 2 and curve[-1]["test_accuracy"] == run["accuracy"] and int(run["operand_bytes"]) > int(curve[0]["operand_bytes"])
    first = [row for row in curve if float(row["test_accuracy"]) >= float(run["target"])]
    assert run["epoch_to_target"] == (first[0]["epoch"] if first else "")
assert {row["batch_rule"] for row in runs} == {"4", "16", "price:1.5"}
END
# Counters of energy that stand still: no joule; without any: nothing is claimed.
mkdir -p "$work/sys/powercap/intel-rapl:0" "$work/none"
echo 1000 >"$work/sys/powercap/intel-rapl:0/energy_uj"
for folder in sys none; do
    "$bin/dunlin-study" convergence --dataset "$people" --quick --lr 0.1 --batches 16 --epochs 1 --seeds 1 --energy "$work/$folder" --swap-dir /var/tmp \
        --out "$work/$folder" >>"$work/out"
done
[ "$(values "$work/sys/convergence_runs.csv" energy_j)" = 0 ] || fail "a counter that stands still"
[ -z "$(values "$work/none/convergence_runs.csv" energy_j)" ] || fail "joules without a counter"
values "$work/none/convergence_runs.csv" time_cpu_s | grep '[0-9]' >/dev/null || fail "no processor seconds"
# Ghost statistics beside exact ones, augmented, on a network with batch norm; one without has none.
"$bin/dunlin-study" convergence --models cnn_bn --data synthetic --quick --policies auto,ghost:4 --batches 16 --lr 0.02 --epochs 1 --max-examples 64 \
    --seeds 1 --augment crop=2,flip --schedule linear --warmup 0 --weight-decay 1e-4 --no-times --swap-dir /var/tmp --out "$work/i" >>"$work/out"
[ "$(values "$work/i/convergence_runs.csv" ghost | tr '\n' ' ')" = "0 4 " ] || fail "ghosts are no policies"
[ "$(values "$work/i/convergence_runs.csv" accuracy | sort -u | wc -l)" = 2 ] || fail "ghost statistics are the exact ones"
expect 2 "ghost:4: lenet5 has no batch norm" "$bin/dunlin-study" convergence --models lenet5 --data synthetic --policies ghost:4 --out "$work/x"
expect 2 "nothing is left to do: --partition writers" "$bin/dunlin-study" federated --dataset random --models lenet5 --partition writers --quick \
    --out "$work/x"
expect 2 "nothing is left to do: --data" "$bin/dunlin-study" federated --models har_mlp --data synthetic --quick --out "$work/x"
expect 2 "lr 0: expected rates above 0" "$bin/dunlin-study" convergence --lr 0 --out "$work/x"
expect 2 "lr 0.1 stands twice" "$bin/dunlin-study" convergence --lr 0.1,0.1 --out "$work/x"
expect 2 "lr fast: expected rates" "$bin/dunlin-study" convergence --lr 0.1,fast --out "$work/x"
expect 2 "batches price:0.9: expected" "$bin/dunlin-study" convergence --batches price:0.9 --out "$work/x"
expect 2 "batches price:1.1: throughput takes numbers" "$bin/dunlin-study" throughput --batches price:1.1 --out "$work/x"
expect 2 "partition shards: expected some of iid" "$bin/dunlin-study" federated --partition shards --out "$work/x"
expect 2 "partition dirichlet:0: expected" "$bin/dunlin-study" federated --partition dirichlet:0 --out "$work/x"
expect 2 "partition goes with federated" "$bin/dunlin-study" convergence --partition iid --out "$work/x"
expect 2 "policies ghost:0: expected" "$bin/dunlin-study" convergence --policies ghost:0 --out "$work/x"
expect 2 "lr goes with convergence and federated" "$bin/dunlin-study" curve --lr 0.1 --out "$work/x"
expect 2 "validation 100%: expected" "$bin/dunlin-study" convergence --validation 100% --out "$work/x"
expect 2 "schedule step: expected" "$bin/dunlin-study" convergence --schedule step --out "$work/x"
expect 2 "augment spin: expected" "$bin/dunlin-study" convergence --augment spin --out "$work/x"
expect 2 "cohort 4 is more than" "$bin/dunlin-study" federated --cohort 4 --clients 3 --out "$work/x"
expect 2 "models $work/none.onnx" "$bin/dunlin-study" convergence --models "$work/none.onnx" --out "$work/x"
# A file is a network like any other.
"$bin/dunlin-train" --model har_mlp --dataset "$people" --steps 1 --save "$work/own.onnx" >>"$work/out"
"$bin/dunlin-study" convergence --models "$work/own.onnx" --dataset "$people" --quick --batches 8 --epochs 1 --seeds 1 --no-times --swap-dir /var/tmp \
    --out "$work/o" >>"$work/out"
grep -q '^own.onnx,table,' "$work/o/convergence.csv" || fail "no rows of a file: $(cat "$work/o/convergence.csv")"

# A named study: parts of other studies with lists of its own, and a paper's figures beside ours. The same in one process and in two, and where
# it goes on after a kill; the tables of its parts are not those of the studies themselves.
melon() {
    "$bin/dunlin-study" melon --quick --models cnn_bn --data synthetic --no-times --swap-dir /var/tmp --batches 8,16 --lr 0.01,0.05 --epochs 2 \
        --max-examples 300 --seeds 1 --steps 1 --parts max-batch,throughput,convergence "$@" >>"$work/out"
}
melon --out "$work/m" --jobs 1
melon --out "$work/n" --jobs 2
for table in max-batch throughput convergence convergence_tuning convergence_runs convergence_summary claims; do
    cmp "$work/m/melon_$table.csv" "$work/n/melon_$table.csv" || fail "melon_$table depends on the number of processes"
    [ "$(wc -l <"$work/m/melon_$table.csv")" -gt 3 ] || fail "melon_$table has no rows"
done
[ ! -e "$work/m/throughput.csv" ] || fail "a part of a named study has the table of the study itself"
lines=$(wc -l <"$work/n/melon_throughput.rows")
head -n 4 "$work/n/melon_throughput.rows" >"$work/some"
mv "$work/some" "$work/n/melon_throughput.rows"
rm "$work/n/melon_claims.csv" "$work/n/melon.json"
melon --out "$work/n" --resume
grep -q "^throughput .* 4 of $lines parts kept" "$work/out" || fail "rows of a part were not kept: $(tail -4 "$work/out")"
cmp "$work/m/melon_claims.csv" "$work/n/melon_claims.csv" || fail "a resumed named study has other figures"
python3 - "$work/m" <<'END' || fail "the figures of a paper"
import csv, json, sys
read = lambda name: list(csv.DictReader(open(f"{sys.argv[1]}/melon_{name}.csv")))
claims, batches, steps, runs, summary = (read(name) for name in ("claims", "max-batch", "throughput", "convergence_runs", "convergence_summary"))
assert not [column for column in claims[0] if column.startswith(("time_", "wire_", "energy_"))]
number = lambda text: float(text) if text else None
# Words by the rule, anew: the number at the unfavourable end of the range, or in every case.
for row in claims:
    paper, ours, low, bar = (number(row[key]) for key in ("paper", "ours", "ours_low", "paper"))
    no_effect = 1 if row["unit"] == "x" else 0
    if ours is None:
        assert row["holds"] == "not run here" and row["cases"] == "0", row
    elif row["statistic"] == "each case":
        assert (row["holds"] == "holds") == (row["cases_good"] == row["cases"]), row
    elif paper is None:
        assert row["holds"] == ("holds" if low > no_effect else "holds in part" if ours > no_effect else "does not hold"), row
    else:
        assert row["holds"] == ("holds" if low >= paper else "holds in part" if ours > no_effect else "does not hold"), row
    assert row["rule"].startswith("holds: ") and "; in part: " in row["rule"] and row["differs"], row
not_run = {row["part"] for row in claims} - {row["part"] for row in claims if row["ours"]}
assert not_run == {"federated", "adaptation", "ablation"}, not_run
find = lambda text: next(row for row in claims if row["figure"].startswith(text))
# From the rows of this run: the largest batch, examples a second, accuracy.
best = lambda name: [int(row["max_batch"]) for row in batches if row["policy"] == name]
expected = max(best("auto within 1.3 x")[0] / best(other)[0] for other in ("sublinear", "vdnn", "capuchin") if best(other)[0] > 0)
assert abs(float(find("largest batch beside them")["ours"]) - expected) < 1e-4 * expected, (find("largest batch beside them"), expected)
# At any price: where any batch fits, as with most instruction sets, that is no number to compare with, and the row says so.
at_any_price, is_any = find("largest batch beside Sublinear"), [row["is_any"] for row in batches if row["policy"] == "auto"]
assert at_any_price["differs"].endswith(f"in {is_any.count('1')} more any batch fits") and len(is_any) == 1, at_any_price
assert bool(at_any_price["ours"]) == (is_any == ["0"]), at_any_price
ratios = [float(a["predicted_samples_per_s"]) / float(b["predicted_samples_per_s"]) for a in steps for b in steps
          if a["policy"] == "auto" and b["policy"] in ("sublinear", "vdnn", "capuchin") and a["batch"] == b["batch"] and a["fits"] == b["fits"] == "1"]
assert abs(float(find("examples a second")["ours"]) - sum(ratios) / len(ratios)) < 1e-4 and int(find("examples a second")["cases"]) == len(ratios)
accuracy = {(row["policy"], row["batch"]): float(row["mean_accuracy"]) for row in summary if row["mean_accuracy"]}
assert set(accuracy) == {("none", "8"), ("auto", "8"), ("auto", "16")}, accuracy
gain = 100 * (accuracy["auto", "16"] - accuracy["none", "8"])
assert abs(float(find("accuracy gained")["ours"]) - gain) < 1e-3 and find("accuracy gained")["cases"] == "1"
# The budget is what eight examples take with no memory shared: not one more fits.
assert {run["end"] for run in runs if run["policy"] == "none" and run["batch_rule"] == "16"} == {"does not fit"}
report = json.load(open(sys.argv[1] + "/report.json"))
assert [table["named"] for table in report["tables"]] == ["melon"] * 3 and [named["name"] for named in report["named"]] == ["melon"]
assert [row["figure"] for row in report["named"][0]["rows"]] == [row["figure"] for row in claims]
assert report["tables"][1]["command"].endswith(" --parts throughput")
END
"$bin/dunlin-study" max-batch --models lenet5 --policies none --budgets none:8 --data synthetic --no-times --out "$work/m" --swap-dir /var/tmp >>"$work/out"
[ "$(values "$work/m/max-batch.csv" max_batch)" = 8 ] || fail "a budget of eight examples holds $(values "$work/m/max-batch.csv" max_batch)"
[ -e "$work/m/melon_claims.csv" ] && grep -q '"named":"melon"\|"named": "melon"' "$work/m/report.html" || fail "another study took melon off the report"
# No time at all: everything is left out and listed, and every figure says so.
"$bin/dunlin-study" melon --quick --models lenet5 --data synthetic --max-minutes 1e-9 --out "$work/p" >"$work/left"
grep -q "^left out: adaptation lenet5" "$work/left" || fail "melon does not say what it left out"
[ "$(values "$work/p/melon_claims.csv" holds | sort -u)" = "not run here" ] || fail "figures of a run without rows"
"$bin/dunlin-study" --help | grep -q "all runs no named study" || fail "the help does not say that all has no named study"
expect 2 "melon: nothing is left to do: --partition writers" "$bin/dunlin-study" melon --parts federated --dataset random --models lenet5 \
    --partition writers --quick --out "$work/x"
expect 2 "parts curve: expected some of max-batch, throughput" "$bin/dunlin-study" melon --parts max-batch,curve --out "$work/x"
expect 2 "parts goes with named studies" "$bin/dunlin-study" curve --parts max-batch --out "$work/x"
expect 2 "budgets none:0: expected" "$bin/dunlin-study" curve --budgets none:0 --out "$work/x"
expect 2 "budgets none:8x: expected" "$bin/dunlin-study" curve --budgets none:8x --out "$work/x"
expect 2 "expected max-batch, .*, melon, .*or all\|expected max-batch, .*, melon, or all" "$bin/dunlin-study" melons --out "$work/x"

expect 2 "which study" "$bin/dunlin-study"
expect 2 "sideways: no study" "$bin/dunlin-study" sideways --out "$work/x"
expect 2 "models nonesuch" "$bin/dunlin-study" curve --models lenet5,nonesuch --out "$work/x"
expect 2 "policies best" "$bin/dunlin-study" curve --policies best --out "$work/x"
expect 2 "swap-speed 3" "$bin/dunlin-study" curve --swap-speed 3 --out "$work/x"
expect 1 "nowhere" "$bin/dunlin-study" throughput --models squeezenet1_1 --policies vdnn --budgets 95% --batches 32 --quick --data synthetic \
    --swap-dir /nowhere --out "$work/x"
expect 2 "budgets 3q" "$bin/dunlin-study" curve --budgets 3q --out "$work/x"
expect 2 "batches 0" "$bin/dunlin-study" throughput --batches 0 --out "$work/x"
expect 2 "costs $work/none" "$bin/dunlin-study" curve --models lenet5 --costs "$work/none" --out "$work/x"
expect 2 "no flag is called --fast" "$bin/dunlin-study" curve --fast
expect 2 "max-minutes" "$bin/dunlin-study" curve --max-minutes -1 --out "$work/x"
expect 2 "max-processor-minutes" "$bin/dunlin-study" curve --max-processor-minutes soon --out "$work/x"
expect 1 "cannot be made" "$bin/dunlin-study" curve --out /nowhere/study
printf '0.50 80%%\n0.25 60%%\n' >"$work/trace"
expect 1 "line 2" "$bin/dunlin-study" adaptation --models lenet5 --data synthetic --traces "$work/trace" --out "$work/x"
[ -z "$(ls -A "$TMPDIR")" ] || fail "a run left files: $(ls -A "$TMPDIR")"
echo "study.sh: ok"
