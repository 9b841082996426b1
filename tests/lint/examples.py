#!/usr/bin/env python3
"""The examples in the public headers compile, without a warning.

    examples.py COMPILER INCLUDE_FOLDER...

An example is, in the comment at a header's head, what follows a line that begins with "Example" and is indented by three
blanks more than the text: statements of one function, after the #include lines that they want beside the header's own.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wunused-result"]


def examples(header):
    lines = header.read_text().splitlines()
    for start, line in enumerate(lines):
        if not line.startswith(" * Example"):
            continue
        at = start + 1
        while at < len(lines) and not re.match(r" \*(   |$)", lines[at]):
            at += 1
        start = at - 1
        while at < len(lines) and re.match(r" \*(   |$)", lines[at]):
            at += 1
        yield start + 1, "\n".join(text[2:] for text in lines[start + 1 : at])


def main():
    compiler, folders = sys.argv[1], [pathlib.Path(folder) for folder in sys.argv[2:]]
    n_found = n_bad = 0
    for header in sorted(path for folder in folders for path in folder.glob("dunlin/*.h")):
        for line, body in examples(header):
            n_found += 1
            wanted = re.findall(r"^ *(#include .*)$", body, re.M)
            statements = re.sub(r"^ *#include .*$", "", body, flags=re.M)
            program = "#include <dunlin/%s>\n%s\n#include <stdio.h>\nint main(void)\n{\n%s\nreturn 0;\n}\n" % (
                header.name,
                "\n".join(wanted),
                statements,
            )
            with tempfile.TemporaryDirectory() as folder:
                source = pathlib.Path(folder, "example.c")
                source.write_text(program)
                done = subprocess.run(
                    [compiler, *WARNINGS, *("-I%s" % path for path in folders), "-fsyntax-only", str(source)],
                    capture_output=True,
                    text=True,
                )
            if done.returncode != 0:
                n_bad += 1
                print("%s:%d: the example does not compile:\n%s" % (header, line, done.stderr))
    print("examples in headers: %d, of them %d that do not compile" % (n_found, n_bad))
    return 0 if n_found > 0 and n_bad == 0 else 1


sys.exit(main())
