#!/usr/bin/env python3
"""What each storage makes of a budget: bytes and predicted time of the plans of six networks, a row a plan, beside PyTorch's memory.

    storage_plans.py BIN [CSV] [--networks NAME,...] [--torch PYTHON]

BIN has dunlin-train. By network and storage: all kept, then what is persistent (weights, optimiser, tables) and a share of what the exact
plan of all kept takes beyond it; MobileNetV2 in the bytes of its bars, too. of_fastest_exact: the predicted time over that of the fastest exact plan. The costs are the roofline's,
the same on every machine; the plans are those of this machine's instruction set. --torch adds what a step of PyTorch takes
(torch_step.py; one process, which runs the step: minutes in all). A row without a plan does
not fit; a network with an operation that cannot be stored so has no row of it, and the reason is printed. The file is written anew.
"""
import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = ["isa", "network", "image", "batch", "storage", "budget_bytes", "planned_bytes", "n_recomputed", "n_slices", "predicted_ms",
           "of_fastest_exact", "torch_bytes"]  # fmt: skip
MIB = 1 << 20
BARS = {"mobilenet_v2": [300 * MIB, 163 * MIB, 150 * MIB, 100 * MIB]}
NETWORKS = {"mobilenet_v2": 32, "resnet50": 32, "densenet121": 32, "squeezenet1_1": 32, "vgg16": 32, "bert_small": 32}
SHARES = [0.5, 0.35, 0.25, 0.17, 0.12]


def plan(program, network, batch, storage, budget):
    """The plan as dunlin-train tells it, None where there is none: too small a budget, or an operation that is not stored so."""
    words = ["--model", network, "--batch", str(batch), "--plan-only", "--data", "synthetic", "--threads", "1", "--storage", storage]
    words += ["--image", "224"] if network != "bert_small" else []
    words += ["--budget", str(budget)] if budget else []
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "plan.json"
        done = subprocess.run([program, *words, "--json", str(out)], capture_output=True, text=True)
        told = json.loads(out.read_text()) if out.exists() else {}
    if told.get("status") == "UNSUPPORTED":
        print("%s: %s" % (network, told["error"]), flush=True)
    if told.get("status") in ("BUDGET", "UNSUPPORTED"):
        return None
    if done.returncode != 0:
        sys.exit("storage_plans.py: %s: %s" % (" ".join(words), done.stderr.strip()))
    return told


def torch_bytes(python, network, batch):
    """What a step of PyTorch takes at most above what the process had before, the better of its layouts."""
    found = []
    for layout in ("nchw", "nhwc") if network != "bert_small" else ("nchw",):
        words = [python, str(HERE / "torch_step.py"), "--model", network, "--batch", str(batch), "--steps", "1", "--warmup", "1", "--format", layout]
        done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, MALLOC_ARENA_MAX="1"))
        if done.returncode == 0:
            found.append(json.loads(done.stdout.splitlines()[-1])["growth_bytes"])
    return int(min(found)) if found else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("csv", type=pathlib.Path, nargs="?", default=HERE / "results" / "storage_plans.csv")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--torch")
    options = parser.parse_args()
    program = str(options.programs / "dunlin-train")
    rows = []
    for network in options.networks.split(","):
        if network not in NETWORKS:
            parser.error("no network %s; there are: %s" % (network, ", ".join(NETWORKS)))
        batch = NETWORKS[network]
        whole = plan(program, network, batch, "exact", 0)
        persistent = sum(whole["by_class"][name] for name in ("weights", "optimizer", "tables"))
        beyond = whole["planned_bytes"] - persistent
        budgets = [0] + BARS.get(network, []) + [persistent + int(share * beyond) for share in SHARES]
        torch = torch_bytes(options.torch, network, batch) if options.torch else ""
        for storage in ("exact", "bf16", "int8"):
            is_there = plan(program, network, batch, storage, 0) is not None
            for budget in budgets if is_there else []:
                found = plan(program, network, batch, storage, budget)
                row = {"isa": whole["isa"], "network": network, "image": whole["image"], "batch": batch, "storage": storage,
                       "budget_bytes": budget, "torch_bytes": torch}  # fmt: skip
                if found is not None:
                    row.update({key: found[key] for key in ("planned_bytes", "n_recomputed", "n_slices")})
                    row["predicted_ms"] = "%.3f" % found["predicted_ms"]
                    row["of_fastest_exact"] = "%.4f" % (found["predicted_ms"] / whole["predicted_ms"])
                rows.append(row)
        print("%s: exact %.0f MiB" % (network, whole["planned_bytes"] / MIB), flush=True)
    with options.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
