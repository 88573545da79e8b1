"""The programs of benchmarks/training_bench.py train, at a small size, and its tables come out."""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sanitizers import starts_other_programs

import millrace.compat.v1 as tf

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import charts  # noqa: E402
import training_bench  # noqa: E402
import turns  # noqa: E402
from training import graph  # noqa: E402
from training.programs import PROGRAMS, initial_values  # noqa: E402


@pytest.mark.parametrize("program", [make(True) for make in PROGRAMS], ids=lambda p: p.name)
def test_losses_fall(program):
    values, inputs = initial_values(program)
    step = graph.trainer(tf, program, values, inputs, 2)
    losses = [step() for _ in range(12)]
    assert all(map(math.isfinite, losses)), losses
    # Means, since a sampled softmax has another loss at every step.
    assert sum(losses[-4:]) < sum(losses[:4]), losses


def test_sizes_are_the_published_ones():
    """Numbers of weights, which tell of every layer."""
    count = {
        program.name: sum(math.prod(p.shape) for p in program.parameters)
        for program in (make() for make in PROGRAMS)
    }
    assert count["AlexNet"] == 61_100_840
    assert count["Overfeat"] == 145_920_872
    assert count["OxfordNet"] == 132_863_336
    assert count["GoogleNet"] == 6_998_552
    assert count["LSTM"] == 19_775_200
    assert count["MLP"] == 235_146
    assert count["Transformer block"] == 3_152_384


@starts_other_programs
def test_the_program_prints_tables_and_keeps_figures(tmp_path):
    figures, picture = tmp_path / "figures.json", tmp_path / "figures.svg"
    command = [sys.executable, BENCHMARKS / "training_bench.py", "--tiny", "--rounds", "1"]
    command += ["--threads", "1", "--json", figures, "--svg", picture, "MLP"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "ms a step" in done.stdout and "peak MB" in done.stdout and "page faults" in done.stdout
    (program,) = json.loads(figures.read_text())["programs"]
    ours = program["frameworks"]["Millrace"]
    assert program["name"] == "MLP" and 0 < ours["ms"] <= ours["median_ms"]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


@starts_other_programs
def test_a_name_that_no_program_has_is_told(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "training_bench.py"), "perceptrons"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "perceptrons" in done.stderr


@pytest.mark.parametrize("last_question", ["prepare", "turn", "peak_mb", "faults"])
def test_a_peer_that_dies_is_left_out(monkeypatch, capsys, last_question):
    class Worker:
        def __init__(self, script, framework, python, threads, gpu):
            self.framework = framework

        def ask(self, question, **values):
            if self.framework == "PyTorch" and question == last_question:
                raise turns.Failed("PyTorch ended with -9: nothing")
            losses = {"losses": [2.0, 1.0]}
            answers = {"prepare": losses, "turn": [3.0, 4.0], "peak_mb": 5.0, "faults": 0.0}
            return answers[question]

        def end(self):
            pass

    monkeypatch.setattr(turns, "Worker", Worker)
    options = argparse.Namespace(tiny=True, gpu=False, threads=1, rounds=2)
    mlp = next(i for i, make in enumerate(PROGRAMS) if make(True).name == "MLP")
    found = dict.fromkeys(["Millrace", "PyTorch"], sys.executable)
    result = training_bench.measure(mlp, found, options)
    assert list(result["frameworks"]) == ["Millrace"]
    assert result["frameworks"]["Millrace"]["turns"] == [3.5, 3.5]
    assert "PyTorch ended with -9" in capsys.readouterr().err


def test_charts_are_well_formed():
    groups = [("a < b", "about & more", [1.0, None, 2.0], "note")]
    bars = charts.bars("title", "", ["x", "y", "z"], groups, str)
    ElementTree.fromstring(bars)
    assert bars.count("height='13'") == 2  # no bar where there is no value


def test_lines_are_well_formed():
    values = {"x": [1.0, 20.0, 300.0], "y": [2.0, None, 4.0], "z": [None, None, None]}
    picture = charts.lines([("a < b", "about", "sizes", [1, 10, 100], values)])
    ElementTree.fromstring(picture)
    assert picture.count("<circle") == 5  # no point where there is no value


@starts_other_programs
def test_cost_as_work_grows(tmp_path):
    figures, picture = tmp_path / "figures.json", tmp_path / "figures.svg"
    command = [sys.executable, BENCHMARKS / "scaling_bench.py", "--tiny", "--rounds", "1"]
    command += ["--threads", "1", "--json", figures, "--svg", picture]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    for question in ("batch", "ops"):
        sizes, times = found[question]["sizes"], found[question]["microseconds"]["Millrace"]
        assert len(sizes) == len(times) == 2 and all(us > 0 for us in times)
    assert len(found["outside"]) == len(PROGRAMS)
    assert all(0 <= share < 1 for share in found["outside"].values())
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
