"""Tasks of a synchronous training are killed: the model ends as if they had not been."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

PROGRAM = """
import os, sys, time
import numpy as np
import millrace.compat.v1 as tf
from millrace.distributed import cluster_from_environment

folder, steps = sys.argv[1], int(sys.argv[2])
task = cluster_from_environment()
with open(os.path.join(folder, f"{task.job}{task.index}.pid"), "w") as file:
    file.write(str(os.getpid()))
server = tf.train.Server(task.cluster, task.job, task.index)
if task.job == "ps":
    server.join()
own = f"/job:worker/task:{task.index}"
with tf.device(tf.train.replica_device_setter(cluster=task.cluster, worker_device=own)):
    step = tf.train.get_or_create_global_step()
    a = tf.get_variable("a", [4], initializer=tf.ones_initializer())
    b = tf.get_variable("b", [4], initializer=tf.ones_initializer())
    data = tf.cast(step, tf.float32) * 0.01 + 0.3 * task.index
    loss = tf.reduce_sum(tf.square(a * b - tf.sin(data + tf.range(4.0))))
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.AdamOptimizer(0.01), 2)
    train = optimizer.minimize(loss, global_step=step)


class Note(tf.train.SessionRunHook):
    def before_run(self, run_context):
        return tf.train.SessionRunArgs(step)

    def after_run(self, run_context, run_values):
        with open(os.path.join(folder, f"{task.index}.new"), "w") as file:
            file.write(str(run_values.results))
        os.rename(os.path.join(folder, f"{task.index}.new"),
                  os.path.join(folder, f"{task.index}.step"))

    def end(self, session):
        if task.is_chief:
            values = {v.op.name: v for v in tf.global_variables()}
            np.savez(os.path.join(folder, "model.npz"), **session.run(values))


hooks = [optimizer.make_session_run_hook(task.is_chief, num_tokens=0),
         tf.train.StopAtStepHook(last_step=steps), Note()]
with tf.train.MonitoredTrainingSession(
    server.target, is_chief=task.is_chief, checkpoint_dir=os.path.join(folder, "checkpoints"),
    save_checkpoint_steps=10, save_summaries_steps=None, log_step_count_steps=None, hooks=hooks,
) as session:
    while not session.should_stop():
        session.run(train)
        time.sleep(0.02 * task.index)  # so that the chief often waits for the other
"""

STEPS = 120


def train(folder, victims=(), chosen=None):
    """The model after all steps, where the tasks `victims` are killed one after another."""
    folder.mkdir()
    script = folder / "program.py"
    script.write_text(PROGRAM)
    log = folder / "log"
    with open(log, "w") as out:
        job = subprocess.Popen(
            [sys.executable, "-m", "millrace", "launch", "-n", "2", "--ps", "2",
             "--restart", "100", str(script), str(folder), str(STEPS)], stdout=out, stderr=out,
        )  # fmt: skip
    try:
        end = time.monotonic() + 150

        def wait(condition, what):
            while not condition():
                assert job.poll() is None, (what, log.read_text())
                assert time.monotonic() < end, (what, log.read_text())
                time.sleep(0.005)

        def step():
            path = folder / "0.step"
            return int(path.read_text()) if path.exists() else 0

        for victim in victims:
            begun = step()
            # Between two checkpoints, and anywhere in a step.
            wait(lambda begun=begun: step() > begun + 12 or step() > STEPS - 20, "steps")
            time.sleep(chosen.uniform(0, 0.02))
            os.kill(int((folder / f"{victim}.pid").read_text()), signal.SIGKILL)
            (folder / "0.step").unlink()
            wait(lambda: (folder / "0.step").exists(), f"a step after {victim} was killed")
        assert job.wait(max(1.0, end - time.monotonic())) == 0, log.read_text()
    finally:
        job.terminate()  # and its tasks; nothing where it has ended
        job.wait()
    with np.load(folder / "model.npz") as model:
        return {name: model[name] for name in model}


@pytest.mark.parametrize("victims", [["worker0", "worker1", "worker0"], ["ps1", "worker0", "ps0"]])
def test_the_model_is_the_undisturbed_one(tmp_path, victims):
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    undisturbed = train(tmp_path / "undisturbed")
    killed = train(tmp_path / "killed", victims, random.Random(seed))
    assert undisturbed["global_step"] == STEPS
    assert {"a", "a/Adam", "b", "b/Adam_1", "beta1_power"} <= undisturbed.keys()
    for name, value in undisturbed.items():
        np.testing.assert_array_equal(killed[name], value, err_msg=name)
