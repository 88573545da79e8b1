"""Estimators in a cluster that TF_CONFIG names."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from tensorflow_twin import needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf
from millrace.estimator.cluster_settings import device_fn_of

CLUSTER = {"chief": ["h0:1"], "ps": ["h1:1", "h2:1"], "worker": ["h3:1", "h4:1", "h5:1"]}
OLD = {"master": ["h0:1"], "ps": ["h1:1"], "worker": ["h3:1"]}


def config(cluster, job=None, index=None, **more):
    task = {} if job is None else {"task": {"type": job, "index": index}}
    return json.dumps({"cluster": cluster, **task, **more})


CONFIGS = [
    "{}",
    '{"session_master": "grpc://a:1", "eval_session_master": "grpc://b:1", "model_dir": "m"}',
    config(CLUSTER, "chief", 0),
    config(CLUSTER, "worker", 1),
    config(CLUSTER, "worker", 2, service={"a": 1}),
    config(CLUSTER, "ps", 1),
    config(CLUSTER, "evaluator", 0, eval_session_master="grpc://b:1"),
    config({**CLUSTER, "evaluator": ["h6:1"]}, "worker", 0),
    config({**CLUSTER, "evaluator": ["h6:1"]}, "evaluator", 3),
    config(CLUSTER, "chief", "0", session_master="grpc://elsewhere:1", model_dir="folder"),
    config({"chief": ["h0:1"]}, "chief", 0),
    config({"chief": ["h0:1"], "worker": ["h1:1"]}, "worker", 0),
    config(OLD, "master", 0, eval_session_master="grpc://b:1"),
    config(OLD, "worker", 0),
    # None of these can be.
    config(CLUSTER),
    config(CLUSTER, "chief", 1),
    config(CLUSTER, "worker", -1),
    config(CLUSTER, "nobody", 0),
    config({"worker": ["h0:1"]}, "worker", 0),
    config({"chief": ["h0:1", "h1:1"]}, "chief", 0),
    config({**OLD, "chief": ["h6:1"]}, "master", 0),
    config(OLD, "evaluator", 0),
    '{"task": {"type": "ps", "index": 0}}',
    '{"task": {"type": "worker", "index": 1}}',
    '{"service": 1}',
    '{"model_dir": ""}',
]
NAMES = [
    "task_type", "task_id", "master", "evaluation_master", "is_chief", "num_ps_replicas",
    "num_worker_replicas", "global_id_in_cluster", "service", "model_dir", "protocol",
    "session_creation_timeout_secs", "experimental_max_worker_delay_secs", "train_distribute",
    "eval_distribute",
]  # fmt: skip
# Both libraries run this: what a RunConfig says, or what kind of error there is.
DESCRIBE = f"""
import os
def describe(tf, text):
    os.environ["TF_CONFIG"] = text
    try:
        config = tf.estimator.RunConfig()
    except (ValueError, TypeError) as error:
        return type(error).__name__
    session = config.session_config
    return {{
        **{{name: getattr(config, name) for name in {NAMES!r}}},
        "cluster_spec": config.cluster_spec.as_dict(),
        "session_config": None if session is None else session.SerializeToString(
            deterministic=True).hex(),
    }}
