"""Workers that read the parameters of their next step while they compute."""

import threading

import numpy as np
import pytest
from cluster_tasks import end, start
from ports import free_ports

import millrace.compat.v1 as tf
from millrace.distributed import BoundedStaleness, DistributedOptimizer, ReadAhead

KINDS = pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])


def ahead(getter=None, **options):
    return tf.variable_scope(
        tf.get_variable_scope(), custom_getter=getter or ReadAhead(), **options
    )


def initialize(session):
    session.run(tf.global_variables_initializer())
    session.run(tf.local_variables_initializer())


def targets(count, seed=7):
    return np.random.default_rng(seed).normal(size=(count, 1000)).astype(np.float32)


def delayed(goals):
    """The weights after each step, whose gradient is that of the weights before the last."""
    rate = np.float32(0.25)
    weights = [np.zeros(goals.shape[1], np.float32)] * 2
    for goal in goals:
        weights.append(weights[-1] - rate * (weights[-2] - goal))
    return weights[2:]


@KINDS
@pytest.mark.parametrize("parts", [1, 3])
def test_a_step_computes_with_what_the_one_before_has_read(resource, parts):
    goals = targets(100)
    with tf.Graph().as_default(), tf.Session() as session:
        cut = tf.fixed_size_partitioner(parts) if parts > 1 else None
        with ahead(use_resource=resource, partitioner=cut):
            w = tf.get_variable("w", [1000], initializer=tf.zeros_initializer())
        goal = tf.placeholder(tf.float32, [1000])
        loss = 0.5 * tf.reduce_sum(tf.square(w - goal))
        train = tf.train.GradientDescentOptimizer(0.25).minimize(loss)
        initialize(session)
        newest = tf.concat(tf.trainable_variables(), 0)
        assert len(tf.trainable_variables()) == len(tf.local_variables()) == parts
        for expected, value in zip(delayed(goals), goals, strict=True):
            session.run(train, {goal: value})
            np.testing.assert_array_equal(session.run(newest), expected)


