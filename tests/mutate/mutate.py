#!/usr/bin/env python3
"""Changes product code one line at a time and looks whether a test notices.

    tests/mutate/mutate.py [--folder FOLDER] [--count N] [--seed N] [--again] [--fresh] [--list]

Everything is built in FOLDER (default build/mutate): a copy of the tracked files and two builds of it (a quick one, and one
with sanitizers, which gets what the quick one lets pass). A program is built and run only once the ones before it have let the
change pass: first with few random cases, by which most changes are found, then with many. What the unchanged programs take is
kept in FOLDER/unchanged.json. tests/bench/results/mutations.csv has a row a change, written as it
comes; an interrupted run continues after the last row, on another machine too, since the series takes hours. A change that does not compile, or that leaves the programs as they were
to the byte, is noted and replaced by the next of the draw. --again tries the survivors anew, with the tests as they are
now; --fresh begins from nothing; --list only prints the draw.

A survivor that cannot be told from the original by what the code promises stands in equivalent.csv, with the reason.
The exit status is 1 if more than 10 other survivors are left, 2 if the tests fail before anything is changed.
"""

import argparse
import csv
import datetime
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import draw  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = ROOT / "tests" / "bench" / "results" / "mutations.csv"
FIELDS = ["file", "line", "nth", "operator", "before", "after", "result", "by", "seconds"]
SURVIVORS_ALLOWED = 10
UNCHANGED_LIMIT_S = 3600  # test_plans with sanitizers takes eleven minutes of a quiet core
COUNTED = ("killed", "timeout", "survived")

# The programs that look at a folder's code, those that fail soonest first. The longest prefix counts.
PROGRAMS = {
    "memory/src": ["test_memory", "test_optimum", "test_plan_property", "test_step", "test_expected_plans", "test_plans"],
    "trainer/src/kernels": ["test_kernels", "test_ops", "test_golden"],
    "trainer/src/kernels/integer": ["test_integer", "test_integer_step", "test_products"],
    "trainer/src/integer": ["test_integer_step", "test_products", "test_integer"],
    "trainer/src/ops": ["test_ops", "test_golden", "test_net", "test_step"],
    "trainer/src/graph": ["test_ops", "test_net", "test_step"],
    "trainer/src/model": ["test_net", "test_step", "test_golden"],
    "trainer/src/net": ["test_net", "test_ops", "test_golden"],
    "trainer/src/convert": ["test_net", "test_ops", "test_step"],
    "trainer/src/onnx": ["test_net", "test_step"],
    "trainer/src/data": ["test_data", "test_golden_pipeline"],
    "trainer/src/step": ["test_step", "test_storage", "test_golden", "test_products", "test_exact", "test_plans"],
    "sdk/src": ["test_sdk", "test_examples", "test_compress", "test_formats", "test_network"],
    "sdk/src/examples": ["test_examples", "test_sdk"],
    "sdk/src/secagg": ["test_secagg", "test_sdk", "test_network"],
}
# What is tried, one after the other: the build, and what tests with random cases do of their normal number. The few cases of
# the first are among the many of the second, which finds all that the first does, later.
PASSES = [("quick", "0.05"), ("quick", "0.5"), ("sanitized", "0.2")]
BUILDS = {
    "quick": ["-DCMAKE_C_FLAGS_DEBUG=-O2"],
    "sanitized": ["-DCMAKE_C_FLAGS_DEBUG=-O1", "-DDUNLIN_SANITIZE=address,undefined", "-DDUNLIN_INSTRUCTION_SETS=native"],
}
# Hundreds of plans: minutes with sanitizers, where test_memory and test_step plan. tests/run.sh runs them without alone.
NOT_SANITIZED = ("test_expected_plans", "test_plans")


def programs_of(file):
    prefixes = [p for p in PROGRAMS if file.startswith(p + "/")]
    if not prefixes:
        sys.exit(f"mutate.py: no program is named for {file}; PROGRAMS needs a line for its folder")
    return PROGRAMS[max(prefixes, key=len)]


