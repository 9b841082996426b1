#!/usr/bin/env python3
"""What each small optimisation of the kernels is worth: the same steps with it and without it, in pairs.

    ablate.py run [NAME...] [--pairs 20] [--core N] [--folder FOLDER]
                       builds and measures the rows of ablations.json (all, or those named) that results/ablations.csv does not
                       have yet for this processor and commit, and writes each row as it comes; --again measures them anew
    ablate.py check    whether each edit of ablations.json still finds its place in the sources (1 if not); builds nothing

"Without" is an edit of a copy of the tracked files in FOLDER (default build/ablate), so that product code has no switches
that nobody uses; of the kernels only those of this machine's instruction set are compiled anew. A pair is one run of each
side, one after the other, the order alternating; a run is bench_step pinned to a core, its figure the processor time of a
step (`cpu_ms`), with several threads the wall time (`ms`). The change is the geometric mean of without / with over the pairs,
with the interval of 95 % by Student's t of the logarithms: 1.05 means that a step takes 5 % longer without. `verdict`: `pays`
where the interval's lower end is at least 1.01 or the change is and the lower end above 1; `harms` where the upper end is
below 1; `small` otherwise: less than 1 %, or not told apart from nothing, on this processor. A row whose interval begins at
1.02 or above after ten pairs ends there.
"""

import argparse
import csv
import datetime
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
import figures  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLE = HERE / "results" / "ablations.csv"
COLUMNS = ["name", "what", "with_ms", "without_ms", "change", "low", "high", "pairs", "verdict", "threads", "processor", "commit", "date", "command"]
STEPS = 3  # of a run, where ablations.json says no other number
CLEAR_AFTER, CLEAR = 10, 1.02  # a lower end of 1.02 after ten pairs needs no more of them
# Student's t for 95 %, two-sided, by degrees of freedom.
STUDENT = {4: 2.776, 9: 2.262, 14: 2.145, 19: 2.093, 29: 2.045, 39: 2.023}


LAUNCHER = """#!/bin/sh
# Compiles, unless the object is a kernel of an instruction set that is not measured and is there already.
isa=$(cat "{isa}" 2>/dev/null)
for word; do
    case $word in
    *dunlin_kernels_"$isa".dir/*) ;;
    *dunlin_kernels_*.o)
        if [ -n "$isa" ] && [ -f "$word" ]; then
            touch "$word"
            exit 0
        fi
        ;;
    esac
done
exec {inner} "$@"
"""


def ablations():
    return json.loads((HERE / "ablations.json").read_text())


def edited(text, edit):
    """The text without the optimisation; None where the edit does not find its place as often as it says."""
    result, times = re.subn(edit["find"], lambda _: edit["put"], text)
    return result if times == edit.get("times", 1) else None


def check():
    bad = 0
    for one in ablations():
        for edit in one["edits"]:
            if edited((ROOT / edit["file"]).read_text(), edit) is None:
                print("ablate.py: %s: %s has not what the edit looks for, %d times" % (one["name"], edit["file"], edit.get("times", 1)))
                bad = 1
    return bad


def copy_tree(tree):
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, tree / name
        if source.is_file() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            os.chmod(target, source.stat().st_mode & 0o777)


def write_launcher(folder):
    """A compiler launcher that leaves objects of other instruction sets than FOLDER/isa's as they are; its path."""
    launcher = folder / "launcher.sh"
    launcher.write_text(LAUNCHER.format(isa=folder / "isa", inner=os.environ.get("CMAKE_C_COMPILER_LAUNCHER", "")))
    launcher.chmod(0o755)
    return launcher


