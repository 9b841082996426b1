#!/usr/bin/env python3
"""What each storage makes of a budget: bytes and predicted time of the plans of six networks, a row a plan, beside PyTorch's memory.

    storage_plans.py BIN [CSV] [--networks NAME,...] [--torch PYTHON] [--measure]

BIN has dunlin-train. By network and storage: all kept, then what is persistent (weights, optimiser, tables) and a share of what the exact
plan of all kept takes beyond it; MobileNetV2 in the bytes of its bars, too. of_fastest_exact: the predicted time over that of the fastest exact plan. The costs are the roofline's,
the same on every machine; the plans are those of this machine's instruction set. --torch adds what a step of PyTorch takes
(torch_step.py; one process, which runs the step: minutes in all), --measure the processor time of steps of MobileNetV2 with all kept and in the bytes of its bars (bench_step, the median
of two rounds that take all plans in turn; minutes, too). A row without a plan does
not fit; a network with an operation that cannot be stored so has no row of it, and the reason is printed. A network of which the file has rows is
not planned again: to see what another planner makes of it, name another file.
"""
import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import compare_torch
import kept_rows

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results" / "storage_plans.csv"
COLUMNS = ["isa", "network", "image", "batch", "storage", "budget_bytes", "planned_bytes", "n_recomputed", "n_slices", "predicted_ms",
           "of_fastest_exact", "measured_ms", "torch_bytes"]  # fmt: skip
MIB = 1 << 20
BARS = {"mobilenet_v2": [300 * MIB, 163 * MIB, 150 * MIB, 100 * MIB]}
NETWORKS = {"mobilenet_v2": 32, "resnet50": 32, "densenet121": 32, "squeezenet1_1": 32, "vgg16": 32, "bert_small": 32}
STORAGES = ("exact", "bf16", "int8")
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


def table():
    """Lines of Markdown: what each network takes with all kept, and the time of its plans within a share of what the exact one takes."""
    rows = kept_rows.read(RESULTS)
    lines = ["| network, batch 32 | storage | all kept, MiB | " + " | ".join("within %.0f %%" % (100.0 * share) for share in SHARES) +
             " | PyTorch, MiB above its start |", "|" + "---|" * (4 + len(SHARES))]  # fmt: skip
    for network in NETWORKS:
        own = [row for row in rows if row["network"] == network]
        for storage in dict.fromkeys(row["storage"] for row in own):
            every = [row for row in own if row["storage"] == storage]
            cells = [row["of_fastest_exact"] and "%.2f" % float(row["of_fastest_exact"]) for row in every[-len(SHARES):]]
            beside = every[0]["torch_bytes"]
            lines.append("| `%s` | %s | %.0f | %s | %s |" % (
                network, storage, int(every[0]["planned_bytes"]) / MIB, " | ".join(cell or "does not fit" for cell in cells),
                "%.0f" % (int(beside) / MIB) if beside and storage == "exact" else ""))  # fmt: skip
    return lines


