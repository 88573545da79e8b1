"""TensorFlow's own client against a Millrace server."""

import json
import subprocess
import sys

import pytest
from ports import free_ports
from tensorflow_twin import needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf
from millrace import _core

pytestmark = [
    needs_tensorflow,
    pytest.mark.skipif(not _core.grpc_available(), reason="built without gRPC"),
]


@pytest.fixture(scope="module")
def target():
    return tf.train.Server.create_local_server().target


def run_client(target, program):
    """What the program, in which `target` is the server's, says as JSON with say(...)."""
    head = (
        "import json, sys\n"
        "import numpy as np\n"
        "import tensorflow.compat.v1 as tf\n"
        "tf.disable_v2_behavior()\n"
        f"target = {target!r}\n"
        "def say(value): print('SAID', json.dumps(value), flush=True)\n"
    )
    output = run_tensorflow(head + program)
    return [json.loads(line[5:]) for line in output.splitlines() if line.startswith("SAID ")]


def test_runs_graphs_that_grow(target):
    said = run_client(
        target,
        """
x = tf.placeholder(tf.float32, [None], name="x")
y = x * 2 + 1
with tf.Session(target) as session:
    say(session.run(y, {x: [1, 2, 3]}).tolist())
    z = tf.reduce_sum(y)
    say(float(session.run(z, {x: [1, 2, 3]})))
    say([v.tolist() for v in session.run([y, x], {x: [5]})])
    say(session.run(tf.constant([b"a", b"\\xff\\x00"])).tolist().__len__())
    say([d.name for d in session.list_devices()])
    try:
        session.run(tf.strings.to_number("abc"))
    except tf.errors.InvalidArgumentError as error:
        say("abc" in error.message)
    try:
        session.run(y)
    except tf.errors.InvalidArgumentError as error:
        say("x" in error.message)
""",
    )
    assert said[:4] == [[3, 5, 7], 15, [[11], [5]], 2]
    assert any("CPU:0" in name for name in said[4])
    assert said[5:] == [True, True]


def test_trains_with_state_that_outlives_the_client(target):
    program = """
w = tf.get_variable("w_outlives", initializer=5.0, use_resource={resource})
loss = tf.square(w - 1)
train = tf.train.GradientDescentOptimizer(0.25).minimize(loss)
with tf.Session(target) as session:
    if {first}: session.run(tf.global_variables_initializer())
    for _ in range(3): session.run(train)
    say(float(session.run(w)))
"""
    for resource in (True, False):
        first = run_client(target, program.format(resource=resource, first=True))
        then = run_client(target, program.format(resource=resource, first=False))
        assert first == [1.5] and then == [1.0625]
        run_client(target, "tf.Session.reset(target)")
        with pytest.raises(AssertionError, match="FailedPrecondition|uninitialized|Container"):
            run_client(target, program.format(resource=resource, first=False))


def test_loops_queues_and_waiting(target):
    said = run_client(
        target,
        """
import threading
i, total = tf.while_loop(lambda i, t: i < 10, lambda i, t: (i + 1, t + i), [0, 0])
queue = tf.FIFOQueue(10, tf.int32, shared_name="queue_of_this_test")
put, get = queue.enqueue([total]), queue.dequeue()
with tf.Session(target) as session:
    say(int(session.run(total)))
    got = []
    waiter = threading.Thread(target=lambda: got.append(int(session.run(get))))
    waiter.start()
    with tf.Session(target, graph=tf.get_default_graph()) as other: other.run(put)
    waiter.join(30)
    say(got)
    try:
        session.run(get, options=tf.RunOptions(timeout_in_ms=200))
    except tf.errors.DeadlineExceededError:
        say("deadline")
    session.run(queue.close())
    try:
        session.run(get)
    except tf.errors.OutOfRangeError:
        say("closed")
""",
    )
    assert said == [45, [45], "deadline", "closed"]


def test_functional_loops_and_callables(target):
    said = run_client(
        target,
        """
tf.enable_control_flow_v2()
x = tf.placeholder(tf.float32)
_, y = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * v), [0, x])
g = tf.gradients(y, x)[0]
branch = tf.cond(x > 1, lambda: x + 100, lambda: x - 100)
with tf.Session(target) as session:
    say([float(v) for v in session.run([y, g, branch], {x: 1.5})])
    call = session.make_callable(branch, [x])
    say([float(call(v)) for v in (0.5, 2.5)])
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    metadata = tf.RunMetadata()
    session.run(y, {x: 2.0}, options=options, run_metadata=metadata)
    say(sum(len(d.node_stats) for d in metadata.step_stats.dev_stats) > 0)
""",
    )
    assert said[0] == pytest.approx([1.5**8, 8 * 1.5**7, 101.5])
    assert said[1:] == [[-99.5, 102.5], True]


def test_runs_in_pieces(target):
    said = run_client(
        target,
        """
a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
first, second = a + 1, a * b
with tf.Session(target) as session:
    handle = session.partial_run_setup([first, second], [a, b])
    say(float(session.partial_run(handle, first, {a: 3.0})))
    say(float(session.partial_run(handle, second, {b: 4.0})))
""",
    )
    assert said == [4, 12]


def test_runs_in_pieces_over_two_tasks():
    first = free_ports(2)
    addresses = [f"localhost:{first + i}" for i in range(2)]
    program = (
        "import millrace.compat.v1 as tf\n"
        f"tf.train.Server({{'worker': {addresses!r}}}, 'worker', %d).join()\n"
    )
    servers = [subprocess.Popen([sys.executable, "-c", program % index]) for index in range(2)]
    try:
        said = run_client(
            "grpc://" + addresses[0],
            """
a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
with tf.device("/job:worker/task:1"):
    first = a + 1
with tf.device("/job:worker/task:0"):
    second = first * b
with tf.Session(target) as session:
    handle = session.partial_run_setup([first, second], [a, b])
    say(float(session.partial_run(handle, first, {a: 3.0})))
    say(float(session.partial_run(handle, second, {b: 4.0})))
""",
        )
    finally:
        for server in servers:
            server.kill()
            server.wait()
    assert said == [4, 16]


def test_a_network_of_keras_trains(target):
    said = run_client(
        target,
        """
keras = tf.keras
rng = np.random.default_rng(1)
data = rng.normal(size=(64, 8)).astype("float32")
labels = (data.sum(1) > 0).astype("int32")
with tf.Session(target) as session:
    keras.backend.set_session(session)
    model = keras.Sequential([keras.layers.Dense(16, activation="relu", input_shape=(8,)),
                              keras.layers.Dense(2, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(data, labels, epochs=30, batch_size=16, verbose=0)
    losses = history.history["loss"]
    say([losses[0], losses[-1]])
""",
    )
    before, after = said[0]
    assert after < 0.7 * before
