"""Commands of `millrace` on files that are damaged, missing or something else, and how they end."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_runs import DATA, MODEL, TYPES, example, run, shown, write_checkpoint, write_records

import millrace.compat.v1 as tf


def damaged(data):
    """With a bit of each byte flipped in turn, and with the end cut off."""
    for i in range(len(data)):
        yield data[:i] + bytes([data[i] ^ (1 << i % 8)]) + data[i + 1 :]
    for length in range(0, len(data), 5):
        yield data[:length]


def small_file(kind, folder):
    """A small file of that kind; gives (what to inspect, the file to damage, is all of it under
    checksums)."""
    if kind in ("index", "data"):
        for file in TYPES.parent.glob("partitioned.*"):
            shutil.copy(file, folder)
        path = folder / "partitioned"
        return path, next(folder.glob(f"*.{kind}*")), kind == "data"
    if kind == "v1":
        path = Path(shutil.copy(DATA / "checkpoints" / "v1", folder))
        return path, path, False
    path = folder / f"file.{kind}"
    if kind == "safetensors":
        write_checkpoint(folder / "c", {"a": np.zeros(2, np.float32), "b": np.arange(2)})
        shown("convert", folder / "c", path)
    elif kind == "tfrecord":
        write_records(path, [example(a=[1], b=[b"x"])])
    elif kind == "tfevents":
        event = tf.Event(wall_time=1.0, step=3)
        event.summary.value.add(tag="loss", simple_value=0.5)
        write_records(path, [event.SerializeToString()])
    elif kind == "pb":
        graph = tf.GraphDef()
        graph.node.add(name="a/b", op="NoOp", input=["^c"]).attr["shape"].shape.dim.add(size=3)
        path.write_bytes(graph.SerializeToString())
    return path, path, kind in ("tfrecord", "tfevents")


KINDS = ["index", "data", "v1", "safetensors", "tfrecord", "tfevents", "pb"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_damaged(tmp_path, kind):
    path, file, is_checked = small_file(kind, tmp_path)
    whole = file.read_bytes()
    good = run("inspect", path, "--stats")
    assert good[0] == 0
    for data in damaged(whole):
        file.write_bytes(data)
        if is_checked:
            code, out, err = run("verify", path)
            assert (code, out) == (1, "") and "Traceback" not in err
        code, out, err = run("inspect", path, "--stats")
        assert code in (0, 1) and err.count("\n") == code
        if kind in ("index", "v1") and code == 0:
            assert out == good[1]


def make_huge(path):
    """A file of 1 TiB of zeros, which takes no place on the disk."""
    with open(path, "wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_cannot_be_read_is_one_line(tmp_path, command):
    (tmp_path / "empty").touch()
    (tmp_path / "noise").write_bytes(np.random.default_rng(1).bytes(5000))
    (tmp_path / "zeros.pb").write_bytes(bytes(100))
    (tmp_path / "words.pbtxt").write_text("no graph at all")
    (tmp_path / "x.index").write_bytes(b"not a table" * 10)
    (tmp_path / "folder").mkdir()
    for name in ("huge.pb", "huge.index", "huge.safetensors", "huge.tfrecord", "huge"):
        make_huge(tmp_path / name)
    for name in ("state/checkpoint", "model/saved_model.pb"):
        (tmp_path / name).parent.mkdir()
        make_huge(tmp_path / name)
    os.mkfifo(tmp_path / "pipe")
    names = [
        "empty", "noise", "zeros.pb", "words.pbtxt", "x", "folder", "huge.pb", "huge.index",
        "huge.safetensors", "huge.tfrecord", "huge", "state", "model", "pipe", "none", "n" * 5000,
        "none/none", "empty/below", "a\0b",
    ]  # fmt: skip
    for name in names:
        code, out, err = run(command, f"{tmp_path}/{name}")
        lines = err.splitlines()
        listed = command == "verify" and name == "huge.tfrecord"  # which record is damaged
        assert (code, out, len(lines)) == (1, "", 1 + listed), name
        assert lines[-1].startswith(f"millrace {command}: "), name


@pytest.mark.parametrize("arguments", [["inspect"], ["inspect", "x", "--grep", "("],
                                       ["inspect", "x", "--depth", "0"], ["convert", "x"],
                                       ["verify", "--fast", "x"], ["freeze", "x"]])  # fmt: skip
def test_wrong_arguments(arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and err.startswith("usage: millrace")


# As a process.


def start(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-m", "millrace", *map(str, arguments)], env=environment,
        stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def test_a_reader_that_goes_away_ends_it_quietly():
    read, write = os.pipe()
    os.close(read)
    process = start("inspect", TYPES, stdout=write)
    os.close(write)
    assert process.communicate(timeout=60)[1] == b"" and process.returncode == 141


def test_of_a_file_that_is_cut_the_rest_is_shown(tmp_path):
    path = tmp_path / "cut.tfrecord"
    write_records(path, [b"one", b"two", b"three"])
    path.write_bytes(path.read_bytes()[:-1])
    code, out, err = run("inspect", path)
    assert code == 1 and "2 records, 6 bytes" in out and "record 1: 3 bytes: b'two'" in out
    assert err.startswith(f"millrace inspect: {path}: record at 38 is cut")
    code, out, err = run("inspect", path, "--json")
    assert code == 1 and json.loads(out)["records"] == 2 and "is cut" in json.loads(out)["damage"]


def test_nobody_listens():
    for arguments in (["inspect", MODEL], ["--help"], ["verify", MODEL]):
        command = f'exec "{sys.executable}" -m millrace {" ".join(map(str, arguments))} >&-'
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_ends_it_quietly(monkeypatch):
    monkeypatch.setattr("millrace.cli.kinds.find", lambda path: signal.raise_signal(signal.SIGINT))
    assert run("inspect", TYPES) == (130, "", "")


def test_looking_into_files_loads_no_session():
    program = (
        "import sys; from millrace.__main__ import main; main(['inspect', sys.argv[1]]);"
        "print('millrace.graph.session' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", program, DATA / "tensorflow" / "saved_model"]
    assert subprocess.check_output(command, env=environment).endswith(b"\nFalse\n")


def test_importing_millrace_loads_no_command():
    program = "import sys, millrace.compat.v1; print([m for m in sys.modules if '.cli' in m])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert subprocess.check_output([sys.executable, "-c", program], env=environment) == b"[]\n"
