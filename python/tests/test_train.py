"""Optimisers, schedules, averages, hooks and sessions of training."""

import json
import math
import threading

import numpy as np
import pytest

import millrace.compat.v1 as tf

START = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]) / 4
GRAD = np.array([[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]])
# The same index twice: rows 0 and 2 of GRAD belong to row 0.
INDICES = np.array([0, 2, 0])


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


def sgd(w, g, s, t):
    w -= 0.3 * g


def momentum(w, g, s, t):
    s["m"] = 0.9 * s.get("m", 0) + g
    w -= 0.3 * s["m"]


def nesterov(w, g, s, t):
    s["m"] = 0.9 * s.get("m", 0) + g
    w -= 0.3 * g + 0.3 * 0.9 * s["m"]


def adagrad(w, g, s, t):
    s["a"] = s.get("a", 0.1) + g * g
    w -= 0.3 * g / np.sqrt(s["a"])


def adadelta(w, g, s, t):
    s["a"] = 0.95 * s.get("a", 0) + 0.05 * g * g
    step = np.sqrt(s.get("u", 0) + 1e-3) / np.sqrt(s["a"] + 1e-3) * g
    s["u"] = 0.95 * s.get("u", 0) + 0.05 * step * step
    w -= 0.3 * step


def adam(w, g, s, t):
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    w -= 0.3 * math.sqrt(1 - 0.999**t) / (1 - 0.9**t) * s["m"] / (np.sqrt(s["v"]) + 1e-8)


def rmsprop(w, g, s, t):
    s["r"] = 0.9 * s.get("r", 1.0) + 0.1 * g * g
    s["m"] = 0.5 * s.get("m", 0) + 0.03 * g / np.sqrt(s["r"] + 1e-10)
    w -= s["m"]


def centered(w, g, s, t):
    s["r"] = 0.9 * s.get("r", 1.0) + 0.1 * g * g
    s["g"] = 0.9 * s.get("g", 0) + 0.1 * g
    s["m"] = 0.5 * s.get("m", 0) + 0.03 * g / np.sqrt(s["r"] - s["g"] ** 2 + 1e-2)
    w -= s["m"]


def ftrl(w, g, s, t):
    before = s.get("n", 0.1)
    s["n"] = before + g * g
    s["z"] = s.get("z", 0) + g - (np.sqrt(s["n"]) - np.sqrt(before)) / 0.3 * w
    small = np.abs(s["z"]) <= 0.01
    w[...] = (np.sign(s["z"]) * 0.01 - s["z"]) / (np.sqrt(s["n"]) / 0.3 + 2 * 0.02)
    w[small] = 0


def shrunk(w, g):
    """A proximal step: rate 0.3, l1 0.01, l2 0.02 of a gradient, with a rate for each element."""
    return np.sign(w) * np.maximum(np.abs(w) - g * 0.01, 0) / (1 + 0.02 * g)


def proximal(w, g, s, t):
    w[...] = shrunk(w - 0.3 * g, 0.3)


