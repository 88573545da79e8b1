"""The examples run, at a small size; the programs for TensorFlow run unchanged."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import millrace.compat.v1 as tf

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Steps that are enough to tell that something is learnt, and what main() must return.
LEARNS = {
    "linear_regression": (100, lambda loss: loss < 0.05),
    "mlp": (300, lambda accuracy: accuracy > 0.8),
    "cnn": (120, lambda accuracy: accuracy > 0.6),
    "char_lstm": (60, lambda said: said.startswith("the ")),
    "autoencoder": (200, lambda wrong: wrong < 0.25),
    "gan": (30, lambda mean: mean == mean),
    "word2vec": (200, lambda right: right > 0.5),
    "q_learning": (150, lambda steps: steps < 20),
    "tree_lstm": (20, lambda share: 0 <= share <= 1),
    "custom_optimizer": (200, lambda loss: loss < 0.1),
    "custom_op": (5, lambda error: error < 1e-6),
}


# The same of those that run at once, in full: none takes long.
LEARNS_EAGERLY = {
    "tree_lstm": (600, lambda share: share > 0.9),
    "policy_gradient": (150, lambda pushes: pushes > 150),
    "char_lstm": (300, lambda said: "the quick brown fox jumps over the lazy dog" in said),
}


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(p.stem for p in (EXAMPLES / "python").glob("*.py")))
def test_example(name, capsys):
    steps, good = LEARNS[name]
    with tf.Graph().as_default():
        result = load(EXAMPLES / "python" / f"{name}.py").main(steps)
    assert good(result), result
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(p.stem for p in (EXAMPLES / "eager").glob("*.py")))
def test_eager_example(name):
    """In a process of its own, for which eager execution is."""
    steps, good = LEARNS_EAGERLY[name]
    program = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES / 'eager')!r}); import {name}; "
        f"print(repr({name}.main({steps})))"
    )
    done = run([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
    assert good(ast.literal_eval(done.stdout.splitlines()[-1])), done.stdout


def test_digits(capsys, tmp_path, monkeypatch):
    """Trains, goes on where a longer run is asked for, and begins anew after its end."""
    monkeypatch.chdir(tmp_path)
    said = []
    for epochs, accuracy in ((1, 0.3), (2, 0.6), (1, 0.3)):
        with tf.Graph().as_default():
            assert load(EXAMPLES / "digits" / "digits.py").main(epochs) > accuracy
        said.append(capsys.readouterr().out)
    assert all(
        "rows: what it is" in out and "tensorboard --logdir digits_logs" in out for out in said
    )
    assert [out.split(" in ")[0] for out in said] == ["a new run", "going on", "a new run"]
    assert "after step 46 of 92\nepoch  2" in said[1]
    assert (tmp_path / "misread.png").read_bytes().startswith(b"\x89PNG")


PRINTS = {
    "softmax_regression": "trained 100 steps",
    "branch": "(3.0, 2.0) -> 4.0",
    "loop": "10",
    "two_devices": "step 2 [ 6.  9. 12. 15.]",
    "sharded_embedding": "after",
    "relu_cost": "with an input that does not fit",
}


def run(command, **kwargs):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **kwargs)


@pytest.mark.parametrize("name", sorted(PRINTS))
def test_tensorflow_program(name, tmp_path):
    program = EXAMPLES / "tensorflow" / f"{name}.py"
    replaced = tmp_path / program.name
    replaced.write_text(
        program.read_text().replace("import tensorflow as tf", "import millrace.compat.v1 as tf")
    )
    for command in ([sys.executable, "-m", "millrace", "run", program], [sys.executable, replaced]):
        done = run([*map(str, command), "100"], env=os.environ)
        assert done.returncode == 0, done.stderr
        assert PRINTS[name] in done.stdout
        assert done.stderr == ""


def test_messages_of_the_relu_program_say_what_to_do(tmp_path):
    done = run([sys.executable, "-m", "millrace", "run", str(EXAMPLES / "tensorflow/relu_cost.py")])
    before, _, after = done.stdout.partition("\n0 ")
    assert "global_variables_initializer" in before
    assert "[784,100]" in after and "[99,100]" in after
