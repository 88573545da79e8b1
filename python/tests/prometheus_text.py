"""A strict reader of Prometheus' text format, for tests."""

import math
import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def parse(text):
    """{name: (type, {labels: value})}, labels as a frozenset of pairs. ValueError for text that is
    not exactly as the format's description has it, or against its conventions."""
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    families, helps, current = {}, set(), None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, words = line[7:].partition(" ")
            if name in helps or not words:
                raise ValueError(f"expected one HELP with words for each name, got {line!r}")
            helps.add(name)
        elif line.startswith("# TYPE "):
            current, _, kind = line[7:].partition(" ")
            if current not in helps or current in families or kind not in ("counter", "gauge"):
                raise ValueError(f"expected HELP, then TYPE of a name, got {line!r}")
            if (kind == "counter") != current.endswith("_total"):
                raise ValueError(f"expected counters, and no others, to end in _total: {line!r}")
            families[current] = (kind, {})
        else:
            name, labels, value = _sample(line)
            if name != current:
                raise ValueError(f"expected values of {current}, got {line!r}")
            kind, samples = families[name]
            if labels in samples:
                raise ValueError(f"expected each set of labels once, got {line!r} again")
            if (kind == "counter" and value < 0) or not math.isfinite(value):
                raise ValueError(f"expected a number, got {line!r}")
            samples[labels] = value
    return families


def _sample(line):
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise ValueError(f"expected a value, got {line!r}")
    name, rest, value = match.groups()
    labels = {}
    while rest:
        label = _LABEL.match(rest)
        if label is None or label[1] in labels or label[1].startswith("__"):
            raise ValueError(f"expected labels, each once, got {line!r}")
        labels[label[1]] = re.sub(r"\\.", lambda m: _ESCAPES[m[0]], label[2])
        if label[3] and label.end() == len(rest):
            raise ValueError(f"a comma at the end of the labels: {line!r}")
        rest = rest[label.end() :]
    return name, frozenset(labels.items()), float(value)