# What makes the optimiser, its twin, the names of its slots, and whether rows without a gradient
# move (their twin then sees a gradient of zero).
OPTIMIZERS = {
    "sgd": (lambda: tf.train.GradientDescentOptimizer(0.3), sgd, [], False),
    "momentum": (lambda: tf.train.MomentumOptimizer(0.3, 0.9), momentum, ["momentum"], False),
    "nesterov": (
        lambda: tf.train.MomentumOptimizer(0.3, 0.9, use_nesterov=True),
        nesterov,
        ["momentum"],
        False,
    ),
    "adagrad": (lambda: tf.train.AdagradOptimizer(0.3), adagrad, ["accumulator"], False),
    "adadelta": (
        lambda: tf.train.AdadeltaOptimizer(0.3, epsilon=1e-3),
        adadelta,
        ["accum", "accum_update"],
        False,
    ),
    "adam": (lambda: tf.train.AdamOptimizer(0.3), adam, ["m", "v"], True),
    "rmsprop": (
        lambda: tf.train.RMSPropOptimizer(0.03, momentum=0.5),
        rmsprop,
        ["momentum", "rms"],
        False,
    ),
    "centered": (
        lambda: tf.train.RMSPropOptimizer(0.03, momentum=0.5, epsilon=1e-2, centered=True),
        centered,
        ["mg", "momentum", "rms"],
        False,
    ),
    "ftrl": (
        lambda: tf.train.FtrlOptimizer(
            0.3, l1_regularization_strength=0.01, l2_regularization_strength=0.02
        ),
        ftrl,
        ["accum", "linear"],
        False,
    ),
    "proximal": (
        lambda: tf.train.ProximalGradientDescentOptimizer(0.3, 0.01, 0.02),
        proximal,
        [],
        False,
    ),
}


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizer(kind, sparse, dtype, resource):
    make, twin, slots, moves_all = OPTIMIZERS[kind]
    w = tf.Variable(START, dtype=dtype, name="w", use_resource=resource)
    gradient = tf.constant(GRAD, dtype)
    dense = GRAD
    if sparse:
        gradient = tf.IndexedSlices(gradient, tf.constant(INDICES))
        dense = np.zeros_like(GRAD)
        np.add.at(dense, INDICES, GRAD)
    optimizer = make()
    step = optimizer.apply_gradients([(gradient, w)])
    assert optimizer.get_slot_names() == slots
    assert all(v.dtype.base_dtype is dtype for v in optimizer.variables() if "power" not in v.name)
    expected, state = START.copy(), {}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for t in range(1, 4):
            sess.run(step)
            moved = expected.copy()
            twin(moved, dense, state, t)
            if sparse and not moves_all:
                moved[1] = expected[1]
                for name, value in state.items():
                    first = {"a": 0.1, "n": 0.1, "r": 1.0}.get(name, 0.0)
                    value[1] = 0.0 if kind == "adadelta" else first
            expected = moved
        np.testing.assert_allclose(sess.run(w), expected, rtol=2e-5, atol=2e-6)


def test_names_of_slots_and_nodes():
    with tf.variable_scope("scope"):
        w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    steps = tf.train.get_or_create_global_step()
    step = tf.train.AdamOptimizer().minimize(tf.reduce_sum(w * w), global_step=steps)
    assert step.name == "Adam" and step.type == "AssignAdd"
    assert step in tf.get_collection(tf.GraphKeys.TRAIN_OP)
    names = {v.name for v in tf.global_variables()}
    assert {"scope/w/Adam:0", "scope/w/Adam_1:0", "beta1_power:0", "beta2_power:0"} <= names
    slot = tf.get_default_graph().get_operation_by_name("scope/w/Adam")
    assert slot.colocation_groups() == [b"loc:@scope/w"]


def test_a_subclass_says_how_to_update():
    class Sign(tf.train.Optimizer):
        def __init__(self):
            super().__init__(False, "Sign")

        def _apply_dense(self, grad, var):
            return var.assign_sub(0.5 * tf.sign(grad))

        def _apply_sparse(self, grad, var):
            return var.scatter_sub(tf.IndexedSlices(0.5 * tf.sign(grad.values), grad.indices))

    a = tf.Variable([1.0, -2.0])
    table = tf.Variable(np.ones([3, 1]), dtype=tf.float32)
    loss = tf.reduce_sum(a * a) + tf.reduce_sum(tf.gather(table, [0, 0]))
    step = Sign().minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(step)
        np.testing.assert_allclose(sess.run(a), [0.5, -1.5])
        np.testing.assert_allclose(sess.run(table), [[0.5], [1.0], [1.0]])


