"""Collective operations by Open MPI, where it is installed: programs that mpirun starts."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from test_collective import DIGITS, OPERATIONS, UNEVEN, expect_equal, weights

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun")

# Root may use Open MPI, and more ranks than cores.
MPI = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
USED = "Group 1 uses Open MPI"

# The second rank goes after the first sum, as the argument says; the others go on.
LEAVERS = """
import os, signal, sys
import millrace.compat.v1 as tf
import millrace.distributed as dist

dist.init()
total = dist.all_reduce(1, "sum")
with tf.Session() as session:
    assert session.run(total) == 3
    if dist.rank() == 1 and sys.argv[1] == "ends":
        sys.exit(0)
    if dist.rank() == 1 and sys.argv[1] == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        session.run(total)
    except tf.errors.FailedPreconditionError as error:
        print("told:", error, flush=True)
        sys.exit(3)
"""

DISAGREEMENT = """
import millrace.compat.v1 as tf
import millrace.distributed as dist

dist.init()
different = dist.all_reduce(tf.zeros([2 + dist.rank()]))
late = dist.all_reduce(0, timeout_secs=0.2)
total = dist.all_reduce(1, "sum")
with tf.Session() as session:
    try:
        session.run(different)
    except tf.errors.InvalidArgumentError as error:
        print("got", error, flush=True)
    assert session.run(total) == 2
    try:
        session.run(late if dist.rank() == 1 else different)
    except (tf.errors.DeadlineExceededError, tf.errors.AbortedError) as error:
        print(type(error).__name__, error, flush=True)
    assert session.run(total) == 2
"""


def run(ranks, program, folder, *args, limit=120, **environment):
    """How mpirun ended, and all that was said."""
    if isinstance(program, str):
        (folder / "program.py").write_text(program)
        program = folder / "program.py"
    done = subprocess.run(
        [*MPI, "-n", str(ranks), sys.executable, str(program), *map(str, args)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit,
        env={**os.environ, "MILLRACE_LOG": "info", **environment},
    )  # fmt: skip
    return done.returncode, done.stdout


def expect_results(folder, ranks=3):
    for rank in range(ranks):
        got = json.loads((folder / f"{rank}.json").read_text())
        assert got == {
            "size": 3, "sum": [3, 6, 9, 12], "mean": [2, 4, 6, 8], "max": [2, 3, 4, 5], "min": 0,
            "product": 6, "half": [1, 2, 3, 4], "rows": [[1, 1], [2, 2], [2, 2]],
            "sent": [1, 2, 3, 4], "flag": True, "gradient": 6.0 + 4 * rank,
        }  # fmt: skip


def test_operations_of_three_ranks(tmp_path):
    code, text = run(3, OPERATIONS, tmp_path, tmp_path)
    assert code == 0, text
    assert USED in text, text
    expect_results(tmp_path)


def test_another_user_of_mpi_may_begin_and_finish_it(tmp_path):
    """As mpi4py does, by which ranks of several machines tell each other where they are."""
    user = """
import atexit, ctypes
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
assert mpi.MPI_Init_thread(None, None, 3, ctypes.byref(ctypes.c_int())) == 0
atexit.register(mpi.MPI_Finalize)
"""
    code, text = run(3, user + OPERATIONS, tmp_path, tmp_path)
    assert code == 0, text
    assert USED in text, text
    expect_results(tmp_path)


def test_the_environment_may_say_otherwise(tmp_path):
    code, text = run(3, OPERATIONS, tmp_path, tmp_path, MILLRACE_COLLECTIVES="own")
    assert code == 0, text
    assert USED not in text, text
    expect_results(tmp_path)


def test_one_rank_without_mpi_is_enough_to_do_without(tmp_path):
    lacks = """
import os
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    os.environ["MILLRACE_MPI_LIBRARY"] = "/no/libmpi.so"
"""
    code, text = run(3, lacks + OPERATIONS, tmp_path, tmp_path)
    assert code == 0, text
    assert "rank 1 (/job:worker/replica:0/task:1) has no Open MPI that can be used" in text, text
    assert "/no/libmpi.so" in text and USED not in text, text
    expect_results(tmp_path)


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no cc")
def test_another_mpi_is_not_taken_for_open_mpi(tmp_path):
    (tmp_path / "mpich.c").write_text(
        "#include <string.h>\n"
        "int MPI_Get_library_version(char* to, int* size) {\n"
        '  strcpy(to, "MPICH Version: 4.0.2"); *size = 20; return 0; }\n'
    )
    library = tmp_path / "libmpi.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "mpich.c")], check=True
    )
    code, text = run(3, OPERATIONS, tmp_path, tmp_path, MILLRACE_MPI_LIBRARY=str(library))
    assert code == 0, text
    assert 'expected Open MPI 3 to 5, got "MPICH Version: 4.0.2"' in text, text
    expect_results(tmp_path)


def test_ranks_that_disagree_are_told_so(tmp_path):
    code, text = run(2, DISAGREEMENT, tmp_path)
    assert code == 0 and USED in text, text
    said = (
        "members do not agree: rank 0 (/job:worker/replica:0/task:0) has Add and Div of float [2], "
        "rank 1 (/job:worker/replica:0/task:1) has Add and Div of float [3]"
    )
    assert text.count(said) >= 2, text
    assert "DeadlineExceededError" in text and "AbortedError" in text, text


def test_digits_are_those_of_one_process(tmp_path):
    code, text = run(2, DIGITS / "data_parallel.py", tmp_path, tmp_path / "two.npz", 12)
    assert code == 0 and USED in text, text
    alone = [sys.executable, str(DIGITS / "synchronous.py"), str(tmp_path / "one.npz"), "12"]
    subprocess.run(alone, check=True, timeout=240, capture_output=True)
    expect_equal(weights(tmp_path / "two.npz"), weights(tmp_path / "one.npz"))


def test_the_first_end_of_data_is_that_of_all(tmp_path):
    code, text = run(3, UNEVEN, tmp_path, tmp_path, 7, 3, 5)
    assert code == 0 and USED in text, text
    assert text.count("ended") == 3, text
    for rank in range(3):
        expect_equal(weights(tmp_path / f"{rank}.npz"), weights(tmp_path / "0.npz"))
        assert weights(tmp_path / f"{rank}.npz")["global_step"] == 3


@pytest.mark.parametrize("what", ["ends", "is killed"])
def test_nobody_waits_for_a_rank_that_is_gone(tmp_path, what):
    began = time.monotonic()
    code, text = run(3, LEAVERS, tmp_path, what)
    assert time.monotonic() - began < 60
    assert code != 0, text
    if what == "ends":
        assert "rank 1 (/job:worker/replica:0/task:1) has ended" in text, text
