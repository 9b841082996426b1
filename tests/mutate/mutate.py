#!/usr/bin/env python3
"""Changes product code one line at a time and looks whether a test notices.

    tests/mutate/mutate.py [--folder FOLDER] [--count N] [--seed N] [--again] [--fresh] [--list]

Everything is built in FOLDER (default build/mutate): a copy of the tracked files and two builds of it (a quick one, and one
with sanitizers, which gets what the quick one lets pass). A program is built and run only once the ones before it have let the
change pass. Each change of the draw first meets few random cases, by which most are found; what is "open" then meets many, and
the sanitizers. tests/bench/results/mutations.csv has a row a change, written as it comes, with the clock's and the processor's
seconds; an interrupted run continues where it stopped, on another machine too, since the series takes hours. A change that does
not compile, or that leaves the programs as they were to the byte, is noted and replaced by the next of the draw. --again tries
the survivors anew that equivalent.csv does not name, with the tests as they are now; --fresh begins from nothing; --list only
prints the draw.

A survivor that cannot be told from the original by what the code promises stands in equivalent.csv, with the reason; it does
not meet the longer passes.
A test that fails before anything is changed is named and left out. The exit status is 1 if more than 10 other survivors are
left, 2 if a test was left out.
"""

import argparse
import csv
import datetime
import pathlib
import sys
import time

sys.dont_write_bytecode = True
import draw  # noqa: E402
from bench import HERE, ROOT, Bench, processor_seconds  # noqa: E402

RESULTS = ROOT / "tests" / "bench" / "results" / "mutations.csv"
FIELDS = ["file", "line", "nth", "operator", "before", "after", "result", "by", "seconds", "processor_seconds"]
SURVIVORS_ALLOWED = 10
COUNTED = ("killed", "timeout", "survived", "open")

# The programs that look at a folder's code, those that fail soonest first. The longest prefix counts.
PROGRAMS = {
    "memory/src": ["test_memory", "test_optimum", "test_plan_property", "test_step", "test_expected_plans", "test_plans"],
    "trainer/src/kernels": ["test_kernels", "test_ops", "test_golden"],
    "trainer/src/kernels/integer": ["test_integer", "test_integer_step", "test_products"],
    "trainer/src/integer": ["test_integer_step", "test_products", "test_integer"],
    "trainer/src/ops": ["test_ops", "test_golden", "test_net", "test_step"],
    "trainer/src/graph": ["test_ops", "test_net", "test_step", "test_storage"],
    "trainer/src/model": ["test_net", "test_step", "test_golden"],
    "trainer/src/net": ["test_net", "test_ops", "test_golden"],
    "trainer/src/convert": ["test_net", "test_ops", "test_step"],
    "trainer/src/onnx": ["test_net", "test_step"],
    "trainer/src/data": ["test_data", "test_golden_pipeline"],
    "trainer/src/step": ["test_step", "test_storage", "test_golden", "test_products", "test_exact", "test_plans"],
    "sdk/src": ["test_sdk", "test_examples", "test_compress", "test_formats", "test_network"],
    "sdk/src/examples": ["test_examples", "test_sdk"],
    "sdk/src/round": ["test_sdk", "test_examples", "test_compress", "test_formats", "test_network", "test_integration"],
    "sdk/src/secagg": ["test_secagg", "test_sdk", "test_network"],
}
# What is tried, one after the other: the build, what tests with random cases do of their normal number, and whether the tests
# that take longest are left out. All that the first does is part of the second, which finds the same, later.
PASSES = [("quick", "0.05", True), ("quick", "0.5", False), ("sanitized", "0.2", False)]
# Hundreds of plans, however few cases: minutes. So not in the first pass, and not with sanitizers, where test_memory and
# test_step plan; tests/run.sh runs them without alone.
SLOW = ("test_expected_plans", "test_plans")


def programs_of(file):
    prefixes = [p for p in PROGRAMS if file.startswith(p + "/")]
    if not prefixes:
        sys.exit(f"mutate.py: no program is named for {file}; PROGRAMS needs a line for its folder")
    return PROGRAMS[max(prefixes, key=len)]


def try_first(bench, mutation):
    """Result and killer of the first pass, which finds most; "open" where it found nothing, and the others are to come."""
    programs = [p for p in programs_of(mutation.file) if p not in SLOW]
    result, by, programs = bench.try_in(*PASSES[0], mutation, programs)
    if result == "survived":
        result = "open" if programs else "same"  # SLOW programs hold no code that the others do not
    return result, by


def try_further(bench, mutation):
    """Result and killer of the passes after the first."""
    programs = programs_of(mutation.file)
    for build, cases, is_brief in PASSES[1:]:  # in a build whose warnings are errors a change may be refused: it survives
        if build == "sanitized":
            programs = [p for p in programs if p not in SLOW]
        # A program that a change left as it was to the byte is not tried again, nor with sanitizers.
        result, by, programs = bench.try_in(build, cases, is_brief, mutation, programs)
        if result == "killed":
            return result, by + " with sanitizers" if build == "sanitized" else by
        if not programs:
            break
    return "survived", ""