@KINDS
def test_the_next_parameters_are_read_before_there_is_a_gradient(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        with ahead(use_resource=resource):
            w = tf.get_variable("w", initializer=1.0)
        data = tf.FIFOQueue(1, tf.float32, shapes=[[]])
        train = tf.train.GradientDescentOptimizer(1.0).minimize(w * data.dequeue())
        (copy,) = tf.local_variables()
        item = tf.placeholder(tf.float32, [])
        put, change = data.enqueue(item), w.assign(item)
        initialize(session)
        session.run(change, {item: 5.0})
        assert session.run(copy) == 1
        step = threading.Thread(target=session.run, args=(train,))
        step.start()
        # The step waits for its data meanwhile.
        while session.run(copy) != 5:
            pass
        session.run(put, {item: 2.0})
        step.join()
        assert session.run([w, copy]) == [3, 5]


def test_only_training_reads():
    with tf.Graph().as_default(), tf.Session() as session:
        with ahead():
            w = tf.get_variable("w", initializer=1.0)
        loss = w * 1.0
        train = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
        late = ReadAhead()  # of its own
        with ahead(late):
            other = tf.get_variable("other", initializer=1.0) + 0.0
        initialize(session)
        session.run([w.assign(5.0), tf.trainable_variables()[1].assign(5.0)])
        assert session.run([loss, loss, w, w.read_value()][1:]) == [1, 5, 5]
        session.run(train)
        assert session.run([loss, other, w]) == [5, 1, 4]


@KINDS
def test_one_run_may_initialize_everything(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        with ahead(use_resource=resource):
            w = tf.get_variable("w", [100])  # at random
        copied = tf.identity(w)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        np.testing.assert_array_equal(*session.run([w, copied]))


def test_a_variable_without_a_gradient_is_read_too():
    with tf.Graph().as_default(), tf.Session() as session:
        with ahead():
            w = tf.get_variable("w", initializer=1.0)
            fixed = tf.get_variable("fixed", initializer=1.0)
            loss = w * tf.stop_gradient(fixed)
            train = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
            later = tf.get_variable("later", initializer=1.0) * 1.0  # made after the gradients
        initialize(session)
        session.run([v.assign(3.0) for v in tf.trainable_variables()[1:]])
        assert session.run([loss, later]) == [1, 1]
        session.run(train)
        assert session.run([loss, later]) == [3, 3]


@KINDS
def test_all_else_is_of_the_variable(resource, tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        getter = ReadAhead()
        with ahead(getter, use_resource=resource):
            w = tf.get_variable("w", initializer=[1.0, 2.0], constraint=lambda v: v + 10.0)
            count = tf.get_variable("count", initializer=0, trainable=False)
        (real,) = tf.trainable_variables()
        assert w is not real and w == real and real == w and w in {real} and real in [w]
        assert count is tf.global_variables()[1]
        assert (w.name, w.op, w.device) == (real.name, real.op, real.device)
        average = tf.train.ExponentialMovingAverage(0.0)
        averaged = average.apply()
        train = tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(w), var_list=[w])
        saver = tf.train.Saver([w])
        initialize(session)
        session.run(train)
        # The constraint's value is the variable's, not the copy's.
        np.testing.assert_array_equal(session.run(w), [10, 11])
        np.testing.assert_array_equal(w.eval(), [10, 11])
        path = saver.save(session, str(tmp_path / "model"))
        np.testing.assert_array_equal(tf.train.load_variable(path, "w"), [10, 11])
        assert [name for name, _ in tf.train.list_variables(path)] == ["w"]
        session.run(averaged)
        np.testing.assert_array_equal(session.run(average.average(w)), [10, 11])
        session.run(tf.assign_add(w, [1.0, 1.0]))
        np.testing.assert_array_equal(session.run(real), [11, 12])
        with ahead(getter, reuse=True):
            assert tf.get_variable("w") is w


@KINDS
def test_rows_are_looked_up_where_they_are(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        with ahead(use_resource=resource):
            table = tf.get_variable("table", [4, 2], initializer=tf.ones_initializer())
        rows = tf.nn.embedding_lookup(table, [1, 1, 3])
        picked = tf.gather(table, [0])
        loss = tf.reduce_sum(rows) + tf.reduce_sum(picked)
        assert tf.local_variables() == []  # it is not read whole
        (gradient,) = tf.gradients(loss, tf.trainable_variables())
        assert isinstance(gradient, tf.IndexedSlices)
        # Beside a use as a whole the gradients add up.
        train = tf.train.GradientDescentOptimizer(1.0).minimize(loss + tf.reduce_sum(table * 2))
        initialize(session)
        session.run(train)
        np.testing.assert_array_equal(session.run(table)[:, 0], [-2, -3, -1, -2])


@KINDS
def test_gradients_pass_loops_branches_functions_and_rules(resource):
    with tf.Graph().as_default(), tf.Session() as session:

        @tf.custom_gradient
        def doubled(x):
            y = x * tf.get_variable("c", initializer=3.0)
            return y, lambda dy, variables: ([dy * 2.0], [dy * 7.0 for _ in variables])

        def body(i, x):
            return i + 1, x * tf.get_variable("a", initializer=2.0)

        with ahead(use_resource=resource, reuse=tf.AUTO_REUSE):
            _, cubed = tf.while_loop(lambda i, x: i < 3, body, (0, 1.0))
            chosen = tf.cond(
                tf.constant(True), lambda: 5.0 * tf.get_variable("b", initializer=1.0), lambda: 0.0
            )
            special = doubled(tf.constant(1.0))
        found = dict(
            zip(
                [v.op.name for v in tf.trainable_variables()],
                tf.gradients(cubed + chosen + special, tf.trainable_variables()),
                strict=True,
            )
        )
        initialize(session)
        assert len(tf.local_variables()) == 3
        assert session.run(found) == {"a": 12, "b": 5, "c": 7}


def test_layers_and_regularizers_see_what_was_read():
    with tf.Graph().as_default(), tf.Session() as session:
        getter = ReadAhead()
        x = tf.ones([1, 2])
        for _ in range(2):
            with ahead(getter, reuse=tf.AUTO_REUSE):
                tf.layers.dense(
                    x, 1, use_bias=False, name="layer",
                    kernel_initializer=tf.ones_initializer(), kernel_regularizer=tf.nn.l2_loss,
                )  # fmt: skip
        with ahead(getter):
            tf.get_variable("w", initializer=[2.0], regularizer=tf.nn.l2_loss)
        losses = tf.losses.get_regularization_losses()
        assert len(losses) == 2
        initialize(session)
        session.run([v.assign(v * 0.0) for v in tf.trainable_variables()])
        assert session.run(losses) == [1, 2]


def test_a_step_that_fails_leaves_parameters_for_the_next():
    with tf.Graph().as_default(), tf.Session() as session:
        with ahead():
            w = tf.get_variable("w", initializer=1.0)
        x = tf.placeholder(tf.float32, [])
        train = tf.train.GradientDescentOptimizer(1.0).minimize(w * tf.check_numerics(x, "x"))
        initialize(session)
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(train, {x: np.inf})
            session.run(train, {x: 1.0})
        assert session.run(w) == -2


def test_the_end_of_data_is_the_end():
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        data = tf.data.Dataset.range(3).make_one_shot_iterator().get_next()
        with ahead():
            w = tf.get_variable("w", initializer=0.0)
        loss = w * tf.cast(data, tf.float32)
        train = tf.train.GradientDescentOptimizer(1.0).minimize(loss, global_step=step)
        seen = []
        with tf.train.MonitoredTrainingSession() as session:
            while not session.should_stop():
                seen.append(session.run([step, train])[0])
        assert len(seen) == 3


def test_what_it_cannot_do_is_said():
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        with ahead():
            w = tf.get_variable("w", initializer=1.0)
        sync = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 1)
        with pytest.raises(ValueError, match="SyncReplicasOptimizer .* 'w:0' is read ahead"):
            sync.minimize(w * 1.0, global_step=step)
        with pytest.raises(ValueError, match="DistributedOptimizer .* 'w:0' is read ahead"):
            DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0)).minimize(w * 1.0)

        def cast(getter, *args, **kwargs):
            return tf.cast(getter(*args, **kwargs), tf.float16)

        with ahead(cast), ahead(), pytest.raises(TypeError, match="the getter inside gave"):
            tf.get_variable("v", initializer=1.0)


