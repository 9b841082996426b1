#!/usr/bin/env python3
"""No function of the libraries takes much of the stack, or an amount that nothing bounds.

    stack.py BUILD

A thread of an app may have no more than a few hundred KiB. BUILD is a release build by GCC, whose -fstack-usage leaves a .su
file beside each object of memory, trainer, proto and sdk; code that is generated or of tests does not count. Functions that
may take more than the limit stand in stack.txt, each with what it may take and why; one that does not need that any longer
is to be taken out. Status 1 if anything is wrong, 2 if the build has no such files.
"""

import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIMIT = 16 * 1024
DECIDES = "12"  # each version lays a stack out in its own way; the list is this one's
SKIPPED = 77
LAYERS = ("memory/src/", "trainer/src/", "proto/src/", "sdk/src/")

SETS = re.compile("_(sse2|avx2|avx512|neon|generic)$")


def allowed():
    """(file, function): bytes"""
    listed = {}
    for line in (HERE / "stack.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            source, name, kib, _reason = line.split(None, 3)
            listed[source, name] = int(kib) * 1024
    return listed


def objects(build):
    """The sources of the libraries, and their objects as the build has them today."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).as_posix().startswith(LAYERS):
            words = entry["command"].split()
            yield path.relative_to(ROOT).as_posix(), pathlib.Path(entry["directory"], words[words.index("-o") + 1])


def functions(build):
    """File, function, bytes, kind: of all objects that are built."""
    for source, made in objects(build):
        usage = made.with_suffix(".su")
        if made.exists() and not usage.exists():
            raise FileNotFoundError("%s has no .su file beside it" % made)
        if made.exists():
            for line in usage.read_text().splitlines():
                place, n_bytes, kind = line.rsplit("\t", 2)
                name = SETS.sub("", place.rsplit(":", 1)[1].split(".")[0])
                yield source, name, int(n_bytes), kind


def compiler_version(build):
    """The major version of the compiler that built the libraries."""
    words = json.loads((build / "compile_commands.json").read_text())[0]["command"].split()
    compiler = next(word for word in words if not word.endswith("ccache"))
    return subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True).stdout.strip().split(".")[0]


def main():
    if len(sys.argv) != 2:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    version = compiler_version(pathlib.Path(sys.argv[1]))
    if version != DECIDES:
        print("stack: skipped, GCC %s decides, and this build is by %s" % (DECIDES, version))
        return SKIPPED
    most, found, n, listed = {}, [], 0, allowed()
    try:
        for source, name, n_bytes, kind in functions(pathlib.Path(sys.argv[1]).resolve()):
            n += 1
            most[source, name] = max(n_bytes, most.get((source, name), 0))
            if "dynamic" in kind and "bounded" not in kind:
                found.append("%s: %s() takes an amount of the stack that nothing bounds" % (source, name))
    except FileNotFoundError as error:
        print("stack.py: %s; build with: cmake --preset release && cmake --build --preset release" % error, file=sys.stderr)
        return 2
    if n == 0:
        print("stack.py: %s has no object of the libraries with its .su file" % sys.argv[1], file=sys.stderr)
        return 2
    for (source, name), n_bytes in sorted(most.items()):
        bound = listed.get((source, name), LIMIT)
        if n_bytes > bound:
            found.append("%s: %s() takes %d bytes of the stack, more than %d" % (source, name, n_bytes, bound))
    for source, name in listed:
        # A compiler may have made it part of its caller: then it has no line of its own.
        if not (ROOT / source).exists() or name.replace("dunlin__", "") not in (ROOT / source).read_text():
            if (source, name) not in most:
                found.append("stack.txt: %s has no %s()" % (source, name))
        elif most.get((source, name), LIMIT + 1) <= LIMIT:
            found.append("stack.txt: %s() of %s takes no more than %d bytes" % (name, source, LIMIT))
    for text in found:
        print(text)
    (source, name), n_bytes = max(most.items(), key=lambda item: item[1])
    print("%d functions; the most is %d bytes: %s() in %s" % (n, n_bytes, name, source))
    return 1 if found else 0


sys.exit(main())