def build(folder, name):
    """Builds bench_step of the copy and keeps it under a name of its own."""
    where = folder / "build"
    with (folder / "build.log").open("w") as log:
        if not (where / "build.ninja").exists():
            command = ["cmake", "-S", folder / "tree", "-B", where, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
            command.append("-DCMAKE_C_COMPILER_LAUNCHER=%s" % write_launcher(folder))
            subprocess.run(command, check=True, stdout=log, stderr=log)
        done = subprocess.run(["ninja", "-C", where, "-j2", "bench_step"], stdout=log, stderr=log)
    if done.returncode != 0:
        sys.exit("ablate.py: %s does not build; see %s" % (name, folder / "build.log"))
    kept = folder / name
    shutil.copyfile(where / "bin" / "bench_step", kept)
    os.chmod(kept, 0o755)
    return kept


def step(program, words):
    """What bench_step says of the run, as --json has it."""
    done = subprocess.run([program, *words, "--json"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def step_ms(program, words, threads):
    return step(program, words)["ms" if threads > 1 else "cpu_ms"]


def interval(logs):
    """Geometric mean and the ends of the interval of 95 %."""
    mean = statistics.fmean(logs)
    degrees = max(k for k in STUDENT if k <= len(logs) - 1)
    half = STUDENT[degrees] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def verdict(change, low, high):
    if high < 1:
        return "harms"
    return "pays" if low > 1 and change >= 1.01 else "small"


def measured(one, sides, options, commit):
    threads = one.get("threads", 1)
    words = [*one["run"].split(), "--threads", str(threads), "--core", str(options.core), "--steps", str(one.get("steps", STEPS)), "--warmup", "1"]
    times = {side: [] for side in sides}
    for pair in range(options.pairs):
        for side in sorted(sides, reverse=pair % 2 == 1):
            times[side].append(step_ms(sides[side], words, threads))
        logs = [math.log(out / into) for out, into in zip(times["without"], times["with"])]
        if pair + 1 == CLEAR_AFTER and interval(logs)[1] >= CLEAR:
            break
    change, low, high = interval(logs)
    return {
        "name": one["name"],
        "what": one["what"],
        "with_ms": "%.1f" % statistics.median(times["with"]),
        "without_ms": "%.1f" % statistics.median(times["without"]),
        "change": "%.3f" % change,
        "low": "%.3f" % low,
        "high": "%.3f" % high,
        "pairs": len(logs),
        "verdict": verdict(change, low, high),
        "threads": threads,
        "processor": figures.processor(),
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "command": "bench_step " + " ".join(words),
    }


def read_rows():
    if not TABLE.exists():
        return []
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def write_rows(table):
    order = {one["name"]: i for i, one in enumerate(ablations())}
    table.sort(key=lambda row: (order.get(row["name"], len(order)), row["processor"]))
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def run(options):
    chosen = [one for one in ablations() if not options.names or one["name"] in options.names]
    unknown = set(options.names) - {one["name"] for one in chosen}
    if unknown:
        sys.exit("ablate.py: ablations.json has no %s" % ", ".join(sorted(unknown)))
    folder = options.folder.resolve()
    tree = folder / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    copy_tree(tree)
    commit = figures.git("rev-parse", "--short", "HEAD")
    isa = folder / "isa"
    isa.unlink(missing_ok=True)
    whole = build(folder, "with")
    isa.write_text(step(whole, "--model lenet5 --batch 1 --steps 1 --warmup 1".split())["isa"])
    for one in chosen:
        own = (one["name"], figures.processor())
        if not options.again and any((row["name"], row["processor"], row["commit"]) == (*own, commit) for row in read_rows()):
            continue
        originals = {tree / edit["file"]: (tree / edit["file"]).read_text() for edit in one["edits"]}
        try:
            for edit in one["edits"]:
                path = tree / edit["file"]
                text = edited(path.read_text(), edit)
                if text is None:
                    sys.exit("ablate.py: %s: %s has not what the edit looks for" % (one["name"], edit["file"]))
                path.write_text(text)
            without = build(folder, "without-" + one["name"])
        finally:
            for path, text in originals.items():
                path.write_text(text)
        row = measured(one, {"with": whole, "without": without}, options, commit)
        write_rows([kept for kept in read_rows() if (kept["name"], kept["processor"]) != own] + [row])
        print("%-24s %s (%s to %s) %s" % (one["name"], row["change"], row["low"], row["high"], row["verdict"]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "check"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--pairs", type=int, default=20, help="5 or more")
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "ablate")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    if options.pairs < 5:
        parser.error("--pairs %d is not 5 or more" % options.pairs)
    if check() != 0:
        return 1
    return run(options) if options.what == "run" else 0


if __name__ == "__main__":
    sys.exit(main())