class Cluster:
    """A parameter server in a process of its own, and a worker here."""

    def __init__(self):
        first = free_ports(2)
        self.jobs = {"ps": [f"localhost:{first}"], "worker": [f"localhost:{first + 1}"]}
        self._start()
        self.worker = tf.train.Server(self.jobs, "worker", 0)

    def _start(self):
        text = ";".join(f"{job}={address}" for job, (address,) in self.jobs.items())
        self._ps = start("-m", "millrace", "server", "--cluster", text, "--job", "ps", "--task", 0)
        assert "listens" in self._ps.stdout.readline()

    def restart_server(self):
        end(self._ps)
        self._start()

    def end(self):
        self.worker.stop()
        end(self._ps)


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.end()


def on_worker():
    return tf.device(tf.train.replica_device_setter(1, worker_device="/job:worker/task:0"))


@KINDS
@pytest.mark.parametrize("bounded", [False, True])
def test_a_cluster_makes_the_same_steps(cluster, resource, bounded):
    goals = targets(30)
    with tf.Graph().as_default(), on_worker(), tf.Session(cluster.worker.target) as session:
        step = tf.train.get_or_create_global_step()
        with ahead(use_resource=resource):
            w = tf.get_variable("w", [1000], initializer=tf.zeros_initializer())
        goal = tf.placeholder(tf.float32, [1000])
        loss = 0.5 * tf.reduce_sum(tf.square(w - goal))
        optimizer = tf.train.GradientDescentOptimizer(0.25)
        if bounded:
            optimizer = BoundedStaleness(optimizer, 0)
        train = optimizer.minimize(loss, global_step=step)
        (copy,) = tf.local_variables()
        assert copy.device == "/job:worker/task:0" and w.device == "/job:ps/task:0"
        initialize(session)
        read = []
        for expected, value in zip(delayed(goals), goals, strict=True):
            session.run(train, {goal: value})
            weights, kept = session.run([w, copy])
            np.testing.assert_array_equal(weights, expected)
            read.append(kept)
        np.testing.assert_array_equal(read[1:], delayed(goals)[:-1])


def test_a_server_that_comes_back_is_read_anew(cluster, tmp_path):
    with tf.Graph().as_default(), on_worker():
        step = tf.train.get_or_create_global_step()
        with ahead():
            w = tf.get_variable("w", initializer=100.0)
        used = tf.identity(w)
        train = tf.train.GradientDescentOptimizer(1.0).minimize(used, global_step=step)
        with tf.train.MonitoredTrainingSession(
            cluster.worker.target, checkpoint_dir=str(tmp_path), save_checkpoint_steps=1000,
            save_summaries_steps=None, log_step_count_steps=None,
        ) as session:  # fmt: skip
            steps = [session.run([used, train])[0] for _ in range(5)]
            assert steps == [100, 100, 99, 98, 97]
            cluster.restart_server()
            # From the only checkpoint there is.
            steps = [session.run([used, train])[0] for _ in range(4)]
            assert steps == [100, 100, 99, 98]
