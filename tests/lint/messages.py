#!/usr/bin/env python3
"""The text of an error is one line that names the thing: its value, or its name in quotes or as an option.

    messages.py           looks at each format that the tracked sources give to dunlin__fail() and its like
    messages.py --list    prints what has to be in messages.txt for the lint to be quiet

A text is not empty, has no line break, no space at its ends, no full stop at its end and none of FORBIDDEN; it begins
with a small letter, a conversion or a name; and it has a conversion, a quoted word, a number or a name of the code (an
underscore, a call, a flag), or says what there is no memory for. messages.txt lists texts that name nothing, a line each; one that is not there any more is
reported, so the list only becomes shorter. Status 1 if there is anything.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIST = HERE / "messages.txt"
# Where the format stands among the arguments.
CALLS = {
    "dunlin__fail": 4,
    "dunlin__server_refuse": 2,
    "program_misuse": 1,
    "program_fail": 1,
    "program_refuse": 2,
}
FORBIDDEN = re.compile(
    r"\b(unexpected(ly)? error|unknown error|something went wrong|an error occurred|oops|please|sorry|whoops|"
    r"internal error|bad argument|invalid argument|error:|failed to|fatal|todo|fixme)|!",
    re.IGNORECASE,
)
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
NAMES = re.compile(r"%(?!%)|['\"]\S|\d|\w_\w|\w\(\)|--\w|\b[A-Z]{2,}|^no memory (?:for|to) \w")


def arguments(text, at):
    """The arguments of the call whose parenthesis stands before `at`, split at their commas."""
    parts, depth, start, i = [], 0, at, at
    while i < len(text):
        c = text[i]
        if c in "\"'":
            i += 1
            while text[i] != c:
                i += 2 if text[i] == "\\" else 1
        elif c in "([{":
            depth += 1
        elif c in ")]}" and depth > 0:
            depth -= 1
        elif c == ")":
            return parts + [text[start:i]]
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
        i += 1
    return parts


def literals(argument):
    """The texts that an argument may be: neighbours are one text, the two of a ?: are two; a macro between is a value."""
    argument = re.sub(r'"\s*(PR[I][A-Za-z0-9]+)\s*"', "d", argument)
    argument = re.sub(r'"\s*(PR[I][A-Za-z0-9]+)', 'd"', argument)
    argument = re.sub(r'"\s*[A-Z][A-Z_0-9]+\s*"', "NAME", argument)
    argument = re.sub(r'"\s*"', "", argument)
    return [match.group(1) for match in LITERAL.finditer(argument)]


def faults(text):
    if not text.strip():
        return ["is empty"]
    found = []
    if "\\n" in text or "\\r" in text:
        found.append("has a line break")
    if text != text.strip():
        found.append("has a space at an end")
    if re.search(r"[^.]\.$", text):
        found.append("ends with a full stop")
    if FORBIDDEN.search(text):
        found.append(f'has "{FORBIDDEN.search(text).group(0)}"')
    if re.match(r"[A-Z][a-z]+ [a-z]", text) and not re.match(r"(Adam|Adagrad|RMSprop|Python)\b", text):
        found.append("begins with a capital")
    return found


def main():
    files = subprocess.run(
        ["git", "ls-files", "--", "*.c", "*.h", ":!tests"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    allowed = {line for line in LIST.read_text().splitlines() if line and not line.startswith("#")}
    nameless, is_bad, n_texts = set(), False, 0
    pattern = re.compile(r"\b(" + "|".join(CALLS) + r")\(")
    for path in files:
        text = (ROOT / path).read_text()
        for call in pattern.finditer(text):
            given = arguments(text, call.end())
            place = CALLS[call.group(1)]
            if len(given) <= place:
                continue
            line = text.count("\n", 0, call.start()) + 1
            for words in literals(given[place]):
                n_texts += 1
                for fault in faults(words):
                    print(f'{path}:{line}: "{words}" {fault}')
                    is_bad = True
                if words.strip() and not NAMES.search(words):
                    row = f"{path} {words}"
                    nameless.add(row)
                    if row not in allowed and "--list" not in sys.argv:
                        print(f'{path}:{line}: "{words}" names neither a thing nor a value')
                        is_bad = True
    if "--list" in sys.argv:
        print("\n".join(sorted(nameless)))
        return 0
    for row in sorted(allowed - nameless):
        print(f"tests/lint/messages.txt: not there any more: {row}")
        is_bad = True
    if n_texts < 500:
        print(f"only {n_texts} texts were found; there were more")
        is_bad = True
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
