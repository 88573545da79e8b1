"""benchmarks/kernel_bench.py and memory_bench.py measure what their names say, by rates.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sanitizers import starts_other_programs

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import kernel_bench  # noqa: E402


@starts_other_programs
@pytest.mark.parametrize(
    "script, word, unit",
    [("kernel_bench.py", "matmul 32", "GFLOP/s"), ("memory_bench.py", "256 Ki", "GB/s")],
)
def test_the_program_prints_a_table_and_keeps_figures(tmp_path, script, word, unit):
    figures = tmp_path / "figures.json"
    command = [sys.executable, BENCHMARKS / script, "--rounds", "1", "--threads", "1"]
    command += ["--json", figures, word]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert unit in done.stdout
    kept = json.loads(figures.read_text())
    (op,) = kept["ops"]
    ours = op["frameworks"]["Millrace"]
    assert kept["unit"] == unit and word in op["name"]
    assert 0 < ours["median_rate"] <= ours["rate"] and ours["same"]


def test_every_layer_of_the_networks_is_measured():
    """A layer that is there twice stands once; images themselves get no gradient."""
    names = [op.name for op in kernel_bench.OPS]
    assert len(names) == len(set(names))
    for network, layers in {"AlexNet": 5, "Overfeat": 5, "OxfordNet": 7, "GoogleNet": 49}.items():
        kinds = [n.split(" ", 4)[-1] for n in names if n.startswith(network)]
        assert sum("forward" in kind for kind in kinds) == layers, network
        assert sum("input gradient" in kind for kind in kinds) == layers - 1, network
        assert sum("filter gradient" in kind for kind in kinds) == layers, network
