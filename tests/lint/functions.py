#!/usr/bin/env python3
"""Functions have at most 60 lines between their braces, in trainer/src/kernels at most 90.

    functions.py           looks at the tracked sources; tests, which are read from top to bottom, do not count
    functions.py FILE...   at these instead

long_functions.txt lists the exceptions, a line each: the file, the function, the reason. One that is not there, not too long or
has no reason is reported like a function that is too long. What clang-format leaves is taken for granted: the braces of a
function alone stand alone in the first column, and its name stands before the first parenthesis of its head. Status 1 if
there is any.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MOST = 60
MOST_OF_KERNELS = 90


def most_lines(path):
    return MOST_OF_KERNELS if path.startswith("trainer/src/kernels/") else MOST


def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "--", "*.c", "*.h", ":!tests"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return listed.stdout.split()


def name_of(lines, brace):
    """The name in the head that ends before line `brace`; its first line alone begins in the first column."""
    head = brace - 1
    while head > 0 and lines[head][:1] in ("", " ", "("):
        head -= 1
    # A macro may make the name: K(name)(...) is a kernel's for one instruction set, JOB(type, name)(...) one for Java.
    match = re.search(r"\b[A-Z]+\((?:\w+, )?(\w+)\)\s*\(|\b(\w+)\s*\(", " ".join(lines[head:brace]))
    return match and (match.group(1) or match.group(2))


def functions(path):
    """(name, number of the line of its brace, lines between the braces) of each function of a file."""
    lines = (ROOT / path).read_text().splitlines()
    brace = None
    for number, line in enumerate(lines):
        if line == "{":
            brace = number
        elif line.startswith("}") and brace is not None:
            yield name_of(lines, brace), brace + 1, number - brace - 1
            brace = None


def listed():
    """(file, function, reason) of each line of the list."""
    for line in (HERE / "long_functions.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            words = line.split(None, 2) + ["", ""]
            yield words[0], words[1], words[2].strip()


def main():
    exceptions = list(listed())
    allowed = {(path, name) for path, name, _ in exceptions}
    paths = sys.argv[1:] or tracked()
    lengths = {}
    found = []
    for path in paths:
        for name, number, length in functions(path):
            if name is None:
                found.append("%s:%d: a function whose name cannot be read" % (path, number))
                continue
            lengths[path, name] = max(length, lengths.get((path, name), 0))
            if length > most_lines(path) and (path, name) not in allowed:
                found.append("%s:%d: %s has %d lines, more than %d" % (path, number, name, length, most_lines(path)))
    for path, name, reason in exceptions:
        if sys.argv[1:] and path not in paths:
            continue
        if (path, name) not in lengths:
            found.append("long_functions.txt: %s %s: listed, but not there" % (path, name))
        elif lengths[path, name] <= most_lines(path):
            found.append("long_functions.txt: %s %s: listed, but not longer than %d lines" % (path, name, most_lines(path)))
        if not reason:
            found.append("long_functions.txt: %s %s: listed without a reason" % (path, name))
    if not lengths:
        found.append("no function was found in %d files" % len(paths))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


sys.exit(main())
