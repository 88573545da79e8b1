"""The program benchmarks/budget_bench.py keeps within its limits, at a small size."""

import json
import subprocess
import sys
from pathlib import Path

from sanitizers import starts_other_programs

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "budget_bench.py"


@starts_other_programs
def test_it_keeps_within_a_third(tmp_path):
    figures = tmp_path / "figures.json"
    command = [sys.executable, BENCHMARK, "--tiny", "--rounds", "1", "--threads", "1"]
    command += ["--json", figures, "tanh"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout and "other losses" not in done.stdout
    (program,) = json.loads(figures.read_text())["programs"]
    assert program["equal"] and program["ratio"] > 0
    free, limited = program["free"]["estimate"], program["limited"]["estimate"]
    assert limited <= program["limited"]["limit"] <= free / 3 + 1
