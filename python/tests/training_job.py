"""A training job of processes whose tasks may be killed, and what its workers were told meanwhile.

Every worker adds one to a counter of its own on each parameter server in every step, and writes
down what it was told: when, and the counters after the step. These lines show what a kill did.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time

PROGRAM = """
import os, sys, time
import millrace.compat.v1 as tf
from millrace.distributed import cluster_from_environment

folder, pause = sys.argv[1], float(sys.argv[2])
task = cluster_from_environment()
name = os.path.join(folder, f"{task.job}{task.index}")
with open(name + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(name + ".new", name + ".pid")
server = tf.train.Server(task.cluster, task.job, task.index)
if task.job == "ps":
    server.join()

setter = tf.train.replica_device_setter(
    cluster=task.cluster, worker_device=f"/job:worker/task:{task.index}")
with tf.device(setter):
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [64, 8], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.random.normal([16, 64]), w) - 1.0))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
told = []
for ps in range(task.cluster.num_tasks("ps")):
    with tf.device(f"/job:ps/task:{ps}"):
        counters = [
            tf.get_variable(f"count_{ps}_{worker}", [], tf.int64, tf.zeros_initializer())
            for worker in range(task.cluster.num_tasks("worker"))
        ]
        told.append(tf.assign_add(counters[task.index], 1, use_locking=True))
