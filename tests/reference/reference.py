#!/usr/bin/env python3
"""Holds what the programs print against what is on record: weights, plans, results, public names.

    reference.py BIN [--library LIBRARY.so] [--write] [NAME...]
    reference.py BIN --weights SET...

Runs each command below on fixed seeds for each instruction set that the machine and the record have (on a machine
without one, its record is skipped, by name), leaves out what a clock, the operating system or the commit filled, and
compares the rest with tests/reference/NAME.SET.json byte by byte; with --library, the names that the library exports
with tests/reference/symbols.txt. A change of structure changes none of it. --write renews the record: that is a commit
of its own, and its text says why.

--weights trains with a set of any machine and compares the hashes of the weights alone with the record of SSE2, whose
bits `generic` and 32-bit builds have. Their plans differ: the library's own tables are smaller where pointers are, so
more of a budget is left for the pool; and C libraries differ in the last bit of what is only reported (log1pf).

Status 1 if anything differs, with the first lines of the difference; 2 if a command fails.
"""

import argparse
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SETS = ("sse2", "avx2")
SHOWN = 20

# Filled by clocks, by the system or by the build, not by what the programs compute.
LEFT_OUT = re.compile(
    r"(plan_ms|step_ms\w*|fit_ms|took_ms|given_back_ms|rest_ms|saved_share|anon_growth_bytes|file_growth_bytes|samples_per_s|examples_per_s|cpu_s|\w*wall_s|rss_\w+|cgroup_peak_bytes|commit|cpu_model|cpu|cores"
    r"|version|measured_\w+|swapped_\w+_ms|\w*clock\w*|pipeline_ready|pipeline_waited\w*|pipeline_direct\w*|bytes_down|bytes_up|data_dir|server_\w+|\w*port|retries|requests\w*|handshakes\w*|\w+_peak|command|time_plan_ms|idle_client_bytes)"
)

TRAIN = "dunlin-train --data synthetic --max-examples 512 --writers 20 --json OUT/result.json"
# The weights after a few steps: networks, optimisers, policies, budgets, batch norm, groups.
WEIGHTS = {
    "lenet5_sgd": "--model lenet5 --steps 12 --eval",
    "lenet5_adam_small_budget": "--model lenet5 --optimizer adam --lr 0.001 --batch 64 --budget 1536KiB --steps 6",
    "lenet5_adamw_clipped": "--model lenet5 --optimizer adamw --lr 0.001 --weight-decay 0.01 --clip-norm 1 --steps 6",
    "lenet5_cosine": "--model lenet5 --schedule cosine --warmup 3 --steps 8 --nesterov",
    "lenet5_budget_falls": "--model lenet5 --batch 64 --budget 4MiB --budget-at 1.30:1500KiB,3.60:3MiB --steps 6",
    "lenet5_bce": "--model lenet5 --loss bce --steps 6",
    "lenet5_head": "--model lenet5 --trained head --steps 6",
    "lenet5_groups": "--model lenet5 --groups @bias:lr=x2:decay=x0 --decay-norms no --weight-decay 0.01 --steps 6",
    "lenet5_ignored": "--model lenet5 --ignore-label 3 --label-smoothing 0.1 --steps 6",
    "lenet5_augmented": "--model lenet5 --random-crop 2 --flip --steps 6",
    "lenet5_two_threads": "--model lenet5 --threads 2 --steps 6",
    "lenet5_validation": "--model lenet5 --validation 10% --epochs 1 --batch 128",
    "cnn_bn_sliced": "--model cnn_bn --batch 32 --budget 4200KiB --steps 4",
    "cnn_bn_ghost": "--model cnn_bn --batch 32 --ghost --micro-batch 8 --steps 4",
    "mobilenet_v2": "--model mobilenet_v2 --image 32 --batch 8 --budget 40MiB --steps 2",
    "resnet18": "--model resnet18 --image 32 --batch 8 --steps 2",
    "squeezenet": "--model squeezenet1_1 --image 64 --batch 4 --steps 2",
    "densenet121": "--model densenet121 --image 32 --batch 4 --steps 1",
    "resnet18_melon": "--model resnet18 --image 32 --batch 8 --policy melon --budget 150MiB --steps 1",
    "mobilenet_v2_unfused": "--model mobilenet_v2 --image 32 --batch 4 --no-fuse --steps 1",
}
# What the programs say: plans, prices, lists, a federation, a study.
PROGRAMS = {
    "plan_resnet18": TRAIN + " --model resnet18 --image 224 --batch 32 --budget 600MiB --plan-only",
    "plan_mobilenet_v2": TRAIN + " --model mobilenet_v2 --image 224 --batch 32 --budget 256MiB --plan-only",
    "max_batch": TRAIN + " --model lenet5 --budget 2MiB --max-batch",
    "what_fits": TRAIN + " --model lenet5 --budget 1MiB,2MiB,4MiB --what-fits",
    "list": TRAIN + " --model resnet18 --frozen conv1,bn1,layer1 --list",
    "refused": TRAIN + " --model lenet5 --budget 1KiB --steps 1",
    "fleet": "dunlin-fleet --serve --clients 6 --cohort 3 --rounds 3 --dataset synthetic --max-examples 300 --seed 3 --json OUT/result.json",
    "fleet_scaffold": "dunlin-fleet --serve --clients 4 --cohort 4 --rounds 2 --dataset synthetic --max-examples 200"
    " --partition dirichlet:0.3 --algorithm scaffold --evaluate --json OUT/result.json",
    "study_max_batch": "dunlin-study max-batch --quick --models lenet5 --policies none,melon,auto --budgets 1MiB,2MiB"
    " --no-times --out OUT --json OUT/result.json",
}
COMMANDS = {**{name: TRAIN + " " + flags for name, flags in WEIGHTS.items()}, **PROGRAMS}
MAY_FAIL = {"refused"}


