"""No call from Python ends the process: every op with values that fit nothing, at random."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import millrace.compat.v1 as tf

PROGRAM = Path(__file__).with_name("hostile_calls.py")


def test_every_op_survives_values_that_fit_nothing(tmp_path):
    seed = random.SystemRandom().randrange(10**9)
    command = [sys.executable, "-W", "ignore", str(PROGRAM), str(seed), "40"]
    done = subprocess.run(  # where files with made-up names are in nobody's way
        command, capture_output=True, text=True, errors="replace", timeout=600, cwd=tmp_path,
        # An index may ask for as many rows as it says.
        env={**os.environ, "MILLRACE_CPU_MEMORY_LIMIT": str(2 << 30)},
    )  # fmt: skip
    wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG")]
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"seed {seed}, in {last}: {done.stderr[-2000:]}"
    assert not wrong, f"seed {seed}: {wrong}"


@pytest.mark.parametrize("dtype", [tf.resource, tf.variant])
@pytest.mark.parametrize("value", [[], [[]], np.zeros(0, object), np.zeros(3), b"x", 1])
def test_handles_cannot_be_made_from_values(value, dtype):
    with pytest.raises(TypeError, match=f"{dtype.name}"):
        tf.constant(value, dtype)


@pytest.mark.parametrize("storage", ["f8", "i2", "O"])
def test_arrays_that_only_look_like_ours_are_refused(storage):
    array = np.zeros(3, [("qint8", storage)])
    with pytest.raises(TypeError, match="There is no tensor type"):
        tf.constant(array)
