#!/bin/bash
# The studies of Sage and of EMDL as a user meets them: figures that follow from the rows, tables that repeat to the byte
# without the columns of clocks and of PyTorch, an interrupted study that goes on, filters that leave nothing. PyTorch is
# played by a script, and run as it is where there is one. study_papers.sh BIN-FOLDER
set -euo pipefail
. "$(dirname "$0")/study_tools.sh"

study() {
    "$bin/dunlin-study" "$@" --data synthetic --swap-dir /var/tmp >>"$work/out"
}

# values FILE COLUMN [COLUMN=VALUE...]: the values of a column, one a line, of the rows that have those values.
values() {
    python3 -c 'import csv, sys
for row in csv.DictReader(open(sys.argv[1])):
    if all(row[k] == v for k, v in (pair.split("=", 1) for pair in sys.argv[3:])):
        print(row[sys.argv[2]])' "$@"
}

# --- sage ---

# In small: a network with batch norm and one without.
sage=(sage --quick --models cnn_bn,lenet5 --parts curve,hybrid --policies none,pool,microbatch,sgc,sage,auto --budgets 200%,70%,50% --batches 16)
study "${sage[@]}" --no-times --out "$work/a"
head -1 "$work/a/sage_hybrid.csv" | grep 'time_' >/dev/null && fail "columns of the clock with --no-times"
# The least memory that the paper's row has is that of the rows.
python3 - "$work/a/sage_hybrid.csv" "$work/a/sage_claims.csv" <<'PY' || fail "a figure does not follow from the rows"
import csv, sys
rows, claims = (list(csv.DictReader(open(path))) for path in sys.argv[1:])
bare = max((int(r["none_bytes"]) - int(r["state_bytes"])) / (int(r["needed_bytes"]) - int(r["state_bytes"])) for r in rows if r["technique"] == "auto")
found = next(c for c in claims if c["figure"].startswith("least memory of activations") and "Dunlin" in c["figure"])
assert abs(float(found["ours"]) / bare - 1) < 1e-4, (found["ours"], bare)
assert found["holds"] == ("holds" if bare >= 20 else "holds in part"), found
assert found["paper"] == "20" and found["cases"] == "2", found
assert {c["holds"] for c in claims if c["part"] == "adaptation"} == {"not run here"}, "a part that did not run has figures"
# Together they need no more than the better one alone.
least = lambda model, names: min(int(r["needed_bytes"]) for r in rows if r["model"] == model and r["technique"] in names)
for model in ("cnn_bn", "lenet5"):
    assert least(model, ["sage", "both", "auto"]) <= least(model, ["accumulation", "checkpointing"]), model
PY
[ "$(values "$work/a/sage_hybrid.csv" is_ghost model=cnn_bn technique=accumulation fits=1 | sort -u)" = 1 ] || fail "slices with batch norm are no ghosts"
[ "$(values "$work/a/sage_hybrid.csv" is_ghost model=lenet5 fits=1 | sort -u)" = 0 ] || fail "ghosts without batch norm"
[ "$(values "$work/a/sage_hybrid.csv" is_ghost technique=auto fits=1 | sort -u)" = 0 ] || fail "auto is not exact"
[ -z "$(values "$work/a/sage_hybrid.csv" slice_asked technique=both model=lenet5)" ] || fail "slices with segments where nothing couples the batch"
# A study that lost half of its parts goes on, and ends with the same bytes.
cp -r "$work/a" "$work/b"
for part in curve hybrid; do
    lines=$(wc -l <"$work/b/sage_$part.rows")
    head -n $((lines / 2)) "$work/a/sage_$part.rows" >"$work/b/sage_$part.rows"
