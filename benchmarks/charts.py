"""Pictures of figures, as SVG: bars in groups, and lines over sizes."""

import math
from html import escape

COLOURS = ["#1f6f8b", "#e08e45", "#c8553d", "#7a9e7e", "#6d597a", "#555555"]
_STYLE = "font-family='DejaVu Sans, Helvetica, sans-serif'"


def _text(x, y, words, size=12, anchor="start", colour="#222", weight="normal"):
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' "
        f"fill='{colour}' font-weight='{weight}'>{escape(words)}</text>"
    )


def _picture(width, height, parts):
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' {_STYLE}>"
    ground = f"<rect width='{width}' height='{height}' fill='#fff'/>"
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"


def _key(names, x, y):
    """The names of what colours stand for, in a row."""
    parts = []
    for i, name in enumerate(names):
        parts.append(f"<rect x='{x}' y='{y - 10}' width='12' height='12' fill='{COLOURS[i]}'/>")
        parts.append(_text(x + 17, y, name))
        x += 40 + 8 * len(name)
    return parts


def bars(title, subtitle, names, groups, label):
    """Groups of bars, one for each name, each group to a scale of its own.

    A group is its name, a line about it, values (None where there is none) and a note."""
    left, length, right, thick = 250, 420, 200, 15
    width, y = left + length + right, 104
    parts = [_text(16, 28, title, 17, weight="bold"), _text(16, 48, subtitle, 11, colour="#666")]
    parts += _key(names, 16, 76)
    for name, about, values, note in groups:
        shown = [(i, v) for i, v in enumerate(values) if v is not None]
        longest = max(v for _, v in shown)
        middle = y + len(shown) * thick / 2
        parts.append(_text(16, middle - 2, name, 13, weight="bold"))
        parts += [
            _text(16, middle + 12 + 12 * i, line, 10, colour="#666")
            for i, line in enumerate(_folded(about, 40))
        ]
        parts.append(_text(width - 16, middle + 4, note, 12, "end"))
        for i, value in shown:
            size = length * value / longest
            parts.append(
                f"<rect x='{left}' y='{y}' width='{size:.1f}' height='{thick - 2}' "
                f"fill='{COLOURS[i]}'/>"
            )
            parts.append(_text(left + size + 6, y + thick - 4, label(value), 10))
            y += thick
        y += max(16, 16 + (2 - len(shown)) * thick)
    return _picture(width, y, parts)


def lines(pictures):
    """Diagrams below each other, both of whose axes are logarithms.

    Each has a title, a line about it, the name of its sizes, the sizes, and values by name (None
    where there is none)."""
    left, length, height, gap = 70, 560, 300, 130
    width, y, parts = left + length + 150, 84, []
    for title, subtitle, axis, sizes, values in pictures:
        known = [v for each in values.values() for v in each if v is not None]
        low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
        high = max(high, low + 1)
        first, last = math.log10(sizes[0]), math.log10(max(sizes[-1], sizes[0] * 1.01))

        def at(size, value, y=y, low=low, high=high, first=first, last=last):
            across = (math.log10(size) - first) / (last - first)
            up = (math.log10(value) - low) / (high - low)
            return left + length * across, y + height * (1 - up)

        parts += [_text(16, y - 56, title, 17, weight="bold")]
        parts += [_text(16, y - 36, subtitle, 11, colour="#666")]
        for power in range(low, high + 1):
            _, line = at(sizes[0], 10**power)
            parts.append(
                f"<line x1='{left}' x2='{left + length}' y1='{line:.1f}' y2='{line:.1f}' "
                "stroke='#ddd'/>"
            )
            parts.append(_text(left - 8, line + 4, f"{10**power:g}", 10, "end"))
        for size in sizes:
            across, _ = at(size, 10**low)
            parts.append(_text(across, y + height + 16, f"{size:g}", 10, "middle"))
        parts.append(_text(left + length / 2, y + height + 34, axis, 11, "middle", "#666"))
        for i, (name, each) in enumerate(values.items()):
            points = [at(s, v) for s, v in zip(sizes, each, strict=True) if v is not None]
            if not points:
                continue
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
            parts.append(
                f"<polyline points='{path}' fill='none' stroke='{COLOURS[i]}' stroke-width='2'/>"
            )
            parts += [
                f"<circle cx='{px:.1f}' cy='{py:.1f}' r='3' fill='{COLOURS[i]}'/>"
                for px, py in points
            ]
            parts.append(
                f"<rect x='{left + length + 20}' y='{y + 18 * i - 10}' width='12' height='12' "
                f"fill='{COLOURS[i]}'/>"
            )
            parts.append(_text(left + length + 37, y + 18 * i, name))
        y += height + gap
    return _picture(width, y - gap + 50, parts)


def _folded(words, width):
    """Words in lines of about that width."""
    lines = [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