def let_pass(_bench, _mutation):
    """Of a change that equivalent.csv names: no test can find it."""
    return "survived", ""


def read_rows(path):
    if not path.is_file():
        return []
    with open(path, newline="") as stream:
        # A row of an earlier script lacks the later columns.
        rows = csv.DictReader(line for line in stream if not line.startswith("#"))
        return [{**dict.fromkeys(FIELDS, ""), **row} for row in rows]


def row_key(row):
    return (row["file"], row["before"].strip(), row["after"].strip(), str(row["nth"]))


def write_rows(path, seed, rows):
    new = path.with_suffix(".new")
    with open(new, "w", newline="") as stream:
        stream.write(f"# seed {seed}, {datetime.date.today().isoformat()}\n")
        writer = csv.DictWriter(stream, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    new.replace(path)


def known_equivalent():
    """Without a number it is each line of that text in the file."""
    return {(r["file"], r["before"], r["after"], r["nth"] or "") for r in read_rows(HERE / "equivalent.csv")}


def is_equivalent(row, known):
    key = (row["file"], row["before"].strip(), row["after"].strip())
    return (*key, "") in known or (*key, str(row["nth"])) in known


def conclude(rows):
    known = known_equivalent()
    survivors, excused = [], []
    for row in rows:
        if row["result"] == "survived":
            (excused if is_equivalent(row, known) else survivors).append(row)
    for title, some in (("survivors", survivors), ("survivors that change nothing promised", excused)):
        print(f"{len(some)} {title}")
        for row in some:
            print(f"{row['file']}:{row['line']}: {row['operator']}")
            print(f"  - {row['before'].strip()}\n  + {row['after'].strip()}")
    counts = {name: sum(r["result"] == name for r in rows) for name in (*COUNTED, "invalid", "same")}
    print(", ".join(f"{n} {name}" for name, n in counts.items()))
    timed = [float(r["processor_seconds"]) for r in rows if r["result"] in COUNTED and r["processor_seconds"]]
    if timed:
        print(f"{sum(timed) / len(timed):.0f} processor seconds a change ({len(timed)} of them timed)")
    return 0 if len(survivors) <= SURVIVORS_ALLOWED else 1


class Series:
    """The changes taken so far: `rows` by key, in the order of the draw, all written after each try."""

    def __init__(self, seed, rows):
        self.seed = seed
        self.rows = {row_key(row): row for row in rows}

    def try_one(self, mutation, attempt):
        """Tries the change by `attempt`, try_first or try_further, and adds what it took to what the change took before."""
        clock, processor = time.monotonic(), processor_seconds()
        result, by = attempt(self.bench, mutation)
        row = self.rows.setdefault(
            mutation.key(),
            dict(
                file=mutation.file,
                line=mutation.line,
                nth=mutation.nth,
                operator=mutation.operator,
                before=mutation.before.strip(),
                after=mutation.after.strip(),
                seconds=0,
                processor_seconds=0,
            ),
        )
        row.update(result=result, by=by)
        row["seconds"] = round(float(row["seconds"] or 0) + time.monotonic() - clock, 1)
        row["processor_seconds"] = round(float(row["processor_seconds"] or 0) + processor_seconds() - processor, 1)
        write_rows(RESULTS, self.seed, self.rows.values())
        where = f"{mutation.file}:{mutation.line}"
        print(f"{result:8s} {row['seconds']:6.1f} s  {row['processor_seconds']:6.1f} s  {where}  {by}", flush=True)
        return row

    def run(self, order, count, folder):
        """The rows of the first `count` changes of the draw that make a difference, and of the others among them."""
        self.bench = Bench(folder)
        self.bench.copy_tree()
        taken = []
        for mutation in order:
            if sum(row["result"] in COUNTED for row in taken) == count:
                break
            taken.append(self.rows.get(mutation.key()) or self.try_one(mutation, try_first))
        keys = {row_key(row) for row in taken}
        known = known_equivalent()
        for mutation in order:
            if mutation.key() in keys and self.rows[mutation.key()]["result"] == "open":
                is_known = is_equivalent(self.rows[mutation.key()], known)
                self.try_one(mutation, let_pass if is_known else try_further)
        return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "mutate")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--again", action="store_true", help="try the survivors anew")
    parser.add_argument("--fresh", action="store_true", help="begin from nothing")
    parser.add_argument("--list", action="store_true", help="print the draw and do nothing")
    options = parser.parse_args()

    order = draw.draw(ROOT, options.seed)
    for mutation in order:  # a folder without a line would end the run only when the draw comes to it
        programs_of(mutation.file)
    if options.list:
        for m in order[: options.count]:
            print(f"{m.file}:{m.line}: {m.operator}\n  - {m.before.strip()}\n  + {m.after.strip()}")
        return 0
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows = [] if options.fresh else read_rows(RESULTS)
    if options.again:
        known = known_equivalent()
        rows = [row for row in rows if row["result"] != "survived" or is_equivalent(row, known)]
    series = Series(options.seed, rows)
    status = conclude(series.run(order, options.count, folder))
    return 2 if series.bench.unsound else status


if __name__ == "__main__":
    sys.exit(main())
