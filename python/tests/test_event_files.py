"""Event files of a job on several tasks: the chief writes them, and nobody else."""

import os
import subprocess
import sys
import textwrap

import millrace.compat.v1 as tf

# Every task has folders of its own, so that each says who wrote there.
LOOPS = """
    import json, os, sys
    import tensorflow as tf
    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(config["cluster"], job, index)
    if job == "ps":
        server.join()

    # Who is done first is not waited for.
    seen = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])

    def build(name):
        with tf.device(tf.train.replica_device_setter(cluster=config["cluster"])):
            step = tf.get_variable(
                name, [], tf.int64, tf.zeros_initializer(), trainable=False,
                collections=[tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.GLOBAL_STEP])
            height = tf.summary.scalar("height", tf.cast(step, tf.float32))
            return step, tf.assign_add(step, 1, use_locking=True), height

    def folder(kind):
        return os.path.join(sys.argv[1], f"{kind}_{job}_{index}")

    with tf.Graph().as_default():
        _, more, _ = build("first")
        with tf.train.MonitoredTrainingSession(
            server.target, is_chief=index == 0, checkpoint_dir=folder("monitored"),
            config=seen, save_summaries_steps=1, log_step_count_steps=1,
            hooks=[tf.train.StopAtStepHook(last_step=20)],
        ) as session:
            while not session.should_stop():
                session.run(more)
    with tf.Graph().as_default():
        step, more, height = build("second")
        supervisor = tf.train.Supervisor(
            is_chief=index == 0, logdir=folder("supervisor"), save_summaries_secs=1,
            global_step=step)
        with supervisor.managed_session(server.target, config=seen) as session:
            while session.run(more) < 20:
                pass
            if index == 0:
                supervisor.summary_computed(session, session.run(height))
"""

ESTIMATOR = """
    import os, sys
    import tensorflow as tf

    def input_fn():
        return tf.data.Dataset.from_tensors(({"x": [[1.0]]}, [[2.0]])).repeat()

    def model_fn(features, labels, mode):
        w = tf.get_variable("w", [1, 1], initializer=tf.zeros_initializer())
        loss = tf.losses.mean_squared_error(labels, tf.matmul(features["x"], w))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    config = tf.estimator.RunConfig(save_summary_steps=1, log_step_count_steps=1)
    folder = os.path.join(sys.argv[1], f"estimator_{config.task_type}_{config.task_id}")
    estimator = tf.estimator.Estimator(model_fn, folder, config)
    train = tf.estimator.TrainSpec(input_fn, max_steps=30)
    tf.estimator.train_and_evaluate(estimator, train, tf.estimator.EvalSpec(input_fn, steps=1))
"""


def launch(tmp_path, program, *options):
    """Runs it; gives the folders that have event files, and checks that these have values."""
    script, folder = tmp_path / "program.py", tmp_path / "out"
    script.write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, "-m", "millrace", "launch", *options, str(script), str(folder)],
        capture_output=True, text=True, timeout=300, env={**os.environ, "TF_CONFIG": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted(folder.glob("**/events*"))
    for path in {file.parent: file for file in files}.values():
        values = [v.tag for e in tf.train.summary_iterator(str(path)) for v in e.summary.value]
        assert values, path
    return {file.parent.name for file in files}


def test_training_loops(tmp_path):
    found = launch(tmp_path, LOOPS, "-n", "2", "--ps", "1")
    assert found == {"monitored_worker_0", "supervisor_worker_0"}


def test_estimators(tmp_path):
    found = launch(tmp_path, ESTIMATOR, "--chief", "-n", "1", "--ps", "1")
    assert found == {"estimator_chief_0"}