def test_adam_of_a_subclass_finds_its_tensors():
    class Lazy(tf.train.AdamOptimizer):
        def _apply_dense(self, grad, var):
            first, second = self._get_beta_accumulators()
            assert first.op.name == "beta1_power" and second.op.name == "beta2_power"
            return var.assign_sub(self._lr_t * self._beta1_t * grad)

    w = tf.Variable(1.0)
    step = Lazy(0.5).minimize(w * 1.0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(step)
        assert sess.run(w) == pytest.approx(1 - 0.45)


def test_mistakes_of_optimizers():
    w = tf.Variable(1.0)
    with pytest.raises(ValueError, match="No gradients provided"):
        tf.train.GradientDescentOptimizer(1.0).minimize(tf.constant(1.0), var_list=[w])
    with pytest.raises(ValueError, match="No variables"):
        tf.train.GradientDescentOptimizer(1.0).apply_gradients([])
    with pytest.raises(ValueError, match="int32"):
        tf.train.GradientDescentOptimizer(1.0).minimize(tf.constant(1))
    with pytest.raises(TypeError, match=r"not a tf\.Variable"):
        tf.train.GradientDescentOptimizer(1.0).minimize(w * 2, var_list=["w"])


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (lambda s: tf.train.exponential_decay(0.5, s, 4, 0.9), 0.5 * 0.9**1.75),
        (lambda s: tf.train.exponential_decay(0.5, s, 4, 0.9, staircase=True), 0.5 * 0.9),
        (lambda s: tf.train.natural_exp_decay(0.5, s, 4, 0.9), 0.5 * math.exp(-0.9 * 1.75)),
        (lambda s: tf.train.inverse_time_decay(0.5, s, 4, 0.9), 0.5 / (1 + 0.9 * 1.75)),
        (lambda s: tf.train.polynomial_decay(0.5, s, 10, 0.1), 0.5 - 0.4 * 0.7),
        (lambda s: tf.train.polynomial_decay(0.5, s, 4, 0.1, cycle=True), 0.1 + 0.4 / 8),
        (lambda s: tf.train.piecewise_constant(s, [3, 7], [1.0, 2.0, 3.0]), 2.0),
        (lambda s: tf.train.piecewise_constant(s, [3, 6], [1.0, 2.0, 3.0]), 3.0),
        (lambda s: tf.train.cosine_decay(0.5, s, 14), 0.25),
        (lambda s: tf.train.cosine_decay_restarts(0.5, s, 3), 0.125),
        (lambda s: tf.train.linear_cosine_decay(0.5, s, 14), 0.5 * (0.5 * 0.5 + 0.001)),
    ],
)  # fmt: skip
def test_schedules(schedule, expected):
    rate = schedule(tf.Variable(7, dtype=tf.int64))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(rate) == pytest.approx(expected, rel=1e-5)


def test_moving_averages():
    w = tf.Variable(10.0, name="w")
    t = tf.constant(4.0, name="t")
    average = tf.train.ExponentialMovingAverage(0.9, zero_debias=True)
    update = average.apply([w, t])
    assert average.average_name(w) == average.average(w).op.name == "w/ExponentialMovingAverage"
    assert set(average.variables_to_restore()) >= {"w/ExponentialMovingAverage"}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(w.assign(20.0))
        sess.run(update)
        assert sess.run(average.average(w)) == pytest.approx(11.0)
        assert sess.run(average.average(t)) == pytest.approx(4.0)  # not 0.4


def test_monitored_session_stops_logs_and_closes(monkeypatch):
    logged = []
    monkeypatch.setattr(
        "millrace.core.logging.info", lambda m, *a: logged.append(m % a if a else m)
    )
    steps = tf.train.get_or_create_global_step()
    train = tf.assign_add(steps, 1)
    loss = tf.identity(tf.cast(train, tf.float32), name="loss")
    final = tf.train.FinalOpsHook(steps)
    hooks = [
        tf.train.StopAtStepHook(last_step=5),
        tf.train.LoggingTensorHook({"loss": "loss"}, every_n_iter=2),
        tf.train.NanTensorHook(loss),
        final,
    ]
    seen = []
    with tf.train.MonitoredSession(hooks=hooks) as sess:
        while not sess.should_stop():
            seen.append(int(sess.run(train)))
    assert seen == [1, 2, 3, 4, 5] and final.final_ops_values == 5
    assert [m for m in logged if m.startswith("loss = 1.0")]
    with pytest.raises(RuntimeError, match="closed"):
        sess.run(train)


def test_hooks_add_feeds_and_errors_pass():
    p = tf.placeholder(tf.float32)
    doubled = p * 2
    with tf.train.SingularMonitoredSession(hooks=[tf.train.FeedFnHook(lambda: {p: 3.0})]) as sess:
        assert sess.run(doubled) == 6
        with pytest.raises(RuntimeError, match="fed by a SessionRunHook and user"):
            sess.run(p, feed_dict={p: 1.0})
    with pytest.raises(ZeroDivisionError), tf.train.MonitoredSession():
        raise ZeroDivisionError
    with tf.train.MonitoredSession():
        raise StopIteration  # the ordinary end


def _written(logdir):
    """The events of a folder, without the version."""
    events = []
    for path in sorted(logdir.glob("events.out.tfevents.*")):
        events += [e for e in tf.train.summary_iterator(str(path)) if not e.file_version]
    return events


def _tags(events):
    return {value.tag for event in events for value in event.summary.value}


