#!/usr/bin/env python3
"""Which programs a choice of tests runs, as targets of the build: what CI builds of a preset's tests.

    needed.py BUILD-FOLDER CTEST-ARGUMENT...    as needed.py build/asan --preset asan -L quick

One line, after the folders of what is not a test and is built in any case. The programs need not be there yet: they are read
from what CMake has written: all that a test is told by its path, and what it names as REQUIRED_FILES.
"""
import json
import pathlib
import re
import subprocess
import sys

# Programs and libraries, and what is right if it compiles; tests/package has the shared library.
ALWAYS = ["memory", "proto", "trainer", "sdk", "programs", "server_mock", "samples", "tests/support", "tests/lint", "tests/package"]


def programs(build):
    """Targets that are linked: paths within the folder."""
    listed = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^(.+): C(?:XX)?_(?:EXECUTABLE|MODULE|STATIC|SHARED)_\w*LINKER", listed, re.MULTILINE)
    folders = re.findall(r"^(.+)/all: phony$", listed, re.MULTILINE)
    return found, folders


def words_of_tests(build):
    """By test: the command and its arguments."""
    found = {}
    for path in sorted(build.rglob("CTestTestfile.cmake")):
        for name, rest in re.findall(r"^add_test\(\[=\[(.+?)\]=\] (.*)\)$", path.read_text(), re.MULTILINE):
            found[name] = re.findall(r'"([^"]*)"', rest)
    return found


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    shown = subprocess.run(["ctest", *sys.argv[2:], "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
    chosen = json.loads(shown)["tests"]
    names = [test["name"] for test in chosen]
    if not names:
        sys.exit("needed.py: no test is chosen by %s" % " ".join(sys.argv[2:]))
    linked, folders = programs(build)
    told = words_of_tests(build)
    wanted = {word for name in names for word in told[name]}
    for test in chosen:
        wanted.update(path for each in test["properties"] if each["name"] == "REQUIRED_FILES" for path in each["value"])
    targets = [path for path in linked if str(build / path) in wanted or "/" not in path]
    print(" ".join([folder + "/all" for folder in ALWAYS if folder in folders] + sorted(targets)))


if __name__ == "__main__":
    main()
