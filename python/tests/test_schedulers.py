"""The digits are learnt to the same weights by one process, and wherever else tasks are started.

Slurm, Open MPI, ssh and Ray are real where they are installed. MILLRACE_RAY_PYTHON may name an
interpreter that has Ray.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import slurm_cluster
from ports import free_ports
from sanitizers import starts_other_programs

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "digits" / "synchronous.py"
MILLRACE = [sys.executable, "-m", "millrace"]
# Root may use Open MPI, and more ranks than cores.
MPI = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
RAY = sys.executable if importlib.util.find_spec("ray") else os.environ.get("MILLRACE_RAY_PYTHON")


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The weights that one process learns."""
    path = tmp_path_factory.mktemp("alone") / "weights.npz"
    environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    subprocess.run([sys.executable, SCRIPT, path], check=True, timeout=120, env=environment)
    return dict(np.load(path))


def check(done, path, alone):
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(np.load(path))
    assert found.keys() == alone.keys()
    for name, weights in alone.items():
        np.testing.assert_array_equal(found[name], weights, err_msg=name)


def run(command, **kwargs):
    command = list(map(str, command))
    return subprocess.run(command, capture_output=True, text=True, timeout=180, **kwargs)


def test_launch(tmp_path, alone):
    path = tmp_path / "weights.npz"
    check(run([*MILLRACE, "launch", "-n", "2", "--ps", "1", SCRIPT, path]), path, alone)
    # Parts of other sizes, and sums in any order, round otherwise.
    done = run([*MILLRACE, "launch", "-n", "4", "--ps", "2", SCRIPT, path])
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(np.load(path))
    for name, weights in alone.items():
        np.testing.assert_allclose(found[name], weights, atol=1e-3, err_msg=name)


needs_mpi = pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun")


@starts_other_programs
@needs_mpi
def test_open_mpi(tmp_path, alone):
    path = tmp_path / "weights.npz"
    check(run([*MPI, "-n", "3", *MILLRACE, "run", "--ps", "1", SCRIPT, path]), path, alone)


@starts_other_programs
@needs_mpi
def test_a_rank_that_fails_ends_all(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import json, os, time\n"
        "if json.loads(os.environ['TF_CONFIG'])['task']['index'] == 1: raise SystemExit(3)\n"
        "time.sleep(600)\n"
    )
    done = run([*MPI, "-n", "2", *MILLRACE, "run", script])
    assert done.returncode == 3


@starts_other_programs
@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing())
def test_slurm(tmp_path, alone):
    path = tmp_path / "weights.npz"
    say = "import os; from millrace.distributed import cluster_from_environment as f; print(f())"
    with slurm_cluster.SlurmCluster() as slurm:
        three = ("--nodes", 3, "--ntasks", 3)
        check(slurm.run(*three, *MILLRACE, "run", "--ps", "1", SCRIPT, path), path, alone)
        for distribution in ("block", "cyclic"):
            places = (
                "--nodes", 2, "--ntasks", 4, "--overcommit", "--distribution", distribution,
            )  # fmt: skip
            done = slurm.run(*places, sys.executable, "-c", say)
            assert done.returncode == 0, done.stderr
            clusters = {line.partition(", job=")[0] for line in done.stdout.splitlines()}
            assert len(clusters) == 1 and done.stdout.count("job='worker'") == 4
        failing = tmp_path / "program.py"
        failing.write_text(
            "import json, os, time\n"
            "if json.loads(os.environ['TF_CONFIG'])['task']['index'] == 1: raise SystemExit(3)\n"
            "time.sleep(600)\n"
        )
        done = slurm.run(*three, "--kill-on-bad-exit", *MILLRACE, "run", failing)
        assert done.returncode != 0 and "time" not in done.stdout


SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")


@pytest.fixture
def ssh(tmp_path):
    """The command that logs in to a server of our own on this machine."""
    for key in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key]
        subprocess.run(command, check=True)
    port = free_ports(1)
    options = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "user.pub", "PidFile": "none", "StrictModes": "no",
        "UsePAM": "no", "PermitRootLogin": "yes", "PasswordAuthentication": "no",
    }  # fmt: skip
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", "/dev/null", *words])
    client = (
        f"ssh -F none -p {port} -i {tmp_path}/user -o IdentitiesOnly=yes -o LogLevel=ERROR "
        "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    )
    try:
        end = time.monotonic() + 30
        while run([*client.split(), "127.0.0.1", "true"]).returncode != 0:
            if server.poll() is not None or time.monotonic() > end:
                pytest.skip("the server of ssh does not start here")
            time.sleep(0.05)
        yield client
    finally:
        server.terminate()
        server.wait()


@starts_other_programs
@pytest.mark.skipif(not SSHD, reason="there is no sshd")
def test_ssh(tmp_path, alone, ssh):
    path = tmp_path / "weights.npz"
    hosts = ["--hosts", "localhost,127.0.0.1", "--port", free_ports(3), "--ssh", ssh]
    command = [*MILLRACE, "launch", *hosts, "-n", "2", "--ps", "1", SCRIPT, path]
    check(run(command), path, alone)


@starts_other_programs
@pytest.mark.skipif(not RAY, reason="Ray is not installed, and MILLRACE_RAY_PYTHON names none")
def test_ray(tmp_path, alone):
    path = tmp_path / "weights.npz"
    program = f"""
import ray
import millrace.ray
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=True)
print("ended", millrace.ray.run({str(SCRIPT)!r}, [{str(path)!r}], workers=2, ps=1))
"""
    check(run([RAY, "-c", program]), path, alone)


@starts_other_programs
@pytest.mark.skipif(not RAY, reason="Ray is not installed, and MILLRACE_RAY_PYTHON names none")
def test_ray_starts_tasks_again(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import json, os, signal, sys\n"
        "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        "with open(sys.argv[1] + str(index), 'a') as file:\n"
        "    file.write(os.environ['TF_CONFIG'] + '\\n')\n"
        "lives = len(open(sys.argv[1] + str(index)).readlines())\n"
        "if index == 0 and lives == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "if index == 1 and lives <= 2: raise ValueError('on purpose')\n"
    )
    program = f"""
import sys
import ray
import millrace.ray
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
try:
    millrace.ray.run({str(script)!r}, [{str(tmp_path / "lives")!r}], workers=2,
                     restarts=int(sys.argv[1]))
except RuntimeError as error:
    sys.exit(f"failed: {{error}}")
"""
    done = run([RAY, "-c", program, "2"])
    assert done.returncode == 0, done.stdout + done.stderr
    for index, lives in ((0, 2), (1, 3)):
        written = (tmp_path / f"lives{index}").read_text().splitlines()
        assert len(written) == lives and len(set(written)) == 1
        (tmp_path / f"lives{index}").unlink()
    done = run([RAY, "-c", program, "1"])
    assert done.returncode == 1 and "failed: worker 1" in done.stderr
