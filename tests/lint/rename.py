#!/usr/bin/env python3
"""Renames identifiers of C sources by a table of parts of names.

    rename.py TABLE LAYER

A line of the table: layer | pattern of paths | part of an identifier | what it becomes. A part is what stands between
underscores, in lower or upper case; with a * its plural is renamed alike. Strings, includes and single words in comments
stay as they are: prose is for people. Names with an underscore are renamed in comments, pages and lists too. Names that
collide within a file are printed. Afterwards clang-format.
"""

import collections
import re
import subprocess
import sys

TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\])+'|#[ \t]*include[^\n]*|[A-Za-z_]\w*|\d[\w.]*", re.S)
NAME = re.compile(r"[A-Za-z_]\w*(?!\w|\.[ch]\b)")


def read_rules(table, layer):
    rules = []
    for line in open(table):
        if line.startswith("#") or not line.strip():
            continue
        of, paths, old, new = (part.strip() for part in line.split(" | "))
        if of != layer:
            continue
        pairs = [(old, new)]
        if old.endswith("*"):
            pairs = [(old[:-1], new[:-1]), (old[:-1] + "s", new[:-1] + "s")]
        for before, after in pairs:
            has_tail = "(?=" in before
            end = "" if has_tail else "(?![A-Za-z0-9])"
            rules.append((re.compile(paths), re.compile("(?<![A-Za-z0-9])" + before + end), after))
            if not has_tail and before.upper() != before:
                rules.append((re.compile(paths), re.compile("(?<![A-Za-z0-9])" + before.upper() + end), after.upper()))
    return rules


def renamed(rules, path, name):
    for paths, part, after in rules:
        if paths.search(path):
            name = part.sub(after, name)
    return name


def tracked(*patterns):
    return subprocess.check_output(["git", "ls-files", "--", *patterns], text=True).split()


def names_of(text):
    return {token for token in TOKEN.findall(text) if re.match(r"[A-Za-z_]", token)}


def main(table, layer):
    rules = read_rules(table, layer)
    texts = {path: open(path).read() for path in tracked("*.c", "*.h", "*.cpp")}
    changes = collections.defaultdict(set)
    for path, text in texts.items():
        names = names_of(text)
        for name in names:
            new = renamed(rules, path, name)
            if new != name:
                changes[name].add(new)
                if new in names:
                    print("collision", path, name, new)
    # A name of the library that is renamed in one file is renamed in all.
    everywhere = {old: min(new) for old, new in changes.items() if len(new) == 1 and old.lower().startswith("dunlin_")}

    def replace(path, name):
        return everywhere.get(name) or renamed(rules, path, name)

    left = set()
    for path, text in texts.items():
        def token(match):
            found = match.group(0)
            if found[0] == "/":
                return NAME.sub(lambda m: replace(path, m.group(0)) if "_" in m.group(0) else m.group(0), found)
            return found if found[0] in "\"'#" or found[0].isdigit() else replace(path, found)

        new = TOKEN.sub(token, text)
        left |= names_of(new)
        if new != text:
            open(path, "w").write(new)
    flat = {old: min(new) for old, new in changes.items() if len(new) == 1 and "_" in old and old not in left}
    for path in tracked("*.md", "tests/lint/*.txt", "tests/reference/symbols.txt"):
        if path == "CHANGELOG.md" or path == table:
            continue
        text = open(path).read()
        new = NAME.sub(lambda m: flat.get(m.group(0), m.group(0)), text)
        if new != text:
            open(path, "w").write(new)
    print(len(changes), "names")


main(*sys.argv[1:])
