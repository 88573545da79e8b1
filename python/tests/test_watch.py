"""Curves in the terminal."""

import io
import math
import os
import subprocess
import sys

import pytest

import millrace.compat.v1 as tf
from millrace.summary import watch


def write(logdir, tag, values, first=0):
    with tf.summary.FileWriter(str(logdir)) as writer:
        for step, value in enumerate(values, first):
            summary = tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value)])
            writer.add_summary(summary, step)


def dots(line):
    """The columns of a line of a plot that have dots."""
    return [i for i, c in enumerate(line.partition("┤")[2]) if 0x2800 < ord(c) <= 0x28FF]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_falling_line():
    curve = watch.Curve()
    for step in range(100):
        curve.add(step, 1 - step / 100)
    lines = watch.plot({".": curve}, 60, 6)
    assert len(lines) == 7 and all(len(line) <= 60 for line in lines)
    assert lines[0].startswith("   1 ┤") and lines[5].startswith("0.01 ┤")
    assert lines[6].split() == ["step", "0", "99"]
    places = [dots(line) for line in lines[:6]]
    assert all(places) and [p[0] for p in places] == sorted(p[0] for p in places)


@pytest.mark.parametrize(
    "values", [[1.0], [0.0, 0.0], [math.nan, 2.0, math.inf], [1e300, -1e300], [1.7e308, -1.7e308]]
)
def test_odd_values(values):
    curve = watch.Curve()
    for step, value in enumerate(values):
        curve.add(step, value)
    assert any(dots(line) for line in watch.plot({".": curve}, 40, 4))
    only = watch.Curve()
    only.add(1, math.nan)
    assert watch.plot({".": only}, 40, 4) == ["(no finite values)"]


def test_a_restart_takes_later_points_back():
    curve = watch.Curve()
    for step in (1, 2, 3, 4, 3, 4):
        curve.add(step, float(step))
    assert curve.steps == [1, 2, 3, 4]


def test_long_curves_are_thinned():
    curve = watch.Curve()
    for step in range(100_000):
        curve.add(step, 1.0)
    assert len(curve.steps) <= 20_000 and curve.steps[0] == 0


def test_runs_and_tags(tmp_path):
    write(tmp_path / "a", "loss", [3.0, 2.0, 1.0])
    write(tmp_path / "b", "loss", [4.0, 4.0])
    write(tmp_path / "b", "accuracy", [0.5])
    out = io.StringIO()
    watch.watch(str(tmp_path), [], out=out)
    text = out.getvalue()
    assert "loss   a 1   b 4" in text and "accuracy   b 0.5" in text
    assert "\x1b" not in text
    out = io.StringIO()
    watch.watch(str(tmp_path), ["acc*"], out=out)
    assert "loss" not in out.getvalue()


def test_live_and_growing(tmp_path):
    writer = tf.summary.FileWriter(str(tmp_path))
    out = Terminal()
    looks = []

    def wait(seconds):
        looks.append(out.getvalue())
        out.seek(0)
        out.truncate()
        if len(looks) == 3:
            raise KeyboardInterrupt
        if len(looks) == 1:
            summary = tf.Summary(value=[tf.Summary.Value(tag="loss", simple_value=2.5)])
            writer.add_summary(summary, 1)
            writer.flush()

    watch.watch(str(tmp_path), [], out=out, wait=wait)
    assert "No scalars" in looks[0] and "loss" in looks[1] and looks[2] == ""


def test_a_file_that_is_cut_and_goes_on(tmp_path):
    write(tmp_path, "loss", [1.0, 2.0])
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    folder = watch.Folder(str(tmp_path))
    folder.update()
    assert folder.curves["loss"]["."].values == [1.0] and folder.problems
    path.write_bytes(whole)
    assert folder.update() and folder.curves["loss"]["."].values == [1.0, 2.0]
    assert not folder.problems


def test_the_command(tmp_path):
    write(tmp_path, "loss", [3.0, 1.0])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    def run(*arguments):
        command = [sys.executable, "-m", "millrace", "watch", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=60, check=False
        )

    done = run(str(tmp_path), "--once")
    assert done.returncode == 0 and done.stdout.startswith("loss   . 1\n")
    for wrong in (["nowhere"], [], [str(tmp_path), "--tag"], [str(tmp_path), "--interval", "no"]):
        done = run(*wrong)
        assert done.returncode == 2 and "usage" in done.stderr


def test_names_in_files_do_not_reach_the_terminal_as_they_are(tmp_path):
    run = tmp_path / "run\x1b[2J"
    write(run, "loss\x1b]0;title\x07", [1.0, 2.0])
    out = Terminal()
    watch.watch(str(tmp_path), [], once=True, out=out)
    assert "\x1b[2J" not in out.getvalue() and "\x1b]" not in out.getvalue()
    assert "loss\\x1b]0;title" in out.getvalue()


def test_a_pipe_and_a_name_that_is_no_text_are_told_of(tmp_path):
    os.mkfifo(tmp_path / "x.tfevents")
    (tmp_path / os.fsdecode(b"\xff.tfevents")).touch()
    folder = watch.Folder(str(tmp_path))
    assert not folder.update()
    assert len(folder.problems) == 2
