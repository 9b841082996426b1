#!/usr/bin/env python3
"""What the pages say is so: the README's C blocks compile, what shell blocks call is there, no page links to nothing, and the
functions of the tour are in the files that it names.

    readme.py COMPILER INCLUDE_FOLDER...

A C block without a main() is the inside of a function, with <dunlin/dunlin.h> and <stdio.h>. Of shell blocks the words that
look like a script of the tree are looked at. The README is a first page: at most 9,216 bytes.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MOST_BYTES = 9216
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]


def pages():
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.split("\n") if name]


def blocks(text, language):
    for match in re.finditer(r"^```%s\n(.*?)^```$" % language, text, re.M | re.S):
        yield text.count("\n", 0, match.start()) + 1, match.group(1)


def compile_block(compiler, includes, body):
    if "int main(" not in body:
        body = "#include <dunlin/dunlin.h>\n#include <stdio.h>\nint main(void)\n{\n%s\nreturn 0;\n}\n" % body
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "block.c")
        source.write_text(body)
        done = subprocess.run([compiler, *FLAGS, *includes, str(source)], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr


def main():
    compiler, includes = sys.argv[1], ["-I%s" % folder for folder in sys.argv[2:]]
    found = []
    readme = ROOT / "README.md"
    text = readme.read_text()
    if len(text.encode()) > MOST_BYTES:
        found.append("README.md: %d bytes, more than %d" % (len(text.encode()), MOST_BYTES))
    n_blocks = 0
    for line, body in blocks(text, "c"):
        n_blocks += 1
        errors = compile_block(compiler, includes, body)
        if errors:
            found.append("README.md:%d: the program does not compile:\n%s" % (line, errors))
    for page in pages():
        name = page.relative_to(ROOT)
        text = page.read_text()
        for line, body in blocks(text, "sh"):
            for word in re.findall(r"(?:^|\s)((?:samples|tests|sdk/package|server_mock)/[\w/.-]+\.(?:sh|py))\b", body):
                n_blocks += 1
                if not (ROOT / word).is_file() and not (page.parent / word).is_file():
                    found.append("%s:%d: there is no %s" % (name, line, word))
        for match in re.finditer(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            link = match.group(1)
            if "://" not in link and not link.startswith("mailto:") and not (page.parent / link).exists():
                found.append("%s:%d: a link to %s, which is not there" % (name, text.count("\n", 0, match.start()) + 1, link))
    tour = (ROOT / "tests" / "TOUR.md").read_text()
    for name, function in re.findall(r"`([\w/]+\.[ch])`(?: `(\w+)\(\)`)?", tour):
        source = (ROOT / name).read_text() if (ROOT / name).is_file() else ""
        if not source:
            found.append("tests/TOUR.md: there is no %s" % name)
        elif function and not re.search(r"^(?:[a-z]\w*[ *]+)+%s\(" % function, source, re.M):
            found.append("tests/TOUR.md: %s has no %s()" % (name, function))
    print("\n".join(found) if found else "the README's blocks and scripts: %d, and the links of %d pages" % (n_blocks, len(pages())))
    return 1 if found or n_blocks < 4 else 0


sys.exit(main())
