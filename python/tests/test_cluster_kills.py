"""Tasks of a training job are killed: it goes on by itself, and no update is lost or made twice."""

import os
import random
import re
import statistics
import time

import pytest
from training_job import TrainingJob

# The suite kills a few tasks, one of each kind at least.
KILLS = int(os.environ.get("MILLRACE_CLUSTER_KILLS", "4"))
# Beyond what the machine needs to start a process: two seconds for a worker, ten for a parameter
# server with what it has to restore. A suite that shares its cores with others is given more.
LIMITS = {"chief": 2.0, "worker": 2.0, "ps": 10.0}
PATIENCE = 1.0 if "MILLRACE_CLUSTER_KILLS" in os.environ else 10.0


def kind(task):
    return "chief" if task == "worker0" else task.rstrip("0123456789")


@pytest.fixture
def job(tmp_path):
    job = TrainingJob(tmp_path)
    yield job
    job.end()


def test_tasks_that_are_killed_come_back(job):
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}, {KILLS} kills")
    chosen = random.Random(seed)
    victims = ["worker0", "ps0", "worker1"][:KILLS]
    victims += [chosen.choice(job.tasks) for _ in range(KILLS - len(victims))]
    chosen.shuffle(victims)
    job.all_step()
    times = {}
    for task in victims:
        time.sleep(chosen.uniform(0, 0.5))  # anywhere between two checkpoints
        times.setdefault(kind(task), []).append(job.kill(task))
        job.all_step()
    assert job.stop() == 0, job.text()
    print("kind    kills  median s  longest s")
    for name, seconds in sorted(times.items()):
        median, longest = statistics.median(seconds), max(seconds)
        print(f"{name:<7} {len(seconds):5}  {median:8.2f}  {longest:9.2f}")
    assert job.faults() == []
    late = {name: seconds for name, seconds in times.items()
            if max(seconds) > LIMITS[name] * PATIENCE}  # fmt: skip
    assert not late, late
    if "ps" in times:  # who waits says so, and who restores says what
        text = job.text()
        assert re.search(r"worker \d +\| .*The session is made anew, for: .*/job:ps/", text), text
        assert re.search(r"worker 0 +\| .* variables were lost with their tasks: ", text), text


def test_a_parameter_server_and_the_chief_at_once(job):
    job.all_step()
    before = {task: job.kill_only(task)[0] for task in ("ps1", "worker0")}
    for task, pid in before.items():
        job.wait(lambda task=task, pid=pid: job.pid(task) != pid, f"a new {task}")
    job.all_step()
    assert job.stop() == 0
    assert job.faults() == []
