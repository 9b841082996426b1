#!/bin/bash
# dunlin-fleet as a user meets it: a run over HTTPS learns, the same seed gives the same figures at any thread count, what
# is not there yet is refused, the report is whole. fleet.sh BIN-FOLDER
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp" # a run must leave nothing there
mkdir "$TMPDIR"

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
        --batch 8 --budget 2MiB --lr 0.02 --seed "$1" --threads "$2" --json "$3" --report "$work/report.html" >"$work/out"
}

run 5 1 "$work/a.json"
run 5 2 "$work/b.json"
run 6 2 "$work/c.json"
python3 - "$work/a.json" "$work/b.json" "$work/c.json" <<'PYTHON'
import json, sys
a, b, c = (json.load(open(path)) for path in sys.argv[1:])
figures = lambda run: [(r["round"], r["accuracy"], r["loss"], r["train_loss"], r["participants"]) for r in run["rounds"]]
assert len(a["rounds"]) == 3, a
assert figures(a) == figures(b), "1 and 2 threads differ: %s %s" % (figures(a), figures(b))
assert figures(a) != figures(c), "another seed gives the same figures"
assert all(r["participants"] == 4 and r["dropped"] == 0 for r in a["rounds"]), a
assert all(0 < r["peak_bytes_max"] <= 2 << 20 for r in a["rounds"]), a
assert a["fleet"]["idle_client_bytes"] <= 8192, a["fleet"]
assert a["fleet"]["connections_peak"] <= 64, a["fleet"]
assert a["final_accuracy"] == a["rounds"][-1]["accuracy"] and a["params"] == 61706, a
PYTHON
grep -q 'synthetic' "$work/report.html"
tail -c 20 "$work/report.html" | grep -q '</html>'

expect 2 "secure aggregation is not there yet" "$bin/dunlin-fleet" --serve --secagg
expect 2 "fault scripts are not there yet" "$bin/dunlin-fleet" --serve --faults x
expect 2 "either --serve or --server" "$bin/dunlin-fleet" --clients 4
expect 2 "partition" "$bin/dunlin-fleet" --serve --partition dirichlet:0
expect 2 "scaffold" "$bin/dunlin-fleet" --serve --algorithm scaffold
expect 1 "least that works" "$bin/dunlin-fleet" --serve --dataset synthetic --budget 100KiB
expect 1 "cannot be written" "$bin/dunlin-fleet" --serve --clients 2 --cohort 1 --rounds 1 --dataset synthetic \
    --json /nowhere/result.json
[ -z "$(ls -A "$TMPDIR")" ] || {
    echo "fleet.sh: a run left something behind: $(ls -A "$TMPDIR")"
    exit 1
}
echo "fleet.sh: ok"
