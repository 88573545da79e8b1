#!/usr/bin/env python3
"""Checks that what the Markdown files show and point to is there.

For every .md file of the repository:
  * a code block after the line `<!-- file: PATH -->` is that file, whole;
  * a code block after the line `<!-- part of: PATH -->` stands in that file as it is, but for its
    indentation;
  * a relative link leads to a file, and its #anchor to a heading of that file;
  * a path in backticks that begins with a folder of the repository exists.
"""

import re
import sys
import textwrap
from pathlib import Path

FOLDERS = "benchmarks|cmake|deploy|docs|examples|millrace|proto|python|tests|tools"
LEFT_OUT = {"build", "node_modules"}

MARKER = re.compile(r"^<!-- (file|part of): (\S+) -->$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
HEADING = re.compile(r"^#+ +(.*)$")


def markdown_files(root):
    """The .md files below `root`, build trees and hidden folders left out."""
    for path in sorted(root.rglob("*.md")):
        folders = path.relative_to(root).parts[:-1]
        if not any(name in LEFT_OUT or name.startswith(".") for name in folders):
            yield path


def split(text):
    """The code blocks as (line number, marker or None, code), and the other lines with numbers."""
    blocks, prose = [], []
    marker, opened, code = None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            if opened:
                blocks.append((opened, marker, textwrap.dedent("".join(code))))
                marker, opened, code = None, 0, []
            else:
                opened = number
        elif opened:
            code.append(line + "\n")
        else:
            if marker and line.strip():
                blocks.append((number - 1, marker, None))
                marker = None
            if match := MARKER.match(line.strip()):
                marker = match
            prose.append((number, line))
    return blocks, prose


def has_part(text, part):
    """Whether `part` is some lines of `text`, indentation aside."""
    lines = text.splitlines(keepends=True)
    count = len(part.splitlines())
    return any(
        textwrap.dedent("".join(lines[i : i + count])) == part
        for i in range(len(lines) - count + 1)
    )


def check_block(root, marker, code):
    """What is wrong with a code block that a marker stands before; None if nothing is."""
    kind, name = marker[1], marker[2]
    if code is None:
        return f"no code block follows the marker of {name}"
    if not (root / name).is_file():
        return f"{name} does not exist"
    text = (root / name).read_text(encoding="utf-8")
    if kind == "file" and text != code:
        return f"the code block is not {name}"
    if kind == "part of" and not has_part(text, code):
        return f"the code block does not stand in {name}"
    return None


def anchors(path):
    """The anchors of a Markdown file's headings."""
    _, prose = split(path.read_text(encoding="utf-8"))
    titles = (match[1] for _, line in prose if (match := HEADING.match(line)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def check_link(path, target):
    """What is wrong with a link of the file `path`; None if nothing is."""
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    file = path.parent / name if name else path
    if not file.exists():
        return f"link to {target}: there is no such file"
    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"link to {target}: there is no such heading"
    return None


def check_file(root, path):
    """The problems of one Markdown file, as (line number, what is wrong)."""
    blocks, prose = split(path.read_text(encoding="utf-8"))
    for number, marker, code in blocks:
        if marker and (problem := check_block(root, marker, code)):
            yield number, problem
    for number, line in prose:
        for target in LINK.findall(line):
            if problem := check_link(path, target):
                yield number, problem
        for name in PATH.findall(line):
            if not (root / name).exists():
                yield number, f"{name} does not exist"


def check_tree(root):
    """The problems of the tree below `root`, as "file:line: what is wrong"."""
    return [
        f"{path.relative_to(root).as_posix()}:{number}: {problem}"
        for path in markdown_files(root)
        for number, problem in check_file(root, path)
    ]


def main():
    problems = check_tree(Path(__file__).resolve().parent.parent)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