def test_watched_sessions_write_summaries(tmp_path):
    step = tf.train.get_or_create_global_step()
    tf.summary.scalar("steps", step)
    train = tf.assign_add(step, 1)
    profiler = tf.train.ProfilerHook(save_steps=2, output_dir=str(tmp_path / "profile"))
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_summaries_steps=2, log_step_count_steps=3,
        hooks=[tf.train.StopAtStepHook(last_step=6), profiler],
    ) as sess:  # fmt: skip
        while not sess.should_stop():
            sess.run(train)
    tf.summary.FileWriterCache.clear()
    events = _written(tmp_path)
    kinds = {event.WhichOneof("what") for event in events}
    assert kinds == {"graph_def", "meta_graph_def", "session_log", "summary"}
    assert _tags(events) == {"steps", "global_step/sec"}
    assert [e.step for e in events if "steps" in _tags([e])] == [1, 3, 5]
    logs = [event.session_log for event in events if event.HasField("session_log")]
    assert {log.status for log in logs} == {tf.SessionLog.START, tf.SessionLog.CHECKPOINT}
    traced = [e for e in _written(tmp_path / "profile") if e.HasField("tagged_run_metadata")]
    assert traced and traced[0].tagged_run_metadata.tag.startswith("step_")


def test_supervisor():
    w = tf.Variable(2.0)
    supervisor = tf.train.Supervisor()
    with supervisor.managed_session() as sess:
        assert sess.run(w) == 2.0
        supervisor.request_stop()
    assert supervisor.should_stop()
    with pytest.raises(ZeroDivisionError), supervisor.managed_session():
        raise ZeroDivisionError


def test_supervisor_writes_summaries(tmp_path):
    step = tf.train.get_or_create_global_step()
    tf.summary.scalar("steps", step)
    supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_summaries_secs=0)
    with supervisor.managed_session(start_standard_services=False) as sess:
        supervisor.summary_computed(sess, sess.run(supervisor.summary_op))
    events = _written(tmp_path)
    assert _tags(events) == {"steps"}
    kinds = ["graph_def", "meta_graph_def", "summary", "session_log"]
    assert [e.WhichOneof("what") for e in events] == kinds
    with supervisor.managed_session(start_standard_services=False) as sess:
        supervisor.summary_computed(sess, sess.run(supervisor.summary_op))
    assert [e.WhichOneof("what") for e in _written(tmp_path)] == 2 * kinds
    with pytest.raises(RuntimeError, match="requires a summary writer"):
        tf.train.Supervisor(logdir=str(tmp_path), summary_writer=None).summary_computed(sess, b"")


def test_session_manager_names_what_is_missing():
    tf.Variable(1.0, name="forgotten")
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
    with pytest.raises(RuntimeError, match="forgotten"):
        manager.prepare_session("", init_op=tf.no_op())


def test_clusters():
    spec = tf.train.ClusterSpec({"ps": ["a:1", "b:1"], "worker": {1: "c:1", 3: "d:1"}})
    assert spec.as_dict() == {"ps": ["a:1", "b:1"], "worker": {1: "c:1", 3: "d:1"}}
    assert spec == tf.train.ClusterSpec(spec.as_cluster_def())
    assert spec.job_tasks("worker") == [None, "c:1", None, "d:1"]
    assert spec.task_address("ps", 1) == "b:1" and spec.num_tasks("ps") == 2
    server = tf.train.Server(spec, job_name="ps", task_index=1, start=False)
    assert server.target == "grpc://b:1"
    with pytest.raises(RuntimeError, match="start"):
        server.join()
    with pytest.raises(tf.errors.DeadlineExceededError, match="b:1"):
        tf.Session("grpc://b:1", config=tf.ConfigProto(operation_timeout_in_ms=100))
    with pytest.raises(ValueError, match="No such job"):
        spec.num_tasks("chief")
    with tf.device(tf.train.replica_device_setter(cluster=spec)):
        variables = [tf.Variable(float(i)) for i in range(3)]
        total = tf.add_n(variables)
    assert [v.device for v in variables] == [f"/job:ps/task:{i}" for i in (0, 1, 0)]
    assert total.device == "/job:worker"