def bars_table():
    """Lines of Markdown: MobileNetV2 in the bytes of its bars, predicted and, behind it, measured, over the fastest exact plan."""
    rows = kept_rows.read(RESULTS)
    found = {(row["storage"], int(row["budget_bytes"])): row for row in rows if row["network"] == "mobilenet_v2"}
    whole = found["exact", 0]
    lines = ["| MobileNetV2, batch 32 | " + " | ".join(STORAGES) + " |", "|" + "---|" * (1 + len(STORAGES))]
    for budget in [0] + BARS["mobilenet_v2"]:
        cells = []
        for storage in STORAGES:
            row = found[storage, budget]
            times = [one.get("measured_ms") for one in (row, whole)]
            measured = " (%.2f)" % (float(times[0]) / float(times[1])) if all(times) else ""
            cells.append("%.2f%s" % (float(row["of_fastest_exact"]), measured))
        lines.append("| %s | %s |" % ("%d MiB" % (budget // MIB) if budget else "all kept", " | ".join(cells)))
    return lines


def measure(bench, rows):
    """Puts measured_ms into the rows of a network whose budget is a bar's, or none: processor time of a step, milliseconds."""
    chosen = [row for row in rows if int(row["budget_bytes"]) in [0] + BARS.get(row["network"], []) and row["planned_bytes"]]
    times = {id(row): [] for row in chosen}
    for _ in range(2):
        for row in chosen:
            words = [bench, "--model", row["network"], "--image", str(row["image"]), "--batch", str(row["batch"]), "--threads", "1", "--warmup", "1",
                     "--steps", "3", "--json"]  # fmt: skip
            words += ["--budget", str(row["budget_bytes"])] if int(row["budget_bytes"]) else []
            words += [] if row["storage"] == "exact" else ["--" + row["storage"]]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            times[id(row)].append(json.loads(done.stdout)["cpu_ms"])
    for row in chosen:
        row["measured_ms"] = "%.1f" % statistics.median(times[id(row)])


def torch_bytes(python, network, batch):
    """What a step of PyTorch takes at most above what the process had before, the better of its layouts."""
    environment = dict(os.environ, **compare_torch.blas_core())
    environment.update(MALLOC_ARENA_MAX="1", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    found = []
    for layout in ("nchw", "nhwc") if network != "bert_small" else ("nchw",):
        words = [python, str(HERE / "torch_step.py"), "--model", network, "--batch", str(batch), "--steps", "1", "--warmup", "1", "--format", layout]
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            sys.exit("storage_plans.py: %s: %s" % (" ".join(words[1:]), done.stderr.strip()))
        found.append(json.loads(done.stdout.splitlines()[-1])["growth_bytes"])
    return int(min(found))


def rows_of(program, network, known):
    """The rows of a network, those of `known` as they are: by storage and budget, in the order of the page's curves."""
    batch = NETWORKS[network]
    own = {(row["storage"], int(row["budget_bytes"])): row for row in known if row["network"] == network}
    if own:
        return list(own.values())
    whole = plan(program, network, batch, "exact", 0)
    persistent = sum(whole["by_class"][name] for name in ("weights", "optimizer", "tables"))
    beyond = whole["planned_bytes"] - persistent
    budgets = [0] + BARS.get(network, []) + [persistent + int(share * beyond) for share in SHARES]
    rows = []
    for storage in STORAGES:
        is_there = plan(program, network, batch, storage, 0) is not None
        for budget in budgets if is_there else []:
            found = plan(program, network, batch, storage, budget)
            row = {"isa": whole["isa"], "network": network, "image": whole["image"], "batch": batch, "storage": storage, "budget_bytes": budget}
            if found is not None:
                row.update({key: found[key] for key in ("planned_bytes", "n_recomputed", "n_slices")})
                row["predicted_ms"] = "%.3f" % found["predicted_ms"]
                row["of_fastest_exact"] = "%.4f" % (found["predicted_ms"] / whole["predicted_ms"])
            rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("csv", type=pathlib.Path, nargs="?", default=RESULTS)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    program = str(options.programs / "dunlin-train")
    known = kept_rows.read(options.csv)
    chosen = options.networks.split(",")
    for network in chosen:
        if network not in NETWORKS:
            parser.error("no network %s; there are: %s" % (network, ", ".join(NETWORKS)))
        made = rows_of(program, network, known)
        if options.torch and not made[0].get("torch_bytes"):
            taken = torch_bytes(options.torch, network, NETWORKS[network])
            for row in made:
                row["torch_bytes"] = taken
        if options.measure and network in BARS:
            measure(str(options.programs / "bench_step"), made)
        others = [row for row in known if row["network"] != network]
        known = sorted(others + made, key=lambda row: list(NETWORKS).index(row["network"]))
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(known)
        print("%s: exact %.0f MiB" % (network, int(made[0]["planned_bytes"]) / MIB), flush=True)


if __name__ == "__main__":
    main()
