#!/usr/bin/env python3
"""The server's strategies beside FedAvg on MNIST, by writer and by Dirichlet 0.3: a row a run, accuracy after every third round.

strategies.py PROGRAMS [CSV]: PROGRAMS has dunlin-fleet and dunlin-server, DUNLIN_DATA the data sets. Rows that the CSV has are not
run again, so an interrupted series continues; a run takes about 10 s of processor time.
"""
import csv
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

ROUNDS = 15
EVERY = 3
FLEET = "--serve --clients 50 --cohort 10 --max-examples 5000 --batch 20 --lr 0.02 --seed 1"
SPLITS = {"writers": "--dataset mnist_writers --partition writers", "dirichlet:0.3": "--dataset mnist --partition dirichlet:0.3"}
STRATEGIES = (
    "average",
    "fedavgm --server-momentum 0.5",
    "fedavgm",
    "fedadagrad --server-lr 0.01",
    "fedadagrad --server-lr 0.03",
    "fedadam --server-lr 0.003",
    "fedadam --server-lr 0.01",
    "fedadam --server-lr 0.03",
    "fedyogi --server-lr 0.01",
    "fedyogi --server-lr 0.03",
    "median",
    "trimmed_mean",
    "trimmed_mean --trim 0.2",
)
COLUMNS = ["split", "strategy"] + ["accuracy_%d" % r for r in range(EVERY, ROUNDS + 1, EVERY)] + ["loss", "processor_s"]


def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(programs, split, strategy):
    before = processor_s()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "result.json")
        command = [str(programs / "dunlin-fleet"), "--rounds", str(ROUNDS), "--json", str(out), "--strategy", *strategy.split()]
        subprocess.run(command + FLEET.split() + SPLITS[split].split(), check=True, stdout=subprocess.DEVNULL)
        rounds = json.loads(out.read_text())["rounds"]
    row = {"split": split, "strategy": strategy, "loss": "%.4f" % rounds[-1]["loss"], "processor_s": "%.1f" % (processor_s() - before)}
    row.update({"accuracy_%d" % r["round"]: "%.4f" % r["accuracy"] for r in rounds if r["round"] % EVERY == 0})
    return row


def main():
    programs = pathlib.Path(sys.argv[1])
    path = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent / "results" / "strategies.csv")
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    done = {(row["split"], row["strategy"]) for row in rows}
    for split in SPLITS:
        for strategy in STRATEGIES:
            if (split, strategy) in done:
                continue
            rows.append(run(programs, split, strategy))
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            print(split, strategy, rows[-1]["accuracy_%d" % ROUNDS], flush=True)


if __name__ == "__main__":
    main()
