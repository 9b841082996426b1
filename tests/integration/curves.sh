#!/bin/bash
# The CSV and event files of dunlin-train --log: read by Python's csv reader, the same figures as --json; a resumed run neither loses nor
# repeats a row; a file that cannot grow is reported and the training continues; what is misused is refused.
# curves.sh BIN-FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
train=$(realpath "$1")/dunlin-train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset DUNLIN_DATA
cd "$work"
run=(--model lenet5 --data synthetic --max-examples 200 --batch 32 --epochs 2)

fail() {
    echo "curves.sh: $*"
    exit 1
}

"$train" "${run[@]}" --eval-every 3 --log whole.csv --json whole.json >whole.out
"$train" "${run[@]}" --json plain.json --save whole.onnx >/dev/null
"$train" "${run[@]}" --eval-every epoch --log epoch.csv >/dev/null
# A checkpoint after 5 steps, rows that are beyond it, and one that is not whole.
"$train" "${run[@]}" --eval-every 3 --steps 5 --log part.csv --checkpoint c >/dev/null
printf '6,1,9,9,,,9,9,9\n7,1,9' >>part.csv
"$train" "${run[@]}" --eval-every 3 --log part.csv --resume c >/dev/null
python3 - <<'END'
import csv, json

def rows(name):
    with open(name, newline="") as file:
        return list(csv.DictReader(file, strict=True))

whole, part, result = rows("whole.csv"), rows("part.csv"), json.load(open("whole.json"))
columns = "step,epoch,loss,lr,test_loss,test_accuracy,examples_per_s,cpu_s,peak_bytes"
assert list(whole[0]) == columns.split(",")
assert [int(row["step"]) for row in whole] == list(range(1, 15)), "a row for each of 14 steps"
assert [int(row["epoch"]) for row in whole] == [1] * 7 + [2] * 7
assert float(whole[0]["loss"]) == result["loss_first"] and float(whole[-1]["loss"]) == result["loss_last"]
assert all(int(row["peak_bytes"]) == result["peak_bytes"] for row in whole)
assert [int(row["step"]) for row in whole if row["test_loss"]] == [3, 6, 9, 12]
for row in whole:
    if row["test_loss"]:
        said = "step %s: test accuracy %.2f %%, loss %.4f," % (row["step"], 100 * float(row["test_accuracy"]), float(row["test_loss"]))
        assert said in open("whole.out").read(), said
hyper = result["hyper"]
assert (hyper["batch"], hyper["epochs"], hyper["optimizer"], hyper["lr"], hyper["momentum"], hyper["schedule"], hyper["seed"]) == (
    32, 2, "sgd", 0.02, 0.9, "linear", 0), hyper
assert hyper["beta1"] is None and hyper["clip_norm"] is None and hyper["weight_decay"] == 0
assert result["commit"] and result["cpu_model"] and result["isa"] and result["cpu_s"] >= float(whole[-1]["cpu_s"]) > 0
same = columns.split(",")[:6]
assert [[row[name] for name in same] for row in part] == [[row[name] for name in same] for row in whole], "resumed"
epoch = rows("epoch.csv")
assert [int(row["step"]) for row in epoch if row["test_loss"]] == [7, 14]
assert float(epoch[-1]["test_loss"]) == result["test_loss"] and float(epoch[-1]["test_accuracy"]) == result["test_accuracy"]
assert json.load(open("plain.json"))["weights_hash"] == result["weights_hash"], "looking on changes the weights"
END

# TensorBoard's files, read without it; a run that continues invalidates what an older file has after its checkpoint.
"$train" "${run[@]}" --eval-every 3 --log board/ --json board.json >/dev/null
python3 "$here/events.py" whole.csv board || fail "events of a run"
"$train" "${run[@]}" --eval-every 3 --log board/ --resume c >/dev/null
python3 "$here/events.py" whole.csv board 6 || fail "events of a run that went on"
cmp -s <(grep weights_hash whole.json) <(grep weights_hash board.json) || fail "events change the weights"
got=0
(trap '' XFSZ; ulimit -f 2; exec "$train" "${run[@]}" --epochs 10 --log full/ >/dev/null 2>error) || got=$?
[ "$got" = 1 ] && grep -q "cannot be written, the training goes on without it" error || fail "full/: $got, $(cat error)"

