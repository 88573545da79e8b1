"""Draws a graph as SVG: inputs on top, each box below all that it reads, colours by scope."""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from typing import Any

from millrace import _core
from millrace.cli.command import count
from millrace.core.text import printable

_BOXES = 300  # scopes are closed until there are at most so many
_ROW = 12  # boxes side by side
_WIDTH, _HEIGHT = 150, 34
_GAP_X, _GAP_Y = 16, 44
_LABEL = 22  # letters that fit into a box
_COLOURS = ("#dbe9f6", "#fde3cf", "#dff0d8", "#e8def2", "#fbdfe2", "#ece5dd", "#d9f0ef", "#f4f1c9")

Edges = dict[str, set[str]]


def write(graph: Any, path: str) -> None:
    """Writes the drawing of a GraphDef to a file, whole or not at all, and says what it shows."""
    boxes, edges = collapse(graph)
    _core.write_file_atomically(path, draw(boxes, edges).encode("utf-8", "backslashreplace"))
    nodes, shown = count(len(graph.node), "node"), count(len(boxes), "box", "boxes")
    print(f"{printable(path)}: {nodes} in {shown}")


def collapse(graph: Any) -> tuple[dict[str, list[str]], Edges]:
    """({box: the ops of the nodes in it}, {box: the boxes that it reads}), scopes closed as far as
    the number of boxes asks for it."""
    names = [node.name for node in graph.node]
    depth = 16
    while depth > 1 and len({_closed(name, depth) for name in names}) > _BOXES:
        depth -= 1
    boxes: dict[str, list[str]] = defaultdict(list)
    for node in graph.node:
        boxes[_closed(node.name, depth)].append(node.op)
    if len(boxes) > _BOXES:
        # Even the outermost scopes are too many: the smallest of them are one.
        kept = sorted(boxes, key=lambda box: (-len(boxes[box]), box))[: _BOXES - 1]
    else:
        kept = list(boxes)
    keep = set(kept)

    def box_of(name: str) -> str:
        box = _closed(name, depth)
        return box if box in keep else "(others)"

    merged: dict[str, list[str]] = defaultdict(list)
    for box, ops in boxes.items():
        merged[box if box in keep else "(others)"] += ops
    edges: Edges = {box: set() for box in merged}
    known = set(names)
    for node in graph.node:
        to = box_of(node.name)
        for each in node.input:
            source = each.lstrip("^").partition(":")[0]
            if source in known and box_of(source) != to:
                edges[to].add(box_of(source))
    return dict(merged), edges


def _closed(name: str, depth: int) -> str:
    return "/".join(name.split("/", depth)[:depth])


def layers_of(edges: Edges) -> list[list[str]]:
    """Boxes in rows, each below all that it reads, but for edges that close a loop."""
    row: dict[str, int] = {}
    for start in edges:
        open_boxes: dict[str, None] = {}
        todo = [(start, False)]
        while todo:
            box, is_done = todo.pop()
            if is_done:
                del open_boxes[box]
                row[box] = 1 + max((row[s] for s in edges[box] if s in row), default=-1)
            elif box not in row and box not in open_boxes:
                open_boxes[box] = None
                todo.append((box, True))
                todo += [(s, False) for s in sorted(edges[box], reverse=True)]
    # What reads nothing stands right above the first box that reads it.
    first = dict.fromkeys(row, len(row))
    for box, sources in edges.items():
        for source in sources:
            if row[source] < row[box]:
                first[source] = min(first[source], row[box])
    for box, sources in edges.items():
        if not sources and first[box] < len(row):
            row[box] = first[box] - 1
    layers: list[list[str]] = [[] for _ in range(1 + max(row.values(), default=-1))]
    for box in sorted(row):
        layers[row[box]].append(box)
    return layers


def _fold(layers: list[list[str]]) -> list[list[str]]:
    """Rows that are too long as several."""
    return [layer[i : i + _ROW] for layer in layers for i in range(0, len(layer), _ROW)]


def _order(layers: list[list[str]], edges: Edges) -> None:
    """Orders each row by where the boxes that it reads, then those that read it, stand."""
    readers: Edges = defaultdict(set)
    for box, sources in edges.items():
        for source in sources:
            readers[source].add(box)
    place = {box: i for layer in layers for i, box in enumerate(layer)}
    for sweep in range(4):
        near = edges if sweep % 2 == 0 else readers
        for layer in layers if sweep % 2 == 0 else reversed(layers):

            def middle(box: str, near: Edges = near) -> tuple[float, str]:
                around = [place[each] for each in near.get(box, ())]
                return (sum(around) / len(around) if around else place[box], box)

            layer.sort(key=middle)
            place.update({box: i for i, box in enumerate(layer)})


def draw(boxes: dict[str, list[str]], edges: Edges) -> str:
    """The text of the SVG file."""
    layers = layers_of(edges)
    _order(layers, edges)
    layers = _fold(layers)
    widest = max(map(len, layers), default=1)
    width = widest * (_WIDTH + _GAP_X) + _GAP_X
    height = len(layers) * (_HEIGHT + _GAP_Y) + _GAP_Y
    place = {}
    for i, layer in enumerate(layers):
        left = (width - len(layer) * (_WIDTH + _GAP_X) + _GAP_X) / 2
        for j, box in enumerate(layer):
            place[box] = (left + j * (_WIDTH + _GAP_X), _GAP_Y / 2 + i * (_HEIGHT + _GAP_Y))
    scopes = sorted({box.partition("/")[0] for box in boxes})
    colours = {scope: _COLOURS[i % len(_COLOURS)] for i, scope in enumerate(scopes)}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<g fill="none" stroke="#888" stroke-width="1">',
        *[_edge(place[source], place[box]) for box in edges for source in sorted(edges[box])],
        "</g>",
        *[_box(box, ops, place[box], colours[box.partition("/")[0]]) for box, ops in boxes.items()],
        "</svg>\n",
    ]
    return "\n".join(out)


def _edge(source: tuple[float, float], to: tuple[float, float]) -> str:
    x1, y1 = source[0] + _WIDTH / 2, source[1] + _HEIGHT
    x2, y2 = to[0] + _WIDTH / 2, to[1]
    bend = max(_GAP_Y / 2, abs(y2 - y1) / 3)
    return f'<path d="M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"/>'


def _box(name: str, ops: list[str], place: tuple[float, float], colour: str) -> str:
    x, y = place
    is_scope = len(ops) > 1
    label = name if len(name) <= _LABEL else "…" + name[1 - _LABEL :]
    below = count(len(ops), "node") if is_scope else ops[0]
    listed = ", ".join(f"{n} {op}" for op, n in Counter(ops).most_common(12))
    line = "#333" if is_scope else "#999"
    return (
        f"<g><title>{_text(name)}: {_text(listed)}</title>"
        f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
        f'fill="{colour}" stroke="{line}"/>'
        f'<text x="{x + _WIDTH / 2:g}" y="{y + 14:g}" text-anchor="middle">{_text(label)}</text>'
        f'<text x="{x + _WIDTH / 2:g}" y="{y + 28:g}" text-anchor="middle" '
        f'fill="#666">{_text(below[:_LABEL])}</text></g>'
    )


def _text(text: str) -> str:
    return html.escape(printable(text))