acknowledged = os.open(name + ".told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
with tf.train.MonitoredTrainingSession(
    server.target, is_chief=task.is_chief, checkpoint_dir=os.path.join(folder, "checkpoints"),
    save_checkpoint_secs=0.5, save_summaries_steps=None, log_step_count_steps=None,
) as session:
    while not os.path.exists(os.path.join(folder, "stop")):
        counts, _ = session.run([told, train])
        line = f"{time.monotonic()} {os.getpid()} {' '.join(map(str, counts))}\\n"
        os.write(acknowledged, line.encode())
        time.sleep(pause)
"""


class Told:
    """What a worker was told of one step: when it was, by which process, the counters after it."""

    def __init__(self, line):
        words = line.split()
        self.when, self.process = float(words[0]), int(words[1])
        self.counts = [int(word) for word in words[2:]]


class TrainingJob:
    """`millrace launch` with workers and parameter servers that are started again when killed."""

    def __init__(self, folder, workers=3, ps=2, pause=0.01, environment=None):
        self.folder, self.workers, self.ps = folder, workers, ps
        self.tasks = [f"ps{i}" for i in range(ps)] + [f"worker{i}" for i in range(workers)]
        self.kills = []  # (when, task)
        self.log = open(folder / "log", "w+")  # noqa: SIM115: until end()
        script = folder / "program.py"
        script.write_text(PROGRAM)
        self._start([str(script), str(folder), str(pause)], {**os.environ, **(environment or {})})

    def _start(self, program, environment):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "millrace", "launch", "-n", str(self.workers),
             "--ps", str(self.ps), "--restart", "1000", *program],
            stdout=self.log, stderr=self.log, env=environment,
        )  # fmt: skip

    def has_ended(self):
        """Whether it is over, which nobody asked for."""
        return self.process.poll() is not None

    def pid(self, task):
        """The process of a task; None before it has one."""
        try:
            return int((self.folder / f"{task}.pid").read_text())
        except FileNotFoundError:
            return None

    def told(self, worker):
        """All that a worker wrote down so far."""
        try:
            lines = (self.folder / f"worker{worker}.told").read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []
        return [Told(line) for line in lines]

    def last_told(self, worker):
        """The last of these, without reading all."""
        try:
            with open(self.folder / f"worker{worker}.told", "rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(0, end - 400))
                lines = file.read().decode().split("\n")[:-1]
        except FileNotFoundError:
            return None
        return Told(lines[-1]) if lines else None

    def wait(self, condition, what, seconds=120):
        """Until `condition()` is true. AssertionError with the log of the job when it does not
        become so."""
        end = time.monotonic() + seconds
        while not (got := condition()):
            assert not self.has_ended(), f"the job has ended, before {what}:\n{self.text()}"
            assert time.monotonic() < end, f"{what}: not within {seconds} s\n{self.text()}"
            time.sleep(0.005)
        return got

    def step_after(self, worker, when, process=None):
        """Waits for a step of a worker that ended after `when`, by another process than `process`
        if given, and gives it."""

        def stepped():
            told = self.last_told(worker)
            return told if told and told.when > when and told.process != process else None

        return self.wait(stepped, f"a step of worker {worker}")

    def all_step(self, seconds=120):
        """Waits until every worker has made a step from now on."""
        now = time.monotonic()
        for worker in range(self.workers):
            self.step_after(worker, now)

    def kill(self, task):
        """kill -9 of a task. Gives how long it took until all workers made steps again: of a worker
        that worker in its new process, of a parameter server all with it."""
        pid, when = self.kill_only(task)
        if task.startswith("worker"):
            worker = int(task.removeprefix("worker"))
            first = self.step_after(worker, when, process=pid)
        else:
            # A step that was told of at the moment of the kill counts for nothing.
            self.wait(lambda: self.pid(task) != pid, f"a new {task}")
            began = time.monotonic()
            steps = [self.step_after(worker, began) for worker in range(self.workers)]
            first = max(steps, key=lambda told: told.when)
        return first.when - when

    def kill_only(self, task):
        """kill -9 of a task, without waiting for anything. Gives its process and when it was."""
        pid, when = self.pid(task), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        self.kills.append((when, task))
        return pid, when

    def text(self):
        """What the job printed."""
        self.log.flush()
        with open(self.folder / "log") as file:
            return file.read()

    def stop(self):
        """Lets all workers end; gives the job's exit code."""
        (self.folder / "stop").touch()
        return self.process.wait(timeout=120)

    def end(self):
        """Ends it by force, if it has not ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=60)
        self.log.close()

    def faults(self):
        """What went wrong with the counters, as sentences: none, when every update that a worker
        was told of is there once, as far as its parameter server lived."""
        return [fault for worker in range(self.workers) for fault in self._faults_of(worker)]

    def _faults_of(self, worker):
        told = self.told(worker)
        for before, after in itertools.pairwise(told):
            # A step may have ended before a kill, and been written down after it.
            between = [task for when, task in self.kills if before.when - 1 < when < after.when]
            for ps, (had, has) in enumerate(zip(before.counts, after.counts, strict=True)):
                # A step that was under way when the worker was killed may be applied, or not.
                most = had + 1 + between.count(f"worker{worker}")
                if has > most:
                    yield f"worker {worker}, ps {ps}: {had} became {has}, expected {most} at most"
                elif has <= had and f"ps{ps}" not in between:
                    yield f"worker {worker}, ps {ps}: {had} became {has}, an update was lost"


class JobOnHosts(TrainingJob):
    """The same on the hosts of a NetworkLab, one for each task, by gRPC between them. Nobody starts
    a task again."""

    PORT = 2222

    @staticmethod
    def hosts(workers=3, ps=2):
        """The names that the lab's hosts must have."""
        return [f"ps{i}" for i in range(ps)] + [f"worker{i}" for i in range(workers)]

    def __init__(self, lab, folder, **options):
        self._lab = lab
        super().__init__(folder, **options)

    def _start(self, program, environment):
        token = self.folder / "token"
        token.write_text("of-the-job")
        environment = {
            **environment, "MILLRACE_CLUSTER_PLAIN_TEXT": "1",
            "MILLRACE_CLUSTER_TOKEN_FILE": str(token),
        }  # fmt: skip
        cluster = {
            job: [f"{self._lab.address(f'{job}{i}')}:{self.PORT}" for i in range(number)]
            for job, number in (("ps", self.ps), ("worker", self.workers))
        }
        self.processes = {}
        for task in self.tasks:
            job = task.rstrip("0123456789")
            place = {"type": job, "index": int(task.removeprefix(job))}
            config = json.dumps({"cluster": cluster, "task": place})
            with open(self.folder / f"{task}.err", "w") as errors:
                self.processes[task] = subprocess.Popen(
                    self._lab.command(task, sys.executable, *program),
                    stdout=self.log, stderr=errors, env={**environment, "TF_CONFIG": config},
                )  # fmt: skip

    def has_ended(self):
        return any(process.poll() is not None for process in self.processes.values())

    def said(self, task):
        """What a task printed on stderr."""
        return (self.folder / f"{task}.err").read_text()

    def text(self):
        return "".join(f"== {task}\n{self.said(task)}" for task in self.tasks)

    def stop(self):
        """Lets all workers end; gives the largest of their exit codes."""
        (self.folder / "stop").touch()
        workers = [self.processes[task] for task in self.tasks if task.startswith("worker")]
        return max(process.wait(timeout=120) for process in workers)

    def end(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.log.close()
