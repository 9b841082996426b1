#!/usr/bin/env python3
"""Instructions that arm64's integer kernels take beside those of float32, counted one by one under qemu.

neon.py PROGRAM ROOT [CSV]: PROGRAM is the arm64 build's bench_integer, ROOT the folder of arm64 libraries. A row a layer, set and pass:
the program does it never and once, and the difference is what it takes, start-up and filling of tensors left out. One image, one thread;
float32 is as shipped, Winograd included. A count of instructions tells nothing of a core's ports, caches and widths: it is no time. Rows that
the CSV has are not counted again. `figures.py write` makes a table of results/neon.csv. Needs qemu-aarch64.
"""
import pathlib
import subprocess
import sys
import tempfile

import kept_rows

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results" / "neon.csv"
COLUMNS = ["layer", "pass", "set", "float32", "integers", "commit"]
KEY = COLUMNS[:3]
SETS = {"neon": "with dot product", "neon-dotprod": "without"}
PASSES = ("forward", "input", "weights")
LAYERS = (  # of which network, its name there, and what the table calls it
    ("squeezenet1_1", "13x13 48->192 k3 s1", "3 x 3, 13 x 13, 48 to 192"),
    ("mobilenet_v2", "28x28 192->32 k1 s1", "pointwise, 28 x 28, 192 to 32"),
    ("mobilenet_v2", "14x14 64->384 k1 s1", "pointwise, 14 x 14, 64 to 384"),
    ("mobilenet_v2", "14x14 384->384 k3 s1 depthwise", "depthwise 3 x 3, 14 x 14, 384"),
    ("lenet5", "14x14 6->16 k5 s1", "5 x 5, 14 x 14, 6 to 16"),
    ("mobilenet_v2", "1x1 1280->1000 k1 s1", "dense, one row, 1,280 to 1,000"),
)


def executed(program, root, network, layer, isa, side, which, times):
    """Instructions of the whole program, which does the pass `times` times: a line of qemu's log each."""
    with tempfile.NamedTemporaryFile(prefix="neon-") as log:  # not a pipe: each line would wake its reader
        command = ["qemu-aarch64", "-singlestep", "-d", "exec,nochain", "-D", log.name, "-L", str(root), str(program), "--isa", isa,
                   "--network", network, "--batch", "1", "--layer", layer, "--times", str(times), "--side", side,
                   "--pass", which]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return sum(block.count(b"\n") for block in iter(lambda: log.read(1 << 20), b""))


def table():
    """Lines of Markdown: how many instructions of float32 go into one of the integers', pass by pass."""
    found = {tuple(row[name] for name in KEY): row for row in kept_rows.read(RESULTS)}
    if not found:
        return ["(no row yet)"]
    lines = ["| layer, one image | " + " | ".join("%s, %s" % (which, name) for name in SETS.values() for which in PASSES) + " | commit |",
             "|" + "---|" * (2 + len(SETS) * len(PASSES))]  # fmt: skip
    for _, _, layer in LAYERS:
        cells, commits = [], set()
        for isa in SETS:
            for which in PASSES:
                row = found.get((layer, which, isa))
                cells.append("%.2f" % (int(row["float32"]) / int(row["integers"])) if row else "")
                commits |= {row["commit"]} if row else set()
        lines.append("| %s | %s | %s |" % (layer, " | ".join(cells), ", ".join(sorted(commits))))
    return lines


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__.strip())
        return 2
    path = pathlib.Path(sys.argv[3]) if len(sys.argv) == 4 else RESULTS
    known = {tuple(row[name] for name in KEY) for row in kept_rows.read(path)}
    commit = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True).stdout.strip()
    for network, layer, name in LAYERS:
        never = None  # what the program takes without the pass: the same whatever the pass and side are
        for which in PASSES:
            floats = None
            for isa in SETS:
                if (name, which, isa) in known:
                    continue
                one = [sys.argv[1], sys.argv[2], network, layer, isa]
                never = never or executed(*one, "floats", which, 0)
                floats = floats or executed(*one, "floats", which, 1) - never
                integers = executed(*one, "integers", which, 1) - never
                row = dict(zip(COLUMNS, (name, which, isa, floats, integers, commit), strict=True))
                kept_rows.append(path, COLUMNS, row)
                print(name, which, isa, "%.2f" % (row["float32"] / row["integers"]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