# A validation split: the same of one seed in whatever run, another of another; never trained on; a run that goes on ends as the whole.
split=("${run[@]}" --validation 20% --eval-every epoch)
"$train" "${split[@]}" --log split.csv --json split.json --save split.onnx >split.out
"$train" "${split[@]}" --log split_board/ >/dev/null
python3 "$here/events.py" split.csv split_board || fail "events of a run with --validation"
"$train" "${split[@]}" --steps 3 --log halves.csv --checkpoint halves >/dev/null
"$train" "${split[@]}" --resume halves --log halves.csv --json halves.json >/dev/null
"$train" "${run[@]}" --validation 40 --json count.json >/dev/null
"$train" "${run[@]}" --validation 40 --seed 1 --json seed.json >/dev/null
python3 - <<'END'
import csv, json
rows = list(csv.DictReader(open("split.csv"), strict=True))
split, halves, count, seed, whole = (json.load(open(f"{name}.json")) for name in ("split", "halves", "count", "seed", "whole"))
assert list(rows[0])[-2:] == ["val_loss", "val_accuracy"] and len(rows) == 10, len(rows)
assert (split["train_examples"], split["val_examples"]) == (160, 40) and split["hyper"]["validation"] == "20%"
assert [int(row["step"]) for row in rows if row["val_loss"]] == [5, 10] == [int(row["step"]) for row in rows if row["test_loss"]]
assert float(rows[-1]["val_loss"]) == split["val_loss"] and float(rows[-1]["val_accuracy"]) == split["val_accuracy"]
for row in rows[4::5]:
    said = "step %s: validation accuracy %.2f %%, loss %.4f, on 40 examples" % (row["step"], 100 * float(row["val_accuracy"]), float(row["val_loss"]))
    assert said in open("split.out").read(), said
assert halves["weights_hash"] == split["weights_hash"] == count["weights_hash"] != whole["weights_hash"]
assert halves["val_loss"] == split["val_loss"] == count["val_loss"] != seed["val_loss"]
assert [row[:6] for row in csv.reader(open("halves.csv"))] == [row[:6] for row in csv.reader(open("split.csv"))], "resumed"
assert split["data_sha256"] == whole["data_sha256"] != seed["data_sha256"] and len(split["data_sha256"]) == 64
assert "val_loss" not in whole and whole["hyper"]["validation"] is None
END
for other in "--validation 20% --seed 1" "--validation 30%" ""; do
    got=0
    # shellcheck disable=SC2086
    "$train" "${run[@]}" $other --resume halves >/dev/null 2>error || got=$?
    [ "$got" = 1 ] && grep -q "kept 40 examples for validation (seed 0)" error || fail "resumed with '$other': $got, $(cat error)"
done
got=0
"$train" "${run[@]}" --validation 20% --resume c >/dev/null 2>error || got=$?
[ "$got" = 1 ] && grep -q "kept 0 examples for validation" error || fail "resumed with a split: $got, $(cat error)"
# The checksum is that of the pixels and labels of the files; one label is enough for another.
python3 - <<'END'
import hashlib, json, os, struct
os.mkdir("mnist")
pixels, labels = bytes(i * 7 % 251 for i in range(40 * 784)), bytes(i % 10 for i in range(40))
open("mnist/train-images-idx3-ubyte", "wb").write(struct.pack(">4i", 0x803, 40, 28, 28) + pixels)
open("mnist/train-labels-idx1-ubyte", "wb").write(struct.pack(">2i", 0x801, 40) + labels)
open("sha", "w").write(hashlib.sha256(pixels + labels).hexdigest())
END
mnist=(--model lenet5 --dataset mnist --data . --batch 8 --steps 1 --json mnist.json)
"$train" "${mnist[@]}" >/dev/null
grep -q "\"data_sha256\": \"$(cat sha)\"" mnist.json || fail "data_sha256: $(grep sha256 mnist.json), not $(cat sha)"
printf '\3' | dd of=mnist/train-labels-idx1-ubyte bs=1 seek=8 conv=notrunc status=none
"$train" "${mnist[@]}" >/dev/null
grep -q "$(cat sha)" mnist.json && fail "data_sha256 does not tell another label"
printf '\0' | dd of=mnist/train-labels-idx1-ubyte bs=1 seek=8 conv=notrunc status=none
printf '\1' | dd of=mnist/train-images-idx3-ubyte bs=1 seek=16 conv=notrunc status=none
"$train" "${mnist[@]}" >/dev/null
grep -q "$(cat sha)" mnist.json && fail "data_sha256 does not tell another pixel"
printf '\0' | dd of=mnist/train-images-idx3-ubyte bs=1 seek=16 conv=notrunc status=none
"$train" "${mnist[@]}" >/dev/null
grep -q "$(cat sha)" mnist.json || fail "data_sha256 of the first files, written again: $(grep sha256 mnist.json)"