class Bench:
    """The copy of the tree and its builds."""

    def __init__(self, folder):
        self.folder = folder
        self.tree = folder / "tree"
        self.configured = set()
        self.base = {}  # (build, program): digest of the unchanged one
        self.seconds = {}  # (build, program, cases): what the unchanged one took
        self.original = None  # (file, content) while a change stands in it

    def copy_tree(self):
        """Brings the copy up to date; files that are the same keep their time, so little is built again."""
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        for name in names.decode().split("\0"):
            source, target = ROOT / name, self.tree / name
            if not name or not source.is_file():
                continue
            content = source.read_bytes()
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            os.chmod(target, source.stat().st_mode & 0o777)

    def path(self, build, program):
        return self.folder / build / "tests" / program

    def make(self, build, programs):
        """True if all could be built."""
        where = self.folder / build
        with open(self.folder / "build.log", "w") as log:
            if build not in self.configured:
                command = ["cmake", "-S", self.tree, "-B", where, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug"]
                subprocess.run(command + BUILDS[build], check=True, stdout=log)
                self.configured.add(build)
            command = ["ninja", "-C", where, "-j2", *programs]
            return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode == 0

    def digest(self, build, program):
        return hashlib.sha256(self.path(build, program).read_bytes()).hexdigest()

    def run(self, build, program, cases, limit_s):
        """"ok", "failed" or "timeout". Whatever the program started ends with it."""
        environment = dict(os.environ, DUNLIN_CASES=cases, ASAN_OPTIONS="abort_on_error=1:detect_leaks=1")
        child = subprocess.Popen(
            [self.path(build, program), "--fail-fast"],
            cwd=self.folder / build / "tests",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return "ok" if child.wait(limit_s) == 0 else "failed"
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()

    def restore(self):
        """The tree without a change."""
        if self.original is not None:
            file, content = self.original
            (self.tree / file).write_bytes(content)
            self.original = None

    def change(self, mutation):
        """The tree with this change; nothing is written, and so nothing built again, where it stands already."""
        if self.original is not None:
            return
        target = self.tree / mutation.file
        content = target.read_bytes()
        lines = content.decode().split("\n")
        assert lines[mutation.line - 1] == mutation.before, f"{mutation.file} has changed on the way"
        lines[mutation.line - 1] = mutation.after
        self.original = (mutation.file, content)
        target.write_bytes("\n".join(lines).encode())

    def prepare(self, build, program, cases):
        """Digest and seconds of the unchanged program; the tests must pass."""
        if (build, program) not in self.base:
            self.restore()
            if not self.make(build, [program]):
                sys.exit(f"mutate.py: {program} does not build; see {self.folder}/build.log")
            self.base[build, program] = self.digest(build, program)
        if (build, program, cases) not in self.seconds:
            path = self.folder / "unchanged.json"
            kept = json.loads(path.read_text()) if path.is_file() else {}
            key = f"{build} {program} {cases} {self.base[build, program]}"
            if key not in kept:
                self.restore()
                self.make(build, [program])
                start = time.monotonic()
                result = self.run(build, program, cases, UNCHANGED_LIMIT_S)
                if result != "ok":
                    print(f"mutate.py: {program} ({build}) before anything is changed: {result}", file=sys.stderr)
                    sys.exit(2)
                kept[key] = round(time.monotonic() - start, 1)
                path.write_text(json.dumps(kept, indent=1) + "\n")
            self.seconds[build, program, cases] = kept[key]
        return self.base[build, program], self.seconds[build, program, cases]

    def try_in(self, build, cases, mutation, programs):
        """Result, the program that saw it, and the programs that the change makes others, of one pass."""
        differing = []
        try:
            for program in programs:
                digest, seconds = self.prepare(build, program, cases)
                self.change(mutation)
                if not self.make(build, [program]):
                    return "invalid", "", differing
                if self.digest(build, program) == digest:
                    continue
                differing.append(program)
                result = self.run(build, program, cases, 20 + 4 * seconds)
                if result != "ok":
                    return ("killed" if result == "failed" else "timeout"), program, differing
            return "survived", "", differing
        finally:
            self.restore()

    def try_mutation(self, mutation):
        programs = programs_of(mutation.file)
        for build, cases in PASSES:
            if build == "sanitized":
                programs = [p for p in programs if p not in NOT_SANITIZED]
            # A program that a change left as it was to the byte is not tried again, nor with sanitizers.
            result, by, programs = self.try_in(build, cases, mutation, programs)
            if result != "survived":
                return result, by + " with sanitizers" if by and build == "sanitized" else by
            if not programs:
                return ("same" if build == "quick" else "survived"), ""
        return "survived", ""


def read_rows(path):
    if not path.is_file():
        return []
    with open(path, newline="") as stream:
        return list(csv.DictReader(line for line in stream if not line.startswith("#")))


def row_key(row):
    return (row["file"], row["before"].strip(), row["after"].strip(), row["nth"])


def append_row(path, row):
    with open(path, "a", newline="") as stream:
        csv.DictWriter(stream, FIELDS, lineterminator="\n").writerow(row)


def begin_file(path, seed, rows):
    with open(path, "w", newline="") as stream:
        stream.write(f"# seed {seed}, {datetime.date.today().isoformat()}\n")
        writer = csv.DictWriter(stream, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def conclude(rows):
    equivalent = {(r["file"], r["before"], r["after"]): r["reason"] for r in read_rows(HERE / "equivalent.csv")}
    survivors, excused = [], []
    for row in rows:
        if row["result"] == "survived":
            known = (row["file"], row["before"].strip(), row["after"].strip()) in equivalent
            (excused if known else survivors).append(row)
    for title, some in (("survivors", survivors), ("survivors that change nothing promised", excused)):
        print(f"{len(some)} {title}")
        for row in some:
            print(f"{row['file']}:{row['line']}: {row['operator']}")
            print(f"  - {row['before'].strip()}\n  + {row['after'].strip()}")
    counts = {name: sum(r["result"] == name for r in rows) for name in (*COUNTED, "invalid", "same")}
    print(", ".join(f"{n} {name}" for name, n in counts.items()))
    return 0 if len(survivors) <= SURVIVORS_ALLOWED else 1


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
    path = RESULTS
    rows = [] if options.fresh else read_rows(path)
    if options.again:
        rows = [row for row in rows if row["result"] != "survived"]
    begin_file(path, options.seed, rows)
    done = {row_key(row): row for row in rows}
    bench = Bench(folder)
    bench.copy_tree()
    taken = []
    for mutation in order:
        if sum(row["result"] in COUNTED for row in taken) == options.count:
            break
        row = done.get(mutation.key())
        if row is None:
            start = time.monotonic()
            result, by = bench.try_mutation(mutation)
            row = dict(
                file=mutation.file,
                line=mutation.line,
                nth=mutation.nth,
                operator=mutation.operator,
                before=mutation.before.strip(),
                after=mutation.after.strip(),
                result=result,
                by=by,
                seconds=round(time.monotonic() - start, 1),
            )
            append_row(path, row)
            print(f"{len(taken) + 1:4d} {result:8s} {row['seconds']:6.1f} s  {mutation.file}:{mutation.line}", flush=True)
        taken.append(row)
    return conclude(taken)


if __name__ == "__main__":
    sys.exit(main())
