#!/usr/bin/env python3
"""Folders of a layer use only what stands below them.

    folders.py             looks at the includes of the tracked files
    folders.py BUILD       and at the symbols of the objects in a build folder, which also show calls by a declaration

folders.txt has a line for each layer: its source folder, then the folders in it, lowest first. Prints each upward include
with its file and line, each upward call with its symbol, folders of a layer that the list lacks, two files of one layer
with the same name. Status 1 if there is any.
"""

import collections
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def layers():
    for line in (HERE / "folders.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            source, folders = line.split(":")
            yield source.strip(), folders.split()


def tracked(source):
    listed = subprocess.run(["git", "ls-files", source], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.split() if path.endswith((".c", ".h"))]


def folder_of(source, path):
    """The folder right below the layer's source folder; "" for a file that lies in none."""
    inside = pathlib.PurePath(path).relative_to(source).parts
    return inside[0] if len(inside) > 1 else ""


def look_at_includes(source, folders, found):
    paths = tracked(source)
    names = collections.defaultdict(list)
    for path in paths:
        own = folder_of(source, path)
        names[pathlib.PurePath(path).name].append(path)
        if own not in folders:
            found.append("%s: its folder is not in tests/lint/folders.txt" % path)
            continue
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            match = re.match(r'#include "([^"/]+)/[^"]+"', line)
            other = match.group(1) if match else None
            if other in folders and folders.index(other) > folders.index(own):
                found.append("%s:%d: %s (%s stands above %s)" % (path, number, line, other, own))
    found += ["%s: two files of one layer have this name: %s" % (n, ", ".join(p)) for n, p in names.items() if len(p) > 1]


def look_at_symbols(source, folders, build, found):
    # build/LAYER/CMakeFiles/dunlin_LAYER.dir/src/FOLDER/FILE.c.o
    layer, rest = source.split("/", 1)
    objects = [path for path in (build / layer).glob("CMakeFiles/*.dir/%s/*/*.o" % rest) if path.parent.name in folders]
    if not objects:
        found.append("%s: no objects in %s" % (source, build))
    defined, used = {}, []
    for path in objects:
        place = "%s/%s" % (path.parent.name, path.name[:-2])
        if not (ROOT / source / place).exists():
            continue  # of a file that has been moved
        for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
            words = line.split()
            if len(words) == 2 and words[0] == "U":
                used.append((place, words[1]))
            elif len(words) == 3 and words[1] in "TDRBV":
                defined[words[2]] = place
    for place, symbol in sorted(used):
        other = defined.get(symbol, place).split("/")[0]
        if folders.index(other) > folders.index(place.split("/")[0]):
            found.append("%s/%s calls %s of %s, which stands above" % (source, place, symbol, defined[symbol]))


def main():
    found = []
    for source, folders in layers():
        look_at_includes(source, folders, found)
        if len(sys.argv) > 1:
            look_at_symbols(source, folders, pathlib.Path(sys.argv[1]), found)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


sys.exit(main())
