"""The Python in the documentation runs: the blocks of a page in order, in one program.

Blocks marked `py` instead of `python` are shown only: they need what a test has not.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import millrace.compat.v1 as tf

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    p
    for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if BLOCK.search(p.read_text())
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page, tmp_path):
    blocks = BLOCK.findall(page.read_text())
    if any("import millrace as tf" in block for block in blocks):
        # Eager execution is for a whole process, and AutoGraph reads source from files.
        program = tmp_path / "page.py"
        program.write_text("\n".join(blocks))
        subprocess.run([sys.executable, str(program)], check=True)
        return
    names = {}
    with tf.Graph().as_default():
        for block in blocks:
            exec(compile(block, str(page), "exec"), names)


def test_there_are_pages():
    assert {"python.md", "tensorflow_users.md"} <= {page.name for page in PAGES}


def test_help_is_useful():
    text = tf.matmul.__doc__
    assert "transpose" in text and len(text) > 100
