#!/usr/bin/env python3
"""Every file as the compiler reads it, no code made: its warnings, which the build's flags make errors.

    clang_warnings.py BUILD-FOLDER    with compile_commands.json, and the generated headers

Each command of the build with -fsyntax-only in place of what it would write; as many at once as there are processors. A file
that is compiled for several instruction sets is read for each, one that is compiled several times otherwise once; sources that
the build generates and that are not there yet are left out. Exit status 1: a file has a warning, which is shown.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

WITH_VALUE = ("-o", "-MF", "-MT", "-MQ")
ALONE = ("-c", "-MD", "-MMD")


def command_of(entry):
    """The words of one entry, without those that name what is written, and without a cache before the compiler."""
    words = shlex.split(entry["command"])
    if os.path.basename(words[0]) in ("ccache", "sccache"):
        words = words[1:]
    kept, i = [], 0
    while i < len(words):
        if words[i] in WITH_VALUE:
            i += 2
            continue
        if words[i] not in ALONE:
            kept.append(words[i])
        i += 1
    return [*kept, "-fsyntax-only"]


def chosen(entries):
    """One entry for each file and instruction set."""
    found = {}
    for entry in entries:
        machine = tuple(word for word in shlex.split(entry["command"]) if word.startswith("-m"))
        found.setdefault((entry["file"], machine), entry)
    return [entry for entry in found.values() if os.path.exists(entry["file"])]


def read(entry):
    done = subprocess.run(command_of(entry), cwd=entry["directory"], capture_output=True, text=True, check=False)
    return entry["file"], done.returncode, done.stderr


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(os.path.join(sys.argv[1], "compile_commands.json"), encoding="utf-8") as file:
        entries = chosen(json.load(file))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, status, text in pool.map(read, entries):
            if status != 0:
                failed += 1
                print(f"{os.path.relpath(name)}:\n{text}", end="")
    print(f"{len(entries)} files read, {failed} with warnings")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