# No room for all rows: the weights are those of the whole run, and the rows that are there are whole.
got=0
(trap '' XFSZ; ulimit -f 4; exec "$train" "${run[@]}" --epochs 10 --log full.csv --json full.json >/dev/null 2>error) || got=$?
[ "$got" = 1 ] && grep -q "full.csv: cannot be written, the training goes on without it" error || fail "full: $got, $(cat error)"
[ "$(tail -c 1 full.csv | od -An -c | tr -d ' ')" = '\n' ] || fail "full.csv ends within a row"
"$train" "${run[@]}" --epochs 10 --json plain.json >/dev/null
[ "$(grep -o '"weights_hash": *"[^"]*"' full.json)" = "$(grep -o '"weights_hash": *"[^"]*"' plain.json)" ] || fail "full: other weights"

refused() {
    local text=$1 got=0
    shift
    "$train" "${run[@]}" "$@" >/dev/null 2>error || got=$?
    [ "$got" != 0 ] && grep -q -- "$text" error || fail "$*: $got, $(cat error)"
}
refused "expected a name that ends in .csv" --log curves.txt
refused "expected epoch, or a number of steps from 1" --eval-every 0
refused "expected epoch, or a number of steps from 1" --eval-every 3x
touch plain
refused "plain/" --log plain/
refused "go with a run" --plan-only --log a.csv
refused "goes with a run" --plan-only --validation 10%
for wrong in 0 0% 100% 5x x 1e9 -3 1%% 0x10%; do
    refused "expected a share between 0% and 100%" --validation "$wrong"
done
refused "leave none to train on" --validation 200
refused "or none to evaluate" --validation 0.1%
refused "not a log of this program with --validation" --log whole.csv --resume halves --validation 20%
refused "no-such/a.csv: cannot be opened" --log no-such/a.csv
echo "a,b" >other.csv
refused "other.csv: not a log of this program" --log other.csv --resume c
[ "$(cat other.csv)" = "a,b" ] || fail "a file that is no log was changed"

# What a run ends with stands in its JSON file, whatever that is: ends STATUS TEXT FLAGS...
ends() {
    local status=$1 text=$2 got=0
    shift 2
    rm -f end.json
    "$train" "$@" --json end.json >/dev/null 2>error || got=$?
    python3 - "$status" "$text" "$got" <<'END' || fail "$*: exit $got, $(cat error end.json)"
import json, sys
status, text, got = sys.argv[1:]
end, told = json.load(open("end.json")), open("error").read()
assert end["status"] == status and (got == "0") == (status == "ok"), end["status"]
assert end["error"] is None and text == "" or text and text in end["error"], end["error"]
assert end["error"] is None or "dunlin-train: " + end["error"] + "\n" in told, told
END
}
ends ok "" "${run[@]}"
ends ok "" "${run[@]}" --plan-only
ends ok "" --model lenet5 --list
ends ARGUMENT "no flag is called --no-such" --no-such --model lenet5
ends ARGUMENT "expected one of" --model lenet5 --policy best
ends ARGUMENT "--batch 0: expected a whole number" --batch 0 --model lenet5
ends IO "gone.onnx" --model gone.onnx
echo "no model" >text.onnx
ends MODEL "text.onnx" --model text.onnx
ends MISMATCH "takes images of another size" --model whole.onnx --image 64
ends IO "gone" --model lenet5 --dataset fashion_mnist --data gone
ends BUDGET "too small" "${run[@]}" --budget 10KiB
ends BUDGET "too small" "${run[@]}" --budget 10KiB --plan-only
ends BUDGET "too small" --model lenet5 --max-batch --budget 3KiB
ends DATA "--drop-last leaves nothing" "${run[@]}" --batch 256 --drop-last
ends NUMERIC "is not finite" "${run[@]}" --lr 1000 --momentum 0.99 --epochs 20
ends IO "gone.ckpt" "${run[@]}" --resume gone.ckpt
ends IO "no-such/a.csv" "${run[@]}" --log no-such/a.csv
ends ARGUMENT "no-such-layer" "${run[@]}" --frozen no-such-layer

# Ctrl-C.
"$train" "${run[@]}" --epochs 1000000 --log stop.csv --json stop.json --checkpoint stop.ckpt >/dev/null 2>error &
stopped=$!
until [ "$(wc -l 2>/dev/null <stop.csv || echo 0)" -gt 3 ]; do sleep 0.1; done
kill -INT "$stopped"
got=0
wait "$stopped" || got=$?
[ "$got" = 1 ] || fail "a stopped run ends with $got"
grep -q '"status": "STOPPED"' stop.json && grep -q '"error": "stopped on request after' stop.json || fail "stopped: $(cat stop.json)"

echo "curves.sh: rows, resuming, a full file, refusals and their reasons are right"
