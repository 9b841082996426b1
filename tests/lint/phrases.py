#!/usr/bin/env python3
"""Phrases that only this project used, and the plain word for each.

phrases.txt has a phrase a line, "PHRASE: PLAIN WORD"; lines with # are comments. A phrase is found as whole words,
whatever the case, also over the end of a line within a comment or a page. phrases_left.txt has what is left, a line
"FILE COUNT" each: more than COUNT in a file are reported, each in a line; fewer ask to lower the count. A file that is
not listed may have none.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PHRASES = "tests/lint/phrases.txt"
LEFT = "tests/lint/phrases_left.txt"
# The glossary says what a word was called, the record of changes what it was called then.
SKIPPED = (PHRASES, LEFT, "tests/lint/phrases.py", "memory/GLOSSARY.md", "CHANGELOG.md")
KINDS = ("*.c", "*.h", "*.cpp", "*.py", "*.sh", "*.md", "*.proto", "*.cmake", "*CMakeLists.txt", "*.js", "*.kt",
         "*.swift", "*.html", "*.rs")
# The end of a line with what begins the next one of a comment or a text; between two words that or blanks.
END = r'[ \t]*"?\n[ \t]*(?:(?:\*|//|#)[ \t]*)?"?'
GAP = rf"(?:[ \t]+|{END})"


def stop(message):
    """The lint reads what is printed."""
    print(message)
    sys.exit(1)


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return [line for line in lines if line and not line.startswith("#")]


def read_phrases():
    pairs = [line.split(": ", 1) for line in read_lines(PHRASES)]
    wrong = [pair[0] for pair in pairs if len(pair) != 2]
    if wrong:
        stop(f"{PHRASES}: '{wrong[0]}' has no plain word")
    return [(phrase, plain, re.compile(r"(?<![\w-])" + GAP.join(re.escape(word) for word in phrase.split()) + r"(?![\w-])",
                                       re.IGNORECASE)) for phrase, plain in pairs]


def read_left():
    left = {}
    for line in read_lines(LEFT):
        name, _, count = line.rpartition(" ")
        if not name or not count.isdigit() or int(count) == 0:
            stop(f"{LEFT}: '{line}' is not a file and a count above 0")
        left[name] = int(count)
    return left


def find(text, phrases):
    """(line, phrase, plain word) of each phrase in a text."""
    found = []
    flat = re.sub(END, " ", text.lower())  # most texts have none, and a plain search is quick
    for phrase, plain, pattern in phrases:
        if phrase.lower() not in flat:
            continue
        for match in pattern.finditer(text):
            found.append((text.count("\n", 0, match.start()) + 1, phrase, plain))
    return sorted(found)


def main():
    os.chdir(os.path.join(HERE, "..", ".."))
    phrases = read_phrases()
    left = read_left()
    names = subprocess.run(["git", "ls-files", "--", *KINDS], check=True, capture_output=True, text=True).stdout.splitlines()
    for name in sorted(set(left) - set(names)):
        print(f"{LEFT}: {name} is listed, but not there")
    for name in names:
        if name in SKIPPED or not os.path.isfile(name):
            continue
        with open(name, encoding="utf-8", errors="replace") as file:
            found = find(file.read(), phrases)
        allowed = left.get(name, 0)
        if len(found) > allowed:
            for line, phrase, plain in found:
                print(f"{name}:{line}: '{phrase}': say {plain}")
        elif len(found) < allowed:
            print(f"{LEFT}: {name} has {len(found)} of the {allowed} listed: lower the count")


main()