done
rm "$work"/b/*.csv
study "${sage[@]}" --no-times --out "$work/b" --resume
for table in sage_curve sage_hybrid sage_claims; do
    cmp "$work/a/$table.csv" "$work/b/$table.csv" || fail "$table is another after --resume"
done
# Steps are taken without --quick: what is exact ends with the same weights, ghosts with others.
study sage --parts hybrid --models cnn_bn --batches 8 --budgets 300% --steps 2 --out "$work/c"
exact=$(for t in neither checkpointing auto; do values "$work/c/sage_hybrid.csv" weights_hash technique=$t; done | sort -u)
ghost=$(values "$work/c/sage_hybrid.csv" weights_hash technique=accumulation)
[ "$(wc -w <<<"$exact")" = 1 ] || fail "exact ways with different weights: $exact"
[ -n "$ghost" ] && ! grep -q "$exact" <<<"$ghost" || fail "ghost statistics with the exact weights"
values "$work/c/sage_hybrid.csv" time_cpu_ms | grep '[0-9]' >/dev/null || fail "no times"
grep -q '"named": "sage"' "$work/c/report.json" || grep -q '"named":"sage"' "$work/c/report.json" || fail "the report has no part of sage"
expect 2 "nothing is left to do: --batches 1" "$bin/dunlin-study" sage --parts hybrid --policies microbatch --batches 1 --out "$work/x"
expect 2 "batches price:1.1: sage takes numbers" "$bin/dunlin-study" sage --batches price:1.1 --out "$work/x"
expect 2 "policies ghost goes with" "$bin/dunlin-study" sage --policies ghost:4 --out "$work/x"
expect 2 "parts measure: expected some of curve, hybrid" "$bin/dunlin-study" sage --parts measure --out "$work/x"
expect 2 "torch goes with emdl" "$bin/dunlin-study" sage --torch python3 --out "$work/x"
expect 2 "parts goes with" "$bin/dunlin-study" curve --parts hybrid --out "$work/x"

# --- emdl ---

# A Python whose PyTorch takes 8 ms for a step and 2 for a forward pass. It fails if what it is asked for is not what ours does.
cat >"$work/python" <<'PY'
#!/bin/bash
case "$2" in "import torch"*) echo "${TORCH_VERSION:-9.9}"; exit 0 ;; esac
shift 2
[ "$*" = "--model lenet5 --image 28 --channels 1 --classes 10 --batch ${10-} --threads 1 --steps 2" ] || { echo '{"problem": "asked for '"$*"'"}'; exit 0; }
[ "$OMP_NUM_THREADS $OPENBLAS_NUM_THREADS" = "1 1" ] || { echo '{"problem": "threads"}'; exit 0; }
echo '{"forward_ms": 2.0, "forward_low_ms": 1.9, "forward_high_ms": 2.1, "forward_n": 8, "forward_bytes": 1000, "step_ms": 8.0,' \
    '"step_low_ms": 7.9, "step_high_ms": 8.1, "step_n": 2, "step_bytes": 3000000, "layout": "nchw", "parameters": '"${TORCH_PARAMETERS:-61706}"'}'
PY
chmod +x "$work/python"
emdl=(emdl --quick --models lenet5 --parts measure --batches 1,4 --steps 2 --budgets 200%)
study "${emdl[@]}" --torch "$work/python" --out "$work/d"
[ "$(values "$work/d/emdl_measure.csv" torch_step_ms | tr '\n' ' ')" = "8 8 8 8 " ] || fail "PyTorch's figures: $(cat "$work/d/emdl_measure.csv")"
[ "$(values "$work/d/emdl_measure.csv" torch_ratio batch=4 policy=auto)" = 4 ] || fail "the ratio of PyTorch"
[ "$(values "$work/d/emdl_measure.csv" torch_version | sort -u)" = 9.9 ] || fail "the version of PyTorch"
budget=$(values "$work/d/emdl_measure.csv" budget_bytes batch=1 policy=auto)
[ "$(values "$work/d/emdl_measure.csv" torch_fits | sort -u)" = $((3000000 <= budget)) ] || fail "3,000,000 bytes in $budget"
# A step takes longer than an inference, and its bytes are those of a plan for it.
python3 - "$work/d" <<'PY' || fail "a figure of emdl does not follow from the rows"
import csv, sys
rows, claims = (list(csv.DictReader(open("%s/emdl_%s.csv" % (sys.argv[1], name)))) for name in ("measure", "claims"))
for r in rows:
    assert r["fits"] == "1" and int(r["planned_bytes"]) <= int(r["budget_bytes"]) and 0 < int(r["forward_bytes"]) < int(r["planned_bytes"]), r
    assert float(r["time_forward_low_ms"]) <= float(r["time_forward_ms"]) <= float(r["time_forward_high_ms"]), r
    assert abs(float(r["time_ratio"]) / (float(r["time_cpu_ms"]) / float(r["time_forward_ms"])) - 1) < 1e-4 and float(r["predicted_ratio"]) > 1, r
    assert r["parameters"] == "61706", r
theirs = next(c for c in claims if c["figure"].endswith("17.8 times an inference: PyTorch on this machine"))
assert abs(float(theirs["time_ours"]) - 4) < 1e-4 and theirs["time_cases"] == "2" and theirs["time_holds"] == "holds in part" and theirs["holds"] == "not run here", theirs
ours = next(c for c in claims if "no memory shared" in c["figure"])
assert abs(float(ours["ours"]) / max(float(r["predicted_ratio"]) for r in rows if r["policy"] == "none") - 1) < 1e-4, ours
assert {c["holds"] for c in claims if c["part"] == "max-batch"} == {"not run here"}
PY
# Without PyTorch: the same rows, and why its columns are empty. Another version of it is measured anew.
study "${emdl[@]}" --torch none --out "$work/e"
[ "$(values "$work/e/emdl_measure.csv" torch_note | sort -u)" = "--torch none" ] || fail "no word on PyTorch"
[ -z "$(values "$work/e/emdl_measure.csv" torch_step_ms | tr -d '\n')" ] || fail "figures without PyTorch"
study "${emdl[@]}" --torch "$work/python" --no-times --out "$work/d" --resume
grep -q 'measure .*4 rows, 2 of 2 parts kept' "$work/out" || fail "parts are not kept"
study "${emdl[@]}" --torch none --no-times --out "$work/e" --resume
cmp "$work/d/emdl_measure.csv" "$work/e/emdl_measure.csv" || fail "the rows depend on PyTorch"
head -1 "$work/d/emdl_measure.csv" | grep 'torch_' >/dev/null && fail "columns of PyTorch with --no-times"
TORCH_VERSION=10 study "${emdl[@]}" --torch "$work/python" --out "$work/d" --resume
[ "$(values "$work/d/emdl_measure.csv" torch_version | sort -u)" = 10 ] || fail "another PyTorch, and the rows of the last"
# What cannot be compared is not: another network, no figures, no such Python.
TORCH_PARAMETERS=61707 study "${emdl[@]}" --torch "$work/python" --out "$work/f"
grep -q "other parameters" "$work/f/emdl_measure.csv" || fail "another network beside ours"
[ -z "$(values "$work/f/emdl_measure.csv" torch_step_ms | tr -d '\n')" ] || fail "figures of another network"
printf '#!/bin/bash\ncase "$2" in "import torch"*) echo 1 ;; *) echo nothing ;; esac\n' >"$work/python"
study "${emdl[@]}" --torch "$work/python" --out "$work/f"
grep -q "printed no figures" "$work/f/emdl_measure.csv" || fail "no word on what is no figure"
study "${emdl[@]}" --torch /nowhere/python --out "$work/f"
grep -q "/nowhere/python cannot be started" "$work/f/emdl_measure.csv" || fail "no word on a Python that is not there"
study "${emdl[@]}" --torch false --out "$work/f"
grep -q "false has no PyTorch" "$work/f/emdl_measure.csv" || fail "no word on a Python without PyTorch"
# The real one, where there is one: the same network.
if /usr/bin/python3 -c 'import torch, torchvision' 2>/dev/null; then
    study emdl --quick --models lenet5 --parts measure --batches 2 --torch /usr/bin/python3 --out "$work/g"
    values "$work/g/emdl_measure.csv" torch_step_ms | grep '[0-9]' >/dev/null ||
        grep -q "unfair" "$work/g/emdl_measure.csv" || fail "no figures of PyTorch: $(cat "$work/g/emdl_measure.csv")"
fi
# The largest batch in 6 to 8 GB is a figure of such budgets and of the paper's images alone.
study emdl --quick --models squeezenet1_1 --parts max-batch --image 224 --budgets 1GiB,6GiB --policies none --out "$work/h"
python3 - "$work/h" <<'PY' || fail "the largest batch in 6 to 8 GB"
import csv, sys
rows, claims = (list(csv.DictReader(open("%s/emdl_%s.csv" % (sys.argv[1], name)))) for name in ("max-batch", "claims"))
claim = next(c for c in claims if c["figure"].startswith("largest batch in 6 to 8 GB") and "no memory shared" in c["figure"])
batch = next(int(r["max_batch"]) for r in rows if r["budget_bytes"] == str(6 << 30))
assert float(claim["ours"]) == batch and claim["cases"] == "1" and claim["holds"] == ("holds" if batch <= 32 else "does not hold"), (claim, batch)
PY
expect 2 "batches most: emdl takes numbers" "$bin/dunlin-study" emdl --batches most --out "$work/x"
expect 2 "models nonesuch" "$bin/dunlin-study" emdl --models nonesuch --out "$work/x"
expect 2 "torch goes with emdl" "$bin/dunlin-study" all --torch none --out "$work/x"
# All studies leave the papers' out.
[ -z "$(ls "$work"/a | grep -v '^sage\|^report')" ] || fail "other studies ran: $(ls "$work/a")"
echo "study_papers.sh: ok"
