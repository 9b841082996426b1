#!/usr/bin/env python3
"""What the public headers owe their readers: a @return for each call that returns something, a number for each enum value,
the name of an INIT for each struct that begins with struct_size, and of the others that they are frozen.

    header_lint.py [HEADER]...

Without an argument: every public header. Prints what is missing, one line each, and says nothing else.
"""

import pathlib
import re
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.S)
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def without_comments(text):
    """The same text, as long, with blanks for comments and for the preprocessor's lines."""
    text = COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    return re.sub(r"^#(.*\\\n)*.*$", lambda found: re.sub(r"[^\n]", " ", found.group()), text, flags=re.M)


def comment_before(text, at):
    """The comment that ends right before `at`, or ""."""
    before = text[:at].rstrip()
    found = [match for match in COMMENT.finditer(text, 0, at) if match.end() == len(before)]
    return found[-1].group() if found else ""


def calls(text, code):
    """Place, name and type of each public call."""
    for match in re.finditer(r"^(?:DUNLIN_NODISCARD )?DUNLIN_API\s+([^;{]*?)(dunlin_\w+)\s*\(", code, re.M):
        yield match.start(), match.group(2), " ".join(match.group(1).split())


def lint_calls(text, code):
    for at, name, type_name in calls(text, code):
        comment = comment_before(text, at)
        if not comment:
            yield at, "%s() has no comment of its own" % name
        elif type_name != "void" and "@return" not in comment:
            yield at, "the comment of %s() has no @return" % name
        elif type_name == "void" and "@return" in comment:
            yield at, "%s() returns nothing, and its comment has a @return" % name


def lint_enums(code):
    for match in re.finditer(r"\benum\b[^{;]*\{([^}]*)\}", code):
        at = match.start(1)
        for value in match.group(1).split(","):
            is_map = re.match(r"\s*DUNLIN_\w+_MAP\(", value)  # a table of names with their numbers
            if value.strip() and "=" not in value and not is_map:
                yield at + len(value) - len(value.lstrip()), "%s has no number" % value.strip()
            at += len(value) + 1


def lint_structs(text, code):
    for match in re.finditer(r"^(typedef )?struct (dunlin_\w+) \{\n\s*(.*)", code, re.M):
        name = match.group(2)
        if match.group(3).strip() == "size_t struct_size;":
            if not re.search(r"^#define %s_INIT\b" % name.upper(), text, re.M):
                yield match.start(), "%s begins with struct_size and has no %s_INIT" % (name, name.upper())
        elif "frozen" not in re.sub(r"\s*\n \* *", " ", comment_before(text, match.start())).lower():
            yield match.start(), "%s neither begins with struct_size nor is called frozen" % name


def lint(path):
    text = path.read_text()
    code = without_comments(text)
    found = list(lint_calls(text, code)) + list(lint_enums(code)) + list(lint_structs(text, code))
    for at, what in sorted(found):
        print("%s:%d: %s" % (path.relative_to(ROOT) if path.is_relative_to(ROOT) else path, line_of(text, at), what))
    return len(found)


def main():
    paths = [pathlib.Path(name) for name in sys.argv[1:]] or sorted(ROOT.glob("*/include/dunlin/*.h"))
    if not paths:
        print("header_lint.py: there is no public header")
        return 1
    return 1 if sum(lint(path) for path in paths) else 0


if __name__ == "__main__":
    sys.exit(main())
