#!/usr/bin/env python3
"""Folders of a layer use only what stands below them.

    folders.py             looks at the includes of the tracked files
    folders.py BUILD       and at the symbols of the objects in a build folder, which also show calls by a declaration

folders.txt has a line for each source folder that is sorted: a layer's, or one inside it (then both levels hold); after it
the folders in it, lowest first; "." stands for the files beside them. Prints each upward include with its file and line,
each upward call with its symbol, folders that the list lacks, two files of one layer with the same name; and by symbols
circles of more than two files within a folder, with the calls that close them. Kernels count once, whatever the number of
instruction sets. Status 1 if there is any.
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
    """The folder right below the source folder; "." for a file that lies in none."""
    inside = pathlib.PurePath(path).relative_to(source).parts
    return inside[0] if len(inside) > 1 else "."


def included(source, path, text):
    """The folder below `source` that an include names: beside the file, or below `source` or a folder it lies in."""
    if "/" not in text:
        return None
    places = [pathlib.PurePath(source), *pathlib.PurePath(source).parents]
    for place in [pathlib.PurePath(path).parent, *places]:
        other = pathlib.PurePath(place / text)
        if other.is_relative_to(source) and (ROOT / other).exists():
            return folder_of(source, other)
    return None


def look_at_names(paths, found):
    names = collections.defaultdict(list)
    for path in paths:
        names[pathlib.PurePath(path).name].append(path)
    found += ["%s: two files of one layer have this name: %s" % (n, ", ".join(p)) for n, p in names.items() if len(p) > 1]


def look_at_includes(source, folders, found):
    for path in tracked(source):
        own = folder_of(source, path)
        if own not in folders:
            found.append("%s: its folder is not in tests/lint/folders.txt" % path)
            continue
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
            other = included(source, path, match.group(1)) if match else None
            if other in folders and folders.index(other) > folders.index(own):
                found.append("%s:%d: %s (%s stands above %s)" % (path, number, line, other, own))


def symbols(source, folders, build):
    """Places (FOLDER/.../FILE.c) by the symbols they define, and (place, symbol) for each that one uses."""
    # build/LAYER/CMakeFiles/TARGET.dir/src/FOLDER/FILE.c.o; of a kernel there is an object for each instruction set
    layer, rest = source.split("/", 1)
    defined, used = {}, set()
    places = {}
    for path in sorted((build / layer).glob("CMakeFiles/*.dir/%s/**/*.o" % rest)):
        target = next(parent for parent in path.parents if parent.suffix == ".dir")
        place = str(path.relative_to(target / rest))[:-2]
        if (ROOT / source / place).exists() and folder_of("", place) in folders:  # else of a file that has been moved
            places[str(path)] = place
    if not places:
        return defined, used
    # "OBJECT: U NAME", or an address before the letter.
    lines = subprocess.run(["nm", "-A", *places], capture_output=True, text=True, check=True).stdout.splitlines()
    for line in lines:
        path, rest = line.split(":", 1)
        words = rest.split()
        if len(words) == 2 and words[0] == "U":
            used.add((places[path], words[1]))
        elif len(words) == 3 and words[1] in "TDRBV":
            defined[words[2]] = places[path]
    return defined, used


def circles(edges):
    """Strongly connected sets of more than two files (Tarjan 1972)."""
    index, low, stack, result = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            circle = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(circle) > 2:
                result.append(sorted(circle))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return result


def look_at_symbols(source, folders, build, found):
    defined, used = symbols(source, folders, build)
    if not defined:
        found.append("%s: no objects in %s" % (source, build))
    edges = collections.defaultdict(set)
    for place, symbol in sorted(used):
        other = defined.get(symbol, place)
        own, its = folder_of("", place), folder_of("", other)
        if folders.index(its) > folders.index(own):
            found.append("%s/%s calls %s of %s, which stands above" % (source, place, symbol, other))
        if own == its and place != other:
            edges[place].add(other)
            edges[other]  # a node of the graph even if it calls nothing
    for circle in circles(edges):
        found.append("%s: %d files call each other in a circle: %s" % (source, len(circle), " ".join(circle)))
        for place, symbol in sorted(used):
            if place in circle and defined.get(symbol, place) in circle and defined.get(symbol, place) != place:
                found.append("    %s calls %s of %s" % (place, symbol, defined[symbol]))


def main():
    found = []
    sources = [source for source, _ in layers()]
    for source, folders in layers():
        look_at_includes(source, folders, found)
        if not any(source.startswith(other + "/") for other in sources):
            look_at_names(tracked(source), found)
        if len(sys.argv) > 1:
            look_at_symbols(source, folders, pathlib.Path(sys.argv[1]), found)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


sys.exit(main())
