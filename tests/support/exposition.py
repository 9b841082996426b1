"""A strict reader of Prometheus' text format, version 0.0.4 (Prometheus documentation, "Exposition formats").

    families = read(text)      by name: Family(type, help, samples), samples by (name, labels as a sorted tuple of pairs)

Raises Wrong with the line and what is wrong with it. Stricter than the format: HELP and TYPE stand before each family's samples, no
line is empty or a comment of another kind, counters end with _total and are finite and not negative, no sample comes twice.
"""

import dataclasses
import math
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|NaN|[+-]Inf")
SUFFIXES = {"counter": ("",), "gauge": ("",), "untyped": ("",), "summary": ("", "_sum", "_count"), "histogram": ("_bucket", "_sum", "_count")}
ESCAPES = {"\\": "\\", "n": "\n", '"': '"'}


class Wrong(Exception):
    pass


@dataclasses.dataclass
class Family:
    type: str
    help: str
    samples: dict


def unescape(text, quote):
    """HELP texts know \\\\ and \\n, values of labels \\" too."""
    out, i = [], 0
    while i < len(text):
        if text[i] == "\\":
            after = text[i + 1:i + 2]
            if after not in ESCAPES or (after == '"' and not quote) or after == "":
                raise Wrong("an escape that there is not: \\%s" % after)
            out.append(ESCAPES[after])
            i += 2
        else:
            out.append(text[i])
            i += 1
    return "".join(out)


def labels_of(text):
    """The labels that `text` begins with, after the brace, and what follows the other brace."""
    labels, at = {}, 0
    while True:
        name = LABEL.match(text, at)
        if not name:
            raise Wrong("no name of a label at %r" % text[at:at + 20])
        at = name.end()
        if text[at:at + 2] != '="':
            raise Wrong("no =\" after the label %s" % name[0])
        at += 2
        begin = at
        while text[at:at + 1] != '"':
            if at >= len(text):
                raise Wrong("the value of %s has no end" % name[0])
            at += 2 if text[at] == "\\" else 1
        if name[0] in labels:
            raise Wrong("the label %s comes twice" % name[0])
        labels[name[0]] = unescape(text[begin:at], True)
        at += 1
        if text[at:at + 1] == "}":
            return labels, text[at + 1:]
        if text[at:at + 1] != ",":
            raise Wrong("neither , nor } after a label at %r" % text[at:at + 20])
        at += 1


def sample_of(line):
    name = NAME.match(line)
    if not name:
        raise Wrong("no name of a metric")
    rest, labels = line[name.end():], {}
    if rest.startswith("{"):
        labels, rest = labels_of(rest[1:])
    if not rest.startswith(" ") or not NUMBER.fullmatch(rest[1:]):
        raise Wrong("no space and number, but %r" % rest)
    return name[0], tuple(sorted(labels.items())), float(rest[1:])


def look_at_histogram(name, family):
    groups = {}
    for (sample, labels), value in family.samples.items():
        rest = tuple(pair for pair in labels if pair[0] != "le")
        groups.setdefault(rest, {}).setdefault(sample[len(name):], []).append((dict(labels).get("le"), value))
    for group in groups.values():
        buckets = [(float(bound), value) for bound, value in group.get("_bucket", [])]
        if buckets != sorted(buckets) or [v for _, v in buckets] != sorted(v for _, v in buckets):
            raise Wrong("%s: the buckets do not grow" % name)
        if not buckets or buckets[-1][0] != math.inf or "_sum" not in group or group["_count"][0][1] != buckets[-1][1]:
            raise Wrong("%s: +Inf, _sum or _count is missing or does not fit" % name)


def look_at_family(name, family):
    if family.type == "counter":
        if not name.endswith("_total"):
            raise Wrong("%s is a counter and does not end with _total" % name)
        if any(not 0 <= value < math.inf for value in family.samples.values()):
            raise Wrong("%s: a counter is negative, infinite or no number" % name)
    if family.type == "histogram":
        look_at_histogram(name, family)


def read(text):
    if not text.endswith("\n"):
        raise Wrong("the last line has no line feed")
    families, current, n_line = {}, None, 0
    for n_line, line in enumerate(text[:-1].split("\n"), 1):
        try:
            if line.startswith("# HELP "):
                name, _, words = line[7:].partition(" ")
                if not NAME.fullmatch(name) or name in families:
                    raise Wrong("%s is no name, or has a HELP already" % name)
                families[name], current = Family("", unescape(words, False), {}), name
            elif line.startswith("# TYPE "):
                name, _, kind = line[7:].partition(" ")
                if name != current or families[name].type or families[name].samples or kind not in SUFFIXES:
                    raise Wrong("TYPE stands at the wrong place or names no type")
                families[name].type = kind
            else:
                name, labels, value = sample_of(line)
                if current is None or name not in [current + suffix for suffix in SUFFIXES.get(families[current].type, ())]:
                    raise Wrong("%s does not belong to the family %s" % (name, current))
                if (name, labels) in families[current].samples:
                    raise Wrong("this sample comes twice")
                families[current].samples[name, labels] = value
        except Wrong as error:
            raise Wrong("line %d, %r: %s" % (n_line, line[:120], error)) from None
    for name, family in families.items():
        look_at_family(name, family)
    return families


def value(families, name, **labels):
    """The value of one sample."""
    for family in families.values():
        if (name, tuple(sorted(labels.items()))) in family.samples:
            return family.samples[name, tuple(sorted(labels.items()))]
    raise KeyError("%s%s" % (name, labels))
