"""Which one-line changes of product code are tried: all that could be made, in an order that a seed fixes.

A change is a line of a function's body and what stands there instead. Its place in the order is a hash of the seed, the
file, the line's text, and how many lines with that text come before it; so a change elsewhere in the tree moves none.
"""

import hashlib
import pathlib
import re
from dataclasses import dataclass

FOLDERS = ("memory/src", "trainer/src", "sdk/src")

# Binary operators have blanks on both sides: clang-format sees to it.
SWAPS = [
    ("less", r" < ", " <= "),
    ("less", r" <= ", " < "),
    ("greater", r" > ", " >= "),
    ("greater", r" >= ", " > "),
    ("equal", r" == ", " != "),
    ("equal", r" != ", " == "),
    ("plus", r" \+ ", " - "),
    ("plus", r" - ", " + "),
    ("plus", r" \+= ", " -= "),
    ("plus", r" -= ", " += "),
    ("times", r"(?<=[\w)\]]) \* (?=[\w(])", " + "),
    ("times", r" / ", " * "),
    ("logic", r" && ", " || "),
    ("logic", r" \|\| ", " && "),
    ("not", r"(?<=[( ])!(?=[\w(])", ""),
    ("bool", r"\btrue\b", "false"),
    ("bool", r"\bfalse\b", "true"),
    ("return", r"\breturn DUNLIN_OK;", "return DUNLIN_INTERNAL;"),
    ("check", r"\bDUNLIN_TRY\((?=.*\);$)", "(void)("),
]
NUMBER = re.compile(r"(?<![\w.\"])(\d+)(?![\w.])")
STATEMENT = re.compile(r"^\s+[\w.\->\[\]* ()]+? (?:[-+*/|&]?=) .*;$")
DECLARATION = re.compile(r"^\s+(?:const |static |struct |enum |unsigned )*[a-z_]\w* \**\w+(?:\[[^\]]*\])* = ")
CALL = re.compile(r"^\s+(?:\(void\))?[a-z_]\w*\(.*\);$")
LEFT_ALONE = re.compile(r"\b(?:assert|static_assert|dunlin__log)\(")


@dataclass(frozen=True)
class Mutation:
    file: str
    line: int  # from 1
    nth: int  # among the lines of this text in the file
    operator: str
    before: str  # the line as it is
    after: str

    def key(self):
        return (self.file, self.before.strip(), self.after.strip(), str(self.nth))


def blank(text):
    """The text with comments, strings and preprocessor lines made blanks of the same length."""
    pattern = re.compile(
        r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M
    )
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def changes_of(line, seen):
    """All (operator, changed line) of one line; `seen` is the line without comments and texts."""
    found = []
    for operator, pattern, replacement in SWAPS:
        for match in re.finditer(pattern, seen):
            found.append((operator, line[: match.start()] + replacement + line[match.end() :]))
    for match in NUMBER.finditer(seen):
        number = int(match.group())
        for other in (number + 1, number - 1) if number > 0 else (1,):
            found.append(("constant", line[: match.start()] + str(other) + line[match.end() :]))
    is_declaration = DECLARATION.match(seen) or seen.lstrip().startswith(("return ", "for ", "static ", "const "))
    if (STATEMENT.match(seen) and not is_declaration) or CALL.match(seen) or re.match(r"^\s+[\w.\->]+(\+\+|--);$", seen):
        indent = line[: len(line) - len(line.lstrip())]
        found.append(("drop", indent + ";"))
    return found


def of_file(root, name):
    lines = (root / name).read_text().split("\n")
    seen_lines = blank("\n".join(lines)).split("\n")
    counts = {}
    is_inside = False
    is_statement_start = True
    result = []
    for i, line in enumerate(lines):
        nth = counts.get(line.strip(), 0)
        counts[line.strip()] = nth + 1
        seen = seen_lines[i]
        if line == "{":
            is_inside = True
            continue
        if line == "}":
            is_inside = False
        if is_inside and seen.strip() and not LEFT_ALONE.search(seen):
            changes = changes_of(line, seen)
            # A piece of a statement over several lines is changed, but never dropped.
            if not is_statement_start:
                changes = [c for c in changes if c[0] not in ("drop", "check")]
            for operator, after in changes:
                result.append(Mutation(name, i + 1, nth, operator, line, after))
        if seen.strip():
            is_statement_start = seen.rstrip().endswith((";", "{", "}", ":"))
    return result


def draw(root, seed):
    """Mutations in the order in which they are tried: one a line, lines as likely as each other."""
    root = pathlib.Path(root)
    by_line = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.c")):
            for mutation in of_file(root, str(path.relative_to(root))):
                by_line.setdefault((mutation.file, mutation.line), []).append(mutation)

    def rank(*parts):
        return hashlib.sha256("\0".join(str(p) for p in (seed, *parts)).encode()).digest()

    chosen = [min(ms, key=lambda m: rank(*m.key())) for ms in by_line.values()]
    return sorted(chosen, key=lambda m: rank(m.file, m.before.strip(), m.nth))
