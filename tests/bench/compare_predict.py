#!/usr/bin/env python3
"""Predicts with the same networks by ours (bench_predict) and by PyTorch (torch_predict.py), in turn; writes results/predict.csv.

Each round runs ours, PyTorch in each layout that it has for the network (channels_last and channels first), as processes of
their own on one core. A time is the median over the rounds of the median over the calls; PyTorch's is that of its faster
layout. Times are processor time, since machines are shared. PyTorch runs as in compare_torch.py: OpenBLAS with the widest
kernels that the processor has, an allocator that keeps its memory and uses huge pages.

    compare_predict.py BIN                    all networks, one thread, batch 1
    compare_predict.py BIN --rows mobilenet   only those whose name matches; their rows are replaced
    compare_predict.py BIN --our-flags "--isa avx2" --no-csv

Needs python3-torch, python3-torchvision and libopenblas0-pthread (Debian), and a release build of bench_predict.
"""
import argparse
import csv
import datetime
import os
import pathlib
import re
import statistics
import sys

import compare_torch
import figures

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "results" / "predict.csv"
COLUMNS = ["network", "input", "batch", "ms", "torch_ms", "torch_layout", "weights_bytes", "two_activations_bytes",
           "activations_bytes", "tables_bytes", "planned_bytes", "over_bytes", "growth_bytes", "torch_growth_bytes", "same_bits",
           "processor", "version", "commit", "date", "command"]
# network, height and width (0: tokens)
NETWORKS = [("lenet5", 28), ("mobilenet_v2", 224), ("mobilenet_v3_small", 224), ("resnet18", 224), ("squeezenet1_1", 224),
            ("resnet50", 224), ("bert_small", 0)]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", help="the folder of the release build's programs")
    parser.add_argument("--rows", default="", help="only networks that match this expression")
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=6.0, help="of timed calls a process, about")
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has PyTorch")
    parser.add_argument("--our-flags", default="", help="further flags of bench_predict")
    parser.add_argument("--no-csv", action="store_true", help="print alone")
    return parser.parse_args()


def one_round(args, name, image):
    """Ours and PyTorch's, a dictionary each; ends the program with what failed."""
    pin = ["taskset", "-c", str(args.core)]
    sizes = ["--model", name, "--calls", str(args.calls if image != 28 else 20 * args.calls), "--max-seconds", str(args.seconds)]
    sizes += ["--image", str(image)] if image else []
    environment = dict(os.environ, **compare_torch.blas_core())
    environment.update(GLIBC_TUNABLES=compare_torch.TUNABLES, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    made = []
    ours = [*pin, os.path.join(args.bin, "bench_predict"), *sizes, "--json", *args.our_flags.split()]
    theirs = [*pin, args.python, str(HERE / "torch_predict.py"), *sizes]
    runs = [(ours, dict(os.environ))]
    runs += [([*theirs, "--format", layout], environment) for layout in (("nhwc", "nchw") if image else ("nchw",))]
    for command, own in runs:
        result, text = compare_torch.run(command, own)
        if result is None:
            sys.exit("compare_predict.py: %s: %s" % (name, text))
        made.append(result)
    return made


def measure(args, name, image):
    rounds = [one_round(args, name, image) for _ in range(args.rounds)]
    times = [statistics.median(made[k]["cpu_ms"] for made in rounds) for k in range(len(rounds[0]))]
    best = min(range(1, len(times)), key=lambda k: times[k])
    ours = rounds[0][0]
    row = {key: ours[key] for key in COLUMNS if key in ours}
    row.update({
        "network": name, "input": image or "128 tokens", "ms": "%.4g" % times[0], "torch_ms": "%.4g" % times[best],
        "torch_layout": {"nhwc": "channels last", "nchw": "channels first"}[rounds[0][best]["format"]] if image else "",
        "growth_bytes": max(made[0]["growth_bytes"] for made in rounds),
        "torch_growth_bytes": max(made[best]["growth_bytes"] for made in rounds),
        "same_bits": "yes" if all(made[0]["same_bits"] for made in rounds) else "no",
        "processor": figures.processor(), "version": rounds[0][1]["peer"].split()[1],
        "commit": figures.git("rev-parse", "--short", "HEAD"), "date": datetime.date.today().isoformat(),
        "command": "tests/bench/compare_predict.py BIN"})
    print("%-18s %8.4g ms, PyTorch %8.4g (%s): %.2f; %.2f MiB = weights %.2f + activations %.2f + tables %.2f, %.3f beyond weights "
          "and two activations; bits %s" % (
              name, times[0], times[best], ", ".join("%s %.4g" % (rounds[0][k]["format"], times[k]) for k in range(1, len(times))),
              times[best] / times[0], row["planned_bytes"] / 2**20, row["weights_bytes"] / 2**20, row["activations_bytes"] / 2**20,
              row["tables_bytes"] / 2**20, row["over_bytes"] / 2**20, row["same_bits"]), flush=True)
    return row


def main():
    args = parse()
    known = {}
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            known = {row["network"]: row for row in csv.DictReader(file)}
    for name, image in NETWORKS:
        if re.search(args.rows, name):
            known[name] = measure(args, name, image)
    if args.no_csv:
        return
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(known[name] for name, _ in NETWORKS if name in known)


if __name__ == "__main__":
    main()