"""


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "")


def described(text):
    space = {}
    exec(DESCRIBE, space)
    return json.loads(json.dumps(space["describe"](tf, text)))


@needs_tensorflow
def test_the_settings_are_those_of_tensorflow():
    program = DESCRIBE + textwrap.dedent(f"""
        import json, sys
        import tensorflow.compat.v1 as tf
        print(json.dumps([describe(tf, text) for text in {CONFIGS!r}]))
    """)
    theirs = json.loads(run_tensorflow(program).splitlines()[-1])
    for text, expected in zip(CONFIGS, theirs, strict=True):
        assert described(text) == expected, text


def test_settings_of_a_worker():
    found = described(config(CLUSTER, "worker", 1))
    assert found["master"] == "grpc://h4:1" and found["cluster_spec"] == CLUSTER
    assert (found["num_ps_replicas"], found["num_worker_replicas"]) == (2, 4)
    assert (found["global_id_in_cluster"], found["is_chief"]) == (2, False)
    seen = tf.ConfigProto.FromString(bytes.fromhex(found["session_config"]))
    assert list(seen.device_filters) == ["/job:ps", "/job:worker/task:1"]
    assert seen.allow_soft_placement


def test_where_variables_go(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config(CLUSTER, "worker", 1))
    with tf.Graph().as_default(), tf.device(device_fn_of(tf.estimator.RunConfig())):
        made = [tf.get_variable(name, []) for name in "abc"]
        total = made[0] + made[1]
    assert [v.device for v in made] == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0"]
    assert total.device == "/job:worker/task:1"
    own = tf.estimator.RunConfig(device_fn=lambda op: "/cpu:0")
    assert device_fn_of(own) is own.device_fn


def test_wrong_settings(monkeypatch):
    for text, said in (
        ("[", "expected JSON"),
        (config({"worker": ["h0:1"]}, "worker", 0), 'must have one "chief" node.*--chief'),
        (config(CLUSTER, "chief", 1), "1 is not a valid task_id for task_type chief"),
        ('{"session_master": 3}', "session_master: expected the target of a session, got 3"),
        ('{"model_dir": 3}', "model_dir: expected a path, got 3"),
    ):
        monkeypatch.setenv("TF_CONFIG", text)
        with pytest.raises(ValueError, match=said):
            tf.estimator.RunConfig()
    monkeypatch.setenv("TF_CONFIG", '{"model_dir": "a"}')
    with pytest.raises(ValueError, match="same value as the model_dir in TF_CONFIG"):
        tf.estimator.RunConfig(model_dir="b")
    with pytest.raises(ValueError, match="must be an integer"):
        tf.estimator.RunConfig(experimental_max_worker_delay_secs=0.5)
    with pytest.raises(ValueError, match="grpc"):
        tf.estimator.RunConfig(protocol="udp")
    with pytest.raises(tf.errors.UnimplementedError):
        tf.estimator.RunConfig(protocol="grpc+verbs")


def test_a_second_evaluator_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CONFIG", config(CLUSTER, "evaluator", 1))
    estimator = tf.estimator.Estimator(lambda features: None, str(tmp_path))
    spec = tf.estimator.TrainSpec(lambda: None), tf.estimator.EvalSpec(lambda: None)
    with pytest.raises(ValueError, match="only be one `evaluator`"):
        tf.estimator.train_and_evaluate(estimator, *spec)


PROGRAM = """
    import json, os, sys
    import numpy as np
    import tensorflow as tf

    def input_fn():
        x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(-1, 1)
        data = tf.data.Dataset.from_tensor_slices(({"x": x}, 3 * x + 1))
        return data.shuffle(64, seed=1).repeat().batch(16)

    def model_fn(features, labels, mode):
        w = tf.get_variable("w", [1, 1], initializer=tf.zeros_initializer())
        b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
        loss = tf.losses.mean_squared_error(labels, tf.matmul(features["x"], w) + b)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
        if mode == tf.estimator.ModeKeys.TRAIN:
            print("on", w.device, b.device, loss.device)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    config = tf.estimator.RunConfig(sys.argv[1], tf_random_seed=1, save_checkpoints_steps=50)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    train = tf.estimator.TrainSpec(input_fn, max_steps=300)
    evaluate = tf.estimator.EvalSpec(input_fn, steps=4, start_delay_secs=0, throttle_secs=0)
    said = tf.estimator.train_and_evaluate(estimator, train, evaluate)
    print("ended", said, estimator.config.task_type, end="")
    if estimator.config.task_type != "worker":  # which may end before the first checkpoint
        print("", *(f"{estimator.get_variable_value(name).item():.1f}" for name in "wb"), end="")
    print()
"""


@pytest.mark.parametrize("job", ["chief", "master"])
def test_tasks_train_and_evaluate_together(tmp_path, job):
    script, folder = tmp_path / "program.py", tmp_path / "model"
    # The older job has the same place; a cluster of it has no evaluator.
    rename = (
        f"import os; os.environ['TF_CONFIG'] = os.getenv('TF_CONFIG').replace('chief', '{job}')"
    )
    script.write_text(rename + textwrap.dedent(PROGRAM))
    evaluator = ["--evaluator"] if job == "chief" else []
    done = subprocess.run(
        [sys.executable, "-m", "millrace", "launch", "-n", "1", "--ps", "1", "--chief", *evaluator,
         str(script), str(folder)],
        capture_output=True, text=True, timeout=300, env={**os.environ, "TF_CONFIG": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line.split(" | ")[0].strip(): [] for line in done.stdout.splitlines()}
    for line in done.stdout.splitlines():
        name, _, text = line.partition(" | ")
        lines[name.strip()].append(text)
    ps = "/job:ps/task:0"
    assert lines["chief 0"] == [f"on {ps} {ps} /job:{job}/task:0", f"ended None {job} 3.0 1.0"]
    assert lines["worker 0"] == [f"on {ps} {ps} /job:worker/task:0", "ended None worker"]
    if evaluator:
        assert lines["evaluator 0"] == ["ended None evaluator 3.0 1.0"]
    assert int(tf.train.load_variable(str(folder), "global_step")) >= 300
    assert any(name.startswith("events") for name in os.listdir(folder / "eval"))