def test_replicas_in_one_process():
    w = tf.Variable(1.0)
    steps = tf.train.get_or_create_global_step()
    inner = tf.train.GradientDescentOptimizer(0.1)
    optimizer = tf.train.SyncReplicasOptimizer(inner, replicas_to_aggregate=1)
    train = optimizer.minimize(w * 2.0, global_step=steps)
    hook = optimizer.make_session_run_hook(is_chief=True)
    # The thread of the chief waits for gradients until the session is closed.
    with tf.train.MonitoredSession(hooks=[hook], stop_grace_period_secs=0.1) as sess:
        for _ in range(3):
            sess.run(train)
        # The last step may be under way still; the two before it are done.
        assert sess.run(w) <= 1 - 2 * 0.2 + 1e-6


def test_a_runner_that_outlives_its_session_ends_quietly(monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    queue = tf.FIFOQueue(1, tf.float32)
    at_work = threading.Event()
    with tf.control_dependencies([tf.py_func(lambda: at_work.set() or 1.0, [], tf.double)]):
        wait = queue.dequeue()
    runner = tf.train.QueueRunner(queue, [wait], cancel_op=tf.no_op())
    coord = tf.train.Coordinator()
    session = tf.Session()
    threads = runner.create_threads(session, coord, daemon=True, start=True)
    assert at_work.wait(60)
    coord.request_stop()
    with pytest.raises(RuntimeError, match="stopped"):
        coord.join(threads, stop_grace_period_secs=0.01)
    session.close()
    for thread in threads:
        thread.join()
    assert not raised


def test_timeline():
    p = tf.placeholder(tf.float32)
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    with tf.Session() as sess:
        sess.run(p * 2, {p: 1.0}, options=options, run_metadata=metadata)
    from millrace.graph.timeline import Timeline

    trace = json.loads(Timeline(metadata.step_stats).generate_chrome_trace_format())
    assert any(event.get("args", {}).get("name") == "mul" for event in trace["traceEvents"])


def test_functions_of_a_library_are_those_of_the_build():
    from types import ModuleType

    from millrace.graph import op_library

    module = ModuleType("ops")
    op_library._add_functions(module, ["MatMul"])
    with tf.Session() as sess:
        assert sess.run(module.mat_mul([[2.0]], [[3.0]], transpose_b=True)) == [[6.0]]
    assert module.OP_LIST.op[0].name == "MatMul"
    with pytest.raises(tf.errors.NotFoundError):
        tf.load_op_library("./no_such_library.so")


def test_fed_tensors_can_be_fetched():
    p = tf.placeholder(tf.string)
    q = tf.placeholder(tf.float32)
    with tf.Session() as sess:
        assert sess.run(p, {p: [b"a\0", b"b"]}).tolist() == [b"a\0", b"b"]
        assert sess.run([q, q + 1], {q: 1.0}) == [1.0, 2.0]
        assert sess.run([]) == []
        assert sess.run([q + 1, p], {(q, (p,)): (2.0, ("x",))}) == [3.0, b"x"]


def test_updates_wait_for_all_gradients():
    with tf.Graph().as_default(), tf.Session() as session:
        x, unused = tf.Variable(2.0), tf.Variable(1.0)
        optimizer = tf.train.GradientDescentOptimizer(0.5)
        pairs = optimizer.compute_gradients(x * x, [x, unused], gate_gradients=2)
        assert pairs[1][0] is None
        train = optimizer.apply_gradients(pairs)
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run(x) == 0.0


def test_training_with_reference_variables_is_repeatable():
    """An update in place waits for the gradients that still read the variable."""

    def train():
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            x = tf.constant(np.random.RandomState(0).rand(64, 256), tf.float32)
            net = x
            for _ in range(4):
                net = tf.layers.dense(net, 256, tf.tanh)
            loss = tf.reduce_mean(tf.square(net - 0.5))
            step = tf.train.AdamOptimizer(0.01).minimize(loss)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                for _ in range(20):
                    session.run(step)
                return session.run(loss)

    assert len({train() for _ in range(4)}) == 1


def test_gates_leave_the_gradient_of_a_shared_weight_one_product():
    w = tf.get_variable("shared", [3, 3], initializer=tf.constant_initializer(0.1))
    y = tf.ones([2, 3])
    for _ in range(3):
        y = tf.tanh(tf.matmul(y, w))
    step = tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(y))
    results = []
    for off in ([], ["gates", "sums_of_products"]):
        config = tf.ConfigProto()
        config.graph_options.optimizer_options.disabled_passes.extend(off)
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            session.run(step)
            results.append(session.run(w))
            assert ("_SumOfMatMul" in session.explain(step)) == (not off)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
