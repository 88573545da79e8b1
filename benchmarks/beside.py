"""What benchmarks beside TensorFlow share: how they measure, and processes that take turns."""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time


def cost(call, seconds=0.1, windows=6):
    """Microseconds that a call takes, by the clock and of the processors: the best of some windows,
    long enough that what was made ahead before one is a small part of it."""
    count, took = 1, 0.0
    while took < seconds / 2:
        start = time.perf_counter()
        for _ in range(count):
            call()
        took = time.perf_counter() - start
        count *= 2
    wall = used = float("inf")
    for _ in range(windows):
        start, used_before = time.perf_counter(), time.process_time()
        for _ in range(count):
            call()
        wall = min(wall, (time.perf_counter() - start) / count)
        used = min(used, (time.process_time() - used_before) / count)
    return wall * 1e6, used * 1e6


def main(script, doc, heading, write_files, measure):
    """The program of a benchmark.

    write_files(folder) makes what both read. measure(tf, folder, chosen) gives pairs of a name and
    cost(), for the names that chosen() is true for.
    """
    if sys.argv[1:2] == ["--measure"]:
        _measure(measure, *sys.argv[2:4], words=sys.argv[4:])
        return
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="one that has TensorFlow")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("words", nargs="*", help="of the names of what is to be measured")
    arguments = parser.parse_args()
    mine, theirs = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder)
        for _ in range(arguments.rounds):
            for found, python, package in (
                (mine, sys.executable, "millrace.compat.v1"),
                (theirs, arguments.python, "tensorflow.compat.v1"),
            ):
                for name, values in _run(script, python, package, folder, arguments.words).items():
                    before = found.get(name, values)
                    found[name] = [min(pair) for pair in zip(before, values, strict=True)]
    print(f"{heading:28} {'Millrace':>20} {'TensorFlow':>20} {'times':>12}")
    for name, (wall, used) in mine.items():
        line = f"{name:28} {wall:10.3f}{used:10.3f}"
        if name in theirs:
            wall2, used2 = theirs[name]
            line += f" {wall2:10.3f}{used2:10.3f} {wall2 / wall:6.2f}{used2 / used:6.2f}"
        print(line)


def _measure(measure, package, folder, words):
    tf = importlib.import_module(package)
    if hasattr(tf, "disable_eager_execution"):
        tf.disable_eager_execution()
    print(json.dumps(dict(measure(tf, folder, lambda name: not words or _has(name, words)))))


def _has(name, words):
    return any(word in name for word in words)


def _run(script, python, package, folder, words):
    """What measure() found in a process of its own; nothing where the package is not there."""
    own = package.startswith("millrace")
    done = subprocess.run(
        [python, script, "--measure", package, folder, *words],
        stdout=subprocess.PIPE,
        stderr=None if own else subprocess.DEVNULL,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        text=True,
        check=own,
    )
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
