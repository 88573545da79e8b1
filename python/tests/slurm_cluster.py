"""A Slurm of three nodes on this machine, for tests: daemons, files and ports of its own."""

import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from ports import free_ports

NODES = 3
# Tasks take ports that follow from the number of their job, which starts anywhere: several such
# clusters may be on a machine.
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "scontrol")


def missing():
    """Why there can be none here; "" if there can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [program for program in _PROGRAMS if not shutil.which(program, path=path)]
    if absent:
        return f"Slurm is not installed: there is no {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "Slurm's daemons need root"


class SlurmCluster:
    """Started when entered, and ended by the processes that were started, when left."""

    def __enter__(self):
        # Daemons ask for folders that others may look into, as pytest's are not.
        self._folder = Path(tempfile.mkdtemp(prefix="millrace-slurm-"))
        self._folder.chmod(0o755)
        self._daemons = []
        self.environment = {
            **os.environ,
            "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin",
            "SLURM_CONF": str(self._folder / "slurm.conf"),
        }
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, *arguments, **kwargs):
        """srun with these arguments."""
        return subprocess.run(
            ["srun", *map(str, arguments)],
            capture_output=True, text=True, timeout=180, env=self.environment, **kwargs,
        )  # fmt: skip

    def _start(self):
        folder = self._folder
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o400)
        (folder / "state").mkdir()
        self._daemon(
            "munged", "--force", "--foreground", f"--key-file={folder}/key",
            f"--socket={folder}/munge", f"--pid-file={folder}/munge.pid",
            f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed",
        )  # fmt: skip
        self._wait(lambda: (folder / "munge").exists(), "munged made no socket")
        (folder / "slurm.conf").write_text(self._configuration())
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        # Nodes first: a job that comes before its nodes are there would stick.
        for i in range(1, NODES + 1):
            self._daemon("slurmd", "-D", "-N", f"n{i}")
        self._daemon("slurmctld", "-D", "-i")
        self._wait(self._idle, "the nodes are not idle")

    def _idle(self):
        said = subprocess.run(
            ["sinfo", "--noheader", "--format=%D %t"],
            capture_output=True, text=True, env=self.environment,
        )  # fmt: skip
        return said.stdout.split() == [str(NODES), "idle"]

    def _daemon(self, *command):
        log = open(self._folder / f"{command[0]}.{len(self._daemons)}.log", "wb")  # noqa: SIM115
        with log:
            self._daemons.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=self.environment, start_new_session=True,
                )
            )  # fmt: skip

    def _wait(self, condition, problem):
        end = time.monotonic() + 60
        while not condition():
            if time.monotonic() > end or any(d.poll() is not None for d in self._daemons):
                logs = "".join(
                    f"\n{log.name}:\n{log.read_text(errors='replace')[-1500:]}"
                    for log in sorted(self._folder.glob("*.log"))
                )
                raise RuntimeError(problem + logs)
            time.sleep(0.05)

    def _configuration(self):
        host, folder = socket.gethostname(), self._folder
        first = free_ports(NODES + 1)
        return f"""\
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={first}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=n[1-{NODES}] NodeHostname={host} Port=[{first + 1}-{first + NODES}] CPUs=2 State=UNKNOWN
FirstJobId={random.randrange(1, 10_000_000)}
PartitionName=all Nodes=n[1-{NODES}] Default=YES MaxTime=INFINITE State=UP
"""
