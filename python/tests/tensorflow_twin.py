"""Real TensorFlow, where MILLRACE_TENSORFLOW_PYTHON names an interpreter that has it."""

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

_PYTHON = os.environ.get("MILLRACE_TENSORFLOW_PYTHON", "")
# Files that TensorFlow 2.15 wrote: see make.py there.
FILES = Path(__file__).parents[2] / "tests" / "data" / "tensorflow"

needs_tensorflow = pytest.mark.skipif(
    not _PYTHON, reason="MILLRACE_TENSORFLOW_PYTHON names no interpreter with TensorFlow"
)


def run_tensorflow(program: str, *arguments: object) -> str:
    """Runs a program in which `tf` is tensorflow.compat.v1 and `args` are the arguments. Gives what
    it prints."""
    head = "import sys\nimport numpy as np\nimport tensorflow\ntf = tensorflow.compat.v1\n"
    head += "args = sys.argv[1:]\n"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [_PYTHON, "-c", head + textwrap.dedent(program), *map(str, arguments)],
        env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
