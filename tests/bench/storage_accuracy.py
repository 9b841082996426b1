#!/usr/bin/env python3
"""Accuracy with what a step keeps stored in fewer bits, beside exact storage with the same seed: a row a run, four networks, five seeds.

storage_accuracy.py BIN [CSV] [--networks NAME,...] [--seeds N]

BIN has dunlin-train, DUNLIN_DATA the data sets (cifar10_jpeg unpacked). All storages of a seed begin from the same weights and see the same
examples in the same order, so what is compared is pairs. A row is written as soon as it is known, and one that is there is not run again, so an
interrupted series continues; part of it may run on another machine and be joined. At the end it prints by network and storage how many points
of accuracy are lost against exact storage in the mean, with two standard errors of the difference, beside what may be lost.
"""
import argparse
import datetime
import json
import math
import pathlib
import statistics
import subprocess
import tempfile

import kept_rows

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results" / "storage_accuracy.csv"
COLUMNS = ["network", "storage", "seed", "accuracy", "loss", "hash", "isa", "commit", "date", "command"]
IMAGES = "--dataset cifar10_jpeg --max-examples 10000 --random-crop 4 --flip --image 32 --classes 10 --batch 64 --drop-last --epochs 5"
SERIES = {
    "lenet5": ("LeNet-5, Fashion-MNIST", "--model lenet5 --dataset fashion_mnist --batch 64 --epochs 3"),
    "har_mlp": ("`har_mlp`, WISDM", "--model har_mlp --dataset wisdm --epochs 10"),
    "mobilenet_v2": ("MobileNetV2, CIFAR-10 (JPEG)", "--model mobilenet_v2 --warmup 312 " + IMAGES),
    "resnet18": ("ResNet-18, CIFAR-10 (JPEG)", "--model resnet18 " + IMAGES),
}
STORAGES = ("exact", "bf16", "int8")
BARS = {"bf16": 0.2, "int8": 0.5}  # points lost at most, or two standard errors of the difference where these are more


def run(program, network, storage, seed):
    command = [program, *SERIES[network][1].split(), "--eval", "--storage", storage, "--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "result.json"
        subprocess.run([*command, "--json", str(out)], check=True, stdout=subprocess.DEVNULL)
        result = json.loads(out.read_text())
    commit = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True)
    return {"network": network, "storage": storage, "seed": seed, "accuracy": "%.4f" % result["test_accuracy"],
            "loss": "%.4f" % result["test_loss"], "hash": result["weights_hash"], "isa": result["isa"],
            "commit": commit.stdout.strip() or "unknown", "date": datetime.date.today().isoformat(),
            "command": " ".join([pathlib.Path(command[0]).name] + command[1:])}  # fmt: skip


def lost(rows, network, storage):
    """Points of accuracy lost against exact storage, a number for each seed that has both."""
    found = {(row["storage"], row["seed"]): 100.0 * float(row["accuracy"]) for row in rows if row["network"] == network}
    return [found["exact", seed] - accuracy for (name, seed), accuracy in sorted(found.items())
            if name == storage and ("exact", seed) in found]  # fmt: skip


def two_errors(apart):
    """Two standard errors of the mean; None with one number."""
    return 2.0 * statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else None


def table():
    """Lines of Markdown: what each storage loses."""
    rows = kept_rows.read(RESULTS)
    lines = ["| network | seeds | exact | " + " | ".join("%s: points lost | two standard errors | at most" % s for s in BARS) + " | commit |",
             "|" + "---|" * (4 + 3 * len(BARS))]  # fmt: skip
    for network, (title, _) in SERIES.items():
        own = [row for row in rows if row["network"] == network]
        cells = []
        for storage, bar in BARS.items():
            apart = lost(own, network, storage)
            error = two_errors(apart)
            cells += ["%.2f" % statistics.mean(apart) if apart else "", "" if error is None else "%.2f" % error,
                      "%.2f" % max(bar, error or 0.0)]  # fmt: skip
        exact = [100.0 * float(row["accuracy"]) for row in own if row["storage"] == "exact"]
        if exact:
            lines.append("| %s | %d | %.2f %% | %s | %s |" %
                         (title, len(exact), statistics.mean(exact), " | ".join(cells), ", ".join(sorted({row["commit"] for row in own}))))  # fmt: skip
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("csv", type=pathlib.Path, nargs="?", default=RESULTS)
    parser.add_argument("--networks", default=",".join(SERIES))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    networks = options.networks.split(",")
    for network in networks:
        if network not in SERIES:
            parser.error("no network %s; there are: %s" % (network, ", ".join(SERIES)))
    program = str(options.programs / "dunlin-train")
    for seed in range(1, options.seeds + 1):
        for network in networks:
            for storage in STORAGES:
                key = [network, storage, str(seed)]
                if any([row[name] for name in COLUMNS[:3]] == key for row in kept_rows.read(options.csv)):
                    continue
                row = run(program, network, storage, seed)
                kept_rows.append(options.csv, COLUMNS, row)
                print(network, storage, seed, row["accuracy"], flush=True)
    rows = kept_rows.read(options.csv)
    for network in networks:
        for storage, bar in BARS.items():
            apart = lost(rows, network, storage)
            if apart:
                error = two_errors(apart)
                print("%s, %s: %.2f points lost (%s), two standard errors %s; at most %.2f" % (
                    network, storage, statistics.mean(apart), ", ".join("%.2f" % one for one in apart),
                    "unknown" if error is None else "%.2f" % error, max(bar, error or 0.0)))  # fmt: skip


if __name__ == "__main__":
    main()
