"""Ops of libraries that are built apart: they run, and strangers may not run them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sanitizers import starts_other_programs

from millrace import _core

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which("c++")
# A server whose process has loaded the library; or a client that runs its op as another user.
PROGRAM = """
import os, sys
import millrace.compat.v1 as tf
ops = tf.load_op_library(sys.argv[1])
if sys.argv[2] == "serve":
    server = tf.train.Server({"w": ["localhost:0"]})
    print(server.target, flush=True)
    server.join()
with tf.Session() as session: session.run(tf.constant(1))  # loads what others may not read
os.setuid(int(sys.argv[3]))
with tf.device("/job:w/task:0"):
    x = tf.placeholder(tf.float32, [])
    cube = ops.cube(x)
try:
    with tf.Session(sys.argv[2]) as session: print(session.run(cube, {x: 3.0}))
except tf.errors.PermissionDeniedError as error:
    print(error.message.replace("\\n", " "))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The example's op library."""
    folder = next(
        (p for p in Path(_core.__file__).parents if (p / "libmillrace.so").exists()), None
    )
    if COMPILER is None or folder is None:
        pytest.skip("there is no compiler, or no libmillrace.so to build against")
    out = tmp_path_factory.mktemp("library") / "libcube.so"
    out.parent.chmod(0o755)
    subprocess.run(
        [COMPILER, "-std=c++20", "-fPIC", "-shared", f"-I{ROOT}",
         ROOT / "examples/consumer/cube.cc",
         f"-L{folder}", "-lmillrace", f"-Wl,-rpath,{folder}", "-o", out],
        check=True,
    )  # fmt: skip
    return str(out)


@starts_other_programs
@pytest.mark.skipif(not _core.grpc_available(), reason="built without gRPC")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_strangers_may_not_run_ops_of_libraries(library, tmp_path):
    token = tmp_path / "token"
    token.write_text("sesame")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    known = {"MILLRACE_CLUSTER_TOKEN_FILE": str(token), "MILLRACE_SAME_HOST": "0"}

    def client_gets(allow):
        server = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, library, "serve"], stdout=subprocess.PIPE, text=True,
            env={**os.environ, **known, "MILLRACE_CLUSTER_ALLOW": allow},
        )  # fmt: skip
        try:
            target = server.stdout.readline().strip()
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, library, target, "65534"],
                stdout=subprocess.PIPE, text=True, env={**os.environ, **known}, check=True,
            )  # fmt: skip
            return done.stdout.strip()
        finally:
            server.kill()
            server.wait()
            server.stdout.close()

    assert client_gets("libraries") == "27.0"
    refused = client_gets("files,py_func,state")
    assert "Cube" in refused and "ALLOW=libraries" in refused