def without_clocks(value):
    if isinstance(value, dict):
        return {key: without_clocks(item) for key, item in value.items() if not LEFT_OUT.fullmatch(key)}
    return [without_clocks(item) for item in value] if isinstance(value, list) else value


def run(folder, name, isa):
    """What a command writes to its JSON file, without what clocks filled."""
    with tempfile.TemporaryDirectory() as out:
        words = [word.replace("OUT", out) for word in COMMANDS[name].split()]
        words[0] = str(folder / words[0])
        environment = {**os.environ, "DUNLIN_ISA": isa, "DUNLIN_DATA": ""}
        environment.pop("DUNLIN_DATA")
        done = subprocess.run(words, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
        if done.returncode != 0 and name not in MAY_FAIL:
            sys.stderr.write("%s (%s): status %d: %s\n" % (name, isa, done.returncode, done.stderr.strip()))
            sys.exit(2)
        return without_clocks(json.loads(pathlib.Path(out, "result.json").read_text()))


def differs(name, old, made):
    """Shows the first lines of a difference."""
    lines = list(difflib.unified_diff(old.splitlines(), made.splitlines(), name, "now", lineterm="", n=1))
    print("\n".join(lines[:SHOWN]), end="\n" if lines else "")
    return bool(lines)


def as_text(value):
    return json.dumps(value, indent=1) + "\n"


def exported(library, record):
    """A line for each name that the library exports, with the version that had it first: that of the record, else today's."""
    made = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    since = dict(line.split() for line in record.splitlines())
    today = re.search(r"project\(dunlin VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    names = sorted(line.split()[-1] for line in made.splitlines())
    return "".join("%s %s\n" % (name, since.get(name, today)) for name in names)


def has_set(isa):
    flags = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    return bool(re.search(r"\b%s\b" % isa, flags))


def compare_weights(folder, sets):
    record = json.loads((HERE / "sse2.json").read_text())
    n_different = 0
    for isa in sets:
        for name in WEIGHTS:
            made, wanted = run(folder, name, isa)["weights_hash"], record[name]["weights_hash"]
            if made != wanted:
                print("%s %s: weights_hash %s, on record %s" % (name, isa, made, wanted))
                n_different += 1
    print("reference: %d hashes of weights as on record, %d not" % (len(sets) * len(WEIGHTS) - n_different, n_different))
    return 1 if n_different else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--library")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--weights", nargs="+", metavar="SET")
    args = parser.parse_intermixed_args()
    if args.weights:
        return compare_weights(args.bin, args.weights)
    n_different = n_same = 0
    for isa in SETS:
        if not has_set(isa):
            print("%s: skipped, this machine does not have it" % isa)
            continue
        path = HERE / (isa + ".json")
        record = json.loads(path.read_text()) if path.exists() else {}
        for name in args.names or COMMANDS:
            made = run(args.bin, name, isa)
            if args.write:
                record[name] = made
            is_other = differs("%s %s" % (name, isa), as_text(record.get(name)), as_text(made))
            n_different += is_other
            n_same += not is_other
        if args.write:
            path.write_text(as_text(record))
    if args.library is not None:
        path = HERE / "symbols.txt"
        made = exported(args.library, path.read_text() if path.exists() else "")
        if args.write:
            path.write_text(made)
        n_different += differs("exported names", path.read_text(), made)
    print("reference: %d as on record, %d not" % (n_same, n_different))
    return 1 if n_different else 0


sys.exit(main())
