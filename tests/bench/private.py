#!/usr/bin/env python3
"""What noise costs in accuracy: Fashion-MNIST on 1,000 devices, private rounds beside plain ones, a row a run.

private.py PROGRAMS [CSV]: PROGRAMS has dunlin-fleet and dunlin-server, DUNLIN_DATA the data sets. Rows that the CSV has are not
run again, so an interrupted series continues. The model is one dense layer (7,850 values). Epsilon is read from the server's
folder alone as well (`dunlin-server --privacy state=`), and has to be what the run has told. Noise is secret, so an accuracy
differs from run to run as the noise does.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

CLIENTS, COHORT, ROUNDS, CLIP, DELTA = 1000, 200, 15, 0.3, "1e-5"
FLEET = ("--serve --clients %d --cohort %d --rounds %d --dataset fashion_mnist --partition iid --batch 20 --lr 0.1 --threads 8"
         % (CLIENTS, COHORT, ROUNDS))
COSTS = ("none", "clip", "8", "4", "2")
SEEDS = (1, 2, 3)
COLUMNS = ["epsilon", "seed", "noise", "epsilon_told", "epsilon_of_log", "accuracy_5", "accuracy_10", "accuracy_15", "loss_15"]


def number(value):
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes(parts + [value])


def field(key, value):
    """A field of a protobuf: a whole number, or bytes, or a text."""
    if isinstance(value, int):
        return number(key << 3) + number(value)
    value = value.encode() if isinstance(value, str) else value
    return number(key << 3 | 2) + number(len(value)) + value


def tensor(name, dims):
    """A TensorProto of float32 zeros."""
    count = 4
    for size in dims:
        count *= size
    return b"".join(field(1, size) for size in dims) + field(2, 1) + field(8, name) + field(9, bytes(count))


def value_info(name, dims):
    shape = field(1, field(2, "N")) + b"".join(field(1, field(1, size)) for size in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def node(kind, inputs, output, name, attributes=b""):
    return b"".join(field(1, x) for x in inputs) + field(2, output) + field(3, name) + field(4, kind) + attributes


def make_model(path):
    """One dense layer as an ONNX file (onnx.proto: ModelProto 1, 7, 8; GraphProto 1, 2, 5, 11, 12)."""
    trans = field(5, field(1, "transB") + field(3, 1) + field(20, 2))
    graph = (field(1, node("Flatten", ["x"], "h", "flat")) + field(1, node("Gemm", ["h", "w", "b"], "y", "fc", trans)) +
             field(2, "linear") + field(5, tensor("w", (10, 784))) + field(5, tensor("b", (10,))) +
             field(11, value_info("x", (1, 28, 28))) + field(12, value_info("y", (10,))))
    path.write_bytes(field(1, 8) + field(7, graph) + field(8, field(2, 17)))


def flags_of(cost):
    if cost == "none":
        return []
    if cost == "clip":
        return ["--update-clip", str(CLIP)]
    return ["--dp", "epsilon=%s,delta=%s,clip=%s,sampling=poisson" % (cost, DELTA, CLIP)]


def run(programs, cost, seed):
    with tempfile.TemporaryDirectory() as folder:
        out, model, state = (pathlib.Path(folder, name) for name in ("result.json", "linear.onnx", "state"))
        make_model(model)
        command = [str(programs / "dunlin-fleet"), *FLEET.split(), "--model", str(model), "--seed", str(seed), "--json", str(out),
                   "--state", str(state), *flags_of(cost)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result = json.loads(out.read_text())
        row = {"epsilon": cost, "seed": seed, "loss_15": "%.4f" % result["rounds"][-1]["loss"]}
        row.update({"accuracy_%d" % r["round"]: "%.4f" % r["accuracy"] for r in result["rounds"] if r["round"] % 5 == 0})
        if result["privacy"] is not None:
            asked = subprocess.run([str(programs / "dunlin-server"), "--privacy", "state=%s" % (state / "server")], check=True,
                                   capture_output=True)
            row["noise"] = "%.5f" % result["privacy"]["noise"]
            row["epsilon_told"] = "%.6f" % result["privacy"]["epsilon"]
            row["epsilon_of_log"] = "%.6f" % json.loads(asked.stdout)["epsilon"]
    return row


def main():
    programs = pathlib.Path(sys.argv[1])
    path = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent / "results" / "private.csv")
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    done = {(row["epsilon"], row["seed"]) for row in rows}
    for seed in SEEDS:
        for cost in COSTS:
            if (cost, str(seed)) in done:
                continue
            rows.append(run(programs, cost, seed))
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
