#!/usr/bin/env python3
"""The examples in the public headers compile, without a warning; each header has one.

    header_examples.py COMPILER INCLUDE_FOLDER...

An example is what stands in a comment between a line @code and a line @endcode: statements of one function, in a file
that includes the header, <stdio.h>, and what the example's own #include lines name.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def examples(header):
    """Line and text of each."""
    body = None
    for number, line in enumerate(header.read_text().splitlines(), 1):
        text = re.sub(r"^ *\*? ?", "", line, count=1)
        if text.strip() == "@code":
            if body is not None:
                sys.exit("%s:%d: @code within an example" % (header, number))
            start, body = number, []
        elif text.strip() == "@endcode":
            if body is None:
                sys.exit("%s:%d: @endcode without @code" % (header, number))
            yield start, "\n".join(body)
            body = None
        elif body is not None:
            body.append(text)
    if body is not None:
        sys.exit("%s:%d: the example has no @endcode" % (header, start))


def compiles(compiler, folders, header, line, body):
    wanted = "\n".join(re.findall(r"^#include .*$", body, re.M))
    statements = re.sub(r"^#include .*$", "", body, flags=re.M)
    program = "#include <dunlin/%s>\n%s\n#include <stdio.h>\nint main(void)\n{\n%s\nreturn 0;\n}\n" % (header.name, wanted, statements)
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "example.c")
        source.write_text(program)
        done = subprocess.run(
            [compiler, *WARNINGS, *("-I%s" % path for path in folders), "-fsyntax-only", str(source)],
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        print("%s:%d: the example does not compile:\n%s" % (header, line, done.stderr))
    return done.returncode == 0


def main():
    compiler, folders = sys.argv[1], [pathlib.Path(folder) for folder in sys.argv[2:]]
    n_found = n_bad = 0
    for header in sorted(path for folder in folders for path in folder.glob("dunlin/*.h")):
        found = list(examples(header))
        n_found += len(found)
        n_bad += sum(not compiles(compiler, folders, header, line, body) for line, body in found)
        if not found:
            n_bad += 1
            print("%s: no example" % header)
    print("examples in headers: %d; bad or missing: %d" % (n_found, n_bad))
    return 0 if n_found > 0 and n_bad == 0 else 1


sys.exit(main())
