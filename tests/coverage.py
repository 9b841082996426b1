#!/usr/bin/env python3
"""The table of coverage.sh, from what gcov --json-format says of a build's objects.

A line counts once, however many objects have it (kernels, functions in headers), and is covered if it ran in any of them.
Files that are made by the build and tests do not count.
"""

import collections
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Layer, its folders, the least percentage: two points below what was measured when the line was last changed.
LAYERS = [
    ("base", ["memory/src/base", "memory/internal/base"], 95.3),
    ("memory", ["memory"], 97.1),
    ("trainer", ["trainer"], 94.5),
    ("proto", ["proto"], 96.9),
    ("sdk", ["sdk"], 87.5),
    ("server_mock", ["server_mock"], 86.3),
]


def layer_of(path):
    for name, folders, _ in LAYERS:
        if any(path.startswith(folder + "/") for folder in folders):
            return name
    return None


def reports(build):
    """Each file's part of gcov's report on each object."""
    notes = [str(path) for name in ("memory", "trainer", "proto", "sdk", "server_mock")
             for path in sorted((build / name).rglob("*.gcno"))]
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(notes), 50):
            subprocess.run(["gcov", "--json-format", "--preserve-paths", *notes[first:first + 50]], cwd=folder, check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for report in pathlib.Path(folder).glob("*.gcov.json.gz"):
            with gzip.open(report) as file:
                read = json.load(file)
            for part in read["files"]:
                yield pathlib.Path(read["current_working_directory"], part["file"]).resolve(), part["lines"]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    ran = collections.defaultdict(dict)
    for path, lines in reports(build):
        if path.is_relative_to(ROOT) and not path.is_relative_to(build):
            for line in lines:
                at = line["line_number"]
                here = ran[path.relative_to(ROOT).as_posix()]
                here[at] = here.get(at, False) or line["count"] > 0
    if "--list" in sys.argv:
        for path in sorted(ran, key=lambda p: sum(ran[p].values()) / len(ran[p])):
            if layer_of(path) is not None:
                print("%-60s %5d %6.1f" % (path, len(ran[path]), 100.0 * sum(ran[path].values()) / len(ran[path])))
    is_low = False
    print("%-12s %6s %9s %6s" % ("layer", "lines", "covered %", "floor"))
    for name, _, floor in LAYERS:
        lines = [is_covered for path in ran if layer_of(path) == name for is_covered in ran[path].values()]
        share = 100.0 * sum(lines) / len(lines) if lines else 0.0
        word = "" if share >= floor and lines else "  BELOW" if lines else "  NO LINES"
        is_low = is_low or word != ""
        print("%-12s %6d %9.1f %6.1f%s" % (name, len(lines), share, floor, word))
    return 1 if is_low else 0


sys.exit(main())
