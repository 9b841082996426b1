#!/usr/bin/env python3
"""Accuracy beside bytes of HTTP bodies, of fleets that compress and of one that does not: a row a run.

compress.py PROGRAMS [CSV]: PROGRAMS has dunlin-fleet and dunlin-server, DUNLIN_DATA the data sets (cifar10-jpeg unpacked). Rows that the CSV has are not
run again, so an interrupted series goes on where it was. Every side of a data set has the same fleet, rounds and seeds: LeNet-5,
MNIST by writer (60 devices, 20 a round, 30 rounds), CIFAR-10 in JPEG (20 devices, 10 a round, 30 rounds; a small network and few
rounds, so that three seeds of all take half an hour of processor time). `accuracy` is that after the last round, `accuracy_5` the mean of the
last five.
"""
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

import kept_rows

DATA = {
    "mnist_writers": "--clients 60 --cohort 20 --rounds 30 --dataset mnist_writers --partition writers --lr 0.05",
    "cifar10_jpeg": "--clients 20 --cohort 10 --rounds 30 --dataset cifar10_jpeg --partition dirichlet:1 --lr 0.02 --momentum 0.9 --batch 32",
}
SIDES = ("", "up:int4+rotate+entropy", "up:int5+rotate+entropy", "up:int2+rotate+entropy", "up:randk:0.5+int2+entropy", "down:int8", "down:int8+rotate",
         "up:randk:0.5+int2+entropy,down:int8")
SEEDS = (1, 2, 3)
LAST = 5
COLUMNS = ["dataset", "compress", "seed", "accuracy", "accuracy_5", "bytes_down", "bytes_up", "wall_s", "processor_s"]


def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(programs, dataset, compress, seed):
    before = processor_s()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "result.json")
        command = [str(programs / "dunlin-fleet"), "--serve", "--model", "lenet5", "--threads", "1", "--seed", str(seed), "--json", str(out)]
        command += DATA[dataset].split() + (["--compress", compress] if compress else [])
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result = json.loads(out.read_text())
    row = {"dataset": dataset, "compress": compress or "none", "seed": seed, "accuracy": "%.4f" % result["final_accuracy"]}
    row["accuracy_5"] = "%.4f" % statistics.mean(r["accuracy"] for r in result["rounds"][-LAST:])
    row.update({key: result[key] for key in ("bytes_down", "bytes_up")})
    row.update({"wall_s": "%.1f" % result["fleet"]["wall_s"], "processor_s": "%.1f" % (processor_s() - before)})
    return row


def summary(rows):
    """Means over the seeds, beside the run without compression."""
    for dataset in DATA:
        of = {side: [r for r in rows if r["dataset"] == dataset and r["compress"] == (side or "none")] for side in SIDES}
        if not of[""]:
            continue
        mean = {s: {k: statistics.mean(float(r[k]) for r in of[s]) for k in COLUMNS[3:7]} for s in SIDES if of[s]}
        for side, m in mean.items():
            plain = mean[""]
            print("%-14s %-34s %d seeds  %.2f %% (%+.2f), last five %.2f %% (%+.2f)  down %.1f times fewer, up %.1f" % (
                dataset, side or "none", len(of[side]), 100 * m["accuracy"], 100 * (m["accuracy"] - plain["accuracy"]),
                100 * m["accuracy_5"], 100 * (m["accuracy_5"] - plain["accuracy_5"]),
                plain["bytes_down"] / m["bytes_down"], plain["bytes_up"] / m["bytes_up"]))  # fmt: skip


def main():
    programs = pathlib.Path(sys.argv[1])
    path = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent / "results" / "compress.csv")
    found = kept_rows.read(path)
    done = {(row["dataset"], row["compress"], int(row["seed"])) for row in found}
    for dataset in DATA:
        for seed in SEEDS:
            for side in SIDES:
                if (dataset, side or "none", seed) in done:
                    continue
                found.append(run(programs, dataset, side, seed))
                kept_rows.append(path, COLUMNS, found[-1])
    summary(found)


if __name__ == "__main__":
    main()
