#!/bin/bash
# mpirun -n N dunlin-fleet --transport memory: any number of ranks gives the model of a single process; a run whose rank was
# killed goes on from its last closed round, with another number of ranks; ranks that do not fit together are refused, and
# the difference is named. Skipped in a build without MPI. ranks.sh BIN-FOLDER HAS-MPI [long]
set -euo pipefail
bin=$1
if [ "$2" != ON ]; then
    echo "ranks: skipped, the build has no MPI (DUNLIN_MPI)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# More ranks than cores, and whoever runs the tests.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1

common=(--serve --transport memory --dataset synthetic --max-examples 400 --clients 12 --cohort 8 --batch 16 --lr 0.05)
# alone NAME FLAG... and together RANKS NAME FLAG...
alone() { "$bin/dunlin-fleet" "${common[@]}" --threads 2 --seed 7 --json "$1.json" "${@:2}" >"$1.out"; }
together() { mpirun -n "$1" "$bin/dunlin-fleet" "${common[@]}" --threads 1 --seed 7 --json "$2.json" "${@:3}" >"$2.out" 2>error; }

cat >compare.py <<'PYTHON'
import json, sys
wanted, found = (json.load(open(path)) for path in sys.argv[1:3])
ranks = int(sys.argv[3])
assert found["ranks"] == ranks, found["ranks"]
assert found["models_sha256"] == wanted["models_sha256"], (sys.argv, "other weights")
for a, b in zip(wanted["rounds"], found["rounds"], strict=True):
    for key in ["accuracy", "loss", "train_loss", "participants", "dropped", "scaled", "norm_bound", "devices"]:
        assert a[key] == b[key], (sys.argv, a["round"], key, a[key], b[key])
if ranks > 1:
    assert found["time"]["training_s"] > 0 and 0 < found["utilisation"] <= 1.001, found["time"]
PYTHON

# same NAME "RANKS..." FLAG...
same() {
    local name=$1 counts=$2 n
    alone "$name.alone" "${@:3}"
    for n in $counts; do
        together "$n" "$name.$n" "${@:3}" || { cat error; exit 1; }
        python3 compare.py "$name.alone.json" "$name.$n.json" "$n"
        [ "$(grep -c "^round   1/" "$name.$n.out")" = 1 ] || { echo "ranks.sh: others than rank 0 speak"; exit 1; }
    done
}
same plain "1 2 4 8" --rounds 3
same statistics "2" --rounds 3 --model tiny_bn --strategy fedadam --server-lr 0.01
same bound "3" --rounds 2 --partition dirichlet:0.02 --batch 4 --lr 0.002 --cohort 12
same packed "2" --rounds 2 --compress up:int4+rotate --update-clip 0.05
python3 -c 'import json; assert json.load(open("bound.3.json"))["rounds"][0]["scaled"] > 0, "nothing was scaled"'

# A rank that dies ends the run; what has closed is gone on with, by other numbers of ranks.
many=(--rounds 5 --epochs 30)
alone long "${many[@]}"
turns=2
[ "${3:-}" = long ] && turns=10
for turn in $(seq $turns); do
    rm -rf state
    mpirun -n 3 "$bin/dunlin-fleet" "${common[@]}" --threads 1 --seed 7 --state state "${many[@]}" >killed.out 2>error &
    running=$!
    for _ in $(seq 1200); do
        grep -q "^round   1/" killed.out && break
        sleep 0.05
    done
    sleep "0.$((RANDOM % 10))"
    victims=($(ps -o pid= --ppid $running)) # mpirun's children are the ranks
    kill -9 "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null || true
    code=0
    wait $running || code=$?
    [ $code != 0 ] || grep -q "^round   5/" killed.out || { echo "ranks.sh: a killed rank did not end the run"; exit 1; }
    together $((turn % 3 + 1)) "resumed" --state state "${many[@]}" || { cat error; exit 1; }
    grep -q "going on after round" resumed.out
    python3 compare.py long.json resumed.json $((turn % 3 + 1))
done

# refused TEXT COMMAND...: by one line that says so, beside mpirun's own.
refused() {
    local text=$1 code=0
    shift
    "$@" >/dev/null 2>error || code=$?
    if [ $code = 0 ] || [ "$(grep -c "^dunlin-fleet: " error)" != 1 ] || ! grep -q "^dunlin-fleet: .*$text" error; then
        echo "ranks.sh: $* gave $code and: $(cat error)"
        exit 1
    fi
}
rm -rf state
one=("$bin/dunlin-fleet" "${common[@]}" --rounds 1)
refused "another seed than rank 0: 8, not 7" mpirun -n 1 "${one[@]}" --seed 7 : -n 1 "${one[@]}" --seed 8
refused "another data set" mpirun -n 1 "${one[@]}" : -n 1 "${one[@]}" --max-examples 401
refused "another task" mpirun -n 1 "${one[@]}" : -n 1 "${one[@]}" --lr 0.01
if grep -qw avx2 /proc/cpuinfo; then
    refused "another instruction set than rank 0: sse2" mpirun -n 1 "${one[@]}" : -n 1 env DUNLIN_ISA=sse2 "${one[@]}"
fi
refused "strategy median does not go with mpirun" mpirun -n 2 "${one[@]}" --strategy median
# Another build: a copy that says another commit, as the file of a run has it.
"$bin/dunlin-fleet" "${common[@]}" --rounds 1 --state state >out
commit=$(head -c 72 state/memory.run | tail -c 64 | tr -d '\0')
LC_ALL=C sed "s/$commit/$(tr 'a-z0-9' 'b-za1-90' <<<"$commit")/g" "$bin/dunlin-fleet" >other
chmod +x other
refused "another build than rank 0: .*, not $commit" mpirun -n 1 "${one[@]}" : -n 1 ./other "${common[@]}" --rounds 1
code=0
./other "${common[@]}" --rounds 1 --state state >out 2>error || code=$?
[ $code = 1 ] && grep -q "is of build" error || { echo "ranks.sh: another build went on: $code, $(cat error)"; exit 1; }
echo "ranks: 1, 2, 4 and 8 give one model"
